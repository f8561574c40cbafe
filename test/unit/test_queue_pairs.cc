// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pairs on a device whose verbs are the test's: what it is asked, and which attributes it is given.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/accounting/completion_queue_set.h"
#include "common/ports/device_probe.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/loopback.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "test/unit/check_main.h"

namespace {

int device_queries = 0;
std::vector<ibv_qp_attr> modifications;
std::vector<std::uint16_t> partition_keys;

}  // namespace

// These take the place of libibverbs'.
extern "C" {

#pragma GCC visibility push(default)

int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  ++device_queries;
  std::memset(attributes, 0, sizeof *attributes);
  attributes->max_cqe = 1000;
  attributes->max_qp_wr = 1000;
  return 0;
}
const char* ibv_get_device_name(ibv_device* /*device*/) {
  return "test0";
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  auto* queue = new ibv_cq{};
  queue->context = context;
  queue->cqe = entries;
  return queue;
}
int ibv_destroy_cq(ibv_cq* queue) {
  delete queue;
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd*, ibv_qp_init_attr*) {
  return new ibv_qp{};
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attributes, int) {
  modifications.push_back(*attributes);
  return 0;
}
int ibv_destroy_qp(ibv_qp* queue_pair) {
  delete queue_pair;
  return 0;
}
int ibv_query_pkey(ibv_context*, std::uint8_t, int index, __be16* pkey) {
  if (static_cast<std::size_t>(index) >= partition_keys.size()) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htobe16(partition_keys[static_cast<std::size_t>(index)]);
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"

namespace fabric {
namespace {

/// A port of the device, with two P queues.
class Port {
 public:
  explicit Port(Transport transport) : queues_(*ReceiveQueues::parse("P,4096,8,4:P,65536,8,4")) {
    context_.device = &device_;
    pd_.context = &context_;
    completion_queues_ = std::make_unique<CompletionQueueSet>(&context_, 1000, 0);
    port_.device = &context_;
    port_.pd = &pd_;
    port_.queues = &queues_;
    port_.subsets = {QueueSubset::all(queues_)};
    port_.completion_queues = completion_queues_.get();
    port_.address.link = transport;
    port_.address.mtu = 3;
    port_.limits.max_qp_wr = 1000;
    port_.limits.max_qp_rd_atom = 16;
    port_.limits.max_qp_init_rd_atom = 16;
    device_queries = 0;
    modifications.clear();
  }

  [[nodiscard]] cpc::PortContext& port() noexcept { return port_; }

 private:
  ibv_device device_{};
  ibv_context context_{};
  ibv_pd pd_{};
  ReceiveQueues queues_;
  std::unique_ptr<CompletionQueueSet> completion_queues_;
  cpc::PortContext port_;
};

/// Does `work` on a progress thread.
template <class Work>
void on_progress_thread(Work work) {
  auto thread = cpc::ProgressThread::start({[&](event_base*) {
                                              work();
                                              return Status();
                                            },
                                            [] {}, [] {}, nullptr});
  ck_assert(thread.has_value());
}

START_TEST(the_device_is_asked_once_for_all_connections) {
  Port port(Transport::kRoce);
  on_progress_thread([&] {
    for (int i = 0; i < 5; ++i) {
      ck_assert(cpc::make_rc_queue_pairs(port.port(), port.port().subsets.front()).has_value());
    }
  });
  ck_assert_int_eq(device_queries, 0);
}
END_TEST

/// A peer with a larger device asks for more reads than ours can serve, and grants more than it can start.
START_TEST(reads_of_a_communication_manager_fit_the_device) {
  Port port(Transport::kRoce);
  port.port().limits.max_qp_rd_atom = 2;
  port.port().limits.max_qp_init_rd_atom = 1;
  on_progress_thread([&] {
    auto pairs = cpc::make_rc_queue_pairs(port.port(), port.port().subsets.front());
    ck_assert(pairs.has_value());
    const Status connected = (*pairs)->connect_by([](std::size_t, ibv_qp_attr& attributes) -> Status {
      attributes.path_mtu = IBV_MTU_1024;
      attributes.max_rd_atomic = 128;
      attributes.max_dest_rd_atomic = 128;
      return {};
    });
    ck_assert(connected.has_value());
  });
  int seen = 0;
  for (const ibv_qp_attr& one : modifications) {
    if (one.qp_state == IBV_QPS_RTR) {
      ck_assert_uint_eq(one.max_dest_rd_atomic, 2);
      ++seen;
    } else if (one.qp_state == IBV_QPS_RTS) {
      ck_assert_uint_eq(one.max_rd_atomic, 1);
      ++seen;
    }
  }
  ck_assert_int_eq(seen, 4);
}
END_TEST

START_TEST(nobody_goes_to_another_subnet_by_lid) {
  Port port(Transport::kInfiniBand);
  PortAddress peer = port.port().address;
  peer.lid = 7;
  peer.subnet.prefix[7] = 1;
  on_progress_thread([&] {
    auto pairs = cpc::make_rc_queue_pairs(port.port(), port.port().subsets.front());
    ck_assert(pairs.has_value());
    const Status connected = (*pairs)->connect(peer, {{1, 1}, {2, 2}});
    ck_assert(!connected);
    test::check_text(connected.error().text, "test0 port 1 and the peer's port are on different InfiniBand subnets");
  });
}
END_TEST

/// Some ports of InfiniBand take no packets without a global route, virtual functions among them.
START_TEST(a_port_may_ask_for_a_global_route) {
  for (const bool needs_grh : {true, false}) {
    Port port(Transport::kInfiniBand);
    port.port().needs_grh = needs_grh;
    port.port().gid_index = 5;
    port.port().address.lid = 6;
    PortAddress peer = port.port().address;
    peer.lid = 7;
    peer.gid.raw[15] = 8;
    on_progress_thread([&] {
      auto pairs = cpc::make_rc_queue_pairs(port.port(), port.port().subsets.front());
      ck_assert(pairs.has_value());
      ck_assert((*pairs)->connect(peer, {{1, 1}, {2, 2}}).has_value());
      ck_assert(cpc::make_loopback(port.port(), QueueSpace::for_operations(4, {}, 1, 0)).has_value());
    });
    int to_peer = 0;
    int to_ourselves = 0;
    for (const ibv_qp_attr& one : modifications) {
      if (one.qp_state != IBV_QPS_RTR) {
        continue;
      }
      const bool is_ours = one.ah_attr.dlid == 6;
      ++(is_ours ? to_ourselves : to_peer);
      ck_assert_uint_eq(one.ah_attr.dlid, is_ours ? 6 : 7);
      ck_assert_uint_eq(one.ah_attr.is_global, needs_grh ? 1 : 0);
      ck_assert_uint_eq(one.ah_attr.grh.sgid_index, needs_grh ? 5 : 0);
      ck_assert_uint_eq(one.ah_attr.grh.dgid.raw[15], needs_grh && !is_ours ? 8 : 0);
      ck_assert(!needs_grh || one.ah_attr.grh.hop_limit > 0);
    }
    ck_assert_int_eq(to_peer, 2);
    ck_assert_int_eq(to_ourselves, 2);
  }
}
END_TEST

START_TEST(full_members_of_a_partition_go_first) {
  ibv_context context{};
  ibv_port_attr port{};
  partition_keys = {0x7fff, 0x8001, 0x0002, 0xffff, 0x8002};
  port.pkey_tbl_len = 5;
  const auto index_of = [&](std::uint16_t pkey) {
    const Result<PartitionKey> found = find_pkey(&context, 1, port, pkey);
    ck_assert_msg(found.has_value(), "%s", found ? "" : found.error().text.c_str());
    ck_assert_uint_eq(found->value, partition_keys[found->index]);
    return found->index;
  };
  ck_assert_uint_eq(index_of(0x0001), 1);
  ck_assert_uint_eq(index_of(0x8002), 4);  // not the limited one before it
  ck_assert_uint_eq(index_of(0x0002), 4);
  ck_assert_uint_eq(index_of(0x7fff), 3);
  ck_assert_uint_eq(index_of(0), 3);  // the partition of the first entry
  partition_keys = {0x7fff, 0x8001};
  port.pkey_tbl_len = 2;
  ck_assert_uint_eq(index_of(0), 0);  // limited, but there is no other
  ck_assert(!find_pkey(&context, 1, port, 0x0003));
}
END_TEST

START_TEST(empty_entries_are_no_partition) {
  ibv_context context{};
  ibv_port_attr port{};
  partition_keys = {0xffff, 0, 0};
  port.pkey_tbl_len = 3;
  ck_assert(!find_pkey(&context, 1, port, 0x8000));
  partition_keys = {0, 0x8000, 0x8001};
  const Result<PartitionKey> first = find_pkey(&context, 1, port, 0);
  ck_assert(first && first->index == 2);
  partition_keys = {0, 0, 0};
  ck_assert(!find_pkey(&context, 1, port, 0));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("queue_pairs",
                         {the_device_is_asked_once_for_all_connections, reads_of_a_communication_manager_fit_the_device,
                          nobody_goes_to_another_subnet_by_lid, a_port_may_ask_for_a_global_route,
                          full_members_of_a_partition_go_first, empty_entries_are_no_partition});
}
