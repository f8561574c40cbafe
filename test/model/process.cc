// SPDX-License-Identifier: BSD-3-Clause
#include "test/model/process.h"

#include <algorithm>
#include <string>
#include <variant>

namespace fabric::model {
namespace {

/// The queue list of every process.
ReceiveQueues queues_of(const Options& options) {
  if (options.cpc.one_way) {
    return *ReceiveQueues::parse("X,256,8,4");
  }
  const std::string first = options.first_queue_is_shared ? "S,256,8,4" : "P,256,4";
  return *ReceiveQueues::parse(options.queues > 1 ? first + ":P,512,4" : first);
}

/// Process 0 is on a node of its own, the others share one.
std::uint8_t node_of(std::uint8_t rank) {
  return rank == 0 ? 1 : 2;
}

/// The pauses before so many further attempts (connection_actions.cc).
unsigned retry_time_of(unsigned retries) {
  unsigned sum = 0;
  for (unsigned i = 0; i < retries; ++i) {
    sum += std::min(100U << std::min(i, 5U), 3000U);
  }
  return sum;
}

}  // namespace

Process::Process(std::uint8_t rank, const Options& options, event_base* loop, Fabric& fabric, Network& network,
                 Ledger& ledger, Fault& fault)
    : rank_(rank), options_(options), fabric_(fabric), queues_(queues_of(options)), opener_(options, rank, network) {
  settings_.self = {kJob, rank};
  settings_.retry_time_ms = retry_time_of(options.retries);
  port_.queues = &queues_;
  port_.subsets = {QueueSubset::all(queues_)};
  port_.address.link = options.transport;
  port_.xrc_domain = node_of(rank);
  maker_ = [this](const cpc::PortContext&, const QueueSubset& queues) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    if (fabric_.takes_failure()) {
      auto refused = failure("the device of the model has no queue pair left");
      refused.value().is_shortage = true;
      return refused;
    }
    return std::make_unique<ModelQueuePairs>(fabric_, rank_, queues.queues());
  };
  xrc_maker_ = model_xrc_maker(fabric, rank);
  senders_.emplace(loop, xrc_maker_);
  environment_.loop = loop;
  environment_.settings = &settings_;
  environment_.make_queue_pairs = &maker_;
  environment_.senders = &*senders_;
  environment_.port = [this](std::uint16_t) { return &port_; };
  environment_.opener = [this](CpcKind) { return &opener_; };
  environment_.say = [this](cpc::Upcall upcall) { say(std::move(upcall)); };
  main_ = std::make_unique<MainHalf>(
      MainEnvironment{rank, options.processes, fabric.device(rank),
                      options.other_way ? &fabric.other_device(rank) : nullptr, queues_, options.heals, options.goes_on,
                      port_, ledger, fault, [this](cpc::Command command) { submit(std::move(command)); },
                      [&options](std::uint8_t peer) {
                        return CpcOffer{options.cpc.kind, 50, 3, {static_cast<std::byte>(node_of(peer))}};
                      }});
}

Process::~Process() {
  connections_.clear();
}

// ---- What the threads tell each other

void Process::submit(cpc::Command command) {
  const Mistake mistake = options_.mistake;
  if (mistake == Mistake::kCloseLost && std::holds_alternative<cpc::Close>(command)) {
    return;
  }
  if (mistake == Mistake::kOldNumber) {
    std::visit([](auto& one) { one.link -= one.link > 1 ? 1 : 0; }, command);
  }
  const cpc::Close* const close = std::get_if<cpc::Close>(&command);
  std::optional<cpc::Destroy> destroy;
  if (mistake == Mistake::kDestroyEarly && close != nullptr) {
    destroy = {close->key, close->link};
  }
  commands_.push_back(std::move(command));
  if (destroy) {
    commands_.emplace_back(*destroy);
  }
  while (!options_.commands_wait && !commands_.empty()) {
    take_command();
  }
}

void Process::say(cpc::Upcall upcall) {
  const bool is_lost = (options_.mistake == Mistake::kPeerLeftLost && std::holds_alternative<cpc::PeerLeft>(upcall)) ||
                       (options_.mistake == Mistake::kFlushingLost && std::holds_alternative<cpc::Flushing>(upcall));
  if (!is_lost) {
    upcalls_.push_back(std::move(upcall));
  }
}

const char* Process::next_upcall() const {
  static constexpr std::array kNames{"PostReceives", "Connected",  "Linked",         "PeerLeft",
                                     "Failed",       "Flushing",   "QueuePairsGone", "AsyncEvent",
                                     "Shortage",     "RoomWanted", "KeepAliveDue",   "Remark"};
  static_assert(kNames.size() == std::variant_size_v<cpc::Upcall>);
  return kNames[upcalls_.front().index()];
}

void Process::take_upcall() {
  cpc::Upcall upcall = std::move(upcalls_.front());
  upcalls_.pop_front();
  if (auto* const over = std::get_if<cpc::Flushing>(&upcall);
      over != nullptr && options_.mistake == Mistake::kFlushingOfNewest) {
    over->link = lane_of(connections_, over->key)->newest;
  }
  main_->on_upcall(upcall);
  for (const auto& pair : fabric_.all()) {
    if (options_.mistake == Mistake::kReceivesNotPosted && pair->process == rank_) {
      std::erase_if(pair->posted->receives, [](const test::FakeReceive& one) {
        return (one.id & kSendTagMask) != static_cast<std::uint64_t>(SendTag::kHandshake);
      });
    }
  }
}

const char* Process::next_command() const {
  static constexpr std::array kNames{"Connect", "ReceivesPosted", "PeerSpoke", "Close", "Destroy"};
  static_assert(kNames.size() == std::variant_size_v<cpc::Command>);
  return kNames[commands_.front().index()];
}

