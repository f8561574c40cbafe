// SPDX-License-Identifier: BSD-3-Clause
//
// Packets of all kinds with bytes of any value, as a peer of another version or a broken one might send them: each is taken, or
// ends the link. Nothing is read outside of it, and no buffer is lost.
#include <algorithm>
#include <random>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/ring_message.h"
#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace {

using namespace fabric;
using namespace fabric::test;

constexpr std::size_t kLargest = 256;  // bytes of a message
constexpr int kSendBuffers = 16;
constexpr std::uint32_t kTargetKey = 5;
constexpr unsigned kPeersOfACase = 100;  // which Check names by their first seed, divided by this

class StrangePeer {
 public:
  explicit StrangePeer(unsigned seed) : random_(seed) {}

  [[nodiscard]] std::size_t below(std::size_t end) { return random_() % end; }

  /// Mostly one of the kinds that there are, and behind its header what belongs there, with some bytes changed.
  std::vector<std::byte> packet(std::uintptr_t target) {
    const PacketKind kind = next_kind();
    std::vector<std::byte> bytes = PathBench::packet(kind, size_of(kind));
    for (std::size_t i = PacketHeader::kSize; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random_());
    }
    std::byte* const body = bytes.data() + PacketHeader::kSize;
    const std::size_t room = bytes.size() - PacketHeader::kSize;
    if (kind == PacketKind::kMessages) {
      fill_records(body, room);
    } else if (kind == PacketKind::kAtomic && room == AtomicMessage::kSize && below(4) != 0) {
      AtomicMessage message;
      message.address = target + below(3) * 4;
      message.rkey = kTargetKey + static_cast<std::uint32_t>(below(2));
      message.op = static_cast<std::uint16_t>(below(20));
      message.write(body);
    } else if (kind == PacketKind::kRing && room == RingOffer::kSize) {
      const auto slots = static_cast<std::uint16_t>(below(3) == 0 ? 0 : below(8));
      RingOffer{below(4096) * 8, 1, slots, static_cast<std::uint16_t>(below(40) * 8)}.write(body);
    }
    for (std::size_t changes = below(10); changes > 7; --changes) {
      bytes[below(bytes.size())] = static_cast<std::byte>(random_());
    }
    if (below(20) == 0) {
      bytes.resize(below(bytes.size()));
    }
    return bytes;
  }

 private:
  PacketKind next_kind() {
    static constexpr PacketKind kCommon[] = {PacketKind::kMessage, PacketKind::kMessages, PacketKind::kAtomic};
    return below(8) != 0 ? kCommon[below(std::size(kCommon))]
                         : static_cast<PacketKind>(below(static_cast<std::size_t>(kLastPacketKind) + 2));
  }

  std::size_t size_of(PacketKind kind) {
    switch (below(16) == 0 ? PacketKind::kMessage : kind) {
      case PacketKind::kAtomic:
        return AtomicMessage::kSize;
      case PacketKind::kAtomicReply:
        return AtomicReply::kSize;
      case PacketKind::kRing:
        return RingOffer::kSize;
      case PacketKind::kMessage:
        return below(kLargest + 1);
      case PacketKind::kMessages:
        return (1 + below(kLargest / RecordHeader::kSize)) * RecordHeader::kSize;
      default:
        return 0;
    }
  }

  void fill_records(std::byte* at, std::size_t room) {
    while (room >= RecordHeader::kSize) {
      const std::size_t most = room - RecordHeader::kSize;
      RecordHeader record;
      record.size = static_cast<std::uint16_t>(below(50) == 0 ? random_() : below(std::min<std::size_t>(most, 40) + 1));
      record.tag = PathBench::kTag;
      record.write(at);
      const std::size_t taken = std::min(RecordHeader::room_for(record.size), room);
      at += taken;
      room -= taken;
    }
  }

  std::mt19937 random_;
};

/// What was posted has come to its end: with success, or flushed.
void end_sends(PathBench& bench, bool flushed) {
  for (FakeQueuePair& pair : bench.device.queue_pairs) {
    const auto has_signal = [](const FakeSend& send) { return (send.flags & IBV_SEND_SIGNALED) != 0; };
    while (!flushed && std::any_of(pair.sends.begin(), pair.sends.end(), has_signal)) {
      bench.device.complete_send(pair);
    }
    if (flushed) {
      bench.device.flush(pair);
    }
  }
  bench.path->progress();
}

/// One peer, until its link ends or it has sent enough.
void talk(unsigned seed) {
  StrangePeer peer(seed);
  PathBench bench({.max_inline = peer.below(2) == 0 ? 0U : 128U,
                   .most_sends = kSendBuffers,
                   .coalesce_size = 128,
                   .watches_packets = true,
                   .eager_rdma = peer.below(2) == 0 ? EagerRdma::kOff : EagerRdma::kOn});
  Link& link = bench.connect();
  const unsigned buffers = bench.buffers_left();
  std::uint64_t words[2] = {1, 2};
  const auto target = reinterpret_cast<std::uintptr_t>(words);
  bench.targets.add(kTargetKey, target, target + sizeof words - 1);
  std::size_t packet_size = 0;
  std::size_t of_packet = 0;  // bytes of messages
  bench.on_message = [&] {
    of_packet += bench.last_message.size();
    ck_assert_uint_le(of_packet + PacketHeader::kSize, packet_size);
  };
  for (int sent = 0; sent < 40 && link.is_up(); ++sent) {
    const std::vector<std::byte> packet = peer.packet(target);
    packet_size = packet.size();
    of_packet = 0;
    bench.device.receive(bench.pair(link), packet);
    bench.path->progress();
    end_sends(bench, false);
    if (peer.below(3) == 0) {
      (void)bench.send(link, 0, 8, false);
    }
  }
  ck_assert_uint_le(bench.failures.size(), 1);
  ck_assert(link.is_up() == bench.failures.empty());
  if (!bench.failures.empty()) {
    ck_assert(bench.failures[0].kind == LinkFailure::Kind::kBadPacket);
  }
  bench.fail(link);
  end_sends(bench, true);
  ck_assert_uint_eq(bench.buffers_left(), buffers);
}

START_TEST(strange_packets_are_taken_or_end_the_link) {
  const unsigned first = static_cast<unsigned>(_i) * kPeersOfACase;
  for (unsigned seed = first; seed < first + kPeersOfACase; ++seed) {
    talk(seed);
  }
}
END_TEST

}  // namespace

int main() {
  return run_suite("path: strange packets", {{strange_packets_are_taken_or_end_the_link, 100}});
}
