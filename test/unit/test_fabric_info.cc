// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>
#include <string>

#include "contrib/fabric_info/explain.h"
#include "contrib/fabric_info/fit.h"
#include "contrib/fabric_info/limits.h"
#include "contrib/fabric_info/report.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "test/unit/check_main.h"

namespace fabric::info {
namespace {

Question question(const char* list) {
  Question result;
  result.queues = *ReceiveQueues::parse(list);
  result.rdma_depth = 10;
  result.cq_size = 4096;
  return result;
}

START_TEST(p_queues_cost_every_peer) {
  const QueueNeeds needs = needs_of(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"), 0, {}, 0);
  ck_assert_uint_eq(needs.bytes_per_peer, 128 * 20);
  ck_assert_uint_eq(needs.bytes_per_process, 0);
  ck_assert_uint_eq(needs.receive_entries, 21);  // one for the handshake
  ck_assert_uint_eq(needs.send_entries, 22);     // and one for the marker
  ck_assert(!needs.carries_rdma);
}
END_TEST

START_TEST(p_queues_begin_with_less) {
  const QueueNeeds needs = needs_of(question("P,120,16,8,4,4,2:S,4088,32,8,4,8,2"), 0, {}, 0);
  ck_assert_uint_eq(needs.bytes_per_peer_at_first, 128 * 6);
  ck_assert_uint_eq(needs.bytes_per_peer, 128 * 20);
  ck_assert_uint_eq(needs.receive_entries, 21);
}
END_TEST

START_TEST(s_queues_cost_the_process) {
  const QueueNeeds needs = needs_of(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"), 1, {}, 0);
  ck_assert_uint_eq(needs.bytes_per_peer, 0);
  ck_assert_uint_eq(needs.bytes_per_process_at_first, 4096 * 8);
  ck_assert_uint_eq(needs.bytes_per_process, 4096 * 32);
  ck_assert_uint_eq(needs.send_entries, 4 + 10 + 1);
  ck_assert(needs.carries_rdma);
}
END_TEST

START_TEST(the_sums_are_sums) {
  const auto all = report(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"))["queues"];
  ck_assert_uint_eq(all["bytes_per_peer"].get<unsigned>(), 2560);
  ck_assert_uint_eq(all["bytes_per_process"].get<unsigned>(), 131072);
  ck_assert_uint_eq(all["completions_per_peer"].get<unsigned>(), cpc::kOwnSends + 2 + 21 + cpc::kOwnSends + 1);
  ck_assert_uint_eq(all["queues"].size(), 2);
  test::check_text(all["receive_queues"].get<std::string>(), "P,120,16,8,4,4,16:S,4088,32,8,4,8,2");
}
END_TEST

START_TEST(long_send_queues_share_completions) {
  const auto all = report(question("P,120,64,8,4,4:S,4088,320,8,80"))["queues"];
  ck_assert_uint_eq(all["queues"][0]["send_entries"].get<unsigned>(), 64 + 4 + 2);  // marker and handshake
  ck_assert_uint_eq(all["queues"][1]["send_entries"].get<unsigned>(), 80 + 10 + 1);
  const unsigned first = cpc::kOwnSends + 2 + 16 + 4 + 1;  // receives that a peer gets later do not count
  ck_assert_uint_eq(all["completions_per_peer"].get<unsigned>(), first + cpc::kOwnSends + 1);
}
END_TEST

START_TEST(queue_pairs_of_p_and_s_queues) {
  Question asked = question("P,120,16,8,4,4:S,4088,32,8,4,8,2");
  asked.hosts = 3;
  asked.node.processes = 4;
  const QueuePairCounts counts = queue_pairs_of(asked);
  ck_assert_uint_eq(counts.per_process, 11 * 2);
  ck_assert_uint_eq(counts.senders_per_process, 0);
  ck_assert_uint_eq(counts.targets_per_host, 0);
  ck_assert_uint_eq(counts.per_host, 4 * 22);
}
END_TEST

START_TEST(queue_pairs_of_x_queues) {
  Question asked = question("X,256,64:X,65536,16");
  asked.hosts = 3;
  asked.node.processes = 4;
  QueuePairCounts counts = queue_pairs_of(asked);
  ck_assert_uint_eq(counts.senders_per_process, 3);
  ck_assert_uint_eq(counts.per_process, 3);
  ck_assert_uint_eq(counts.targets_per_host, 12);
  ck_assert_uint_eq(counts.per_host, 4 * 3 + 12);
  asked.node.processes = 1;
  counts = queue_pairs_of(asked);
  ck_assert_uint_eq(counts.per_process, 2);
  ck_assert_uint_eq(counts.per_host, 2 + 2);
  const std::string text = as_text(report(asked));
  ck_assert_msg(text.find("3 hosts with 1 processes: 2 per process, 4 per host (2 of them shared by its processes)") !=
                    std::string::npos,
                "%s", text.c_str());
}
END_TEST

START_TEST(every_context_has_queue_pairs) {
  Question asked = question("P,120,16:S,4096,16");
  asked.hosts = 2;
  asked.node.processes = 2;
  const std::uint64_t one = queue_pairs_of(asked).per_process;
  asked.contexts.tx_ctx_cnt = 3;
  ck_assert_uint_eq(queue_pairs_of(asked).per_process, 3 * one);
  asked.contexts.rx_ctx_cnt = 2;  // these have them already
  ck_assert_uint_eq(queue_pairs_of(asked).per_process, 3 * one);
  asked.contexts.rx_ctx_cnt = 5;
  ck_assert_uint_eq(queue_pairs_of(asked).per_process, 5 * one);
}
END_TEST

START_TEST(operations_are_read_as_written) {
  const auto read = parse_operation("read:1048576");
  ck_assert(read && read->kind == RdmaKind::kRead && read->bytes == 1048576 && read->is_registered);
  const auto write = parse_operation("write:1:unregistered");
  ck_assert(write && write->kind == RdmaKind::kWrite && write->bytes == 1 && !write->is_registered);
  ck_assert(parse_operation("add:8") && parse_operation("swap:8"));
  const auto refusal = [](const char* text) {
    const auto operation = parse_operation(text);
    return operation ? std::string("accepted") : operation.error().text;
  };
  test::check_text(refusal("send:8"), "operation 'send:8': 'send' is none of write, read, add and swap");
  test::check_text(refusal("read"), "operation 'read': after the colon comes a number of bytes, at least 1");
  test::check_text(refusal("read:0"), "operation 'read:0': after the colon comes a number of bytes, at least 1");
  test::check_text(refusal("read:99999999999999999999"),
                   "operation 'read:99999999999999999999': after the colon comes a number of bytes, at least 1");
  test::check_text(refusal("add:4"), "operation 'add:4': an atomic is of 8 bytes");
  test::check_text(refusal("read:8:now"), "operation 'read:8:now': ':now' is not ':unregistered'");
}
END_TEST

/// The plans of a RoCE and of an iWARP port differ as the planner says.
START_TEST(plans_are_the_planners) {
  const Question asked = question("P,4096,16");
  const auto plan = [&](const char* text, Transport link) {
    return explain(asked, *parse_operation(text), {nullptr, link, 1U << 20, 64, 16}, DeviceCosts{});
  };
  test::check_text_has(plan("read:4194304", Transport::kRoce), "read of 4194304 bytes in 1 pieces: 4 requests");
  test::check_text_has(plan("write:64", Transport::kRoce), "inline");
  test::check_text_has(plan("write:4096:unregistered", Transport::kRoce), "1 temporary registrations");
  test::check_text_has(plan("write:4096", Transport::kIwarp), "the last reads back a byte");
  test::check_text_has(plan("add:8", Transport::kIwarp), "a message to the target's processor");
  test::check_text_has(plan("add:8", Transport::kRoce), "fetch and add of 8 bytes");
}
END_TEST

START_TEST(every_port_has_limits_with_reasons) {
  ibv_device_attr attributes{};
  ibv_port_attr state{};
  state.active_mtu = IBV_MTU_4096;
  state.max_msg_sz = 1U << 20;
  Question asked = question("P,120,16:S,65536,16");
  asked.wanted_inline = 256;
  asked.limits[Limit::kGet] = 4U << 20;
  nlohmann::ordered_json port;
  add_limits(port, state, Transport::kRoce, {&attributes, 64, RegistrationCost{}}, asked);
  ck_assert_uint_eq(port["limits"].size(), kLimits);
  const auto& inlined = port["limits"][0];
  ck_assert_uint_eq(inlined["value"].get<unsigned>(), 64);
  test::check_text(inlined["limit"].get<std::string>(), "max_inline_data");
  for (const auto& limit : port["limits"]) {
    ck_assert(!limit["reason"].get<std::string>().empty());
    if (limit["limit"] == "get_limit") {
      ck_assert_uint_eq(limit["value"].get<unsigned>(), 1U << 20);
      test::check_text_has(limit["reason"].get<std::string>(), "set by btl_fabric_get_limit, but the port's longest");
    }
    if (limit["limit"] == "max_send_size") {
      ck_assert_uint_eq(limit["value"].get<unsigned>(), 65528);
    }
  }
}
END_TEST

/// A job of `hosts` with `processes` each.
Question job(const char* list, std::int64_t hosts, std::int64_t processes) {
  Question asked = question(list);
  asked.hosts = hosts;
  asked.node.processes = processes;
  asked.is_fit_asked = true;
  return asked;
}

START_TEST(a_job_takes_queue_pairs_and_memory) {
  const Question asked = job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2);
  const JobNeeds needs = job_needs(asked, HostRoom{});
  ck_assert_uint_eq(needs.queue_pairs, 2 * 3 * 2);
  cpc::QueuePairSettings settings;
  settings.rdma_depth = asked.rdma_depth;
  const cpc::QueueDemand demand = cpc::queue_demand(asked.queues, Transport::kRoce, settings);
  ck_assert_uint_eq(needs.bytes_per_process, demand.bytes(3));
  const nlohmann::ordered_json told = as_json(asked, HostRoom{});
  ck_assert_uint_eq(told["per_connection"]["sum"].get<std::uint64_t>(), demand.per_peer.sum());
  ck_assert_uint_eq(told["per_connection"]["fragments"].get<std::uint64_t>(), 20 * cpc::kFragmentBytes);
  ck_assert_uint_eq(told["shared"]["sum"].get<std::uint64_t>(), demand.shared.sum());
  ck_assert_uint_eq(told["per_host"]["sum"].get<std::uint64_t>(), 0);
  Question twice = asked;  // a connection in each transmit context
  twice.contexts.tx_ctx_cnt = 2;
  ck_assert_uint_eq(job_needs(twice, HostRoom{}).bytes_per_process, demand.bytes(6));
  const Question of_hosts = job("X,1000,16,8,4:X,4000,32,8,4", 3, 2);
  const cpc::QueueDemand xrc = cpc::queue_demand(of_hosts.queues, Transport::kRoce, settings);
  ck_assert_uint_eq(job_needs(of_hosts, HostRoom{}).bytes_per_process,
                    xrc.shared.sum() + 3 * xrc.per_host.sum() + 5 * xrc.per_peer.sum());
  HostRoom iwarp;
  iwarp.has_shared_queues = false;  // they are run as P queues
  ck_assert_uint_gt(job_needs(job("S,4000,32,8,4", 2, 20), iwarp).bytes_per_process,
                    job_needs(job("S,4000,32,8,4", 2, 20), HostRoom{}).bytes_per_process);
}
END_TEST

START_TEST(a_job_that_fits_needs_no_other_list) {
  HostRoom room;
  room.queue_pairs = 12;
  ck_assert(judge(job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2), room).shortfalls.empty());
  room.queue_pairs = 11;
  const Verdict verdict = judge(job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2), room);
  ck_assert_uint_eq(verdict.shortfalls.size(), 1);
  ck_assert_str_eq(verdict.shortfalls[0].c_str(), "12 queue pairs on each host, and the device has 11");
  ck_assert_str_eq(verdict.instead.c_str(), "S,12288,1024,1008,64");
  ck_assert(verdict.is_cached);
  room.queue_pairs = 7;  // 3 for each process, and two connections have 4
  ck_assert(!judge(job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2), room).is_cached);
  Question asked = job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2);
  asked.memory = 1;
  room.queue_pairs = 11;
  ck_assert(!judge(asked, room).is_cached);
}
END_TEST

