// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/loop/event_loop.h"

#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

/// Adding a descriptor or a timer fails only when the kernel or the heap has no memory left.
void add(::event* event, const timeval* after) noexcept {
  if (event_add(event, after) != 0) {
    report_no_memory();
  }
}

}  // namespace

Watch::Watch(event_base* loop, int fd, For purpose, std::function<void()> callback) : callback_(std::move(callback)) {
  assert_on_progress_thread();
  event_assign(&event_, loop, fd, static_cast<short>(static_cast<short>(purpose) | EV_PERSIST), &Watch::called, this);
}

Watch::~Watch() {
  assert_on_progress_thread();
  event_del(&event_);
}

void Watch::start() noexcept {
  add(&event_, nullptr);
}
void Watch::stop() noexcept {
  event_del(&event_);
}
void Watch::call_soon() noexcept {
  event_active(&event_, EV_TIMEOUT, 0);
}

void Watch::called(evutil_socket_t, short, void* self) {
  run_or_lose([self] {
    const std::function<void()> callback = static_cast<Watch*>(self)->callback_;  // a copy: it may destroy *self
    callback();
  });
}

Timer::Timer(event_base* loop, std::function<void()> callback) : callback_(std::move(callback)) {
  assert_on_progress_thread();
  evtimer_assign(&event_, loop, &Timer::called, this);
}

Timer::~Timer() {
  assert_on_progress_thread();
  event_del(&event_);
}

void Timer::start(unsigned milliseconds) noexcept {
  timeval after{};
  after.tv_sec = milliseconds / 1000;
  after.tv_usec = static_cast<suseconds_t>(milliseconds % 1000) * 1000;
  add(&event_, &after);
}

void Timer::stop() noexcept {
  event_del(&event_);
}
bool Timer::running() const noexcept {
  return event_pending(&event_, EV_TIMEOUT, nullptr) != 0;
}

void Timer::called(evutil_socket_t, short, void* self) {
  run_or_lose([self] {
    const std::function<void()> callback = static_cast<Timer*>(self)->callback_;
    callback();
  });
}

}  // namespace fabric::cpc
