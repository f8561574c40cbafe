// SPDX-License-Identifier: BSD-3-Clause
//
// What befalls an endpoint whose connection breaks, step by step, as the progress thread and the peer would have it.
#pragma once

#include <chrono>
#include <vector>

#include "test/unit/endpoints_bench.h"

namespace fabric::test {

/// Connected, with a message and a write under way.
inline void begin(EndpointsBench& bench, std::chrono::milliseconds time = std::chrono::hours(1)) {
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), time);
  bench.send_and_connect();
  ck_assert_int_eq(bench.submit(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
}
inline void drain(EndpointsBench& bench) {
  bench.tell(cpc::Flushing{bench.key(), bench.link});
  bench.flush();
  while (bench.endpoints.progress() > 0) {
  }
}
/// The connection breaks, and its queue pairs are emptied.
inline void lose(EndpointsBench& bench) {
  bench.endpoints.queue_pair_failed(bench.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
  drain(bench);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
}
/// The same, once more.
inline void lose_again(EndpointsBench& bench) {
  bench.endpoints.queue_pair_failed(bench.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
  drain(bench);
}
/// The next connection is there.
inline void connect_again(EndpointsBench& bench) {
  ++bench.link;
  bench.post_receives();
  bench.connected();
}
/// The peer says what it has of each queue, for the first time; it has no ring.
inline void counts_arrive(EndpointsBench& bench, std::uint32_t first, std::uint32_t second) {
  std::vector<std::byte> packet(PacketHeader::kSize + 4 * sizeof first);
  PacketHeader{PacketKind::kCounts, 0, {}}.write(packet.data());
  store_be(packet.data() + PacketHeader::kSize, first);
  store_be(packet.data() + PacketHeader::kSize + sizeof first, second);
  store_be(packet.data() + PacketHeader::kSize + 3 * sizeof first, std::uint32_t{1});
  bench.device.receive(bench.pair(), packet);
  bench.endpoints.progress();
}
/// Packets of a kind that were posted on the newest queue pairs.
inline std::size_t posted(EndpointsBench& bench, PacketKind kind) {
  std::size_t count = 0;
  for (const FakeSend& one : bench.pair().all_sends) {
    count += one.opcode == IBV_WR_SEND && !one.bytes.empty() && one.bytes[0] == static_cast<std::byte>(kind) ? 1 : 0;
  }
  return count;
}

/// The user and the upper layer are told, once, and so is whoever waits.
inline void expect_given_up(const EndpointsBench& bench) {
  ck_assert_uint_eq(bench.reports, 1);
  ck_assert_uint_eq(bench.upper_layer_told, 1);
  ck_assert_uint_eq(bench.requests_ended, 1);
  ck_assert_uint_eq(bench.sends_ended.size(), 1);
}

}  // namespace fabric::test
