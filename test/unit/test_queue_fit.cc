// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <string>

#include "cpc/queue_pairs/queue_fit.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

constexpr const char* kDefault = "P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64";
constexpr DeviceRoom kLarge{32768, 32768, 4194303, 1U << 30, 100000};

QueuePairSettings settings(std::uint32_t rdma_depth = 64) {
  QueuePairSettings result;
  result.rdma_depth = rdma_depth;
  return result;
}

Result<QueueFit> fit(const char* list, const DeviceRoom& device, std::uint32_t cq_size = 8192,
                     std::uint32_t peers = 4) {
  return fit_queues(*ReceiveQueues::parse(list), Transport::kRoce, settings(), cq_size, peers, device);
}

START_TEST(a_large_device_changes_nothing) {
  const auto all = fit(kDefault, kLarge);
  ck_assert(all.has_value());
  test::check_text(all->queues.canonical(), ReceiveQueues::parse(kDefault)->canonical());
  ck_assert_uint_eq(all->rdma_depth, 64);
  ck_assert_uint_eq(all->cq_entries, 8192);
  ck_assert_uint_eq(all->last_cq_entries, 8192);
  ck_assert_uint_eq(all->most_cqs, CompletionQueueSet::kMaxQueues);
  test::check_text(explain(all->changes), "");
}
END_TEST

START_TEST(shared_queues_get_fewer_receives) {
  DeviceRoom device = kLarge;
  device.max_srq_wr = 512;
  const auto all = fit(kDefault, device);
  ck_assert(all.has_value());
  test::check_text(
      all->queues.canonical(),
      "P,128,256,192,128,4,16:S,2048,512,504,64,128,24:S,12288,512,504,64,128,24:S,65536,512,448,64,128,24");
  test::check_text(explain(all->changes),
                   "rd_num of queue 1: 512 (1024 were asked for, and the device takes 512 receives per shared queue); "
                   "rd_num of queue 2: 512 (1024 were asked for, and the device takes 512 receives per shared queue)");
}
END_TEST

START_TEST(completion_queues_limit_the_shared_receives) {
  DeviceRoom device = kLarge;
  device.max_cqe = 1024;
  const auto all = fit(kDefault, device);
  ck_assert(all.has_value());
  ck_assert_uint_eq(all->cq_entries, 1024);
  std::uint32_t shared = 0;
  for (const QueueSpec& spec : all->queues.queues()) {
    shared += spec.kind == QueueKind::kShared ? spec.rd_num : 0;
  }
  const QueueDepths first = queue_depths(all->queues, 0, Transport::kRoce, settings());
  ck_assert_uint_le(shared + first.completions().own, 1024);
  ck_assert_uint_gt(shared, 480);
}
END_TEST

START_TEST(a_completion_queue_that_is_too_small_is_made_larger) {
  const auto all = fit("P,4096,64:S,65536,100", kLarge, 16);
  ck_assert(all.has_value());
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < all->queues.count(); ++i) {
    most = std::max(most, queue_depths(all->queues, i, Transport::kRoce, settings()).completions().own);
  }
  ck_assert_uint_ge(most, 16 + kOwnSends);  // the other receives are found room for when they are posted
  ck_assert_uint_eq(all->cq_entries, most + 100);
  test::check_text_has(explain(all->changes), "16 were asked for, but a queue pair");
}
END_TEST

START_TEST(rdma_goes_down_before_messages) {
  DeviceRoom device = kLarge;
  device.max_qp_wr = 100;
  const auto all = fit("S,65536,512,448,64", device);
  ck_assert(all.has_value());
  ck_assert_uint_eq(all->rdma_depth, 34);  // one for the marker, one for the handshake
  ck_assert_uint_eq(all->queues[0].sd_max, 64);
  device.max_qp_wr = 40;
  const auto less = fit("S,65536,512,448,64", device);
  ck_assert(less.has_value());
  ck_assert_uint_eq(less->rdma_depth, 1);
  ck_assert_uint_eq(less->queues[0].sd_max, 37);
}
END_TEST

/// A list may ask for more sends than any device has, and more than 32 bits count together.
START_TEST(sends_beyond_all_devices_are_lowered) {
  for (const std::uint32_t sends : {4294967295U, 4294967294U, 4294967230U, 2147483648U, 65536U}) {
    for (const char* const kind : {"S", "X"}) {
      const std::string list = std::string(kind) + ",2048,1024,," + std::to_string(sends) + ":" + kind +
                               ",65536,512,," + std::to_string(sends);
      const auto all = fit(list.c_str(), kLarge);
      ck_assert_msg(all.has_value(), "%s: %s", list.c_str(), all ? "" : all.error().text.c_str());
      QueuePairSettings given = settings(all->rdma_depth);
      for (std::size_t i = 0; i < all->queues.count(); ++i) {
        const QueueDepths depths = queue_depths(all->queues, i, Transport::kRoce, given);
        ck_assert_uint_le(depths.send, kLarge.max_qp_wr);
        ck_assert_uint_gt(depths.send, kLarge.max_qp_wr - 100);
        ck_assert_uint_gt(all->queues[i].sd_max, 1000);
      }
      test::check_text_has(explain(all->changes), "sd_max of queue 1: ");
      test::check_text_has(explain(all->changes), "(" + std::to_string(sends) + " were asked for");
    }
  }
}
END_TEST

