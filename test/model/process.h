// SPDX-License-Identifier: BSD-3-Clause
//
// A process of the model: the product's connections on its progress thread, and a main thread's half. They meet in two
// queues of values, as in the product.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cpc/manager/connections.h"
#include "test/model/endpoint_driver.h"
#include "test/model/inside.h"
#include "test/model/network.h"
#include "test/model/options.h"
#include "test/model/xrc_queue_pairs.h"

namespace fabric::model {

class Process {
 public:
  Process(std::uint8_t rank, const Options& options, event_base* loop, Fabric& fabric, Network& network, Ledger& ledger,
          Fault& fault);
  /// Like the end of the progress thread: every connection is dropped without a word.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] std::uint8_t rank() const noexcept { return rank_; }
  [[nodiscard]] MainHalf& main() noexcept { return *main_; }
  [[nodiscard]] const MainHalf& main() const noexcept { return *main_; }
  [[nodiscard]] const cpc::Connection* connection(std::uint8_t peer, cpc::Direction direction) const {
    return connections_.find({{kJob, peer}, 0, 0, direction});
  }
  [[nodiscard]] bool has_upcall() const noexcept { return !upcalls_.empty(); }
  void take_upcall();
  /// "Connected"
  [[nodiscard]] const char* next_upcall() const {
    static constexpr std::array kNames{"PostReceives", "Connected", "Linked",     "PeerLeft",
                                       "Failed",       "Flushing",  "AsyncEvent", "Shortage"};
    static_assert(kNames.size() == std::variant_size_v<cpc::Upcall>);
    return kNames[upcalls_.front().index()];
  }
  void on_request(std::unique_ptr<cpc::Channel> channel, cpc::Message request) {
    connections_.on_request(std::move(channel), std::move(request));
  }

  /// Of senders that connections share: none knows a connection that has left it.
  [[nodiscard]] bool senders_know_the_living() const;

  void add_to(Digest& digest) const;

  static constexpr std::uint32_t kJob = 7;
  static constexpr std::array kDirections{cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming};

 private:
  class Opener final : public cpc::ChannelOpener {
   public:
    Opener(const Process& process, Network& network) : process_(process), network_(network) {}
    [[nodiscard]] Result<std::unique_ptr<cpc::Channel>> open(const cpc::ChannelIdentity& identity,
                                                             const cpc::PeerTarget& target,
                                                             cpc::Message request) override {
      return network_.open(target.cpc, identity, process_.rank_, static_cast<std::uint8_t>(identity.peer.rank),
                           std::move(request));
    }

    /// Each node has one, and it is all that a target's offer says.
    [[nodiscard]] Result<cpc::XrcDomainPort> xrc_domain(const cpc::PeerTarget& target, std::uint16_t) const override {
      return cpc::XrcDomainPort{std::to_integer<std::uint64_t>(target.offer.front()), 0, {}};
    }

   private:
    const Process& process_;
    Network& network_;
  };

