// SPDX-License-Identifier: BSD-3-Clause
//
// Connections that wait until there are queue pairs for them: because this process wants them, because a peer does, or both.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpc/core/channel.h"
#include "cpc/core/cpc.h"

namespace fabric::cpc {

/// What one of them lacks. Of those that lack the same, who has waited for longest finds something before all others.
struct Need {
  std::size_t queue_pairs = 0;
  bool peer_asks = false;

  auto operator<=>(const Need&) const = default;
};

/// Since when one waits.
struct Turn {
  std::uint64_t number = 0;  ///< those that came later have larger ones
  std::chrono::steady_clock::time_point since;
};

/// One of them. Whoever asks over a channel waits as for a process that computes: its request is neither answered nor refused. If
/// its channel breaks it asks again.
class WaitingConnection final : private ChannelHandler {
 public:
  /// `changed`: keys of those whose channels have broken; outlives it.
  WaitingConnection(const ConnectionKey& key, const Turn& turn, std::vector<ConnectionKey>& changed)
      : key_(key), turn_(turn), changed_(changed) {}

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
    is_put_off_ = false;
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
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - turn_.since);
  }
  [[nodiscard]] bool is_over() const noexcept { return !wish && !peer_asks(); }

 private:
  friend class WaitingRoom;

  void on_message(Channel& /*channel*/, Message message) override {  // it goes, or comes back
    is_put_off_ = message.header.type == MessageType::kPause;
    lose_channel();
  }
  void on_lost(Channel& /*channel*/, std::string /*reason*/, bool /*confirm_taken*/) override { lose_channel(); }
  void lose_channel() {
    changed_.push_back(key_);
    channel_.reset();
  }

  const ConnectionKey key_;
  const Turn turn_;
  std::vector<ConnectionKey>& changed_;
  Need need_;  ///< WaitingRoom's: by which it is found
  std::unique_ptr<Channel> channel_;
  Message request_;
  bool is_put_off_ = false;  ///< the peer has been told to come back later
};

/// Those of a port. There may be thousands, so each is found by what it needs, and nobody looks at all of them.
class WaitingRoom {
 public:
  WaitingRoom() = default;
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  /// The one with this key, made if there is none. It is served when place() has been called.
  [[nodiscard]] WaitingConnection& at(const ConnectionKey& key) {
    std::unique_ptr<WaitingConnection>& found = waiting_[key];
    if (found == nullptr) {
      found = std::make_unique<WaitingConnection>(key, turn_of(key), changed_);
    }
    return *found;
  }
  [[nodiscard]] WaitingConnection* find(const ConnectionKey& key) noexcept {
    const auto found = waiting_.find(key);
    return found == waiting_.end() ? nullptr : found->second.get();
  }
  /// It lacks this from now on.
  void place(WaitingConnection& waiting, const Need& need) {
    if (lines_[need].emplace(waiting.turn_.number, &waiting).second) {
      leave_line(waiting);
      waiting.need_ = need;
    }
  }
  void erase(const ConnectionKey& key) noexcept {
    if (const auto found = waiting_.find(key); found != waiting_.end()) {
      leave_line(*found->second);
      waiting_.erase(found);
    }
  }
  /// Nobody wants it any more. A peer that has only been put off, since others want to be heard, is to find its turn
  /// again. Else where many ask none of them would ever have waited for long.
  void give_up(const WaitingConnection& waiting) {
    if (waiting.is_put_off_) {
      put_off_[waiting.key_] = {waiting.turn_, std::chrono::steady_clock::now()};
    }
    erase(waiting.key_);
  }
  /// It is connected now: if it ever waits again, it comes last.
  void forget_turn(const ConnectionKey& key) noexcept { put_off_.erase(key); }
  /// It waits no more. There is one.
  [[nodiscard]] std::unique_ptr<WaitingConnection> take(const ConnectionKey& key) noexcept {
    const auto found = waiting_.find(key);
    leave_line(*found->second);
    std::unique_ptr<WaitingConnection> taken = std::move(found->second);
    waiting_.erase(found);
    return taken;
  }
  /// Keys of those, which may be gone, whose channels have broken since this was last called.
  [[nodiscard]] std::vector<ConnectionKey> take_changed() noexcept { return std::exchange(changed_, {}); }
  /// The one that has waited for longest, of those that lack something else than these; null if there is none.
  [[nodiscard]] WaitingConnection* oldest(const std::vector<Need>& but) const noexcept {
    WaitingConnection* oldest = nullptr;
    for (const auto& [need, line] : lines_) {
      const bool is_wanted = !line.empty() && std::find(but.begin(), but.end(), need) == but.end();
      if (is_wanted && (oldest == nullptr || line.begin()->first < oldest->turn_.number)) {
        oldest = line.begin()->second;
      }
    }
    return oldest;
  }
  [[nodiscard]] const Need& need_of(const WaitingConnection& waiting) const noexcept { return waiting.need_; }
  [[nodiscard]] const auto& all() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t count() const noexcept { return waiting_.size(); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }

 private:
  /// Longer than most peers stay away: 8 s, and until it is their turn.
  static constexpr std::chrono::seconds kKeepsTurn{15};
  struct PutOff {
    Turn turn;
    std::chrono::steady_clock::time_point when;
  };

  Turn turn_of(const ConnectionKey& key) {
    const auto now = std::chrono::steady_clock::now();
    if (const auto found = put_off_.find(key); found != put_off_.end()) {
      const PutOff last = found->second;
      put_off_.erase(found);
      if (now - last.when < kKeepsTurn) {
        return last.turn;
      }
    }
    return {++newest_, now};
  }
  void leave_line(const WaitingConnection& waiting) noexcept {
    if (const auto line = lines_.find(waiting.need_); line != lines_.end()) {
      line->second.erase(waiting.turn_.number);
    }
  }

  std::vector<ConnectionKey> changed_;  ///< outlives those that wait
  std::unordered_map<ConnectionKey, std::unique_ptr<WaitingConnection>> waiting_;
  /// By number: who came first has the smallest. There is one line for each size of a connection, and each kind.
  std::map<Need, std::map<std::uint64_t, WaitingConnection*>> lines_;
  std::unordered_map<ConnectionKey, PutOff> put_off_;
  std::uint64_t newest_ = 0;
};

}  // namespace fabric::cpc
