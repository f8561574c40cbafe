// SPDX-License-Identifier: BSD-3-Clause
//
// What tests of eager RDMA do with a packet path on fake verbs: both sides of a ring.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "btl_fabric/base/ring_message.h"
#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {

inline constexpr BenchOptions kRings{.eager_rdma = EagerRdma::kOn};
inline constexpr std::size_t kSlot = 64;
inline constexpr std::size_t kSlots = 4;

/// A ring of the test's, as the peer would offer it.
struct PeerRing {
  alignas(8) std::array<std::byte, kSlots * kSlot> memory{};
  std::uint64_t lap = 1;

  [[nodiscard]] RingOffer offer() const { return {reinterpret_cast<std::uintptr_t>(memory.data()), 77, kSlots, kSlot}; }
};

inline std::vector<std::byte> offer_packet(const RingOffer& offer, std::uint16_t ring_slots = 0) {
  std::vector<std::byte> bytes = PathBench::packet(PacketKind::kRing, RingOffer::kSize);
  PacketHeader{PacketKind::kRing, 0, {}, ring_slots}.write(bytes.data());
  offer.write(bytes.data() + PacketHeader::kSize);
  return bytes;
}

inline void arrive(PathBench& bench, Link& link, const std::vector<std::byte>& packet, std::size_t queue = 0) {
  bench.device.receive(bench.pair(link, queue), packet);
  bench.path->progress();
}

/// Packets of a kind that were ever posted over the first queue.
inline std::vector<FakeSend> posted(PathBench& bench, Link& link, PacketKind kind) {
  std::vector<FakeSend> found;
  for (const FakeSend& send : bench.pair(link).all_sends) {
    if (send.opcode == IBV_WR_SEND && send.bytes.front() == static_cast<std::byte>(kind)) {
      found.push_back(send);
    }
  }
  return found;
}

inline std::vector<FakeSend> writes(PathBench& bench, Link& link) {
  std::vector<FakeSend> found;
  for (const FakeSend& send : bench.pair(link).all_sends) {
    if (send.opcode == IBV_WR_RDMA_WRITE) {
      found.push_back(send);
    }
  }
  return found;
}

inline RingTrailer trailer_of(const FakeSend& write) {
  RingTrailer trailer;
  const std::byte* const at = write.bytes.data() + write.bytes.size() - RingTrailer::kSize;
  ck_assert(trailer.read(at, kSlot));
  trailer.lap = static_cast<std::uint8_t>(at[RingTrailer::kLapAt]);
  return trailer;
}

/// The peer's side of a ring of ours.
class Writer {
 public:
  explicit Writer(const FakeSend& offer) {
    ck_assert(offer_.read(offer.bytes.data() + PacketHeader::kSize, offer.bytes.size() - PacketHeader::kSize));
  }
  [[nodiscard]] const RingOffer& offer() const { return offer_; }
  /// Writes a message of `size` bytes, each `value`.
  void write(std::uint8_t value, std::size_t size = 8, std::uint16_t ring_slots = 0, CreditGrant grant = {}) {
    write(
        RingTrailer{{PacketKind::kMessage, PathBench::kTag, grant, ring_slots}, static_cast<std::uint16_t>(size), lap_},
        value);
  }
  void write(const RingTrailer& trailer, std::uint8_t value) {
    auto* const end = reinterpret_cast<std::byte*>(offer_.address) + (next_ + 1) * offer_.slot_size;
    if (RingTrailer::room_for(trailer.size) + RingTrailer::kSize <= offer_.slot_size) {
      std::memset(end - RingTrailer::kSize - RingTrailer::room_for(trailer.size), value, trailer.size);
    }
    trailer.write(end - RingTrailer::kSize);
    if (++next_ == offer_.slots) {
      next_ = 0;
      lap_ = next_lap(lap_);
    }
  }

 private:
  RingOffer offer_;
  std::size_t next_ = 0;
  std::uint8_t lap_ = 1;
};

/// A peer that has sent so much that it has a ring.
inline Writer talk_for_ring(PathBench& bench, Link& link) {
  const std::size_t before = posted(bench, link, PacketKind::kRing).size();
  bench.receive(link);
  bench.receive(link);
  bench.path->progress();
  const std::vector<FakeSend> offers = posted(bench, link, PacketKind::kRing);
  ck_assert_uint_eq(offers.size(), before + 1);
  return Writer(offers.back());
}

/// Takes all buffers of the first queue, as messages that are under way do, until it goes.
class AllBuffers {
 public:
  explicit AllBuffers(PathBench& bench) {
    while (Fragment* const one = bench.path->get_send(0)) {
      taken_.push_back(one);
    }
  }
  ~AllBuffers() {
    for (Fragment* one : taken_) {
      put_back(one);
    }
  }

 private:
  std::vector<Fragment*> taken_;
};

/// The first bytes of the messages that come in.
inline std::vector<int> take(PathBench& bench) {
  std::vector<int> seen;
  bench.on_message = [&] { seen.push_back(std::to_integer<int>(bench.last_message.front())); };
  bench.path->progress();
  bench.on_message = nullptr;
  return seen;
}

}  // namespace fabric::test
