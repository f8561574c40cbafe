// SPDX-License-Identifier: BSD-3-Clause
//
// What the report at the end of a job says.
#include <algorithm>
#include <string>

#include "btl_fabric/mca/job_report.h"
#include "btl_fabric/mca/wait_advice.h"
#include "test/unit/check_main.h"

using fabric::as_json;
using fabric::as_text;
using fabric::JobReport;
using fabric::ProcessReport;
using fabric::test::check_text;

namespace {

constexpr const char* kStarved = "P,256,2,1,2,2,2";
constexpr const char* kLarge = "S,65536,512,448,64,128,24";

ProcessReport process(std::uint32_t rank, const std::string& host = "node1") {
  ProcessReport report;
  report.rank = rank;
  report.host = host;
  report.version = "0.1.0";
  report.open_mpi = "4.1.4";
  report.receive_queues = std::string(kStarved) + ":" + kLarge;
  report.why = "as btl_fabric_receive_queues says";
  fabric::ReportedPort& port = report.ports.emplace_back();
  port.name = "mlx5_0:1";
  port.address.link = fabric::Transport::kRoce;
  port.address.mtu = 5;
  port.address.roce = 2;
  port.mbit = 100000;
  report.queues = {{kStarved, {}}, {kLarge, {}}};
  return report;
}

/// Of `count` processes on two hosts.
JobReport job(std::uint32_t count) {
  JobReport made;
  made.processes = count;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    made.reports.push_back(process(rank, rank < count / 2 ? "node1" : "node2"));
  }
  return made;
}

void waits_for_credit(ProcessReport& report, std::uint64_t count) {
  report.counters["waits_for_credit"] = count;
  report.queues[0].waits.for_credit = count;
}

void says(const JobReport& of, const std::string& what) {
  fabric::test::check_text_has(as_text(as_json(of)), what);
}

void says_not(const JobReport& of, const std::string& what) {
  const std::string text = as_text(as_json(of));
  ck_assert_msg(text.find(what) == std::string::npos, "unexpected: %s\n%s", what.c_str(), text.c_str());
}

}  // namespace

START_TEST(what_a_process_tells_arrives) {
  ProcessReport sent = process(3);
  waits_for_credit(sent, 17);
  sent.methods["oob"] = 4;
  sent.slowest = {{1, 5}, std::chrono::microseconds(1234)};
  sent.limits["btl_fabric_eager_limit"] = 12288;
  sent.settings = {{"btl_fabric_mtu", "4096", "file", "/etc/mca.conf"}};
  sent.sizes.reads[fabric::size_class(70000)] = 8;
  sent.sizes.peers[fabric::kSizeClasses - 1] = 9;
  const auto got = fabric::decode_process_report(encode(sent));
  ck_assert_msg(got.has_value(), "%s", got ? "" : got.error().text.c_str());
  ck_assert_uint_eq(got->rank, 3);
  check_text(got->host, "node1");
  ck_assert(got->ports == sent.ports && got->counters == sent.counters && got->methods == sent.methods);
  ck_assert_uint_eq(got->queues.at(0).waits.for_credit, 17);
  check_text(got->queues.at(0).spec, kStarved);
  ck_assert(got->limits == sent.limits && got->settings == sent.settings && got->sizes == sent.sizes);
  ck_assert(got->slowest->peer == sent.slowest->peer);
  ck_assert_int_eq(got->slowest->took.count(), 1234);
}
END_TEST

/// Peers of rank 0 of the other host, whose port has this GID.
fabric::ReportedPath path_to(std::vector<fabric::PathPeer> peers, std::uint8_t gid) {
  fabric::ReportedPath path;
  path.way.port = "mlx5_0:1";
  path.way.peer_gid.raw[15] = gid;
  path.way.method = "oob";
  path.way.mtu = 4096;
  path.way.queue_pairs = 4;
  path.peers = std::move(peers);
  return path;
}

START_TEST(paths_arrive) {
  ProcessReport sent = process(0);
  sent.paths = {path_to({{1, 1000}, {2, UINT64_MAX}}, 7), path_to({{1, 0}}, 9)};
  sent.paths[1].way.are_shared = sent.paths[1].way.is_of_another_job = true;
  const auto got = fabric::decode_process_report(encode(sent));
  ck_assert_msg(got.has_value(), "%s", got ? "" : got.error().text.c_str());
  ck_assert(got->paths == sent.paths);
}
END_TEST

