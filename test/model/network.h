// SPDX-License-Identifier: BSD-3-Clause
//
// The channels of the model. Those of oob behave like TCP connections: what is sent arrives in order, unless the
// connection breaks, which either side notices after what it can still read. Those of a communication manager stay as
// long as the connection, and a REFUSE travels only from the side whose answer is due.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpc/core/channel.h"
#include "test/model/digest.h"
#include "test/model/fault.h"
#include "test/model/numbers.h"
#include "test/model/queue_pairs.h"

namespace fabric::model {

class ModelChannel;
class Network;

inline constexpr std::size_t kOpener = 0;
inline constexpr std::size_t kListener = 1;

/// What two processes talk over. Side 0 opened it.
struct Wire {
  struct Side {
    std::uint8_t process = 0;
    ModelChannel* channel = nullptr;  ///< who reads; null before the REQUEST is read, and when it is closed
    bool is_closed = false;
    bool is_lost = false;      ///< it will see an error after what it can still read
    bool is_reported = false;  ///< its end has been reported
    std::deque<cpc::Message> incoming;
  };
  std::uint8_t number = 0;
  cpc::CpcTraits cpc;
  cpc::ChannelIdentity identity;  ///< as the opener sees it
  std::array<Side, 2> sides;
  bool is_dialing = false;   ///< the REQUEST has not left
  bool is_answered = false;  ///< the opener has read something that is no TARGET
  bool confirm_sent = false;
  std::array<bool, 2> has_answered{};  ///< of a communication manager: the side has said its REPLY or CONFIRM
  [[nodiscard]] bool accepted() const noexcept { return sides[kListener].channel != nullptr || was_accepted; }
  bool was_accepted = false;
};

class ModelChannel final : public cpc::Channel {
 public:
  ModelChannel(Network& network, Wire& wire, std::size_t side);
  ~ModelChannel() override;
  [[nodiscard]] const cpc::CpcTraits& cpc() const noexcept override { return wire_->cpc; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return side_ == kOpener; }
  [[nodiscard]] bool request_left() const noexcept override { return request_left_; }
  void send(cpc::Message message) override;
  [[nodiscard]] Status connect(cpc::QueuePairs& queue_pairs, const cpc::Message& from_peer) override {
    auto* const own = dynamic_cast<ModelQueuePairs*>(&queue_pairs);
    if (own != nullptr && side_ == kListener && from_peer.address.link == Transport::kIwarp) {
      own->must_listen();
    }
    return queue_pairs.connect(from_peer.address, from_peer.ends);
  }
  [[nodiscard]] cpc::ChannelHandler& handler() const noexcept { return *handler_; }

 private:
  friend class Network;
  Network& network_;
  Wire* wire_;
  std::size_t side_;
  bool request_left_ = false;
  cpc::Message request_;  ///< of an opener: for another wire
};

class Network {
 public:
  using OnRequest = std::function<void(std::uint8_t process, std::unique_ptr<cpc::Channel>, cpc::Message)>;

  /// `dials`: a REQUEST may take its time to leave.
  Network(Fault& fault, bool dials, OnRequest on_request)
      : fault_(fault), dials_(dials), on_request_(std::move(on_request)) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] std::unique_ptr<cpc::Channel> open(const cpc::CpcTraits& cpc, const cpc::ChannelIdentity& identity,
                                                   std::uint8_t from, std::uint8_t to, cpc::Message request);
  [[nodiscard]] const std::vector<std::unique_ptr<Wire>>& wires() const noexcept { return wires_; }
  [[nodiscard]] Wire& wire(std::uint8_t number) const;

  [[nodiscard]] bool has_message(const Wire& wire, std::size_t side) const;
  [[nodiscard]] static bool has_end(const Wire& wire, std::size_t side);
  [[nodiscard]] static bool can_yield(const Wire& wire);
  [[nodiscard]] static bool can_break(const Wire& wire);

  void leaves(Wire& wire);
  void deliver(Wire& wire, std::size_t side);
  void end(Wire& wire, std::size_t side);
  void yield(Wire& wire);
  /// Bit n of `kept`: what is on the way to side n still arrives.
  static void break_down(Wire& wire, unsigned kept);
  /// A process is gone, without having closed anything: from now on its channels break when they are destroyed.
  void dies(std::uint8_t process) { dead_ = process; }

