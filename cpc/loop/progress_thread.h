// SPDX-License-Identifier: BSD-3-Clause
//
// The thread that owns connection set-up: asleep in an event loop, it wakes for sockets, asynchronous device events,
// timers, and commands of the main thread.
#pragma once

#include <event2/event.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <new>

#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"

namespace fabric::cpc {

/// True on any progress thread.
[[nodiscard]] bool on_progress_thread() noexcept;

/// The first line of a function that belongs to the progress thread.
void assert_on_progress_thread() noexcept;

/// Something that had to be done on this progress thread was not, for want of memory.
void report_no_memory() noexcept;

/// Runs a function on the progress thread. If there is no memory for it, what it had to do is lost, and who owns the thread is told
/// (ProgressDuties::no_memory).
template <class Function>
void run_or_lose(Function function) noexcept {
  try {
    function();
  } catch (const std::bad_alloc&) {
    report_no_memory();
  }
}

/// What a progress thread does; all of it is called on it.
struct ProgressDuties {
  std::function<Status(event_base* loop)> set_up;  ///< before the loop; a failure ends the thread
  std::function<void()> woken;                     ///< some time after one or more wake()
  /// After the loop, if set_up succeeded, or when that had no memory: drops everything that uses the loop.
  std::function<void()> tear_down;
  std::function<void()> no_memory;  ///< something could not be done; allocates nothing. May be empty
};

class ProgressThread {
 public:
  /// Starts the thread and waits until set_up is through; its failure is returned. Every signal is blocked on the
  /// thread: they are for the application's threads.
  [[nodiscard]] static Result<std::unique_ptr<ProgressThread>> start(ProgressDuties duties);

  /// Ends the loop and waits for tear_down. Not for the progress thread itself.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// From any thread; never waits. Several calls may come to one `woken`.
  void wake() noexcept;

 private:
  struct LoopDeleter {
    void operator()(event_base* loop) const noexcept { event_base_free(loop); }
  };

  explicit ProgressThread(ProgressDuties duties) : duties_(std::move(duties)) {}
  [[nodiscard]] Status launch();
  [[nodiscard]] Status make_loop();
  static void* main(void* self);
  void run();
  void loop();
  void on_wakeup();

  ProgressDuties duties_;
  FileDescriptor wakeup_;  ///< an eventfd
  std::unique_ptr<event_base, LoopDeleter> loop_;
  std::promise<Status> set_up_;
  std::atomic<bool> stop_ = false;
  pthread_t thread_{};
  bool running_ = false;  ///< there is a thread to join
};

}  // namespace fabric::cpc
