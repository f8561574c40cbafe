// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "common/accounting/contexts.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

constexpr DeviceFacts kDevice{
    .max_qp = 1000, .max_cq = 100, .max_cqe = 4096, .max_srq = 10, .max_mr = 500, .max_qp_wr = 128};
constexpr QueuePairUse kUse{.queue_pairs_per_context = 4, .entries_per_context = 512, .entries_per_cq = 4096};

START_TEST(one_process_has_it_all) {
  const DomainAttributes domain = domain_attributes(kDevice, {1, 8}, kUse, {1, 1});
  ck_assert(domain.ep_cnt == (ContextCount{250, 250}));
  ck_assert(domain.tx_ctx_cnt == (ContextCount{250, 250}));
  ck_assert(domain.ep_tx_ctx_cnt == (ContextCount{kMostContextsPerEndpoint, 8}));
  ck_assert(domain.cq_cnt == (ContextCount{100, 1}));
  ck_assert(domain.cq_ctx_cnt == (ContextCount{8, 8}));
}
END_TEST

START_TEST(more_contexts_leave_fewer_endpoints) {
  const DomainAttributes domain = domain_attributes(kDevice, {1, 8}, kUse, {2, 1});
  ck_assert_int_eq(domain.ep_cnt.total, 125);
  ck_assert_int_eq(domain.tx_ctx_cnt.total, 250);
  ck_assert_int_eq(domain.rx_ctx_cnt.total, 250);  // a queue pair receives where it sends
  ck_assert_int_eq(domain.cq_cnt.optimal, 2);
}
END_TEST

START_TEST(receive_contexts_have_a_number_of_their_own) {
  const DomainAttributes domain = domain_attributes(kDevice, {1, 8}, kUse, {2, 5});
  ck_assert_int_eq(domain.ep_cnt.total, 50);
  ck_assert_int_eq(domain.tx_ctx_cnt.total, 100);
  ck_assert_int_eq(domain.rx_ctx_cnt.total, 250);
  const ResourceManager manager(kDevice, {1, 8}, kUse, {2, 5});
  ck_assert(manager.granted() == (EndpointAttributes{2, 5}));
  ck_assert(ResourceManager(kDevice, {1, 8}, kUse, {2, 0}).granted() == (EndpointAttributes{2, 2}));
  ck_assert(ResourceManager(kDevice, {1, 8}, kUse, {4, 2}).granted() == (EndpointAttributes{4, 4}));
  ck_assert(ResourceManager(kDevice, {1, 8}, kUse, {1, 100}).granted() ==
            (EndpointAttributes{1, kMostContextsPerEndpoint}));
}
END_TEST

/// The reason for the receive contexts.
std::string why_receive(const EndpointAttributes& wanted) {
  const ResourceManager manager(kDevice, {4, 2}, kUse, wanted);
  for (const Grant& grant : manager.grants()) {
    if (grant.what == "receive contexts per endpoint") {
      return std::to_string(grant.count) + ", " + grant.why;
    }
  }
  return "no grant";
}

START_TEST(says_why_receive_contexts_are_so_many) {
  test::check_text(why_receive({2, 0}), "2, as many as transmit contexts");
  test::check_text(why_receive({2, 3}), "3, as asked for");
  test::check_text(why_receive({2, -1}), "62, the most was asked for");
  test::check_text(why_receive({1, 100}), "62, 100 were asked for, and 62 is the most");
  test::check_text(why_receive({4, 2}),
                   "4, 2 were asked for, but a queue pair receives where it sends: as many as transmit contexts");
}
END_TEST

START_TEST(minus_one_asks_for_the_most) {
  const ResourceManager manager(kDevice, {1, 8}, kUse, {-1, 1});
  ck_assert_int_eq(manager.granted().tx_ctx_cnt, kMostContextsPerEndpoint);
  ck_assert_int_eq(manager.granted().rx_ctx_cnt, kMostContextsPerEndpoint);
  ck_assert_int_eq(manager.attributes().ep_cnt.total, 250 / kMostContextsPerEndpoint);
}
END_TEST

START_TEST(says_what_it_gave_and_why) {
  const ResourceManager manager(kDevice, {4, 2}, kUse, {100, 1});
  test::check_text(
      manager.explain(),
      "queue pairs: 250 (1000 of the device, shared by 4 processes of this node); "
      "completion queues: 25 (100 of the device, shared by 4 processes of this node); "
      "memory regions: 125 (500 of the device, shared by 4 processes of this node); "
      "transmit contexts per endpoint: 62 (100 were asked for, and 62 is the most); "
      "receive contexts per endpoint: 62 (1 were asked for, but a queue pair receives where it sends: as many as "
      "transmit contexts); "
      "endpoints: 1 (250 queue pairs, 248 for each endpoint)");
}
END_TEST

START_TEST(the_parts_are_never_more_than_the_whole) {
  std::mt19937 random(7);
  const auto up_to = [&random](unsigned most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  for (unsigned round = 0; round < 5000; ++round) {
    const DeviceFacts device{up_to(300000), up_to(70000), up_to(100000), up_to(1000), up_to(100000), up_to(32768)};
    const NodeShare node{1 + up_to(127), 1 + up_to(63)};
    const QueuePairUse use{1 + up_to(15), 1 + up_to(2000), 1 + up_to(8192)};
    const EndpointAttributes wanted{up_to(20) - 1, up_to(20) - 1};
    const ResourceManager manager(device, node, use, wanted);
    const DomainAttributes& domain = manager.attributes();
    if (device.max_qp >= node.processes) {
      ck_assert(manager.queue_pairs() * node.processes <= device.max_qp);
    }
    const std::int64_t contexts = std::max(manager.granted().tx_ctx_cnt, manager.granted().rx_ctx_cnt);
    ck_assert(domain.ep_cnt.total * contexts * use.queue_pairs_per_context <= manager.queue_pairs());
    for (const ContextCount& count : {domain.ep_cnt, domain.tx_ctx_cnt, domain.rx_ctx_cnt, domain.ep_tx_ctx_cnt,
                                      domain.ep_rx_ctx_cnt, domain.cq_cnt, domain.cq_ctx_cnt}) {
      ck_assert(count.optimal >= 0 && count.optimal <= count.total);
    }
    ck_assert(manager.granted().tx_ctx_cnt >= 1 && manager.granted().rx_ctx_cnt >= manager.granted().tx_ctx_cnt);
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "contexts", {one_process_has_it_all, more_contexts_leave_fewer_endpoints,
                   receive_contexts_have_a_number_of_their_own, says_why_receive_contexts_are_so_many,
                   minus_one_asks_for_the_most, says_what_it_gave_and_why, the_parts_are_never_more_than_the_whole});
}
