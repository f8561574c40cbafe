// SPDX-License-Identifier: BSD-3-Clause
//
// A process of the model: the product's connections on its progress thread, and its endpoints on its main thread. They meet in
// two queues of values, as in the product.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cpc/manager/connections.h"
#include "test/model/inside_connections.h"
#include "test/model/main_half.h"
#include "test/model/network.h"
#include "test/model/numbers.h"
#include "test/model/options.h"
#include "test/model/queue_pairs.h"

namespace fabric::model {

class Process {
 public:
  Process(std::uint8_t rank, const Options& options, event_base* loop, Fabric& fabric, Network& network, Ledger& ledger,
          Fault& fault);
  /// Like the end of the progress thread: every connection is dropped, and no peer is told.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] MainHalf& main() noexcept { return *main_; }
  [[nodiscard]] const MainHalf& main() const noexcept { return *main_; }

  /// Of a key, the current one first, which may be null.
  [[nodiscard]] std::vector<const cpc::Connection*> connections(std::uint8_t peer, cpc::Direction direction) const {
    return all_of(connections_, {{kJob, peer}, 0, 0, direction});
  }
  [[nodiscard]] const cpc::Connection* connection(std::uint8_t peer, cpc::Direction direction) const {
    return connections_.find({{kJob, peer}, 0, 0, direction});
  }
  [[nodiscard]] std::size_t connections() const noexcept { return connections_.count(); }

  [[nodiscard]] bool has_upcall() const noexcept { return !upcalls_.empty(); }
  /// "Connected"
  [[nodiscard]] const char* next_upcall() const;
  void take_upcall();
  [[nodiscard]] bool has_command() const noexcept { return !commands_.empty(); }
  [[nodiscard]] const char* next_command() const;
  void take_command();
  void on_request(std::unique_ptr<cpc::Channel> channel, cpc::Message request) {
    connections_.on_request(std::move(channel), std::move(request));
  }

  /// Of senders that connections share: none knows a connection that has left it.
  [[nodiscard]] bool senders_know_the_living() const;
  void see(PairNumbers& numbers, std::uint8_t peer) const;
  void add_to(Digest& digest, const ProcessNumbers& numbers) const;

  static constexpr std::array kDirections{cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming};

 private:
  class Opener final : public cpc::ChannelOpener {
   public:
    Opener(const Options& options, std::uint8_t rank, Network& network)
        : options_(options), rank_(rank), network_(network) {}
    [[nodiscard]] Result<std::unique_ptr<cpc::Channel>> open(const cpc::ChannelIdentity& identity,
                                                             const cpc::PeerTarget& /*target*/,
                                                             cpc::Message request) override {
      return network_.open(options_.cpc, identity, rank_, static_cast<std::uint8_t>(identity.peer.rank),
                           std::move(request));
    }
    /// Each node has one, and it is all that a target's offer says.
    [[nodiscard]] Result<cpc::XrcDomainPort> xrc_domain(const cpc::PeerTarget& target, std::uint16_t) const override {
      return cpc::XrcDomainPort{std::to_integer<std::uint64_t>(target.offer.front()), 0, {}};
    }

   private:
    const Options& options_;
    const std::uint8_t rank_;
    Network& network_;
  };

  void submit(cpc::Command command);
  void say(cpc::Upcall upcall);
  void add_upcall_to(Digest& digest, const cpc::Upcall& upcall, const ProcessNumbers& numbers) const;

  const std::uint8_t rank_;
  const Options& options_;
  Fabric& fabric_;
  cpc::ConnectionSettings settings_;
  ReceiveQueues queues_;
  cpc::PortContext port_;
  cpc::QueuePairMaker maker_;
  cpc::XrcMaker xrc_maker_;
  Opener opener_;
  cpc::ConnectionEnvironment environment_;
  std::optional<cpc::XrcSenders> senders_;
  std::deque<cpc::Upcall> upcalls_;
  std::deque<cpc::Command> commands_;
  cpc::Connections connections_{environment_};
  std::unique_ptr<MainHalf> main_;
};

}  // namespace fabric::model