START_TEST(paths_are_told_with_the_peers_host_and_port) {
  JobReport four = job(4);
  for (ProcessReport& one : four.reports) {
    one.ports[0].address.gid.raw[15] = one.host == "node1" ? 6 : 7;
  }
  four.reports[3].ports[0].name = "rxe0:1";
  four.reports[0].paths = {path_to({{1, 10}, {2, 20}, {3, 30}}, 7), path_to({{9, 0}}, 1)};
  four.reports[0].paths[1].way.is_of_another_job = true;
  const auto paths = as_json(four)["paths"];
  ck_assert_uint_eq(paths.size(), 4);  // rank 1 has no port with that GID
  check_text(paths[0]["peer_port"].dump() + paths[0]["peers"].dump(), "null[1]");
  check_text(paths[1]["peer_host"].dump() + paths[1]["peer_port"].dump(), R"("node2""mlx5_0:1")");
  check_text(paths[1]["peers"].dump() + paths[1]["bytes"].dump(), "[2][20]");
  check_text(paths[2]["peer_port"].dump() + paths[2]["peer_gid"].dump(), R"("rxe0:1""::7")");
  check_text(paths[3]["peer_host"].dump() + paths[3]["peers_are_of_another_job"].dump(), "nulltrue");
}
END_TEST

START_TEST(what_makes_no_sense_is_refused) {
  for (const char* text : {"", "{", "[]", "1", "{}", R"({"rank": "x"})"}) {
    ck_assert_msg(!fabric::decode_process_report(text).has_value(), "%s", text);
  }
  std::string without_ports = encode(process(0));
  without_ports.replace(without_ports.find("\"ports\""), 7, "\"parts\"");
  ck_assert(!fabric::decode_process_report(without_ports).has_value());
}
END_TEST

START_TEST(a_host_name_may_be_anything) {
  ProcessReport strange = process(0, "node\xff\"\n");
  const auto got = fabric::decode_process_report(encode(strange));
  ck_assert(got.has_value());
}
END_TEST

START_TEST(a_job_that_has_sent_nothing) {
  const JobReport silence = job(2);
  says(silence, "2 processes on 2 hosts");
  says(silence, "nothing was sent");
  says(silence, "nobody waited");
  says(silence, "connections   none");
  says_not(silence, "slowest");
}
END_TEST

START_TEST(what_it_ran_on) {
  JobReport four = job(4);
  four.reports[0].methods["oob"] = 3;
  four.reports[3].methods["oob"] = 3;
  four.reports[2].slowest = {{0, 0}, std::chrono::microseconds(12345)};
  four.reports[1].slowest = {{0, 3}, std::chrono::microseconds(345)};
  says(four, "btl_fabric 0.1.0, Open MPI 4.1.4");
  says(four, "node1, mlx5_0:1: RoCE v2, MTU 4096, 100.0 Gbit/s, GID ");
  says(four, "(ranks 0-1)");
  says(four, "node2 (ranks 2-3)");
  says(four, std::string(kStarved) + ":" + kLarge + ": as btl_fabric_receive_queues says");
  says(four, "by oob 6");
  says(four, "the slowest took 12.3 ms: rank 2 on node2 with rank 0\n");
  four.reports[2].slowest->peer.job = 1;
  says(four, "the slowest took 12.3 ms: rank 2 on node2 with rank 0 of another job\n");
}
END_TEST

START_TEST(sums_with_the_words_of_the_table) {
  JobReport two = job(2);
  two.reports[0].counters["messages_sent_inline"] = 1000000;
  two.reports[1].counters["messages_sent_inline"] = 234567;
  says(two, "1,234,567  messages_sent_inline");
  says(two, fabric::kCounterTable[0].help);
  says_not(two, "rdma_striped");
  ck_assert_uint_eq(as_json(two)["totals"]["messages_sent_inline"].get<std::uint64_t>(), 1234567);
  ck_assert_uint_eq(as_json(two)["ranks"][1]["counters"]["messages_sent_inline"].get<std::uint64_t>(), 234567);
}
END_TEST

START_TEST(sizes_are_summed_by_class) {
  JobReport two = job(2);
  for (ProcessReport& one : two.reports) {
    for (const std::uint64_t size : {0, 1, 64, 65, 128}) {
      ++one.sizes.messages[fabric::size_class(size)];
    }
    one.sizes.peers[3] = one.rank;
  }
  two.reports[1].sizes.reads[fabric::size_class(UINT64_MAX)] = 7;
  const auto sizes = as_json(two)["sizes"];
  const auto wanted = nlohmann::ordered_json::parse(
      R"([{"up_to": 1, "count": 4}, {"up_to": 64, "count": 2}, {"up_to": 128, "count": 4}])");
  check_text(sizes["messages"].dump(), wanted.dump());
  ck_assert(sizes["writes"].empty());
  ck_assert_uint_eq(sizes["most_peers"].get<unsigned>(), 1);
  two.reports[0].sizes.messages[7] += 10;
  says(two, "sizes         20 messages of up to 128 B, 14 of them of 64 B to 128 B\n");
  says(two, "7 reads of up to 1024 GiB, ");
}
END_TEST