/// A device that cannot run the queues at all is no room for a job, however small.
START_TEST(queues_that_cannot_be_run_do_not_fit) {
  HostRoom room;
  room.queue_pairs = 1000;
  room.queues = {64, 64, 4096, 1U << 20, 1};
  const Question asked = job("P,128,256", 2, 1);
  const Verdict verdict = judge(asked, room);
  ck_assert_uint_eq(verdict.shortfalls.size(), 1);
  test::check_text_has(verdict.shortfalls[0], "the device takes 64 work requests per queue pair");
  ck_assert(!verdict.is_cached);
  ck_assert(!verdict.instead.empty());
  ck_assert(judge(job(verdict.instead.c_str(), 2, 1), room).shortfalls.empty());
  ck_assert(!as_json(asked, room)["fits"].get<bool>());
  room.queues->max_qp_wr = 1024;
  ck_assert(as_json(asked, room)["fits"].get<bool>());
}
END_TEST

/// What is chosen follows the device, as in the component.
START_TEST(chosen_queues_follow_the_room) {
  Question asked = job("S,4000,32,8,4", 2, 4);
  asked.are_queues_chosen = true;
  const auto count = [&](std::int64_t pairs) { return chosen_queues(asked, Transport::kRoce, pairs, {}, 64).count(); };
  ck_assert_uint_eq(count(28), 4);
  ck_assert_uint_eq(count(27), 3);
  ck_assert_uint_eq(count(20), 1);
  asked.hosts = 20;
  ck_assert_uint_eq(count(10'000), 3);
  const auto with_xrc = [&](std::int64_t pairs) {
    return chosen_queues(asked, Transport::kRoce, pairs, {}, 64, true).has_xrc();
  };
  ck_assert(with_xrc(42) && !with_xrc(41) && !with_xrc(79));  // 20 hosts, 2 queue pairs for each, and some for others
}
END_TEST

/// Over a grid of jobs and devices: never over a limit.
START_TEST(what_is_proposed_fits) {
  int proposals = 0;
  int none = 0;
  for (const std::int64_t hosts : {2, 16, 100}) {
    for (const std::int64_t processes : {1, 16, 128}) {
      for (const std::uint64_t pairs : {100, 16'000, 262'144, 10'000'000}) {
        for (const std::uint64_t memory : {0, 4 << 20, 64 << 20, 1 << 30}) {
          for (const bool has_xrc : {false, true}) {
            Question asked = job("P,128,256,192,128:S,2048,1024,1008,64:S,65536,512,448,64", hosts, processes);
            asked.memory = memory;
            HostRoom room;
            room.queue_pairs = pairs;
            room.has_xrc = has_xrc;
            const Verdict verdict = judge(asked, room);
            if (verdict.instead.empty()) {
              none += verdict.shortfalls.empty() ? 0 : 1;
              continue;
            }
            ++proposals;
            ck_assert(!verdict.shortfalls.empty());
            asked.queues = ReceiveQueues::parse(verdict.instead).value();
            ck_assert(has_xrc || !asked.queues.has_xrc());
            const JobNeeds needs = job_needs(asked, room);
            ck_assert(needs.queue_pairs <= pairs && (memory == 0 || needs.bytes_per_process <= memory));
          }
        }
      }
    }
  }
  ck_assert_int_gt(proposals, 20);
  ck_assert_int_gt(none, 0);
}
END_TEST

START_TEST(the_verdict_ends_the_text) {
  Question asked = job("P,1000,16,8,4,4:S,4000,32,8,4", 2, 2);
  asked.memory = 1000;
  nlohmann::ordered_json told = report(asked);
  told["devices"] = nlohmann::ordered_json::array();  // those of this host do not matter
  ck_assert(
      !fits(told = {{"devices", told["devices"]}, {"queues", told["queues"]}, {"fit", as_json(asked, HostRoom{})}}));
  const std::string text = as_text(told);
  ck_assert_ptr_nonnull(std::strstr(text.c_str(), "it does not fit\n"));
  test::check_text_has(text, "    each connection ");
  test::check_text_has(text, "    shared by all ");
  ck_assert_ptr_null(std::strstr(text.c_str(), "each host "));  // that is of X queues
  ck_assert_ptr_nonnull(std::strstr(text.c_str(), " bytes in each process, and 1000 are allowed\n"));
  asked.memory = 0;
  told["fit"] = as_json(asked, HostRoom{});
  ck_assert(fits(told));
  ck_assert_ptr_nonnull(std::strstr(as_text(told).c_str(), ": it fits\n"));
  told["devices"].push_back({{"device", "broken0"}, {"error", "it cannot be opened"}});
  ck_assert(!fits(told));
}
END_TEST

START_TEST(text_has_the_numbers) {
  const auto all = report(question("P,120,16,8,4,4"));
  const std::string text = as_text(all);
  test::check_text_has(text, "2560");
  test::check_text_has(text, "P,120,16,8,4,4");
}
END_TEST

}  // namespace
}  // namespace fabric::info

int main() {
  using namespace fabric;
  using namespace fabric::info;
  return test::run_suite(
      "fabric_info",
      {p_queues_cost_every_peer, p_queues_begin_with_less, s_queues_cost_the_process, the_sums_are_sums,
       long_send_queues_share_completions, queue_pairs_of_p_and_s_queues, queue_pairs_of_x_queues,
       every_context_has_queue_pairs, operations_are_read_as_written, plans_are_the_planners,
       every_port_has_limits_with_reasons, a_job_takes_queue_pairs_and_memory, a_job_that_fits_needs_no_other_list,
       queues_that_cannot_be_run_do_not_fit, chosen_queues_follow_the_room, what_is_proposed_fits,
       the_verdict_ends_the_text, text_has_the_numbers});
}
