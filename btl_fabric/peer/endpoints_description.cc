// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/endpoints_description.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "btl_fabric/path/link_description.h"
#include "common/base/counted.h"

namespace fabric {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kIndent = "    ";

std::int64_t milliseconds_since(Clock::time_point then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - then).count();
}

std::string seconds(std::int64_t milliseconds) {
  return std::to_string(milliseconds / 1000) + '.' + std::to_string(milliseconds / 100 % 10) + " s";
}

/// For whom the endpoint waits; nothing in states in which it does not.
const char* what_it_waits_for(EndpointState state) noexcept {
  switch (state) {
    case EndpointState::kConnecting:
      return "waits for the connection";
    case EndpointState::kCtsSent:
    case EndpointState::kCtsAwaited:
      return "waits for the peer's main thread, which may compute";
    case EndpointState::kResuming:
      return "waits for the peer to say what has arrived, or sends the rest again";
    case EndpointState::kResting:
      return "has asked the peer whether the idle connection may go";
    case EndpointState::kLeaving:
      return "its goodbye is under way";
    default:
      return "";
  }
}

void append_endpoint(std::string& text, const Json& told) {
  const auto number = [](const Json& of, const char* name) { return of.value(name, std::size_t{0}); };
  const std::string waits = told.value("waits", "");
  text += "  rank " + std::to_string(number(told, "rank")) + ", job " + std::to_string(number(told, "job")) + ": " +
          told.value("state", "") + (waits.empty() ? "" : ": " + waits) + '\n';
  if (const auto still = told.find("still_ms"); still != told.end()) {
    text += kIndent + ("nothing has moved for at least " + seconds(still->get<std::int64_t>())) +
            "; last: " + told.value("transitions", "") + ", " + seconds(told.value("in_state_ms", std::int64_t{0})) +
            " ago\n";
  }
  if (const auto broken = told.find("broken"); broken != told.end()) {
    text += kIndent + broken->value("why", "") + ", " + seconds(broken->value("for_ms", std::int64_t{0})) + " ago; " +
            counted(number(*broken, "attempts"), "attempt", "attempts") + " to connect since; " +
            counted(number(*broken, "carried"), "message has", "messages have") + " gone by another port\n";
  }
  if (told.contains("waiting")) {
    text += kIndent + counted(number(told, "waiting"), "message waits", "messages wait") + " for the connection, and " +
            counted(number(told, "waiting_rdma"), "read or write", "reads and writes") + '\n';
  }
  if (const std::size_t ending = number(told, "ending_links"); ending > 0) {
    text += kIndent + counted(ending, "older connection is", "older connections are") + " being taken down\n";
  }
  append_link(text, told, kIndent);
}

}  // namespace

bool Endpoint::is_busy() const noexcept {
  const bool is_settled = state_ == EndpointState::kIdle || state_ == EndpointState::kClear ||
                          state_ == EndpointState::kConnected || state_ == EndpointState::kSelf;
  return !is_settled || is_healing() || ending_ != nullptr || has_waiting() ||
         (link_ != nullptr && LinkDescription(*link_).is_busy());
}

void Endpoint::look(Clock::time_point now) noexcept {
  const std::uint64_t position = link_ != nullptr ? LinkDescription(*link_).position() : 0;
  if (std::exchange(position_, position) != position || !is_busy() || still_since_ < in_state_since_) {
    still_since_ = now;
  }
}

Json Endpoint::describe() const {
  Json told{{"rank", key_.peer.rank},
            {"job", key_.peer.job},
            {"local_port", key_.local_port},
            {"remote_port", key_.remote_port},
            {"state", std::string(to_string(state_))}};
  if (const std::string waits = what_it_waits_for(state_); !waits.empty()) {
    told["waits"] = waits;
  }
  if (is_busy()) {
    told["still_ms"] = milliseconds_since(still_since_);
    told["transitions"] = history_.text();
    told["in_state_ms"] = milliseconds_since(in_state_since_);
  }
  if (is_healing() && healing_->has_broken) {
    told["broken"] = {{"why", healing_->why},
                      {"for_ms", milliseconds_since(healing_->since)},
                      {"attempts", healing_->attempts},
                      {"carried", healing_->carried}};
  }
  if (const std::size_t waiting = count_of(waiting_); waiting > 0 || !waiting_rdma_.empty()) {
    told["waiting"] = waiting;
    told["waiting_rdma"] = waiting_rdma_.count();
  }
  if (ending_ != nullptr) {
    std::size_t count = 0;
    for (const EndpointLink* one = ending_; one != nullptr; one = one->next_of_peer) {
      ++count;
    }
    told["ending_links"] = count;
  }
  if (link_ != nullptr) {
    LinkDescription(*link_).add_to(told);
  }
  return told;
}

void Endpoints::look_at_all() noexcept {
  const Clock::time_point now = Clock::now();
  const auto guard = known_guard();
  for (const auto& [name, endpoint] : endpoints_) {
    endpoint->look(now);
  }
  for (const auto& endpoint : closing_) {
    endpoint->look(now);
  }
}

void EndpointsDescription::append_to(std::string& text) const {
  std::size_t others = 0;
  for (const auto guard = endpoints_.known_guard(); const auto& [name, endpoint] : endpoints_.endpoints_) {
    if (endpoint->is_busy()) {
      append_endpoint(text, endpoint->describe());
    } else {
      ++others;
    }
  }
  for (const auto& endpoint : endpoints_.closing_) {
    append_endpoint(text, endpoint->describe());
  }
  text += "  " + counted(others, "peer", "peers") +
          (others > 0 && text.find("rank") != std::string::npos ? " more" : "") +
          ": nothing waits, and nothing is under way\n";
}

void EndpointsDescription::append_one(std::string& text, const Endpoint& endpoint) const {
  append_endpoint(text, endpoint.describe());
}

Json EndpointsDescription::as_json() const {
  Json all = Json::array();
  for (const auto guard = endpoints_.known_guard(); const auto& [name, endpoint] : endpoints_.endpoints_) {
    if (endpoint->is_busy() || endpoint->link_ != nullptr) {
      all.push_back(endpoint->describe());
    }
  }
  for (const auto& endpoint : endpoints_.closing_) {
    all.push_back(endpoint->describe());
  }
  return all;
}

}  // namespace fabric
