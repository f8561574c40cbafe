// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/loop/question_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/question_address.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

struct QuestionSocket::Asker {
  Asker(event_base* loop, FileDescriptor socket, const std::function<void(Asker&)>& readable,
        const std::function<void(Asker&)>& writable, const std::function<void(Asker&)>& late)
      : fd(std::move(socket)),
        reading(loop, fd.get(), Watch::For::kReading, [this, readable] { readable(*this); }),
        writing(loop, fd.get(), Watch::For::kWriting, [this, writable] { writable(*this); }),
        patience(loop, [this, late] { late(*this); }) {}

  FileDescriptor fd;
  std::string to_send;
  bool is_answered = false;
  Watch reading;  ///< to learn that it has gone
  Watch writing;
  Timer patience;
};

QuestionSocket::QuestionSocket(event_base* loop, std::function<std::string()> greet, std::function<void()> ask)
    : loop_(loop), greet_(std::move(greet)), ask_(std::move(ask)), pause_over_(loop, [this] { resume(); }) {}
QuestionSocket::~QuestionSocket() = default;

Status QuestionSocket::listen() {
  assert_on_progress_thread();
  const auto refused = [](const char* what) { return failure(std::string(what) + ": " + std::strerror(errno)); };
  listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_) {
    return refused("socket for questions");
  }
  const QuestionAddress own(pid_namespace_of("self"), getpid());
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0 ||
      ::listen(listener_.get(), static_cast<int>(kMostAskers)) != 0) {
    const Status why = refused("listening for questions");
    listener_ = {};
    return why;
  }
  watch_ = std::make_unique<Watch>(loop_, listener_.get(), Watch::For::kReading,
                                   [this] { run_or_lose([this] { take_all(); }); });
  watch_->start();
  return {};
}

void QuestionSocket::take_all() {
  for (;;) {
    FileDescriptor from(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!from && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
      watch_->stop();  // there is no descriptor, or no memory: without a pause the loop would spin
      pause_over_.start(kPauseMs);
    }
    if (!from) {
      return;
    }
    take(std::move(from));
  }
}

void QuestionSocket::resume() {
  pause_over_.stop();
  watch_->start();
}

/// The name has no permissions that would keep others away.
void QuestionSocket::take(FileDescriptor from) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(from.get(), SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 || (who.uid != geteuid() && who.uid != 0) ||
      askers_.size() >= kMostAskers) {
    return;
  }
  const auto leave = [this](Asker& asker) { forget(asker); };
  askers_.push_back(std::make_unique<Asker>(
      loop_, std::move(from), leave, [this](Asker& asker) { send(asker); }, leave));
  Asker& asker = *askers_.back();
  asker.patience.start(kPatienceMs);
  asker.to_send = greet_();
  ask_();
  asker.reading.start();
  send(asker);
}

void QuestionSocket::answer(const std::string& text) {
  assert_on_progress_thread();
  for (auto next = askers_.begin(); next != askers_.end();) {
    Asker& asker = **next++;  // it may go
    if (!std::exchange(asker.is_answered, true)) {
      asker.to_send += text;
      send(asker);
    }
  }
}

void QuestionSocket::send(Asker& asker) {
  while (!asker.to_send.empty()) {
    const ssize_t sent =
        ::send(asker.fd.get(), asker.to_send.data(), asker.to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0 && errno == EAGAIN) {
      asker.writing.start();
      return;
    }
    if (sent < 0) {
      forget(asker);
      return;
    }
    asker.to_send.erase(0, static_cast<std::size_t>(sent));
  }
  asker.writing.stop();
  if (asker.is_answered) {
    forget(asker);
  }
}

void QuestionSocket::forget(Asker& asker) noexcept {
  askers_.remove_if([&](const auto& one) { return one.get() == &asker; });
}

}  // namespace fabric::cpc
