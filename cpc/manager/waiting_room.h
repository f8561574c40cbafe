// SPDX-License-Identifier: BSD-3-Clause
//
// Connections that wait until there are queue pairs for them: because this process wants them, because a peer does, or both.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "cpc/core/channel.h"
#include "cpc/core/cpc.h"

namespace fabric::cpc {

/// One of them. Whoever asks over a channel waits as for a process that computes: its request is neither answered nor refused. If
/// its channel breaks it asks again.
class WaitingConnection final : private ChannelHandler {
 public:
  explicit WaitingConnection(const ConnectionKey& key) : key_(key) {}

  [[nodiscard]] const ConnectionKey& key() const noexcept { return key_; }
  /// What this process wants; nothing: it does not.
  std::optional<Connect> wish;

  /// A peer asks. Of two requests the newer one counts.
  void ask(std::unique_ptr<Channel> channel, Message request) {
    const auto age = [](const MessageHeader& one) { return std::pair(one.incarnation, one.attempt); };
    if (channel_ != nullptr && age(request.header) < age(request_.header)) {
      return;
    }
    channel_ = std::move(channel);
    channel_->set_handler(this);
    request_ = std::move(request);
  }
  [[nodiscard]] bool peer_asks() const noexcept { return channel_ != nullptr; }
  [[nodiscard]] const Message* request() const noexcept { return peer_asks() ? &request_ : nullptr; }
  [[nodiscard]] const PeerTarget* target() const noexcept { return wish ? &wish->target : nullptr; }
  /// Once.
  [[nodiscard]] std::unique_ptr<Channel> take_channel() noexcept {
    if (channel_ != nullptr) {
      channel_->set_handler(nullptr);
    }
    return std::move(channel_);
  }
  [[nodiscard]] Message take_request() noexcept { return std::move(request_); }
  [[nodiscard]] std::chrono::milliseconds waited() const noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - since_);
  }
  [[nodiscard]] bool is_over() const noexcept { return !wish && !peer_asks(); }

 private:
  void on_message(Channel& /*channel*/, Message /*message*/) override { channel_.reset(); }  // it goes, or comes back
  void on_lost(Channel& /*channel*/, std::string /*reason*/, bool /*confirm_taken*/) override { channel_.reset(); }

  const ConnectionKey key_;
  std::unique_ptr<Channel> channel_;
  Message request_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// Those of a port, in the order in which they came.
class WaitingRoom {
 public:
  /// The one with this key, made if there is none.
  [[nodiscard]] WaitingConnection& at(const ConnectionKey& key) {
    auto [found, is_new] = waiting_.try_emplace(key);
    if (is_new) {
      found->second = std::make_unique<WaitingConnection>(key);
      order_.push_back(key);
    }
    return *found->second;
  }
  [[nodiscard]] WaitingConnection* find(const ConnectionKey& key) noexcept {
    const auto found = waiting_.find(key);
    return found == waiting_.end() ? nullptr : found->second.get();
  }
  void erase(const ConnectionKey& key) {
    waiting_.erase(key);
    std::erase(order_, key);
  }
  /// It waits no more. There is one.
  [[nodiscard]] std::unique_ptr<WaitingConnection> take(const ConnectionKey& key) {
    std::unique_ptr<WaitingConnection> taken = std::move(waiting_.at(key));
    erase(key);
    return taken;
  }
  [[nodiscard]] const std::deque<ConnectionKey>& order() const noexcept { return order_; }
  [[nodiscard]] std::size_t count() const noexcept { return order_.size(); }
  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  void clear() noexcept {
    waiting_.clear();
    order_.clear();
  }

 private:
  std::unordered_map<ConnectionKey, std::unique_ptr<WaitingConnection>> waiting_;
  std::deque<ConnectionKey> order_;
};

}  // namespace fabric::cpc
