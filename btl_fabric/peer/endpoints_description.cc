// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/endpoints_description.h"

#include <chrono>
#include <string>

#include "btl_fabric/path/link_description.h"

namespace fabric {

namespace {

constexpr const char* kIndent = "    ";

std::string seconds_since(std::chrono::steady_clock::time_point then) {
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - then).count();
  const std::string tenths = std::to_string(milliseconds / 100);
  return (tenths.size() > 1 ? tenths.substr(0, tenths.size() - 1) : "0") + '.' + tenths.back() + " s";
}

/// For whom the endpoint waits; nothing in states in which it does not.
const char* what_it_waits_for(EndpointState state) noexcept {
  switch (state) {
    case EndpointState::kConnecting:
      return ": waits for the connection";
    case EndpointState::kCtsSent:
    case EndpointState::kCtsAwaited:
      return ": waits for the peer's main thread, which may compute";
    case EndpointState::kResuming:
      return ": waits for the peer to say what has arrived, or sends the rest again";
    case EndpointState::kResting:
      return ": has asked the peer whether the idle connection may go";
    case EndpointState::kLeaving:
      return ": its goodbye is under way";
    default:
      return "";
  }
}

}  // namespace

bool Endpoint::is_busy() const noexcept {
  const bool is_settled = state_ == EndpointState::kIdle || state_ == EndpointState::kClear ||
                          state_ == EndpointState::kConnected || state_ == EndpointState::kSelf;
  return !is_settled || is_healing() || ending_links_ > 0 || has_waiting() ||
         (link_ != nullptr && LinkDescription(*link_).is_busy());
}

void Endpoint::describe(std::string& text) const {
  text += "  rank " + std::to_string(key_.peer.rank) + ", job " + std::to_string(key_.peer.job) + ": " +
          std::string(to_string(state_)) + what_it_waits_for(state_) + '\n';
  if (is_healing() && healing_->has_broken) {
    text += kIndent + healing_->why + ", " + seconds_since(healing_->since) + " ago; " +
            counted(healing_->attempts, "attempt", "attempts") + " to connect since; " +
            counted(healing_->carried, "message has", "messages have") + " gone by another port\n";
  }
  if (const std::size_t waiting = count_of(waiting_); waiting > 0 || !waiting_rdma_.empty()) {
    text += kIndent + counted(waiting, "message waits", "messages wait") + " for the connection, and " +
            counted(waiting_rdma_.count(), "read or write", "reads and writes") + '\n';
  }
  if (ending_links_ > 0) {
    text += kIndent + counted(ending_links_, "older connection is", "older connections are") + " being taken down\n";
  }
  if (link_ != nullptr) {
    LinkDescription(*link_).append_to(text, kIndent);
  }
}

void EndpointsDescription::append_to(std::string& text) const {
  std::size_t others = 0;
  for (const auto guard = endpoints_.known_guard(); const auto& [name, endpoint] : endpoints_.endpoints_) {
    if (endpoint->is_busy()) {
      endpoint->describe(text);
    } else {
      ++others;
    }
  }
  for (const auto& endpoint : endpoints_.closing_) {
    endpoint->describe(text);
  }
  text += "  " + counted(others, "peer", "peers") +
          (others > 0 && text.find("rank") != std::string::npos ? " more" : "") +
          ": nothing waits, and nothing is under way\n";
}

}  // namespace fabric
