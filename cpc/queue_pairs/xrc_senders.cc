// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/xrc_senders.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

// ---- A share

XrcShare::XrcShare(event_base* loop, std::shared_ptr<XrcSender> sender, std::function<void()> ready)
    : sender_(std::move(sender)), turn_(loop, std::move(ready)) {}

XrcShare::~XrcShare() {
  sender_->leave(*this);
}

void XrcShare::want() {
  is_user_ = true;
  ++sender_->users_;
  sender_->apply(SenderEvent::kWanted, this);
}

void XrcShare::target_is_gone() {
  sender_->apply(SenderEvent::kTargetGone, this);
}

void XrcShare::give_up() {
  turn_.stop();
  if (sender_->owner_ == this) {
    sender_->owner_ = nullptr;
    sender_->apply(SenderEvent::kOwnerFailed, this);
  }
}

std::uint64_t XrcShare::serial() const noexcept {
  return sender_->serial_;
}
const std::vector<QueuePairEnd>& XrcShare::ends() const noexcept {
  return sender_->queue_pair_->ends();
}
std::vector<ibv_qp*> XrcShare::handles() const {
  return sender_->queue_pair_->handles();
}
XrcNumbers XrcShare::xrc_numbers() const {
  return {sender_->target_qpn_, {}};
}
Status XrcShare::connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  return sender_->connect(*this, peer, ends);
}
void XrcShare::flush() noexcept {
  sender_->leave(*this);
}

// ---- A sender

void XrcSender::apply(SenderEvent event, XrcShare* user) {
  assert_on_progress_thread();
  const SenderStep step = sender_step(state_, event, !waiting_.empty());
  assert(step.outcome == Outcome::kTransition && "the sender table calls this impossible");
  state_ = step.next;
  for (const SenderAction action : step.actions) {
    perform(action, user);
  }
}

/// Who gets a turn is called from the event loop, so that no connection is called from within another.
void XrcSender::perform(SenderAction action, XrcShare* user) {
  switch (action) {
    case SenderAction::kNone:
      break;
    case SenderAction::kMakeOwner:
      owner_ = user;
      user->turn_.start(0);
      break;
    case SenderAction::kPark:
      waiting_.push_back(user);
      break;
    case SenderAction::kGoOn:
      user->turn_.start(0);
      break;
    case SenderAction::kNextOwner:
      owner_ = waiting_.front();
      waiting_.pop_front();
      owner_->turn_.start(0);
      break;
    case SenderAction::kWakeAll:
      for (XrcShare* one : std::exchange(waiting_, {})) {
        one->turn_.start(0);
      }
      break;
    case SenderAction::kUnpark:
      waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), user), waiting_.end());
      break;
    case SenderAction::kForget:
      senders_->forget(*this);
      break;
    case SenderAction::kFlush:
      queue_pair_->flush();
      break;
  }
}

void XrcSender::leave(XrcShare& user) {
  user.give_up();
  if (std::exchange(user.is_user_, false)) {
    apply(--users_ == 0 ? SenderEvent::kLastReleased : SenderEvent::kReleased, &user);
  }
}

Status XrcSender::connect(XrcShare& user, const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  if (ends.size() != 1) {
    return failure(std::to_string(ends.size()) + " ends for the queue pair that all X queues share");
  }
  const std::uint32_t target = ends.front().qpn;
  if (target_qpn_ != 0) {
    return target == target_qpn_
               ? Status()
               : Status(failure("the peer names target " + std::to_string(target) +
                                ", but our queue pair is connected to " + std::to_string(target_qpn_)));
  }
  if (owner_ != &user || target == 0) {
    return failure("the peer names target " + std::to_string(target) + " without having been asked for one");
  }
  if (Status connected = queue_pair_->connect(peer, ends); !connected) {
    return connected;
  }
  target_qpn_ = target;
  owner_ = nullptr;
  apply(SenderEvent::kOwnerConnected, &user);
  return {};
}

// ---- All senders

Result<std::unique_ptr<XrcShare>> XrcSenders::join(const PortContext& port, const XrcDomainPort& remote,
                                                   std::function<void()> ready) {
  assert_on_progress_thread();
  const XrcSenderKey key(port.index, remote);
  const auto found = current_.find(key);
  std::shared_ptr<XrcSender> sender = found == current_.end() ? nullptr : found->second.lock();
  if (sender && sender->state_ == SenderState::kConnected && sender->queue_pair_->are_broken()) {
    sender->apply(SenderEvent::kBroken);
    sender.reset();
  }
  if (!sender) {
    Result<std::unique_ptr<QueuePairs>> made = maker_.sender(port);
    if (!made) {
      return tl::unexpected(std::move(made).error());
    }
    sender = std::make_shared<XrcSender>(*this, key, ++last_serial_, std::move(*made));
    current_[key] = sender;
  }
  return std::make_unique<XrcShare>(loop_, std::move(sender), std::move(ready));
}

void XrcSenders::forget(const XrcSender& sender) {
  const auto found = current_.find(sender.key_);
  if (found != current_.end() && found->second.lock().get() == &sender) {
    current_.erase(found);
  }
}

}  // namespace fabric::cpc