START_TEST(settings_are_told_with_whom_they_are_of) {
  JobReport two = job(2);
  two.reports[1].settings = {{"btl_fabric_mtu", "4096", "file", "/etc/mca.conf"}};
  const auto settings = as_json(two)["settings"];
  ck_assert_uint_eq(settings.size(), 1);
  check_text(settings[0].dump(),
             R"({"name":"btl_fabric_mtu","value":"4096","source":"file","file":"/etc/mca.conf","ranks":[1]})");
}
END_TEST

START_TEST(who_waited_most_is_named_with_what_helps) {
  JobReport eight = job(8);
  for (ProcessReport& one : eight.reports) {
    waits_for_credit(one, one.rank * 100);
  }
  says(eight, std::string("waits_for_credit: 2,800, most of them on queue ") + kStarved);
  says(eight, "worst: rank 7 on node2, 700; rank 6 on node2, 600; rank 5 on node2, 500; and 4 other processes");
  says(eight, "what helps: btl_fabric_receive_queues: raise rd_num");
  const auto json = as_json(eight);
  check_text(json["waits"][0]["counter"].get<std::string>(), "waits_for_credit");
  check_text(json["waits"][0]["queue"].get<std::string>(), kStarved);
  ck_assert_uint_eq(json["waits"][0]["worst"][0]["rank"].get<unsigned>(), 7);
}
END_TEST

START_TEST(few_waits_need_no_advice) {
  JobReport two = job(2);
  two.reports[0].counters["messages_sent_inline"] = 100000;
  waits_for_credit(two.reports[1], 99);
  says(two, "too few to matter: waits_for_credit 99");
  says_not(two, "what helps");
  waits_for_credit(two.reports[1], 100);
  says(two, "what helps: btl_fabric_receive_queues");
  two.reports[0].counters["messages_sent_inline"] = 1;
  waits_for_credit(two.reports[1], 4);
  says(two, "too few to matter: waits_for_credit 4");
}
END_TEST

START_TEST(the_worst_wait_comes_first) {
  JobReport two = job(2);
  two.reports[0].counters["rdma_queued"] = 5;
  two.reports[1].counters["waits_for_buffer"] = 50;
  two.reports[1].counters["registrations_at_limit"] = 500;
  const auto waits = as_json(two)["waits"];
  ck_assert_uint_eq(waits.size(), 3);
  check_text(waits[0]["counter"].get<std::string>(), "registrations_at_limit");
  check_text(waits[2]["parameter"].get<std::string>(), "btl_fabric_rdma_depth");
}
END_TEST

START_TEST(who_is_missing_is_told) {
  JobReport eight = job(8);
  eight.silent = {3, 5, 6, 7};
  eight.without = {4};
  eight.reports.resize(3);
  says(eight, "no answer     from ranks 3, 5-7");
  says(eight, "without       rank 4:");
  says_not(eight, "told by");
  eight.reporter = 1;
  says(eight, "told by       rank 1");
  ck_assert_uint_eq(as_json(eight)["silent"].size(), 4);
  eight.is_of_one = true;
  says(eight, "of itself alone: ");
}
END_TEST

START_TEST(a_large_job_is_a_page) {
  JobReport large = job(0);
  large.processes = 1000;
  for (std::uint32_t rank = 0; rank < 1000; ++rank) {
    large.reports.push_back(process(rank, "node" + std::to_string(rank)));
  }
  says(large, "... and 984 more");
  const std::string text = as_text(as_json(large));
  ck_assert_uint_lt(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), 60);
}
END_TEST

START_TEST(every_wait_of_a_queue_has_a_name) {
  for (const fabric::WaitAdvice& advice : fabric::kWaitAdvice) {
    ck_assert_uint_lt(index_of(advice), fabric::kCounterTable.size());
    JobReport one = job(2);
    one.reports[1].counters[counter_of(advice).name] = 7;
    if (advice.of_queue != nullptr) {
      one.reports[1].queues[1].waits.*advice.of_queue = 7;
      says(one, std::string("on queue ") + kLarge);
    }
    says(one, std::string(advice.parameter) + ": " + std::string(advice.advice));
  }
}
END_TEST

int main() {
  return fabric::test::run_suite(
      "job_report",
      {what_a_process_tells_arrives, paths_arrive, paths_are_told_with_the_peers_host_and_port,
       what_makes_no_sense_is_refused, a_host_name_may_be_anything, a_job_that_has_sent_nothing, what_it_ran_on,
       sums_with_the_words_of_the_table, sizes_are_summed_by_class, settings_are_told_with_whom_they_are_of,
       who_waited_most_is_named_with_what_helps, few_waits_need_no_advice, the_worst_wait_comes_first,
       who_is_missing_is_told, a_large_job_is_a_page, every_wait_of_a_queue_has_a_name});
}
