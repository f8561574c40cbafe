// SPDX-License-Identifier: BSD-3-Clause
//
// All connections of a process: who gets a command of the main thread or a request of a peer, and which connection follows
// another.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpc/core/channel.h"
#include "cpc/core/connection.h"
#include "cpc/core/cpc.h"
#include "cpc/core/incarnations.h"
#include "cpc/manager/waiting_room.h"

namespace fabric::cpc {

/// Progress thread only. A key has at most one connection that is or comes to be of use, the current one, and any number
/// that are being taken down. A connection is forgotten when it is Closed; the numbers of its key stay.
class Connections final : private ConnectionOwner {
 public:
  /// `environment` outlives this.
  explicit Connections(const ConnectionEnvironment& environment) : environment_(environment) {}
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void handle(Command command);
  /// Refuses what no connection could accept.
  void on_request(std::unique_ptr<Channel> channel, Message request);
  /// Drops every connection; no peer is told.
  void clear() noexcept {
    patience_.reset();
    rooms_.clear();
    lanes_.clear();
  }

  /// The current one, or null.
  [[nodiscard]] const Connection* find(const ConnectionKey& key) const noexcept;
  /// Those that are on their way up or down, or wait for queue pairs, for whoever looks for the reason of a hang: an array.
  [[nodiscard]] nlohmann::ordered_json describe() const;
  /// Those that are not forgotten.
  [[nodiscard]] std::size_t count() const noexcept;

 private:
  /// What a key has one after the other.
  struct Lane {
    Incarnations incarnations;
    LinkNumber newest = 0;
    LinkNumber wanted = 0;  ///< by the latest Connect
    std::unique_ptr<Connection> current;
    std::optional<Connect> next;  ///< waits for the end of the current one, which the main thread has done with
    std::vector<std::unique_ptr<Connection>> ending;
  };

  void on(Connect& command);
  void on(ReceivesPosted& command);
  void on(PeerSpoke& command);
  void on(Close& command);
  void on(Destroy& command);
  void on_event(Connection& connection) override;
  void connect_next(Lane& lane);
  void succeed(Lane& lane, const ConnectionKey& key, Succession succession);

  // Where queue pairs are short (connections_room.cc)
  /// There are queue pairs for a connection that a peer asks for by `request`, or (null) that goes to `target`. If so those are
  /// given, or nothing where it makes them itself.
  /// Who has `waited` for long need not keep to the budget, only to what the device has.
  [[nodiscard]] std::optional<std::unique_ptr<QueuePairs>> prepare(const ConnectionKey& key, const Message* request,
                                                                   const PeerTarget* target,
                                                                   std::chrono::milliseconds waited = {});
  void begin(Lane& lane, Connect command);
  void begin(WaitingConnection& waiting, std::unique_ptr<QueuePairs> queue_pairs);
  void begin(Lane& lane, const ConnectionKey& key, std::unique_ptr<Channel> channel, Message request,
             std::optional<Connect> wish);
  void wait_for_room(Connect wish);
  void wait_for_room(const ConnectionKey& key, std::unique_ptr<Channel> channel, Message request,
                     std::optional<Connect> wish);
  void place(WaitingConnection& waiting);
  [[nodiscard]] WaitingConnection* find_waiting(const ConnectionKey& key) noexcept;
  /// Begins what waits, as far as there are queue pairs.
  void serve_waiting(std::uint16_t port);
  void tell_waiting(std::uint16_t port);
  void serve_all();

  [[nodiscard]] Connection& make(Lane& lane, const ConnectionKey& key, LinkNumber link);
  [[nodiscard]] Connection* find(const ConnectionKey& key, LinkNumber link) noexcept;
  [[nodiscard]] bool acceptable(Channel& channel, const Message& request) const;
  [[nodiscard]] std::string who() const { return to_string(environment_.settings->self); }

  const ConnectionEnvironment& environment_;
  std::unordered_map<ConnectionKey, Lane> lanes_;
  std::unordered_map<std::uint16_t, WaitingRoom> rooms_;  ///< by port
  std::map<const ibv_context*, std::size_t> told_;        ///< how many wait for each device, as the main thread knows
  std::optional<Timer> patience_;                         ///< runs while some wait
};

}  // namespace fabric::cpc
