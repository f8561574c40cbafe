// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/completion_queue_set.h"

#include <algorithm>
#include <cassert>

namespace fabric {

CompletionQueueRoom::~CompletionQueueRoom() {
  if (set_ != nullptr) {
    set_->release(queue_, demand_, is_extension_);
  }
}

void CompletionQueueRoom::reduce(std::uint32_t entries) noexcept {
  assert(entries <= demand_.own);
  set_->release(queue_, {entries, 0}, is_extension_);
  demand_.own -= entries;
}

ibv_cq* CompletionQueueRoom::cq() const noexcept {
  return set_ == nullptr ? nullptr : set_->queue(queue_);
}

CompletionQueueSet::CompletionQueueSet(ibv_context* device, std::uint32_t entries_per_queue,
                                       std::uint32_t shared_receives, const Limits& limits) noexcept
    : device_(device), entries_per_queue_(entries_per_queue), shared_receives_(shared_receives), limits_(limits) {
  limits_.queues = std::clamp<std::size_t>(limits_.queues, 1, kMaxQueues);
  limits_.last_entries = std::max(limits_.last_entries, entries_per_queue_);
  ibv_device_attr attributes{};
  if (ibv_query_device(device, &attributes) == 0 && attributes.max_cqe > 0) {
    max_entries_ = static_cast<std::uint32_t>(attributes.max_cqe);
    entries_per_queue_ = std::min(entries_per_queue_, max_entries_);
  }
}

CompletionQueueSet::~CompletionQueueSet() = default;

std::uint32_t CompletionQueueSet::size_of_next() const noexcept {
  const std::size_t count = made_;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all += queues_[i].size;
  }
  const std::uint32_t least = count + 1 == limits_.queues ? limits_.last_entries : entries_per_queue_;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max<std::uint64_t>(least, all / 4), max_entries_));
}

SendCompletions* CompletionQueueSet::sends_of(const ibv_cq* queue) noexcept {
  for (std::size_t i = 0; i < count(); ++i) {
    if (queues_[i].cq.get() == queue) {
      return &queues_[i].sends;
    }
  }
  return nullptr;
}

/// How many more a queue has for its queue pairs to share when one more comes.
std::uint32_t CompletionQueueSet::shared_for(const Entry& entry, std::uint32_t demand) const noexcept {
  const std::uint32_t quarter = (limits_.may_resize ? max_entries_ : entry.size) / 4;
  const std::uint64_t most = std::min(limits_.shared_sends, quarter);
  const std::uint64_t all = std::min(most, entry.wanted + demand);
  return static_cast<std::uint32_t>(all - std::min<std::uint64_t>(all, entry.shared));
}

bool CompletionQueueSet::take(std::size_t queue, const CompletionDemand& demand) noexcept {
  Entry& entry = queues_[queue];
  std::uint32_t shared = shared_for(entry, demand.shared);
  if (entry.free < demand.own + shared && !grow(queue, demand.own + shared)) {
    shared = 0;  // there are some of others, or its own have to do
    if (entry.free < demand.own && !grow(queue, demand.own)) {
      return false;
    }
  }
  entry.free -= demand.own + shared;
  at_first_ += demand.own;
  entry.wanted += demand.shared;
  entry.shared += shared;
  entry.sends.add(shared);
  return true;
}

Result<CompletionQueueRoom> CompletionQueueSet::reserve(const CompletionDemand& demand) {
  const std::lock_guard lock(mutex_);
  if (is_lost()) {
    return failure("the device is gone");
  }
  const std::size_t count = made_;
  for (std::size_t i = 0; i < count; ++i) {
    if (take(i, demand)) {
      return CompletionQueueRoom(this, i, demand);
    }
  }
  return make_another(demand);
}

void CompletionQueueSet::stop() noexcept {
  const std::lock_guard lock(mutex_);
  lose_device();
  count_.store(0, std::memory_order_release);
}

