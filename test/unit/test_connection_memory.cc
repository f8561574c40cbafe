// SPDX-License-Identifier: BSD-3-Clause
//
// What connections take of a process's memory: by part, as it is reckoned, and the level that tells what there is now.
#include "btl_fabric/base/connection_memory.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {
namespace {

using cpc::MemoryParts;

constexpr std::uint32_t kInline = 128;
constexpr const char* kMixed = "P,256,16,8,8,2,2:S,4096,32,16,4,16,2";

/// As the bench runs its links.
cpc::QueuePairSettings settings() {
  cpc::QueuePairSettings made;
  made.max_inline = kInline;
  made.rdma_depth = 4;
  return made;
}

MemoryParts at_first(const ReceiveQueues& queues) {
  MemoryParts sum = cpc::connection_memory();
  for (std::size_t i = 0; i < queues.count(); ++i) {
    sum += cpc::queue_memory(queues, i, Transport::kInfiniBand, settings());
  }
  return sum;
}

/// A message of a peer that had to wait for a credit.
void make_it_grow(PathBench& bench, Link& link) {
  std::vector<std::byte> bytes(PacketHeader::kSize + 8);
  PacketHeader{PacketKind::kMessage, PathBench::kTag, {}, PacketHeader::kShortOfCredits}.write(bytes.data());
  bench.device.receive(bench.pair(link), bytes);
  bench.path->progress();
}

/// Ends a link, and its queue pairs with it.
void take_down(PathBench& bench, Link& link) {
  bench.close(link);
  link.post_drain_markers();
  for (std::size_t i = 0; i < link.queues().size(); ++i) {
    bench.device.flush(bench.pair(link, i));
  }
  while (bench.path->progress() > 0) {
  }
  ck_assert(link.is_drained());
}

}  // namespace

START_TEST(every_part_is_counted) {
  const ReceiveQueues queues = ReceiveQueues::parse(kMixed).value();
  const MemoryParts own = cpc::queue_memory(queues, 0, Transport::kInfiniBand, settings());
  ck_assert_uint_eq(own.receive_buffers, 4 * 320);  // 256 bytes, and a header, in cache lines
  ck_assert_uint_eq(own.fragments, 4 * cpc::kFragmentBytes);
  ck_assert_uint_eq(own.registrations, 4 * 16);
  ck_assert_uint_eq(own.receive_entries, (18 + 1) * 64);
  ck_assert_uint_ge(own.send_entries, (18 + 2) * 64);
  ck_assert_uint_ge(own.completion_entries, (4 + 1 + 8) * 64);
  ck_assert_uint_eq(own.objects, cpc::kQueueBytes);
  ck_assert_uint_eq(own.sum(), own.receive_buffers + own.fragments + own.send_entries + own.receive_entries +
                                   own.completion_entries + own.objects + own.registrations);
  const MemoryParts shared = cpc::queue_memory(queues, 1, Transport::kInfiniBand, settings());
  ck_assert_uint_eq(shared.receive_buffers + shared.fragments + shared.registrations + shared.receive_entries, 0);
  ck_assert_uint_gt(shared.send_entries, 0);
  const MemoryParts later = cpc::growth_memory(queues[0], 14);
  ck_assert_uint_eq(later.sum(), 14 * (320 + cpc::kFragmentBytes + 16 + 64));
  const MemoryParts of_all = cpc::shared_memory(queues[1]);
  ck_assert_uint_eq(of_all.receive_buffers, 32 * 4160);
  ck_assert_uint_eq(of_all.receive_entries + of_all.completion_entries, 32 * 2 * 64);
  ck_assert(cpc::shared_memory(queues[0]) == MemoryParts{});
}
END_TEST

