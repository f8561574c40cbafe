// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/packet_path.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/ring_message.h"
#include "btl_fabric/path/link.h"

namespace fabric {

constexpr int kOwnBuffers = 16;
/// The longest of the messages that take such a buffer.
constexpr std::size_t kLongestOwn =
    std::max({counts_size(kMaxQueues + 1) + CountsOfOneWay::kSize, AtomicReply::kSize, RingOffer::kSize, kMostControl});

Result<std::unique_ptr<FragmentPool>> make_own_pool(const BufferSource& source, const ReceiveQueues& queues,
                                                    std::uint32_t max_inline) {
  const bool has_credits = std::any_of(queues.queues().begin(), queues.queues().end(),
                                       [](const QueueSpec& spec) { return spec.kind == QueueKind::kPerPeer; });
  const bool is_soon_used = has_credits && max_inline < PacketHeader::kSize;
  return FragmentPool::make(source, 0, false, kLongestOwn, {is_soon_used ? kOwnBuffers : 0, 0, kOwnBuffers});
}

namespace {

/// The smallest that takes packets of several messages, or the largest there is.
std::size_t queue_for_packets(const PathSettings& settings) noexcept {
  const ReceiveQueues& queues = *settings.queues;
  const std::size_t fitting = queues.smallest_fitting(settings.coalesce_size);
  return fitting < queues.count() ? fitting : queues.smallest_fitting(queues.largest());
}

/// Messages that share a packet of that size. Larger ones would gain little. One of no bytes is no message, so 0 means none.
std::size_t largest_of(std::size_t packet_size) noexcept {
  return packet_size / 4 > RecordHeader::kSize ? packet_size / 4 - RecordHeader::kSize : 0;
}

}  // namespace

PacketPath::PacketPath(const PathSettings& settings, PathQueues queues, const PathParts& parts)
    : settings_(settings),
      smallest_queue_(settings.queues->smallest_fitting(0)),
      smallest_size_((*settings.queues)[smallest_queue_].size),
      coalescing_queue_(queue_for_packets(settings)),
      packet_size_(std::min<std::size_t>(settings.coalesce_size, (*settings.queues)[coalescing_queue_].size)),
      largest_coalesced_(largest_of(packet_size_)),
      queues_(std::move(queues)),
      parts_(parts),
      early_packets_(settings.coalesce_first),
      eager_rdma_(settings.eager_rdma) {
  assert((settings.eager_rdma == EagerRdma::kOff) == (queues_.rings == nullptr));
  if (queues_.rings) {
    ringed_.reserve(queues_.rings->sizes().rings);
  }
  assert(settings.poll_batch >= 1 && settings.poll_batch <= kMaxPollBatch);
}

Status PacketPath::start_shared_queues() {
  for (const auto& shared : queues_.shared_queues) {
    if (Status started = shared ? shared->start() : Status(); !started) {
      return started;
    }
  }
  return {};
}

void PacketPath::srq_limit_reached(const void* srq) noexcept {
  for (std::size_t i = 0; i < queues_.shared_queues.size(); ++i) {
    const auto& shared = queues_.shared_queues[i];
    if (shared && shared->srq() == srq) {
      ++counters().srq_limit_events;
      ++counters().tally.queues[i].ran_low;
      shared->limit_reached();
    }
  }
}

bool PacketPath::owns(const void* object) const noexcept {
  for (std::size_t i = 0; i < queues_.completion_queues->count(); ++i) {
    if (queues_.completion_queues->queue(i) == object) {
      return true;
    }
  }
  return std::any_of(queues_.shared_queues.begin(), queues_.shared_queues.end(),
                     [&](const auto& shared) { return shared && shared->srq() == object; });
}

void PacketPath::add_borrower(SendQueue& sends) {
  SendCompletions* const shared = queues_.completion_queues->sends_of(sends.qp->send_cq);
  if (shared == nullptr) {
    return;
  }
  assert(sends.lender == nullptr);
  sends.place = static_cast<std::uint32_t>(borrowers_.size());
  borrowers_.push_back(&sends);
  sends.share(*shared);
  (void)sends.borrow(sends.lender->free());  // others get it when they want it and this one does not use it
}

/// A process with thousands of peers loses all of them at its end: none looks for itself among the others.
void PacketPath::remove_borrower(SendQueue& sends) noexcept {
  if (sends.lender != nullptr) {
    assert(borrowers_[sends.place] == &sends);
    borrowers_[sends.place] = borrowers_.back();
    borrowers_[sends.place]->place = sends.place;
    borrowers_.pop_back();
    sends.lender->give_back(std::exchange(sends.borrowed, 0));
    sends.lender = nullptr;
  }
}

/// What others have borrowed and do not use is taken from a few of them at a time: they may want it again.
[[gnu::cold]] bool PacketPath::lend(SendQueue& sends) noexcept {
  constexpr std::size_t kAtOnce = 64;
  if (sends.lender == nullptr) {
    return false;
  }
  const std::uint32_t wanted = sends.own + sends.borrowed;
  for (std::size_t i = 0; i < borrowers_.size() && i < kAtOnce && sends.lender->free() < wanted; ++i) {
    next_to_give_back_ = next_to_give_back_ + 1 < borrowers_.size() ? next_to_give_back_ + 1 : 0;
    if (SendQueue* const other = borrowers_[next_to_give_back_]; other != &sends && other->lender == sends.lender) {
      other->give_back();
    }
  }
  const bool is_lent = sends.borrow(wanted);
  counters().completions_borrowed += is_lent ? 1 : 0;
  return is_lent;
}

SharedSendQueue& PacketPath::sender(const cpc::XrcPath& path) {
  std::unique_ptr<SharedSendQueue>& found = senders_[path.sender];
  if (!found) {
    const QueueSpace space =
        cpc::sender_space(receive_queues(), settings_.costs, settings_.max_inline, settings_.rdma_depth);
    found = std::make_unique<SharedSendQueue>(path.queue_pair, space, *this);
    ++counters().xrc_senders;
  }
  return *found;
}

void PacketPath::sender_is_gone(std::uint64_t sender) noexcept {
  if (const auto found = senders_.find(sender); found != senders_.end()) {
    found->second->fail();
    senders_gone_ += found->second->set_gone() ? 1 : 0;
  }
}

void PacketPath::reap_senders() noexcept {
  assert(!is_in_progress());
  if (senders_gone_ > 0) {
    senders_gone_ -=
        std::erase_if(senders_, [](const auto& one) { return one.second->is_gone() && !one.second->is_used(); });
  }
}

void PacketPath::retry_later(Link& link) noexcept {
  if (link.is_to_retry_) {
    return;
  }
  is_more_to_do_ = true;
  link.is_to_retry_ = true;
  link.before_ = last_to_retry_;
  link.after_ = nullptr;
  (last_to_retry_ == nullptr ? first_to_retry_ : last_to_retry_->after_) = &link;
  last_to_retry_ = &link;
}

void PacketPath::take_off_list(Link& link) noexcept {
  (link.before_ == nullptr ? first_to_retry_ : link.before_->after_) = link.after_;
  (link.after_ == nullptr ? last_to_retry_ : link.after_->before_) = link.before_;
  link.is_to_retry_ = false;
}

void PacketPath::forget(Link& link) noexcept {
  if (link.is_to_retry_) {
    take_off_list(link);
  }
  for (Link** at = &first_to_post_; *at != nullptr; at = &(*at)->next_to_post_) {
    if (*at == &link) {
      *at = link.next_to_post_;
      break;
    }
  }
  for (const LinkQueue& queue : link.queues_) {
    if (queue.qpn != 0) {
      queue_pairs_.erase(queue.qpn);
    }
  }
  if (link.target_qpn_ != 0) {
    queue_pairs_.erase(link.target_qpn_);
  }
}

/// As many as are on the list now, though one that still lacks something goes to its end. Callbacks may call this again, which
/// takes any of them off, and puts others there.
[[gnu::cold]] void PacketPath::retry() noexcept {
  std::size_t left = 0;
  for (const Link* link = first_to_retry_; link != nullptr; link = link->after_) {
    ++left;
  }
  for (; left > 0 && first_to_retry_ != nullptr; --left) {
    Link& link = *first_to_retry_;
    take_off_list(link);
    link.retry();
  }
  if (shared_queues_short_) {
    shared_queues_short_ = false;
    for (const auto& shared : queues_.shared_queues) {
      if (shared && !shared->refill()) {
        shared_queues_short_ = true;
      }
    }
  }
}

[[gnu::cold]] void PacketPath::do_the_rest() noexcept {
  ++depth_;
  if (first_to_retry_ != nullptr || shared_queues_short_) {
    retry();
  }
  --depth_;
  is_more_to_do_ = first_to_retry_ != nullptr || shared_queues_short_;
}

}  // namespace fabric
