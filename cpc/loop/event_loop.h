// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread waits for: file descriptors and timers, as objects. A callback may destroy the object that
// called it.
#pragma once

#include <event2/event.h>
#include <event2/event_struct.h>

#include <functional>

namespace fabric::cpc {

/// Calls back while a file descriptor is readable, or writable. Progress thread only.
class Watch {
 public:
  enum class For : short { kReading = EV_READ, kWriting = EV_WRITE };  // NOLINT: libevent's type

  /// Not started. `fd` must stay open as long as this lives.
  Watch(event_base* loop, int fd, For purpose, std::function<void()> callback);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Starting what is started, and stopping what is stopped, is fine.
  void start() noexcept;
  void stop() noexcept;
  /// Calls back on the next turn of the loop, whatever the state of the descriptor; for data that was read already.
  void call_soon() noexcept;

 private:
  static void called(evutil_socket_t fd, short what, void* self);
  ::event event_{};
  std::function<void()> callback_;
};

/// Calls back once, some time after start(). Progress thread only.
class Timer {
 public:
  Timer(event_base* loop, std::function<void()> callback);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Starts anew if it is running. 0: on the next turn of the loop.
  void start(unsigned milliseconds) noexcept;
  void stop() noexcept;
  [[nodiscard]] bool running() const noexcept;

 private:
  static void called(evutil_socket_t fd, short what, void* self);
  ::event event_{};
  std::function<void()> callback_;
};

}  // namespace fabric::cpc
