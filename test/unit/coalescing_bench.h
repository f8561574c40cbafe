// SPDX-License-Identifier: BSD-3-Clause
//
// What tests of packets of several messages do with a packet path on fake verbs.
#pragma once

#include <cstring>
#include <vector>

#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {

inline constexpr std::size_t kRecord = RecordHeader::room_for(8);
inline constexpr int kAlone = 4;

/// A message as Open MPI sends it: at once, or if that cannot be, from a buffer. What Link::send() said of that.
inline int send_one(PathBench& bench, Link& link, std::uint8_t value, std::size_t size = 8) {
  if (bench.send_immediately(link, size, value)) {
    return 1;
  }
  Fragment* const fragment = bench.message(0, size, false);
  ck_assert_ptr_nonnull(fragment);
  std::memset(fragment->packet + PacketHeader::kSize, value, size);
  const int result = link.send(*fragment);
  if (result < 0) {
    put_back(fragment);
  }
  return result;
}

/// So many messages of 8 bytes, whose bytes are 0, 1, 2 ...
inline void send_many(PathBench& bench, Link& link, int count) {
  for (int i = 0; i < count; ++i) {
    ck_assert_int_ge(send_one(bench, link, static_cast<std::uint8_t>(i)), 0);
  }
}

inline std::size_t posted(PathBench& bench, Link& link, std::size_t queue = 0) {
  return bench.pair(link, queue).all_sends.size();
}

inline void complete_all(PathBench& bench, Link& link) {
  while (!bench.pair(link).sends.empty()) {
    bench.device.complete_send(bench.pair(link));
  }
}

/// An open packet leaves, and all that has been sent completes.
inline void finish(PathBench& bench, Link& link) {
  bench.path->progress();
  complete_all(bench, link);
  bench.path->progress();
}

/// The packet that was posted last comes in over the same queue pair. Gives the first bytes of the messages in it.
inline std::vector<int> come_back(PathBench& bench, Link& link) {
  std::vector<int> seen;
  bench.on_message = [&] { seen.push_back(std::to_integer<int>(bench.last_message.front())); };
  std::vector<std::byte> packet = bench.pair(link).all_sends.back().bytes;
  PacketHeader{static_cast<PacketKind>(packet[0]), static_cast<std::uint8_t>(packet[1]), {}}.write(packet.data());
  bench.device.receive(bench.pair(link), packet);
  bench.path->progress();
  bench.on_message = nullptr;
  return seen;
}

}  // namespace fabric::test