  const std::uint8_t rank_;
  const std::uint8_t processes_;
  cpc::ConnectionSettings settings_;
  ReceiveQueues queues_;
  cpc::PortContext port_;
  cpc::QueuePairMaker maker_;
  cpc::XrcMaker xrc_maker_;
  Opener opener_;
  cpc::ConnectionEnvironment environment_;
  std::optional<cpc::XrcSenders> senders_;
  std::deque<cpc::Upcall> upcalls_;
  cpc::Connections connections_{environment_};
  std::unique_ptr<MainHalf> main_;
};

/// The queue list of every process.
inline ReceiveQueues queues_of(const Options& options) {
  if (options.cpc.one_way) {
    return *ReceiveQueues::parse("X,4096,8,4");
  }
  std::string text = options.first_queue_is_shared ? "S,4096,8,4" : "P,4096,8,4";
  for (std::uint8_t i = 1; i < options.queues; ++i) {
    text += ":P," + std::to_string(4096 << i) + ",8,4";
  }
  return *ReceiveQueues::parse(text);
}

/// Process 0 is on a node of its own, the others share one.
[[nodiscard]] inline std::uint64_t node_of(std::uint8_t rank) {
  return rank == 0 ? 1 : 2;
}

/// How peers reach a process.
[[nodiscard]] inline cpc::PeerTarget target_of(const cpc::CpcTraits& cpc, std::uint8_t rank) {
  cpc::PeerTarget target;
  target.cpc = cpc;
  target.offer.push_back(static_cast<std::byte>(node_of(rank)));
  return target;
}

inline Process::Process(std::uint8_t rank, const Options& options, event_base* loop, Fabric& fabric, Network& network,
                        Ledger& ledger, Fault& fault)
    : rank_(rank), processes_(options.processes), queues_(queues_of(options)), opener_(*this, network) {
  settings_.self = {kJob, rank};
  settings_.retry_time_ms = ((1U << options.retries) - 1) * 100;  // the first pause is 100 ms, and each twice the last
  port_.queues = &queues_;
  port_.xrc_domain = node_of(rank);
  xrc_maker_ = model_xrc_maker(fabric, rank);
  port_.address.link = options.transport;
  maker_ = [&fabric, &options, rank,
            count = queues_.count()](const cpc::PortContext&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    if (fabric.takes_failure()) {
      return failure("the device of the model has no queue pair left");
    }
    return std::make_unique<ModelQueuePairs>(fabric, rank, count, options.first_queue_is_shared);
  };
  environment_.loop = loop;
  environment_.settings = &settings_;
  environment_.make_queue_pairs = &maker_;
  senders_.emplace(loop, xrc_maker_);
  environment_.senders = &*senders_;
  environment_.port = [this](std::uint16_t) { return &port_; };
  environment_.opener = [this](CpcKind) { return &opener_; };
  environment_.say = [this](cpc::Upcall upcall) { upcalls_.push_back(std::move(upcall)); };
  main_ = std::make_unique<EndpointDriver>(
      MainEnvironment{rank, fabric, ledger, fault,
                      [this](cpc::Command command) { connections_.handle(std::move(command)); },
                      [cpc = options.cpc](std::uint8_t peer) { return target_of(cpc, peer); }},
      options.mistake);
}

inline Process::~Process() {
  connections_.clear();
}

inline void Process::take_upcall() {
  cpc::Upcall upcall = std::move(upcalls_.front());
  upcalls_.pop_front();
  main_->on_upcall(std::move(upcall));
}

inline bool Process::senders_know_the_living() const {
  std::vector<const cpc::XrcShare*> alive;
  for (std::uint8_t peer = 0; peer < processes_; ++peer) {
    const cpc::Connection* const one = connection(peer, cpc::Direction::kOutgoing);
    if (one != nullptr && share_of(*one) != nullptr) {
      alive.push_back(share_of(*one));
    }
  }
  return std::all_of(alive.begin(), alive.end(),
                     [&alive](const cpc::XrcShare* one) { return knows_only(*one, alive); });
}

inline void Process::add_to(Digest& digest) const {
  for (std::uint8_t peer = 0; peer < processes_; ++peer) {
    for (const cpc::Direction direction : kDirections) {
      const cpc::Connection* const one = connection(peer, direction);
      digest.add(one != nullptr ? 1 : 0);
      if (one != nullptr) {
        model::add_to(digest, *one);
      }
      model::add_to(digest, connections_, {{kJob, peer}, 0, 0, direction});
    }
  }
  for (const cpc::Upcall& upcall : upcalls_) {
    digest.add(upcall.index() + 1);
    std::visit(
        [&digest](const auto& one) {
          if constexpr (requires { one.queue_pairs; }) {
            for (const ibv_qp* queue_pair : one.queue_pairs) {
              digest.add_name(queue_pair->qp_num);
            }
          }
          if constexpr (requires { one.key; }) {
            digest.add(one.key.peer.rank << 2U | static_cast<unsigned>(one.key.direction) |
                       std::uint64_t{one.link} << 32U);
          }
          if constexpr (requires { one.was_wanted; }) {
            digest.add(one.was_wanted ? 1 : 0);
          }
          if constexpr (requires { one.target_qpn; }) {
            digest.add_name(one.target_qpn);
          }
          if constexpr (requires { one.xrc; }) {
            digest.add_name(one.xrc.queue_pair != nullptr ? one.xrc.queue_pair->qp_num : 0);
          }
        },
        upcall);
  }
  digest.add(upcalls_.size());
  main_->add_to(digest);
}

}  // namespace fabric::model
