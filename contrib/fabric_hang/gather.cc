// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/gather.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/host_name.h"
#include "common/base/question_address.h"
#include "contrib/fabric_hang/answer.h"

namespace fabric::hang {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// One question to one process.
class Question {
 public:
  explicit Question(const Process& process) {
    const QuestionAddress address(process.pid_namespace, process.own_pid);
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    is_asked_ = fd_ >= 0;
    if (fd_ >= 0 && connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) {
      error_ = errno;
      close();
    }
    if (fd_ >= 0 && listener() != process.pid) {
      is_impostor_ = true;
      close();
    }
  }
  ~Question() { close(); }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  /// -1: it is over.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Takes what there is.
  void read() {
    std::array<char, 65536> part{};
    const ssize_t size = recv(fd_, part.data(), part.size(), 0);
    if (size > 0) {
      text_.append(part.data(), static_cast<std::size_t>(size));
      if (text_.size() > kMostBytes) {
        close();
      }
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      close();
    }
  }
  /// 0 and 1; nothing if it has not come, or is none that we know.
  [[nodiscard]] Json line(unsigned number) const {
    const auto text = text_of(number);
    return text ? read_answer(*text) : Json();
  }
  /// It has said something that is no answer.
  [[nodiscard]] bool is_nonsense() const {
    return text_.size() > kMostBytes || (text_of(0) && line(0).is_null()) || (text_of(1) && line(1).is_null());
  }
  /// Another process has taken its address.
  [[nodiscard]] bool is_impostor() const noexcept { return is_impostor_; }
  /// There was a descriptor for it.
  [[nodiscard]] bool is_asked() const noexcept { return is_asked_; }
  /// Nothing more is read.
  void end() noexcept { close(); }
  [[nodiscard]] bool is_refused() const noexcept { return error_ != 0 && error_ != EAGAIN; }
  [[nodiscard]] bool is_turned_away() const noexcept { return error_ == 0 && fd_ < 0 && text_.empty(); }

