// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/loop/progress_thread.h"

#include <sys/eventfd.h>

#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "common/base/error_text.h"

namespace fabric::cpc {
namespace {

thread_local bool this_is_a_progress_thread = false;
thread_local const std::function<void()>* no_memory = nullptr;  ///< of this progress thread

}  // namespace

bool on_progress_thread() noexcept {
  return this_is_a_progress_thread;
}

void assert_on_progress_thread() noexcept {
  assert(on_progress_thread());
}

void report_no_memory() noexcept {
  if (no_memory != nullptr && *no_memory) {
    (*no_memory)();
  }
}

Result<std::unique_ptr<ProgressThread>> ProgressThread::start(ProgressDuties duties) {
  std::unique_ptr<ProgressThread> thread(new ProgressThread(std::move(duties)));
  if (Status launched = thread->launch(); !launched) {
    return tl::unexpected(std::move(launched).error());
  }
  if (Status set_up = thread->set_up_.get_future().get(); !set_up) {
    return tl::unexpected(std::move(set_up).error());
  }
  return thread;
}

Status ProgressThread::launch() {
  wakeup_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup_) {
    return failure("creating an eventfd: " + describe_errno(errno));
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error_number = pthread_create(&thread_, nullptr, &ProgressThread::main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error_number != 0) {
    return failure(std::string("starting the progress thread: ") + std::strerror(error_number));
  }
  running_ = true;
  return {};
}

ProgressThread::~ProgressThread() {
  assert(!on_progress_thread());
  if (running_) {
    stop_.store(true, std::memory_order_release);
    wake();
    pthread_join(thread_, nullptr);
  }
}

void ProgressThread::wake() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is full: then the thread is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void* ProgressThread::main(void* self) {
  this_is_a_progress_thread = true;
  pthread_setname_np(pthread_self(), "btl_fabric");
  static_cast<ProgressThread*>(self)->run();
  return nullptr;
}

void ProgressThread::run() {
  no_memory = &duties_.no_memory;
  Status ready = make_loop();
  if (ready) {
    try {
      ready = duties_.set_up(loop_.get());
    } catch (const std::bad_alloc&) {
      duties_.tear_down();
      ready = failure("out of memory");  // short enough to need none
    }
  }
  const bool good = ready.has_value();
  set_up_.set_value(std::move(ready));
  if (good) {
    loop();
    duties_.tear_down();
  }
  loop_.reset();
}

Status ProgressThread::make_loop() {
  const std::unique_ptr<event_config, void (*)(event_config*)> config(event_config_new(), &event_config_free);
  // No locks: only this thread touches the loop, and libevent's thread support is a global that belongs to others.
  if (config && event_config_set_flag(config.get(), EVENT_BASE_FLAG_NOLOCK) == 0) {
    loop_.reset(event_base_new_with_config(config.get()));
  }
  if (!loop_) {
    return failure("making an event loop: libevent gives none");
  }
  return {};
}

void ProgressThread::loop() {
  Watch wakeup(loop_.get(), wakeup_.get(), Watch::For::kReading, [this] { on_wakeup(); });
  wakeup.start();
  while (!stop_.load(std::memory_order_acquire)) {
    event_base_loop(loop_.get(), EVLOOP_ONCE);
  }
}

void ProgressThread::on_wakeup() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(wakeup_.get(), &count, sizeof count);
  if (!stop_.load(std::memory_order_acquire)) {
    duties_.woken();
  }
}

}  // namespace fabric::cpc