/// The choice of queues reckons with the same.
START_TEST(the_choice_goes_by_the_sum) {
  const ReceiveQueues queues = ReceiveQueues::parse(kMixed).value();
  const cpc::QueueDemand demand = cpc::queue_demand(queues, Transport::kInfiniBand, settings());
  MemoryParts grown = at_first(queues);
  grown += cpc::growth_memory(queues[0], 14);
  ck_assert(demand.per_peer == grown && demand.per_host == MemoryParts{});
  ck_assert(demand.shared == cpc::shared_memory(queues[1]));
  ck_assert_uint_eq(demand.bytes(3), 3 * grown.sum() + demand.shared.sum());
  const ReceiveQueues xrc = ReceiveQueues::parse("X,256,8,4,4:X,4096,8,4,4").value();
  const cpc::QueueDemand of_hosts = cpc::queue_demand(xrc, Transport::kInfiniBand, settings());
  ck_assert(of_hosts.per_peer == cpc::connection_memory() && of_hosts.queue_pairs_per_peer == 0);
  ck_assert(of_hosts.per_host == cpc::host_memory(xrc, settings()));
  ck_assert_uint_gt(of_hosts.per_host.send_entries, 8 * 64);
}
END_TEST

START_TEST(the_level_is_the_sum_of_the_links) {
  ck_assert_uint_eq(connection_memory_now, 0);
  PathBench bench({.queues = kMixed, .max_inline = kInline});
  const std::uint64_t one = at_first(bench.queues_).sum();
  for (std::uint64_t count = 1; count <= 3; ++count) {
    (void)bench.connect();
    ck_assert_uint_eq(connection_memory_now, count * one);
  }
  for (const auto& link : bench.links) {
    take_down(bench, *link);
  }
  ck_assert_uint_eq(connection_memory_now, 3 * one);  // their queue pairs are there
  bench.links.pop_back();
  ck_assert_uint_eq(connection_memory_now, 2 * one);
  bench.links.clear();
  ck_assert_uint_eq(connection_memory_now, 0);
}
END_TEST

START_TEST(the_level_grows_with_a_queue) {
  {
    PathBench bench({.queues = kMixed, .max_inline = kInline});
    Link& link = bench.connect();
    std::uint64_t expected = at_first(bench.queues_).sum();
    for (const std::uint32_t added : {2U, 4U, 8U, 0U}) {
      make_it_grow(bench, link);
      expected += cpc::growth_memory(bench.queues_[0], added).sum();
      ck_assert_uint_eq(connection_memory_now, expected);
    }
    ck_assert_uint_eq(expected, cpc::queue_demand(bench.queues_, Transport::kInfiniBand, settings()).per_peer.sum());
    take_down(bench, link);
  }
  ck_assert_uint_eq(connection_memory_now, 0);
}
END_TEST

/// All of a host's share one queue pair, which stays when they go.
START_TEST(the_level_has_what_x_queues_share_once) {
  {
    PathBench bench({.queues = "X,256,8,4,4:X,4096,8,4,4", .max_inline = kInline});
    const std::uint64_t host = cpc::host_memory(bench.queues_, settings()).sum();
    cpc::XrcPath way_out;
    way_out.sender = 1;
    way_out.queue_pair = &bench.device.make_queue_pair().verbs;
    SharedSendQueue& sends = bench.path->sender(way_out);
    ck_assert_uint_eq(connection_memory_now, host);
    for (std::uint32_t target = 1; target <= 3; ++target) {
      (void)bench.share(sends, 0x500 + target);
      ck_assert_uint_eq(connection_memory_now, host + target * cpc::connection_memory().sum());
    }
    for (const auto& link : bench.links) {
      bench.close(*link);
    }
    bench.links.clear();
    ck_assert_uint_eq(connection_memory_now, host);
  }
  ck_assert_uint_eq(connection_memory_now, 0);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("connection_memory",
                   {every_part_is_counted, the_choice_goes_by_the_sum, the_level_is_the_sum_of_the_links,
                    the_level_grows_with_a_queue, the_level_has_what_x_queues_share_once});
}
