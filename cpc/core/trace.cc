// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/trace.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/host_name.h"
#include "common/base/private_file.h"

namespace fabric::cpc {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProgressThread = 1;
constexpr int kMainThread = 2;
constexpr std::uint32_t kLocalJobMask = 0xffff;  // Open MPI numbers the jobs of one mpirun in the lower half

std::int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// As trace viewers want it. A double is exact to the nanosecond for a hundred days after a start.
double microseconds(std::int64_t nanoseconds) noexcept {
  return static_cast<double>(nanoseconds) / 1000;
}

const char* name_of(Direction direction) noexcept {
  switch (direction) {
    case Direction::kBoth:
      return "both";
    case Direction::kOutgoing:
      return "outgoing";
    case Direction::kIncoming:
      return "incoming";
  }
  return "?";
}

/// "rank 1 of job 1, ports 0-0", "rank 1 of job 1, ports 0-0, outgoing"
std::string text_of(const ConnectionKey& key) {
  return to_string(ProcessName{key.peer.job & kLocalJobMask, key.peer.rank}) + ", ports " +
         std::to_string(key.local_port) + "-" + std::to_string(key.remote_port) +
         (key.direction == Direction::kBoth ? "" : std::string(", ") + name_of(key.direction));
}

}  // namespace

std::string trace_path(std::string_view pattern, const ProcessName& self) {
  std::string path;
  bool has_rank = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view two = pattern.substr(i, 2);
    if (two == "%r") {
      path += std::to_string(self.rank);
      has_rank = true;
      ++i;
    } else if (two == "%j") {
      path += std::to_string(self.job & kLocalJobMask);
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return has_rank ? path : path + "." + std::to_string(self.rank);
}

Result<std::unique_ptr<Trace>> Trace::open(std::string_view pattern, const ProcessName& self) {
  std::string path = trace_path(pattern, self);
  const Result<int> opened = open_private_file(path);
  if (!opened) {
    return tl::unexpected(opened.error());
  }
  File file(fdopen(*opened, "w"));
  if (!file) {
    const int error_number = errno;
    ::close(*opened);
    return failure(path + ": " + std::strerror(error_number));
  }
  if (ftruncate(*opened, 0) != 0) {
    return failure(path + ": " + std::strerror(errno));
  }
  return std::unique_ptr<Trace>(new Trace(std::move(file), std::move(path), self));
}

Trace::Trace(File file, std::string path, const ProcessName& self)
    : file_(std::move(file)),
      path_(std::move(path)),
      self_(self),
      realtime_offset_(nanoseconds(CLOCK_REALTIME) - nanoseconds(CLOCK_MONOTONIC)) {}

void Trace::List::add(const ConnectionKey& key, std::string_view from, std::string_view event, std::string_view to) {
  if (kept.size() < kMost) {
    kept.push_back({nanoseconds(CLOCK_MONOTONIC), key, from, event, to});
  } else {
    ++dropped;
  }
}

void Trace::add(const ConnectionKey& key, State from, Event event, State to) {
  connections_.add(key, to_string(from), to_string(event), to_string(to));
}

void Trace::add(const ConnectionKey& key, std::string_view from, std::string_view event, std::string_view to) {
  const std::lock_guard guard(endpoints_mutex_);
  endpoints_.add(key, from, event, to);
}

/// An event on a line of its own, so that a large file can be read with grep.
void Trace::write_event(const Json& event) {
  // The name of a host may be anything.
  std::fprintf(file_.get(), "%s%s", is_first_event_ ? "" : ",\n",
               event.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  is_first_event_ = false;
}

void Trace::write_name(const char* what, int thread, const std::string& name) {
  write_event({{"ph", "M"}, {"name", what}, {"pid", self_.rank}, {"tid", thread}, {"args", {{"name", name}}}});
}

/// An instant on the thread for each transition, with all that is known of it, and a span for each stay in a state, which
/// a viewer shows a row per connection.
void Trace::write_list(const List& list, int thread, const char* table) {
  const std::string_view rest = list.rest;  // nothing is under way: no span
  const auto write_span = [&](const char* phase, std::int64_t when, const std::string& id, std::string_view state) {
    write_event({{"ph", phase},
                 {"cat", table},
                 {"name", state},
                 {"id", id},
                 {"pid", self_.rank},
                 {"tid", thread},
                 {"ts", microseconds(when)}});
  };
  std::map<ConnectionKey, std::string_view> open;
  for (const Transition& one : list.kept) {
    const std::string id = std::string(table) + " to " + text_of(one.key);
    write_event({{"ph", "i"},
                 {"s", "t"},
                 {"cat", table},
                 {"name", one.event},
                 {"pid", self_.rank},
                 {"tid", thread},
                 {"ts", microseconds(one.nanoseconds)},
                 {"args",
                  {{"from", one.from},
                   {"to", one.to},
                   {"peer_job", one.key.peer.job},
                   {"peer_rank", one.key.peer.rank},
                   {"local_port", one.key.local_port},
                   {"remote_port", one.key.remote_port},
                   {"direction", name_of(one.key.direction)}}}});
    if (one.from == one.to) {
      continue;
    }
    if (one.from != rest) {
      write_span("e", one.nanoseconds, id, one.from);
    }
    if (one.to != rest) {
      write_span("b", one.nanoseconds, id, one.to);
    }
    open[one.key] = one.to;
  }
  const std::int64_t end = nanoseconds(CLOCK_MONOTONIC);
  for (const auto& [key, state] : open) {
    if (state != rest) {
      write_span("e", end, std::string(table) + " to " + text_of(key), state);
    }
  }
}

Status Trace::write() {
  const Json about = {{"host", host_name()},
                      {"job", self_.job},
                      {"rank", self_.rank},
                      {"clock", "CLOCK_MONOTONIC"},
                      {"realtime_offset_us", realtime_offset_ / 1000},
                      {"dropped", connections_.dropped + endpoints_.dropped}};
  std::FILE* const out = file_.get();
  std::fprintf(out, "{\"displayTimeUnit\":\"ms\",\n\"otherData\":%s,\n\"traceEvents\":[\n",
               about.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  write_list(connections_, kProgressThread, "connection");
  write_list(endpoints_, kMainThread, "endpoint");
  write_name("process_name", kProgressThread, "rank " + std::to_string(self_.rank) + " on " + host_name());
  write_name("thread_name", kProgressThread, "progress thread");
  write_name("thread_name", kMainThread, "main thread");
  std::fputs("\n]}\n", out);
  // Another job may have the same name for its trace: what it has written since then may be longer.
  const bool failed = std::fflush(out) != 0 || ftruncate(fileno(out), std::ftell(out)) != 0 || std::ferror(out) != 0;
  if (std::fclose(file_.release()) != 0 || failed) {
    return failure("writing " + path_ + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace fabric::cpc