/// Peers that connect later find what they need.
bool CompletionQueueSet::can_spare(std::uint32_t entries) const noexcept {
  const std::uint64_t to_come = limits_.at_first > at_first_ ? limits_.at_first - at_first_ : 0;
  if (to_come == 0) {
    return true;
  }
  const std::size_t count = made_;
  const std::size_t others = limits_.queues > count ? limits_.queues - count : 0;
  const std::uint32_t next = size_of_next();
  std::uint64_t room = others * std::uint64_t{next > shared_receives_ ? next - shared_receives_ : 0};
  for (std::size_t i = 0; i < count; ++i) {
    room += queues_[i].free + (limits_.may_resize ? max_entries_ - queues_[i].size : 0);
  }
  return room >= to_come + entries;
}

bool CompletionQueueSet::extend(const ibv_cq* queue, std::uint32_t entries, CompletionQueueRoom& room) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return false;
  }
  for (std::size_t i = 0; i < made_; ++i) {
    if (queues_[i].cq.get() != queue) {
      continue;
    }
    assert(room.set_ == nullptr || (room.set_ == this && room.queue_ == i));
    if (!can_spare(entries) || (queues_[i].free < entries && !grow(i, entries))) {
      return false;
    }
    queues_[i].free -= entries;
    room.set_ = this;
    room.queue_ = i;
    room.is_extension_ = true;
    room.demand_.own += entries;
    return true;
  }
  return false;
}

/// Other threads poll it meanwhile, which verbs allows. False, and nothing has happened, if the queue cannot be so large.
bool CompletionQueueSet::grow(std::size_t queue, std::uint32_t entries) noexcept {
  Entry& entry = queues_[queue];
  const std::uint64_t needed = std::uint64_t{entry.size} - entry.free + entries;
  if (!limits_.may_resize || needed > max_entries_) {
    return false;
  }
  const std::uint64_t wanted = std::max<std::uint64_t>(needed, std::uint64_t{entry.size} + size_of_next());
  const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, max_entries_));
  if (ibv_resize_cq(entry.cq.get(), static_cast<int>(size)) != 0) {
    limits_.may_resize = false;
    return false;
  }
  entry.free += size - entry.size;
  entry.size = size;
  return true;
}

Result<CompletionQueueRoom> CompletionQueueSet::make_another(const CompletionDemand& demand) {
  const std::uint32_t entries = demand.own;
  const std::size_t count = made_;
  const auto too_small = [](const std::string& what) {
    return failure(what + ": raise btl_fabric_cq_size, or lower the counts in btl_fabric_receive_queues");
  };
  if (count == kMaxQueues) {
    return too_small("all " + std::to_string(count) + " completion queues that a port can have in a process are full");
  }
  const std::uint32_t size = size_of_next();
  if (size < shared_receives_ || size - shared_receives_ < entries) {
    return too_small("a queue pair needs " + std::to_string(entries) +
                     " completion queue entries and the shared receives " + std::to_string(shared_receives_) +
                     ", but a completion queue holds " + std::to_string(size));
  }
  CompletionQueue cq(ibv_create_cq(device_, static_cast<int>(size), nullptr, nullptr, 0));
  if (!cq) {
    return verbs_failure("creating a completion queue of " + std::to_string(size) + " entries, after " +
                             std::to_string(count) + " others",
                         errno);
  }
  Entry& made = queues_[count];
  made.cq = std::move(cq);
  made.size = size;
  made.free = size - shared_receives_;
  (void)take(count, demand);  // it has been made large enough
  made_ = count + 1;
  count_.store(made_, std::memory_order_release);
  return CompletionQueueRoom(this, count, demand);
}

/// What sends share stays for those that come after it.
void CompletionQueueSet::release(std::size_t queue, const CompletionDemand& demand, bool is_extension) noexcept {
  const std::lock_guard lock(mutex_);
  at_first_ -= is_extension ? 0 : demand.own;
  queues_[queue].free += demand.own;
  queues_[queue].wanted -= demand.shared;
  assert(queues_[queue].free <= queues_[queue].size - shared_receives_);
}

}  // namespace fabric
