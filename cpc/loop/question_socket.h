// SPDX-License-Identifier: BSD-3-Clause
//
// Where other programs of the same user, and of root, ask what this process waits for (contrib/fabric_hang). Who connects hears two
// lines: what the progress thread knows, at once, and what the main thread says, as soon as that is inside MPI. Nothing that
// comes from there is read.
#pragma once

#include <event2/event.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"

namespace fabric::cpc {

/// Progress thread only.
class QuestionSocket {
 public:
  /// `greet` makes the first line; `ask` has the main thread asked for the second.
  QuestionSocket(event_base* loop, std::function<std::string()> greet, std::function<void()> ask);
  ~QuestionSocket();
  QuestionSocket(const QuestionSocket&) = delete;
  QuestionSocket& operator=(const QuestionSocket&) = delete;

  /// Once. The error says why nobody can ask.
  [[nodiscard]] Status listen();
  /// The second line, for all who wait for it.
  void answer(const std::string& text);

 private:
  struct Asker;
  static constexpr std::size_t kMostAskers = 16;
  static constexpr unsigned kPatienceMs = 60000;
  static constexpr unsigned kPauseMs = 100;  ///< without descriptors

  void take_all();
  void resume();
  void take(FileDescriptor from);
  /// Sends what there is. The asker may be gone then.
  void send(Asker& asker);
  void forget(Asker& asker) noexcept;

  event_base* const loop_;
  const std::function<std::string()> greet_;
  const std::function<void()> ask_;
  FileDescriptor listener_;
  std::unique_ptr<Watch> watch_;
  Timer pause_over_;
  std::list<std::unique_ptr<Asker>> askers_;
};

}  // namespace fabric::cpc
