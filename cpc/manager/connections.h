// SPDX-License-Identifier: BSD-3-Clause
//
// All connections of a process, by key: who gets a command of the main thread or a request of a peer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "cpc/core/channel.h"
#include "cpc/core/connection.h"
#include "cpc/core/cpc.h"

namespace fabric::cpc {

/// Progress thread only. A connection is made by the first command or request that names it, and forgotten when it is
/// Closed.
class Connections {
 public:
  /// `environment` outlives this.
  explicit Connections(const ConnectionEnvironment& environment) : environment_(environment) {}
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void handle(Command command);
  /// Refuses what no connection could accept.
  void on_request(std::unique_ptr<Channel> channel, Message request);
  /// Drops every connection without a word to its peer.
  void clear() noexcept { connections_.clear(); }

  /// Null if it is Closed.
  [[nodiscard]] const Connection* find(const ConnectionKey& key) const noexcept;

 private:
  void on_command(Connection& connection, Connect& command) { connection.connect(std::move(command.target)); }
  void on_command(Connection& connection, ReceivesPosted&) { connection.receives_posted(); }
  void on_command(Connection& connection, PeerSpoke&) { connection.peer_spoke(); }
  void on_command(Connection& connection, Close& command) { connection.close(std::move(command.reason)); }
  void on_command(Connection& connection, Destroy&) { connection.destroy(); }
  [[nodiscard]] bool acceptable(Channel& channel, const Message& request) const;
  [[nodiscard]] Connection& connection(const ConnectionKey& key);

  const ConnectionEnvironment& environment_;
  std::unordered_map<ConnectionKey, std::unique_ptr<Connection>> connections_;
};

}  // namespace fabric::cpc
