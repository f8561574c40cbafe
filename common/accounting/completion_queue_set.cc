// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/completion_queue_set.h"

#include <algorithm>
#include <cassert>

namespace fabric {

CompletionQueueRoom::~CompletionQueueRoom() {
  if (set_ != nullptr) {
    set_->release(queue_, entries_);
  }
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
  const std::size_t count = count_.load(std::memory_order_relaxed);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all += queues_[i].size;
  }
  const std::uint32_t least = count + 1 == limits_.queues ? limits_.last_entries : entries_per_queue_;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max<std::uint64_t>(least, all / 4), max_entries_));
}

Result<CompletionQueueRoom> CompletionQueueSet::reserve(std::uint32_t entries) {
  const std::lock_guard lock(mutex_);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (queues_[i].free >= entries || grow(i, entries)) {
      queues_[i].free -= entries;
      return CompletionQueueRoom(this, i, entries);
    }
  }
  return make_another(entries);
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

Result<CompletionQueueRoom> CompletionQueueSet::make_another(std::uint32_t entries) {
  const std::size_t count = count_.load(std::memory_order_relaxed);
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
  queues_[count].cq = std::move(cq);
  queues_[count].size = size;
  queues_[count].free = size - shared_receives_ - entries;
  count_.store(count + 1, std::memory_order_release);
  return CompletionQueueRoom(this, count, entries);
}

void CompletionQueueSet::release(std::size_t queue, std::uint32_t entries) noexcept {
  const std::lock_guard lock(mutex_);
  queues_[queue].free += entries;
  assert(queues_[queue].free <= queues_[queue].size - shared_receives_);
}

}  // namespace fabric
