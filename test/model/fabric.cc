// SPDX-License-Identifier: BSD-3-Clause
#include "test/model/fabric.h"

#include <algorithm>

#include "btl_fabric/base/detour_header.h"
#include "btl_fabric/base/packet_header.h"

namespace fabric::model {
namespace {

/// A Choice names one by 8 bits.
constexpr std::uint32_t kMostQueuePairs = 200;

/// That a goodbye of X queues names; 0: it is none.
std::uint32_t incarnation_of(const test::FakeSend& packet) {
  const bool is_goodbye = packet.bytes.size() == PacketHeader::kSize + sizeof(std::uint32_t) &&
                          packet.bytes[0] == static_cast<std::byte>(PacketKind::kGoodbye);
  return is_goodbye ? load_be<std::uint32_t>(packet.bytes.data() + PacketHeader::kSize) : 0;
}

/// X queues: what counts say beside.
CountsOfOneWay said_with_counts(const test::FakeSend& packet) {
  constexpr std::size_t kMostOfOthers = PacketHeader::kSize + counts_size(3);  // of two queues and a ring
  const bool is_counts =
      packet.bytes.size() > kMostOfOthers && packet.bytes[0] == static_cast<std::byte>(PacketKind::kCounts);
  return is_counts ? CountsOfOneWay::read(&packet.bytes.back() + 1 - CountsOfOneWay::kSize) : CountsOfOneWay();
}

void claim_to_know(test::FakeSend& packet) {
  DetourHeader header;
  if (packet.bytes[0] == static_cast<std::byte>(PacketKind::kDetour) &&
      header.read(packet.bytes.data() + PacketHeader::kSize, packet.bytes.size() - PacketHeader::kSize) &&
      header.what <= DetourHeader::What::kCountsAndYours) {
    std::byte* const more = packet.bytes.data() + packet.bytes.size() - CountsAside::kSize;
    CountsAside{0x40000000, CountsAside::read(more).lost_qpn}.write(more);
  }
}

}  // namespace

Fabric::Fabric(Fault& fault, std::size_t processes, bool is_iwarp) : fault_(fault), is_iwarp_(is_iwarp) {
  for (std::size_t i = 0; i < processes; ++i) {
    devices_[i] = std::make_unique<test::FakeDevice>();
    other_devices_[i] = std::make_unique<test::FakeDevice>();
  }
}

QueuePair* Fabric::find(std::uint32_t number) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [number](const auto& one) { return one->number == number; });
  return found == all_.end() ? nullptr : found->get();
}

// ---- What a progress thread does

QueuePair& Fabric::make(std::uint8_t process, bool is_shared, bool is_other_way) {
  QueuePair& made = *all_.emplace_back(std::make_unique<QueuePair>());
  made.is_other_way = is_other_way;
  made.posted = &device(made, process).make_queue_pair();
  made.number = ++last_number_;
  if (last_number_ >= kMostQueuePairs) {
    fault_.add("connections are made again and again");
  }
  made.posted->verbs.qp_num = made.number;
  made.process = process;
  made.is_shared = is_shared;
  return made;
}

std::pair<ibv_qp*, ibv_qp*> Fabric::make_other_way(std::uint8_t process, std::uint8_t peer, bool is_shared) {
  QueuePair& ours = make(process, is_shared, true);
  QueuePair& theirs = make(peer, is_shared, true);
  connect(ours, theirs.number, false);
  connect(theirs, ours.number, false);
  return {&ours.posted->verbs, &theirs.posted->verbs};
}

void Fabric::post_handshake(QueuePair& pair, QueuePair& slot) {
  pair.posted->receives.push_back({std::uint64_t{slot.number} << cpc::kHandshakeTagBits | cpc::kHandshakeTag,
                                   {reinterpret_cast<std::uintptr_t>(slot.handshake.data()), cpc::kHandshakeBytes, 0}});
}

void Fabric::connect(QueuePair& pair, std::uint32_t remote, bool must_listen) {
  if (pair.state != QueuePair::State::kInit) {
    fault_.add("a queue pair is connected twice");
    return;
  }
  pair.state = QueuePair::State::kReady;
  pair.remote = remote;
  pair.must_listen = must_listen;
}