  /// Nobody in it will take what peers send.
  void forget_process(std::uint8_t process);

  /// Of two processes, the lower rank first.
  void see(PairNumbers& numbers, std::uint8_t rank, std::uint8_t peer) const;
  void add_to(Digest& digest, const AllNumbers& numbers) const;

 private:
  friend class ModelChannel;
  Wire& add_wire(const cpc::CpcTraits& cpc, const cpc::ChannelIdentity& identity, std::uint8_t from, std::uint8_t to);
  void send(Wire& wire, std::size_t from, cpc::Message message);
  void close(Wire& wire, std::size_t side);
  void forget();

  Fault& fault_;
  const bool dials_;
  const OnRequest on_request_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::uint8_t last_number_ = 0;
  int dead_ = -1;
  std::vector<std::uint8_t> gone_;
  std::set<std::uint32_t> tried_;  ///< queue pairs that a communication manager has been given
};

/// What an exchange has to do with a CPC: it tells those apart whose channels are a communication manager's.
[[nodiscard]] inline bool is_managed(const cpc::CpcTraits& cpc) noexcept {
  return cpc.exchanges_cts;
}

// ---- A channel

inline ModelChannel::ModelChannel(Network& network, Wire& wire, std::size_t side)
    : network_(network), wire_(&wire), side_(side) {
  wire.sides[side].channel = this;
  identity_ = wire.identity;
  if (side == kListener) {
    std::swap(identity_.self, identity_.peer);
    std::swap(identity_.self_port, identity_.peer_port);
  }
}

inline ModelChannel::~ModelChannel() {
  network_.close(*wire_, side_);
}

inline void ModelChannel::send(cpc::Message message) {
  message.header = identity_.outgoing(message.header.type);
  network_.send(*wire_, side_, std::move(message));
}

// ---- What processes do

inline Wire& Network::add_wire(const cpc::CpcTraits& cpc, const cpc::ChannelIdentity& identity, std::uint8_t from,
                               std::uint8_t to) {
  auto wire = std::make_unique<Wire>();
  wire->number = ++last_number_;
  wire->cpc = cpc;
  wire->identity = identity;
  wire->sides[kOpener].process = from;
  wire->sides[kListener].process = to;
  wire->is_dialing = true;
  if (std::count(gone_.begin(), gone_.end(), to) != 0) {
    wire->sides[kListener].is_closed = true;
    wire->sides[kOpener].is_lost = true;
  }
  wires_.push_back(std::move(wire));
  return *wires_.back();
}

inline std::unique_ptr<cpc::Channel> Network::open(const cpc::CpcTraits& cpc, const cpc::ChannelIdentity& identity,
                                                   std::uint8_t from, std::uint8_t to, cpc::Message request) {
  Wire& wire = add_wire(cpc, identity, from, to);
  auto channel = std::make_unique<ModelChannel>(*this, wire, kOpener);
  if (is_managed(cpc)) {
    for (const cpc::QueuePairEnd& end : request.ends) {
      if (!tried_.insert(end.qpn).second) {
        fault_.add("a communication manager gets queue pairs whose attempt has failed");
      }
    }
  }
  channel->request_ = request;
  channel->send(std::move(request));
  if (!dials_ && !wire.sides[kOpener].is_lost) {
    leaves(wire);
  }
  return channel;
}

inline void Network::leaves(Wire& wire) {
  wire.is_dialing = false;
  wire.sides[kOpener].channel->request_left_ = true;
}

