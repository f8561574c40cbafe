// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/trace.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>

#include "common/base/host_name.h"
#include "common/base/private_file.h"

namespace fabric::cpc {
namespace {

constexpr int kProgressThread = 1;
constexpr int kMainThread = 2;
constexpr std::uint32_t kLocalJobMask = 0xffff;  // Open MPI numbers the jobs of one mpirun in the lower half

std::int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The name of this host as it can stand in a JSON text.
std::string host_in_json() {
  std::string text;
  for (const char c : host_name()) {
    text += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return text;
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

void Trace::write_name(const char* what, int thread, const std::string& name) {
  std::fprintf(file_.get(),
               "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %u, \"tid\": %d, \"args\": {\"name\": \"%s\"}},\n", what,
               self_.rank, thread, name.c_str());
}

/// An instant on the thread for each transition, with all that is known of it, and a span for each stay in a state, which
/// a viewer shows a row per connection.
void Trace::write_list(const List& list, int thread, const char* table) {
  const std::string_view rest = list.rest;  // nothing is under way: no span
  std::FILE* const out = file_.get();
  const auto write_span = [&](char phase, std::int64_t when, const std::string& id, std::string_view state) {
    std::fprintf(out,
                 "{\"ph\": \"%c\", \"cat\": \"%s\", \"name\": \"%s\", \"id\": \"%s\", \"pid\": %u, \"tid\": %d, "
                 "\"ts\": %" PRId64 ".%03d},\n",
                 phase, table, state.data(), id.c_str(), self_.rank, thread, when / 1000,
                 static_cast<int>(when % 1000));
  };
  std::map<ConnectionKey, std::string_view> open;
  for (const Transition& one : list.kept) {
    const std::string_view from = one.from;
    const std::string_view to = one.to;
    const std::string id = std::string(table) + " to " + text_of(one.key);
    std::fprintf(out,
                 "{\"ph\": \"i\", \"s\": \"t\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %u, \"tid\": %d, "
                 "\"ts\": %" PRId64
                 ".%03d, \"args\": {\"from\": \"%s\", \"to\": \"%s\", \"peer_job\": %u, "
                 "\"peer_rank\": %u, \"local_port\": %u, \"remote_port\": %u, \"direction\": \"%s\"}},\n",
                 table, one.event.data(), self_.rank, thread, one.nanoseconds / 1000,
                 static_cast<int>(one.nanoseconds % 1000), from.data(), to.data(), one.key.peer.job, one.key.peer.rank,
                 one.key.local_port, one.key.remote_port, name_of(one.key.direction));
    if (from == to) {
      continue;
    }
    if (from != rest) {
      write_span('e', one.nanoseconds, id, from);
    }
    if (to != rest) {
      write_span('b', one.nanoseconds, id, to);
    }
    open[one.key] = to;
  }
  const std::int64_t end = nanoseconds(CLOCK_MONOTONIC);
  for (const auto& [key, state] : open) {
    if (state != rest) {
      write_span('e', end, std::string(table) + " to " + text_of(key), state);
    }
  }
}

Status Trace::write() {
  const std::string host = host_in_json();
  std::FILE* const out = file_.get();
  std::fprintf(out,
               "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"host\": \"%s\", \"job\": %u, \"rank\": %u, "
               "\"clock\": \"CLOCK_MONOTONIC\", \"realtime_offset_us\": %" PRId64
               ", \"dropped\": %zu},\n"
               "\"traceEvents\": [\n",
               host.c_str(), self_.job, self_.rank, realtime_offset_ / 1000, connections_.dropped + endpoints_.dropped);
  write_list(connections_, kProgressThread, "connection");
  write_list(endpoints_, kMainThread, "endpoint");
  write_name("process_name", kProgressThread, "rank " + std::to_string(self_.rank) + " on " + host);
  write_name("thread_name", kProgressThread, "progress thread");
  // The last one: JSON allows no comma after it.
  std::fprintf(out,
               "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %u, \"tid\": %d, \"args\": {\"name\": \"main "
               "thread\"}}\n]}\n",
               self_.rank, kMainThread);
  const bool failed = std::ferror(out) != 0;
  if (std::fclose(file_.release()) != 0 || failed) {
    return failure("writing " + path_ + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace fabric::cpc
