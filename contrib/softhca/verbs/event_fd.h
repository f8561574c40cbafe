// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A queue of events with a file descriptor that is readable while it is not empty: completion channels, async events, CM
// channels. The descriptor belongs to the user as much as to us: it may be polled and set non-blocking.
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>

namespace softhca {

template <typename Event>
class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {}
  ~EventFd() {
    if (fd_ >= 0) close(fd_);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int fd() const { return fd_; }  // -1: could not be made

  void push(const Event& event) {
    std::lock_guard guard(mutex_);
    events_.push_back(event);
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(fd_, &one, sizeof one);
  }

  // Waits for one unless the descriptor is non-blocking. 0, or an errno (EAGAIN, EINTR).
  [[nodiscard]] int pop(Event& event) {
    for (;;) {
      uint64_t one = 0;
      if (read(fd_, &one, sizeof one) != sizeof one) return errno;
      std::lock_guard guard(mutex_);
      if (events_.empty()) continue;  // it was withdrawn meanwhile
      event = events_.front();
      events_.pop_front();
      return 0;
    }
  }

  // Withdraws events that nobody has read: what they are about is going away. Returns how many.
  template <typename F>
  size_t remove_if(F&& f) {
    std::lock_guard guard(mutex_);
    const size_t before = events_.size();
    std::erase_if(events_, f);
    // Their counts go too, or an empty queue would look readable. Never block for it: a reader may have been faster, and
    // finds nothing in pop().
    uint64_t one = 0;
    iovec vector{&one, sizeof one};
    for (size_t i = events_.size(); i < before; ++i)
      if (preadv2(fd_, &vector, 1, -1, RWF_NOWAIT) < 0) break;
    return before - events_.size();
  }

 private:
  int fd_;
  std::mutex mutex_;
  std::deque<Event> events_;
};

}  // namespace softhca