void Fabric::flush(QueuePair& pair) {
  pair.state = QueuePair::State::kError;
}

/// What its main thread has not polled by now it never will.
void Fabric::destroy(QueuePair& pair) {
  pair.posted->is_destroyed = true;
  const std::uint32_t number = pair.number;
  std::erase_if(all_, [number](const auto& one) { return one->number == number; });
}

// ---- XRC

QueuePair& Fabric::make_target(std::uint8_t process, std::uint64_t domain, std::uint32_t sender) {
  ++targets_made_;
  QueuePair& made = make(process, true);
  made.process = kMostProcesses;
  made.is_target = true;
  made.domain = domain;
  made.remote = sender;
  made.handles = 1;
  return made;
}

QueuePair* Fabric::take_target(std::uint64_t domain, std::uint32_t number, std::uint32_t sender) {
  QueuePair* const target = find(number);
  if (target == nullptr || target->domain != domain) {
    return nullptr;
  }
  if (target->state != QueuePair::State::kReady || target->remote != sender) {
    fault_.add("a target is taken that is another sender's, or is not connected");
  }
  ++target->handles;
  return target;
}

void Fabric::drop_target(QueuePair& target) {
  if (--target.handles == 0) {
    destroy(target);
  }
}

// ---- What happens

bool Fabric::can_go(const QueuePair& from) const {
  if (from.posted->sends.empty() || from.state != QueuePair::State::kReady) {
    return false;
  }
  const QueuePair* const to = find(from.remote);
  if (to == nullptr || to->state == QueuePair::State::kError || to->remote != from.number) {
    return true;  // it fails
  }
  if (to->state == QueuePair::State::kInit) {
    return false;  // the device tries again until it is ready
  }
  const std::uint8_t reader = reader_of(*to, from.posted->sends.front());
  return !to->is_shared || gone_[reader] ||
         !(to->is_other_way ? other_devices_ : devices_)[reader]->shared_queue().receives.empty();
}

void Fabric::go(QueuePair& from, bool twice) {
  QueuePair* const to = find(from.remote);
  if (claims_to_know && from.is_other_way) {
    claim_to_know(from.posted->sends.front());
  }
  const test::FakeSend packet = from.posted->sends.front();
  const std::uint8_t reader = to != nullptr ? reader_of(*to, packet) : 0;
  if (!is_usable(to) || to->remote != from.number || gone_[reader]) {
    device(from, from.process).fail_send(*from.posted, IBV_WC_RETRY_EXC_ERR);
    flush(from);
    return;
  }
  if (from.must_listen) {
    fault_.add("the side that has accepted an iWARP connection sends first");
  }
  deliver(from, *to, twice);
  if ((packet.flags & IBV_SEND_SIGNALED) != 0) {
    device(from, from.process).complete_send(*from.posted);
  } else {
    from.posted->sends.pop_front();
  }
}

void Fabric::deliver(QueuePair& from, QueuePair& to, bool twice) {
  const test::FakeSend& packet = from.posted->sends.front();
  const std::uint8_t reader = reader_of(to, packet);
  auto& receives = to.is_shared ? device(to, reader).shared_queue().receives : to.posted->receives;
  if (receives.empty() || receives.front().memory.length < packet.bytes.size()) {
    fault_.add("a message is sent before the peer has posted a receive for it");
    return;
  }
  to.must_listen = false;
  ++to.received;
  if (to.is_shared) {
    device(to, reader).receive(device(to, reader).shared_queue(), *to.posted, packet.bytes);
  } else {
    device(to, reader).receive(*to.posted, packet.bytes);
    if (twice && !to.posted->receives.empty()) {
      device(to, reader).receive(*to.posted, packet.bytes);
    }
  }
}

bool Fabric::can_fail(const QueuePair& pair, bool arrives) const {
  if (pair.state != QueuePair::State::kReady || pair.is_target || pair.is_other_way) {
    return false;
  }
  const QueuePair* const to = find(pair.remote);
  return !arrives || (can_go(pair) && is_usable(to) && to->remote == pair.number &&
                      !gone_[reader_of(*to, pair.posted->sends.front())] && !pair.must_listen);
}