/// The sends of all X queues and RDMA go over one queue pair.
START_TEST(x_queues_share_the_work_requests) {
  DeviceRoom device = kLarge;
  device.max_qp_wr = 200;
  QueuePairSettings given = settings(1000);
  const auto rdma_first = fit_queues(*ReceiveQueues::parse("X,2048,512,,64:X,65536,512,,64"), Transport::kInfiniBand,
                                     given, 8192, 4, device);
  ck_assert(rdma_first.has_value());
  ck_assert_uint_eq(rdma_first->queues[0].sd_max, 64);
  ck_assert_uint_eq(rdma_first->queues[1].sd_max, 64);
  ck_assert_uint_eq(rdma_first->rdma_depth, 71);  // one for the marker
  const auto largest_next = fit_queues(*ReceiveQueues::parse("X,2048,512,,30:X,65536,512,,300"), Transport::kInfiniBand,
                                       given, 8192, 4, device);
  ck_assert(largest_next.has_value());
  ck_assert_uint_eq(largest_next->queues[0].sd_max, 30);
  ck_assert_uint_eq(largest_next->queues[1].sd_max, 168);
  ck_assert_uint_eq(largest_next->rdma_depth, 1);
}
END_TEST

START_TEST(a_p_queue_is_what_both_sides_count_on) {
  DeviceRoom device = kLarge;
  device.max_qp_wr = 200;
  const auto none = fit(kDefault, device);
  ck_assert(!none.has_value());
  test::check_text(none.error().text,
                   "queue 0 of btl_fabric_receive_queues needs 262 work requests (rd_num + rd_rsv, and "
                   "some of our own), and the device takes 200 work requests per queue pair");
}
END_TEST

START_TEST(messages_fit_the_port) {
  DeviceRoom device = kLarge;
  device.max_message = 65536;
  const auto none = fit("P,65536,16", device);
  test::check_error_has(none, "and the longest of the device is of 65536");
}
END_TEST

START_TEST(few_completion_queues_are_large) {
  DeviceRoom device = kLarge;
  device.completion_queues = 2;
  const auto all = fit("P,4096,64", device, 1024, 100);
  ck_assert(all.has_value());
  ck_assert_uint_eq(all->most_cqs, 2);
  const QueueDepths one = queue_depths(all->queues, 0, Transport::kRoce, settings());
  ck_assert_uint_eq(one.completions().own + one.completions().shared + one.later, one.send + one.receive);
  const std::uint32_t shared = std::min(100 * one.completions().shared, 2 * CompletionQueueSet::Limits{}.shared_sends);
  ck_assert_uint_eq(all->last_cq_entries, 100 * one.completions().own + shared - 1024);
}
END_TEST

START_TEST(what_is_given_fits) {
  std::mt19937 random(3);
  const auto up_to = [&random](unsigned most) { return static_cast<std::uint32_t>(random() % (most + 1)); };
  unsigned good = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    const DeviceRoom device{1 + up_to(1000), up_to(2000), 1 + up_to(5000), 1 + up_to(100000), up_to(100)};
    const char* const lists[] = {kDefault, "S,2048,1024,1008,64:S,65536,512,448,64", "P,4096,8:P,65536,4",
                                 "S,4096,2,1"};
    const auto all = fit(lists[up_to(3)], device, 16 + up_to(9000), 1 + up_to(300));
    if (!all) {
      ck_assert(!all.error().text.empty());
      continue;
    }
    ++good;
    QueuePairSettings given = settings(all->rdma_depth);
    std::uint32_t shared = 0;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < all->queues.count(); ++i) {
      const QueueSpec& spec = all->queues[i];
      const QueueDepths depths = queue_depths(all->queues, i, Transport::kRoce, given);
      ck_assert(depths.send <= device.max_qp_wr && depths.receive <= device.max_qp_wr);
      most = std::max(most, depths.completions().own);
      ck_assert_uint_eq(depths.completions().own + depths.completions().shared + depths.later,
                        depths.send + depths.receive);
      if (spec.kind == QueueKind::kShared) {
        shared += spec.rd_num;
        ck_assert(spec.rd_num >= 1 && spec.rd_num <= device.max_srq_wr && spec.rd_low < spec.rd_num &&
                  spec.rd_init >= 1 && spec.rd_init <= spec.rd_num && spec.sd_max >= 1);
      }
    }
    ck_assert(shared + most <= all->cq_entries && all->cq_entries <= all->last_cq_entries &&
              all->last_cq_entries <= device.max_cqe && all->most_cqs >= 1);
  }
  ck_assert_uint_gt(good, 300);
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric;
  using namespace fabric::cpc;
  return test::run_suite(
      "queue_fit",
      {a_large_device_changes_nothing, shared_queues_get_fewer_receives, completion_queues_limit_the_shared_receives,
       a_completion_queue_that_is_too_small_is_made_larger, rdma_goes_down_before_messages,
       sends_beyond_all_devices_are_lowered, x_queues_share_the_work_requests, a_p_queue_is_what_both_sides_count_on,
       messages_fit_the_port, few_completion_queues_are_large, what_is_given_fits});
}