 private:
  [[nodiscard]] std::optional<std::string> text_of(unsigned number) const {
    std::size_t begin = 0;
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', begin)) {
      if (number-- == 0) {
        return text_.substr(begin, end - begin);
      }
      begin = end + 1;
    }
    return std::nullopt;
  }
  /// The process that takes questions there: anybody may have the name of the socket. 0: none that has a number here.
  [[nodiscard]] pid_t listener() const noexcept {
    ucred who{};
    socklen_t length = sizeof who;
    return getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 ? who.pid : 0;
  }
  void close() noexcept {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

  int fd_ = -1;
  bool is_asked_ = false;
  bool is_impostor_ = false;
  int error_ = 0;
  std::string text_;
};

using Questions = std::vector<std::unique_ptr<Question>>;

Questions ask(std::span<const Process> processes, std::chrono::milliseconds patience) {
  Questions all;
  for (const Process& process : processes) {
    all.push_back(std::make_unique<Question>(process));
  }
  const auto end = Clock::now() + patience;
  for (;;) {
    std::vector<pollfd> open;
    std::vector<Question*> of;
    for (const auto& one : all) {
      if (one->fd() >= 0) {
        open.push_back({one->fd(), POLLIN, 0});
        of.push_back(one.get());
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (open.empty() || left <= 0 || poll(open.data(), open.size(), static_cast<int>(left)) < 0) {
      return all;
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents != 0) {
        of[i]->read();
      }
    }
  }
}

/// What has gone and come through an endpoint.
std::vector<std::uint64_t> counts(const Json& peer) {
  std::vector<std::uint64_t> all;
  for (const Json& queue : peer.value("queues", Json::array())) {
    all.push_back(queue.value("sent", std::uint64_t{0}));
    all.push_back(queue.value("taken", std::uint64_t{0}));
  }
  return all;
}

Json objects(const Json& of, const char* name) {
  return of.is_object() ? of.value(name, Json::array()) : Json::array();
}

bool is_same_way(const Json& one, const Json& other) {
  constexpr std::array kNames = {"rank", "job", "remote_port"};
  return std::all_of(kNames.begin(), kNames.end(),
                     [&](const char* name) { return one.value(name, -1) == other.value(name, -1); });
}

/// Says of each peer in `now` whether anything has come or gone since `before`, or that `before` does not have it; and whether anything has
/// of the process.
void compare(Json& process, const Json& before, Json& now) {
  bool is_moving = false;
  const Json ports_then = objects(before, "ports");
  Json ports = objects(now, "ports");
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const Json then = i < ports_then.size() ? objects(ports_then[i], "peers") : Json::array();
    Json peers = objects(ports[i], "peers");
    for (Json& peer : peers) {
      const auto same = std::find_if(then.begin(), then.end(), [&](const Json& one) { return is_same_way(one, peer); });
      const bool moves = same != then.end() && counts(*same) != counts(peer);
      peer["is_moving"] = moves;
      peer["is_new"] = same == then.end();
      is_moving = is_moving || moves;
    }
    ports[i]["peers"] = std::move(peers);
  }
  now["ports"] = std::move(ports);
  process["is_moving"] = is_moving;
}

/// Why there is no answer: "stopped", "computes", "sleeps", "gone", "closed" (nobody takes questions), "unasked" (there was no
/// descriptor left), "impostor" (another process has its address), "nonsense" (what it says is no answer), "refused" (not this user's) or
/// "stuck" (not even the progress thread answers).
Json silence(const Process& process, const Question& question, bool has_greeting) {
  const auto does = activity(process.pid);
  if (!does || does->state == 'Z' || does->state == 'X') {
    return {{"why", "gone"}};
  }
  Json told{{"why", "stuck"}, {"state", std::string(1, does->state)}};
  if (!does->in_kernel.empty()) {
    told["in_kernel"] = does->in_kernel;
  }
  if (does->state == 'T' || does->state == 't') {
    told["why"] = "stopped";
  } else if (!question.is_asked()) {
    told["why"] = "unasked";
  } else if (question.is_impostor()) {
    told["why"] = "impostor";
  } else if (question.is_nonsense()) {
    told["why"] = "nonsense";
  } else if (question.is_refused()) {
    told["why"] = "closed";
  } else if (question.is_turned_away()) {
    told["why"] = "refused";
  } else if (has_greeting) {
    told["why"] = does->state == 'R' ? "computes" : "sleeps";
  }
  return told;
}

Json one_process(const Process& process, const Question& first, const Question& second) {
  Json greeting = second.line(0);
  if (greeting.is_null()) {
    greeting = first.line(0);
  }
  Json told{{"pid", process.pid}, {"program", process.program}};
  for (const char* const name : {"format", "host", "job", "rank", "connections"}) {
    if (const auto found = greeting.find(name); found != greeting.end()) {
      told[name] = *found;
    }
  }
  if (greeting.is_null()) {
    told["host"] = host_name();
    if (process.rank) {
      told["rank"] = *process.rank;
    }
    if (process.job) {
      told["job"] = *process.job;
    }
  }
  Json answer = second.line(1);
  if (answer.is_null()) {
    told["silent"] = silence(process, second, !greeting.is_null());
    answer = first.line(1);  // what it waited for then may tell something
  }
  if (!answer.is_null()) {
    compare(told, first.line(1), answer);
    told["answer"] = std::move(answer);
  }
  return told;
}

}  // namespace

Json gather(std::span<const Process> processes, const Patience& patience) {
  const auto began = Clock::now();
  const Questions first = ask(processes, patience.answer);
  std::for_each(first.begin(), first.end(), [](const auto& one) { one->end(); });
  std::this_thread::sleep_until(began + patience.apart);
  const Questions second = ask(processes, patience.answer);
  Json all = Json::array();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    all.push_back(one_process(processes[i], *first[i], *second[i]));
  }
  return all;
}

}  // namespace fabric::hang
