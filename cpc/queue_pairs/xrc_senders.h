// SPDX-License-Identifier: BSD-3-Clause
//
// The senders of a process: XRC send queue pairs that connections share. What may happen to one is in
// xrc_sender_table.h.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "cpc/queue_pairs/xrc_domain_port.h"
#include "cpc/queue_pairs/xrc_sender_table.h"

namespace fabric::cpc {

class XrcSender;
class XrcSenders;

/// What a process has one sender for: the index of its port, and the other end.
using XrcSenderKey = std::pair<std::uint16_t, XrcDomainPort>;

/// A connection's share of a sender, which is its QueuePairs. Progress thread only.
class XrcShare final : public QueuePairs {
 public:
  /// `ready` is called from the event loop when want() is granted; it may destroy the share.
  XrcShare(event_base* loop, std::shared_ptr<XrcSender> sender, std::function<void()> ready);
  ~XrcShare() override;

  /// Asks for a turn: `ready` is called when a REQUEST may go out, with the ends and numbers of that moment. Called once.
  void want();
  /// The peer says that the target which xrc_numbers() named is gone.
  void target_is_gone();
  /// The connection has failed: if others wait for it to have the target made, the next one goes on.
  void give_up();

  /// Nobody else has a share of the sender, and nobody will: it goes with this.
  [[nodiscard]] bool is_last() const noexcept { return sender_.use_count() == 1; }
  /// Names the sender: never used twice in a process.
  [[nodiscard]] std::uint64_t serial() const noexcept;

  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override;
  [[nodiscard]] std::vector<ibv_qp*> handles() const override;
  /// The owner's connects the sender. The others' compares the target with the one that the sender is connected to.
  [[nodiscard]] Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) override;
  /// Leaves the sender, whose queue pair is moved to the error state if this was the last user.
  void flush() noexcept override;
  [[nodiscard]] XrcNumbers xrc_numbers() const override;

 private:
  friend class XrcSender;
  std::shared_ptr<XrcSender> sender_;
  Timer turn_;
  bool is_user_ = false;
};

/// One sender, owned by its shares. Progress thread only.
class XrcSender {
 public:
  XrcSender(XrcSenders& senders, const XrcSenderKey& key, std::uint64_t serial, std::unique_ptr<QueuePairs> queue_pair)
      : senders_(&senders), key_(key), serial_(serial), queue_pair_(std::move(queue_pair)) {}
  XrcSender(const XrcSender&) = delete;
  XrcSender& operator=(const XrcSender&) = delete;

  /// The only function that writes the state. `user`: who caused the event.
  void apply(SenderEvent event, XrcShare* user = nullptr);

 private:
  friend class XrcShare;
  friend class XrcSenders;
  void perform(SenderAction action, XrcShare* user);
  void leave(XrcShare& user);
  [[nodiscard]] Status connect(XrcShare& user, const PortAddress& peer, const std::vector<QueuePairEnd>& ends);

  XrcSenders* senders_;
  XrcSenderKey key_;
  std::uint64_t serial_;
  std::unique_ptr<QueuePairs> queue_pair_;
  SenderState state_ = SenderState::kUnconnected;
  std::uint32_t target_qpn_ = 0;  ///< 0 before it is connected
  XrcShare* owner_ = nullptr;
  std::deque<XrcShare*> waiting_;
  std::size_t users_ = 0;
};

/// Progress thread only. Outlives all shares.
class XrcSenders {
 public:
  XrcSenders(event_base* loop, const XrcMaker& maker) : loop_(loop), maker_(maker) {}
  XrcSenders(const XrcSenders&) = delete;
  XrcSenders& operator=(const XrcSenders&) = delete;

  /// A share of the sender from `port` to `remote`, which is made if there is none that can be used.
  [[nodiscard]] Result<std::unique_ptr<XrcShare>> join(const PortContext& port, const XrcDomainPort& remote,
                                                       std::function<void()> ready);
  [[nodiscard]] const XrcMaker& maker() const noexcept { return maker_; }

 private:
  friend class XrcSender;
  void forget(const XrcSender& sender);

  event_base* loop_;
  const XrcMaker& maker_;
  std::uint64_t last_serial_ = 0;
  std::map<XrcSenderKey, std::weak_ptr<XrcSender>> current_;  ///< those that can be joined
};

}  // namespace fabric::cpc