bool Fabric::fail(QueuePair& pair, bool arrives) {
  if (arrives) {
    deliver(pair, *find(pair.remote), false);
  }
  const bool is_silent = pair.posted->sends.empty();
  if (!is_silent) {
    device(pair, pair.process).fail_send(*pair.posted, IBV_WC_RETRY_EXC_ERR);
  }
  flush(pair);
  return is_silent;
}

bool Fabric::can_break(const QueuePair& pair) const {
  return is_iwarp_ && pair.state == QueuePair::State::kReady && !is_usable(find(pair.remote)) &&
         (find(pair.remote) == nullptr || find(pair.remote)->state != QueuePair::State::kInit);
}

void Fabric::settle() {
  for (const auto& one : all_) {
    if (one->state == QueuePair::State::kError && !one->is_target) {
      device(*one, one->process).flush(*one->posted);
    }
  }
}

bool Fabric::has_queue_pairs() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return !one->is_other_way; });
}

bool Fabric::has_queue_pairs(std::uint8_t process) const {
  return std::any_of(all_.begin(), all_.end(),
                     [process](const auto& one) { return one->process == process && !one->is_other_way; });
}

void Fabric::see(PairNumbers& numbers, std::uint8_t rank, std::uint8_t peer) const {
  for (const auto& one : all_) {
    for (const test::FakeSend& send : one->posted->sends) {
      const auto reader = static_cast<std::uint8_t>(send.remote_srqn);
      if ((one->process == rank && reader == peer) || (one->process == peer && reader == rank)) {
        numbers.incarnations.see(incarnation_of(send));
        numbers.incarnations.see(said_with_counts(send).asks);
        numbers.incarnations.see(said_with_counts(send).answers);
      }
    }
  }
}

void Fabric::add_to(Digest& digest, const AllNumbers& numbers) const {
  for (const auto& one : all_) {
    const test::FakeQueuePair& posted = *one->posted;
    digest.add_name(one->number);
    digest.add_name(one->remote);
    digest.add(one->process | static_cast<unsigned>(one->state) << 4U | (one->must_listen ? 0x100U : 0U) |
               one->handles << 12U | std::uint64_t{one->received} << 20U);
    digest.add(posted.sends.size() | posted.receives.size() << 16U | posted.all_sends.size() << 32U);
    for (const test::FakeSend& send : posted.sends) {
      digest.add(send.bytes.size() | std::uint64_t{send.flags} << 16U | std::uint64_t{send.remote_srqn} << 32U);
      const std::uint32_t incarnation = incarnation_of(send);
      const std::size_t shown = incarnation != 0 ? PacketHeader::kSize : one->is_other_way ? send.bytes.size() : 16;
      for (std::size_t i = 0; i < std::min(send.bytes.size(), shown); ++i) {
        digest.add(std::to_integer<unsigned>(send.bytes[i]));
      }
      if (incarnation != 0) {
        digest.add(numbers[one->process][send.remote_srqn].incarnations.of(incarnation));
      }
      if (const CountsOfOneWay said = said_with_counts(send); said.asks != 0 || said.answers != 0) {
        const Shifted& incarnations = numbers[one->process][send.remote_srqn].incarnations;
        digest.add(incarnations.of(said.asks) | std::uint64_t{incarnations.of(said.answers)} << 32U);
      }
    }
  }
  for (const auto* devices : {&devices_, &other_devices_}) {
    for (const auto& device : *devices) {
      if (device) {
        digest.add(device->completions.size() |
                   (device->has_shared_queue() ? device->shared_queue().receives.size() << 16U : 0U));
        for (const ibv_wc& completion : device->completions) {
          digest.add(std::uint64_t{completion.qp_num} << 8U | completion.status);
        }
      }
    }
  }
  digest.add(all_.size() | (next_fails ? 1U << 16U : 0U));
}

}  // namespace fabric::model