inline void Network::send(Wire& wire, std::size_t from, cpc::Message message) {
  const std::size_t to = 1 - from;
  const cpc::MessageType type = message.header.type;
  if (is_managed(wire.cpc) && type == cpc::MessageType::kRefuse) {
    const bool answer_is_due =
        from == kOpener ? wire.is_answered && !wire.has_answered[kOpener] : !wire.has_answered[kListener];
    if (!answer_is_due) {
      return;  // who has no word left hangs up
    }
  }
  wire.has_answered[from] =
      wire.has_answered[from] || type == cpc::MessageType::kReply || type == cpc::MessageType::kConfirm;
  wire.confirm_sent = wire.confirm_sent || type == cpc::MessageType::kConfirm;
  if (wire.sides[to].is_closed || wire.sides[from].is_lost) {
    wire.sides[from].is_lost = true;  // nobody reads it: an error instead of an orderly end
    return;
  }
  wire.sides[to].incoming.push_back(std::move(message));
}

inline void Network::close(Wire& wire, std::size_t side) {
  Wire::Side& own = wire.sides[side];
  Wire::Side& other = wire.sides[1 - side];
  if (dead_ == own.process) {
    other.is_lost = true;
    other.incoming.clear();
  }
  own.channel = nullptr;
  own.is_closed = true;
  if (!own.incoming.empty()) {
    other.is_lost = true;  // TCP resets a connection that is closed with data unread
    own.incoming.clear();
  }
  if (side == kOpener && wire.is_dialing) {
    other.incoming.clear();
    other.is_closed = true;
  }
  forget();
}

/// Wires that nobody has and nobody will get.
inline void Network::forget() {
  std::erase_if(wires_, [](const auto& wire) {
    const Wire::Side& listener = wire->sides[kListener];
    const bool has_request = !listener.is_closed && !wire->was_accepted && !listener.incoming.empty();
    const bool listener_has_it = !listener.is_closed && wire->was_accepted;
    return wire->sides[kOpener].is_closed && !has_request && !listener_has_it;
  });
}

/// Requests on the way to it meet a closed port.
inline void Network::forget_process(std::uint8_t process) {
  gone_.push_back(process);
  for (const auto& wire : wires_) {
    Wire::Side& listener = wire->sides[kListener];
    if (listener.process == process && !listener.is_closed) {
      listener.is_closed = true;
      listener.incoming.clear();
      wire->sides[kOpener].is_lost = true;
    }
  }
  forget();
}

// ---- What happens

inline Wire& Network::wire(std::uint8_t number) const {
  for (const auto& one : wires_) {
    if (one->number == number) {
      return *one;
    }
  }
  std::abort();
}

inline bool Network::has_message(const Wire& wire, std::size_t side) const {
  const Wire::Side& own = wire.sides[side];
  if (own.is_closed || own.incoming.empty() || (side == kListener && wire.is_dialing)) {
    return false;
  }
  // Sockets of one attempt are accepted in their order, and read in that order for the first time.
  return side == kOpener || wire.was_accepted || std::none_of(wires_.begin(), wires_.end(), [&](const auto& one) {
           return one->number < wire.number && !one->was_accepted && !one->sides[kListener].is_closed &&
                  !one->sides[kListener].incoming.empty() &&
                  one->sides[kOpener].process == wire.sides[kOpener].process &&
                  one->sides[kListener].process == wire.sides[kListener].process &&
                  one->identity.attempt == wire.identity.attempt &&
                  one->identity.incarnation == wire.identity.incarnation;
         });
}

inline bool Network::has_end(const Wire& wire, std::size_t side) {
  const Wire::Side& own = wire.sides[side];
  const bool has_reader = side == kOpener || wire.was_accepted;
  return has_reader && !own.is_closed && !own.is_reported && own.incoming.empty() &&
         (own.is_lost || wire.sides[1 - side].is_closed);
}

/// A socket is given up for others while all that happens is that the peer thinks.
inline bool Network::can_yield(const Wire& wire) {
  return !is_managed(wire.cpc) && !wire.is_answered && !wire.is_dialing && !wire.sides[kOpener].is_closed &&
         !wire.sides[kOpener].is_lost;
}

inline bool Network::can_break(const Wire& wire) {
  return !wire.sides[kOpener].is_lost || !wire.sides[kListener].is_lost;
}