void Process::take_command() {
  cpc::Command command = std::move(commands_.front());
  commands_.pop_front();
  connections_.handle(std::move(command));
}

// ---- For the checker

bool Process::senders_know_the_living() const {
  std::vector<const cpc::XrcShare*> alive;
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    for (const cpc::Connection* one : connections(peer, cpc::Direction::kOutgoing)) {
      if (one != nullptr && share_of(*one) != nullptr) {
        alive.push_back(share_of(*one));
      }
    }
  }
  const auto is_alive = [&alive](const cpc::XrcShare* one) {
    return std::find(alive.begin(), alive.end(), one) != alive.end();
  };
  return std::all_of(alive.begin(), alive.end(), [&](const cpc::XrcShare* share) {
    const cpc::XrcSender& sender = *inside(*share, XrcShare_sender_{});
    const cpc::XrcShare* const owner = inside(sender, XrcSender_owner_{});
    const auto& line = inside(sender, XrcSender_waiting_{});
    return (owner == nullptr || is_alive(owner)) && std::all_of(line.begin(), line.end(), is_alive);
  });
}

void Process::see(PairNumbers& numbers, std::uint8_t peer) const {
  main_->see(numbers, peer);
  for (const cpc::Upcall& upcall : upcalls_) {
    if (const auto* one = std::get_if<cpc::PostReceives>(&upcall); one != nullptr && one->key.peer.rank == peer) {
      numbers.incarnations.see(one->incarnation);
    }
    if (const auto* one = std::get_if<cpc::Connected>(&upcall); one != nullptr && one->key.peer.rank == peer) {
      numbers.incarnations.see(one->xrc.incarnation);
    }
  }
  Ranked& ours = numbers.attempts[rank_ < peer ? 0 : 1];
  Ranked& theirs = numbers.attempts[rank_ < peer ? 1 : 0];
  for (const cpc::Direction direction : kDirections) {
    for (const cpc::Connection* one : connections(peer, direction)) {
      if (one != nullptr) {
        numbers.incarnations.see(one->incarnation());
        ours.see(inside(*one, Connection_attempt_{}));
        theirs.see(inside(*one, Connection_peer_attempt_{}));
      }
    }
    if (const auto* lane = lane_of(connections_, {{kJob, peer}, 0, 0, direction}); lane != nullptr) {
      numbers.incarnations.see(inside(lane->incarnations, Incarnations_newest_{}));
      numbers.incarnations.see(inside(lane->incarnations, Incarnations_ended_{}));
    }
  }
}

void Process::add_to(Digest& digest, const ProcessNumbers& numbers) const {
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    const PairNumbers& with_peer = numbers[peer];
    for (const cpc::Direction direction : kDirections) {
      const auto* lane = lane_of(connections_, {{kJob, peer}, 0, 0, direction});
      if (lane == nullptr) {
        digest.add(0);
        continue;
      }
      digest.add(with_peer.incarnations.of(inside(lane->incarnations, Incarnations_newest_{})) |
                 std::uint64_t{with_peer.incarnations.of(inside(lane->incarnations, Incarnations_ended_{}))} << 32U);
      digest.add(lane->next ? 1 : 0);
      digest.add(lane->newest - lane->wanted);
      for (const cpc::Connection* one : connections(peer, direction)) {
        digest.add(one != nullptr ? 1 + lane->newest - one->link() : 0);
        if (one != nullptr) {
          digest.add(with_peer.incarnations.of(one->incarnation()));
          digest.add(
              with_peer.attempts[rank_ < peer ? 0 : 1].of(inside(*one, Connection_attempt_{})) |
              std::uint64_t{with_peer.attempts[rank_ < peer ? 1 : 0].of(inside(*one, Connection_peer_attempt_{}))}
                  << 32U);
          model::add_to(digest, *one);
        }
      }
      digest.add(99);
    }
  }
  for (const cpc::Upcall& upcall : upcalls_) {
    add_upcall_to(digest, upcall, numbers);
  }
  for (const cpc::Command& command : commands_) {
    std::visit(
        [&](const auto& one) {
          digest.add(command.index() | one.key.peer.rank << 8U | static_cast<unsigned>(one.key.direction) << 12U);
          digest.add(one.link);
        },
        command);
  }
  digest.add(upcalls_.size() | commands_.size() << 16U);
  main_->add_to(digest, numbers);
}

void Process::add_upcall_to(Digest& digest, const cpc::Upcall& upcall, const ProcessNumbers& numbers) const {
  digest.add(upcall.index() + 1);
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.key; }) {
          const auto* lane = lane_of(connections_, one.key);
          digest.add(one.key.peer.rank << 2U | static_cast<unsigned>(one.key.direction));
          digest.add(lane->newest - one.link);
        }
        if constexpr (requires { one.queue_pairs; }) {
          for (const ibv_qp* queue_pair : one.queue_pairs) {
            digest.add_name(queue_pair->qp_num);
          }
        }
        if constexpr (requires { one.target_qpn; }) {
          digest.add_name(one.target_qpn);
          digest.add(numbers[one.key.peer.rank].incarnations.of(one.incarnation));
        }
        if constexpr (requires { one.xrc; }) {
          digest.add_name(one.xrc.queue_pair != nullptr ? one.xrc.queue_pair->qp_num : 0);
          digest.add(numbers[one.key.peer.rank].incarnations.of(one.xrc.incarnation));
        }
        if constexpr (requires { one.was_wanted; }) {
          digest.add(one.was_wanted ? 1 : 0);
        }
      },
      upcall);
}

}  // namespace fabric::model
