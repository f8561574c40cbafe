// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints to the same peer through two ports.
#pragma once

#include <chrono>
#include <initializer_list>
#include <vector>

#include "btl_fabric/base/detour_header.h"
#include "test/unit/endpoints_bench.h"

namespace fabric::test {

/// One has just lost its link, with a message and a write under way; the other carries.
struct Ports {
  EndpointsBench other;
  EndpointsBench broken;

  /// `writes`: a write is under way too, which the other port does not take. `loses`: else it has its link still.
  explicit Ports(bool writes = true, bool loses = true) {
    other.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    other.send_and_connect();
    broken.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    broken.send_and_connect();
    if (writes) {
      ck_assert_int_eq(broken.submit(), OPAL_SUCCESS);
    }
    broken.beside = &other.endpoint();
    other.through = &broken.endpoint();
    if (loses) {
      lose();
    }
  }

  void lose() {
    broken.endpoints.queue_pair_failed(broken.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
    drain();
  }
  void drain() {
    broken.tell(cpc::Flushing{EndpointsBench::key(), broken.link});
    broken.flush();
    progress();
  }
  void progress() {
    while (broken.endpoints.progress() + other.endpoints.progress() > 0) {
    }
  }
  /// The next connection is there, and the peer says over it, as its telling `number`, that it has nothing.
  void connect_again(std::uint32_t number) {
    ++broken.link;
    broken.post_receives();
    broken.connected();
    broken.device.receive(broken.pair(), packet_of(PacketKind::kCounts, {0, 0, 0, number}));
    progress();
  }
  /// The peer says over the other port, as its telling `number`, what it has of the first queue, and nothing of the rest; it has
  /// heard of all that it has been told so.
  void counts_come_aside(std::uint32_t first, std::uint32_t number,
                         DetourHeader::What what = DetourHeader::What::kCounts, std::uint32_t lost_qpn = 0) {
    say_aside(what, {first, 0, 0, number, newest_told(), lost_qpn});
  }
  void say_aside(DetourHeader::What what, std::initializer_list<std::uint32_t> words) {
    std::vector<std::byte> packet = packet_of(PacketKind::kDetour, {0, static_cast<std::uint32_t>(what) << 8U | kTag});
    for (const std::uint32_t word : words) {
      packet.resize(packet.size() + sizeof word);
      store_be(packet.data() + packet.size() - sizeof word, word);
    }
    other.device.receive(other.pair(), packet);
    progress();
  }

  /// What the other port has sent for this one, but for messages.
  std::size_t told_aside() { return sent_aside(false); }
  std::size_t messages_carried() { return sent_aside(true); }
  /// The number of the newest telling that has gone by the other port.
  std::uint32_t newest_told() {
    std::uint32_t newest = 0;
    for (const FakeSend& one : other.pair().all_sends) {
      DetourHeader header;
      if (is_for_this_one(one, header) && header.what <= DetourHeader::What::kCountsAndYours) {
        newest = load_be<std::uint32_t>(one.bytes.data() + one.bytes.size() - CountsAside::kSize - sizeof newest);
      }
    }
    return newest;
  }
  std::vector<std::byte> last_aside() { return other.pair().all_sends.back().bytes; }

 private:
  static bool is_for_this_one(const FakeSend& one, DetourHeader& header) {
    return one.opcode == IBV_WR_SEND && one.bytes.size() > PacketHeader::kSize &&
           one.bytes[0] == static_cast<std::byte>(PacketKind::kDetour) &&
           header.read(one.bytes.data() + PacketHeader::kSize, one.bytes.size() - PacketHeader::kSize);
  }
  std::size_t sent_aside(bool are_messages) {
    std::size_t count = 0;
    for (const FakeSend& one : other.pair().all_sends) {
      DetourHeader header;
      if (is_for_this_one(one, header)) {
        count += (header.what == DetourHeader::What::kMessage) == are_messages ? 1 : 0;
      }
    }
    return count;
  }
  static std::vector<std::byte> packet_of(PacketKind kind, std::initializer_list<std::uint32_t> words) {
    std::vector<std::byte> packet(PacketHeader::kSize + words.size() * sizeof(std::uint32_t));
    PacketHeader{kind, 0, {}}.write(packet.data());
    std::byte* at = packet.data() + PacketHeader::kSize;
    for (const std::uint32_t word : words) {
      store_be(at, word);
      at += sizeof word;
    }
    return packet;
  }
};

}  // namespace fabric::test