inline void Network::deliver(Wire& wire, std::size_t side) {
  Wire::Side& own = wire.sides[side];
  cpc::Message message = std::move(own.incoming.front());
  own.incoming.pop_front();
  if (side == kListener && !wire.was_accepted) {
    wire.was_accepted = true;
    on_request_(own.process, std::make_unique<ModelChannel>(*this, wire, kListener), std::move(message));
    return;
  }
  if (side == kOpener && message.header.type != cpc::MessageType::kTarget) {
    wire.is_answered = true;
  }
  ModelChannel& channel = *own.channel;
  if (is_managed(wire.cpc) && message.header.type == cpc::MessageType::kRefuse) {
    own.is_reported = true;  // it is the end, too
  }
  channel.handler().on_message(channel, std::move(message));
}

inline void Network::end(Wire& wire, std::size_t side) {
  Wire::Side& own = wire.sides[side];
  own.is_reported = true;
  const bool taken = !is_managed(wire.cpc) && side == kOpener && wire.confirm_sent && !own.is_lost;
  own.channel->handler().on_lost(*own.channel, "the channel has broken", taken);
}

inline void Network::yield(Wire& wire) {
  ModelChannel& channel = *wire.sides[kOpener].channel;
  cpc::Message pause;
  pause.header.type = cpc::MessageType::kPause;
  channel.send(std::move(pause));
  Wire& next = add_wire(wire.cpc, wire.identity, wire.sides[kOpener].process, wire.sides[kListener].process);
  next.sides[kOpener].channel = &channel;
  channel.wire_ = &next;
  channel.send(channel.request_);
  close(wire, kOpener);
}

inline void Network::break_down(Wire& wire, unsigned kept) {
  for (std::size_t side = 0; side < 2; ++side) {
    wire.sides[side].is_lost = true;
    if ((kept >> side & 1U) == 0) {
      wire.sides[side].incoming.clear();
    }
  }
}

inline void Network::see(PairNumbers& numbers, std::uint8_t rank, std::uint8_t peer) const {
  for (const auto& wire : wires_) {
    const std::uint8_t from = wire->sides[kOpener].process;
    const std::uint8_t to = wire->sides[kListener].process;
    if (std::min(from, to) == rank && std::max(from, to) == peer) {
      numbers.attempts[from < to ? 0 : 1].see(wire->identity.attempt);
      numbers.incarnations.see(wire->identity.incarnation);
      for (const Wire::Side& side : wire->sides) {
        for (const cpc::Message& message : side.incoming) {
          numbers.incarnations.see(message.newest);
        }
      }
    }
  }
}

inline void Network::add_to(Digest& digest, const AllNumbers& all_numbers) const {
  for (const auto& wire : wires_) {
    const std::uint8_t from = wire->sides[kOpener].process;
    const std::uint8_t to = wire->sides[kListener].process;
    const PairNumbers& numbers = all_numbers[from][to];
    digest.add(numbers.attempts[from < to ? 0 : 1].of(wire->identity.attempt) |
               std::uint64_t{numbers.incarnations.of(wire->identity.incarnation)} << 32U);
    digest.add_name(0x10000U + wire->number);
    digest.add(std::uint64_t{wire->is_dialing} << 32U | std::uint64_t{wire->is_answered} << 33U |
               std::uint64_t{wire->confirm_sent} << 34U | std::uint64_t{wire->was_accepted} << 35U |
               std::uint64_t{wire->has_answered[0]} << 36U | std::uint64_t{wire->has_answered[1]} << 37U);
    for (const Wire::Side& side : wire->sides) {
      digest.add(side.process | (side.channel != nullptr ? 16U : 0U) | (side.is_closed ? 32U : 0U) |
                 (side.is_lost ? 64U : 0U) | (side.is_reported ? 128U : 0U) |
                 (side.channel != nullptr && side.channel->request_left() ? 256U : 0U));
      for (const cpc::Message& message : side.incoming) {
        digest.add(static_cast<unsigned>(message.header.type) | static_cast<unsigned>(message.reason) << 8U |
                   std::uint64_t{numbers.incarnations.of(message.newest)} << 32U);
        for (const cpc::QueuePairEnd& end : message.ends) {
          digest.add_name(end.qpn);
        }
        digest.add_name(message.xrc.target_qpn);
      }
      digest.add(side.incoming.size());
    }
  }
  digest.add(wires_.size());
}

}  // namespace fabric::model
