// SPDX-License-Identifier: BSD-3-Clause
#include "common/rdma/access_flags.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

constexpr std::array kLinks = {Transport::kInfiniBand, Transport::kRoce, Transport::kIwarp};

START_TEST(every_role_has_a_row) {
  std::uint32_t seen = 0;
  for (const AccessRow& row : kAccessTable) {
    seen |= static_cast<std::uint32_t>(row.role);
  }
  ck_assert_uint_eq(seen, (1U << kAccessTable.size()) - 1);
}
END_TEST

START_TEST(remote_access_implies_local_write) {  // ibv_reg_mr(3) demands it
  for (std::uint32_t bits = 0; bits < 1U << kAccessTable.size(); ++bits) {
    MemoryRoles roles;
    roles.bits = bits;
    for (const Transport link : kLinks) {
      const unsigned flags = access_flags(roles, link);
      if ((flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0) {
        ck_assert(flags & IBV_ACCESS_LOCAL_WRITE);
      }
      ck_assert(suffices(flags, roles, link));
    }
  }
}
END_TEST

START_TEST(only_iwarp_read_sinks_are_written_remotely) {
  ck_assert(access_flags(MemoryRole::kReadSink, Transport::kIwarp) & IBV_ACCESS_REMOTE_WRITE);
  ck_assert(!(access_flags(MemoryRole::kReadSink, Transport::kInfiniBand) & IBV_ACCESS_REMOTE_WRITE));
  ck_assert(!suffices(IBV_ACCESS_LOCAL_WRITE, MemoryRole::kReadSink, Transport::kIwarp));
  ck_assert(suffices(IBV_ACCESS_LOCAL_WRITE, MemoryRole::kReadSink, Transport::kRoce));
}
END_TEST

START_TEST(sources_need_no_write_access) {
  for (const Transport link : kLinks) {
    ck_assert_uint_eq(access_flags(MemoryRole::kSendSource | MemoryRole::kWriteSource, link) & IBV_ACCESS_LOCAL_WRITE,
                      0);
    ck_assert(suffices(0, MemoryRole::kSendSource, link));
  }
}
END_TEST

START_TEST(what_peers_write_keeps_its_order) {
  for (const Transport link : kLinks) {
    ck_assert(access_flags(MemoryRole::kReceiveSink, link) & IBV_ACCESS_RELAXED_ORDERING);
    ck_assert(!(access_flags(MemoryRole::kReceiveSink | MemoryRole::kWriteSink, link) & IBV_ACCESS_RELAXED_ORDERING));
    ck_assert(!(access_flags(MemoryRole::kAtomicTarget, link) & IBV_ACCESS_RELAXED_ORDERING));
    const unsigned reordered = access_flags(MemoryRole::kWriteSink, link) | IBV_ACCESS_RELAXED_ORDERING;
    ck_assert(!suffices(reordered, MemoryRole::kWriteSink, link));
  }
}
END_TEST

START_TEST(iwarp_has_no_atomics) {
  ck_assert(!(access_flags(MemoryRole::kAtomicTarget, Transport::kIwarp) & IBV_ACCESS_REMOTE_ATOMIC));
  ck_assert(access_flags(MemoryRole::kAtomicTarget, Transport::kRoce) & IBV_ACCESS_REMOTE_ATOMIC);
}
END_TEST

START_TEST(order_is_as_wished) {
  const MemoryRoles buffer = MemoryRole::kSendSource | MemoryRole::kReceiveSink;
  const unsigned flags = access_flags(buffer, Transport::kRoce);
  ck_assert_uint_eq(as_wished(flags, buffer, false, {}), flags);
  ck_assert(flags & IBV_ACCESS_RELAXED_ORDERING);
  ck_assert_uint_eq(as_wished(flags, buffer, false, {.relaxed_ordering = false}), IBV_ACCESS_LOCAL_WRITE);
  for (const Transport link : kLinks) {  // what is polled has an order, whatever is wished
    const MemoryRoles ring = MemoryRole::kReadSink | MemoryRole::kPolledSink;
    ck_assert(!(as_wished(access_flags(ring, link), ring, true, {}) & IBV_ACCESS_RELAXED_ORDERING));
  }
}
END_TEST

bool is_on_demand(MemoryRoles roles, Transport link, bool is_users, const AccessWishes& wishes, bool windows = false) {
  return (as_wished(access_flags(roles, link, windows), roles, is_users, wishes) & IBV_ACCESS_ON_DEMAND) != 0;
}

START_TEST(memory_on_demand_is_the_users) {
  const MemoryRoles roles = MemoryRole::kReadSink | MemoryRole::kWriteSink;
  const AccessWishes on{.on_demand = true};
  ck_assert(!is_on_demand(roles, Transport::kRoce, true, {}));
  ck_assert(is_on_demand(roles, Transport::kRoce, true, on));
  ck_assert(!is_on_demand(roles, Transport::kRoce, false, on));
  ck_assert(!is_on_demand(roles | MemoryRole::kPolledSink, Transport::kRoce, true, on));
  ck_assert(!is_on_demand(roles | MemoryRole::kAtomicTarget, Transport::kRoce, true, on));
  ck_assert(is_on_demand(roles | MemoryRole::kAtomicTarget, Transport::kRoce, true,
                         {.on_demand = true, .on_demand_atomics = true}));
  ck_assert(is_on_demand(roles, Transport::kIwarp, true, on));
  ck_assert(!is_on_demand(MemoryRole::kReadSink, Transport::kIwarp, true, on, true));  // a window is bound to it
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("access_flags", {every_role_has_a_row, remote_access_implies_local_write,
                                          only_iwarp_read_sinks_are_written_remotely, sources_need_no_write_access,
                                          what_peers_write_keeps_its_order, iwarp_has_no_atomics, order_is_as_wished,
                                          memory_on_demand_is_the_users});
}
