// SPDX-License-Identifier: BSD-3-Clause
//
// All connections of a process: who gets a command of the main thread or a request of a peer, and which connection follows
// another.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cpc/core/channel.h"
#include "cpc/core/connection.h"
#include "cpc/core/cpc.h"
#include "cpc/core/incarnations.h"

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
  void clear() noexcept { lanes_.clear(); }

  /// The current one, or null.
  [[nodiscard]] const Connection* find(const ConnectionKey& key) const noexcept;
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

  [[nodiscard]] Connection& make(Lane& lane, const ConnectionKey& key, LinkNumber link);
  [[nodiscard]] Connection* find(const ConnectionKey& key, LinkNumber link) noexcept;
  [[nodiscard]] bool acceptable(Channel& channel, const Message& request) const;
  [[nodiscard]] std::string who() const { return to_string(environment_.settings->self); }

  const ConnectionEnvironment& environment_;
  std::unordered_map<ConnectionKey, Lane> lanes_;
};

}  // namespace fabric::cpc
