// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread knows of connections, for somebody who looks for the reason of a hang.
#include <nlohmann/json.hpp>
#include <string>

#include "cpc/manager/connections.h"

namespace fabric::cpc {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Direction direction) noexcept {
  switch (direction) {
    case Direction::kIncoming:
      return "incoming";
    case Direction::kOutgoing:
      return "outgoing";
    case Direction::kBoth:
      break;
  }
  return "both";
}

Json about(const ConnectionKey& key) {
  return {{"rank", key.peer.rank},
          {"job", key.peer.job},
          {"local_port", key.local_port},
          {"remote_port", key.remote_port},
          {"direction", name_of(key.direction)}};
}

}  // namespace

Json Connections::describe() const {
  Json all = Json::array();
  const auto add = [&](const Connection& connection) {
    if (connection.state() != State::kConnected && connection.state() != State::kConfirming) {
      Json told = about(connection.key());
      told["state"] = std::string(to_string(connection.state()));
      told["transitions"] = connection.history();
      all.push_back(std::move(told));
    }
  };
  for (const auto& [key, lane] : lanes_) {
    if (lane.current) {
      add(*lane.current);
    }
    for (const auto& one : lane.ending) {
      add(*one);
    }
  }
  for (const auto& [port, room] : rooms_) {
    for (const auto& [key, waiting] : room.all()) {
      Json told = about(key);
      told["state"] = "waits for queue pairs";
      all.push_back(std::move(told));
    }
  }
  return all;
}

}  // namespace fabric::cpc
