// SPDX-License-Identifier: BSD-3-Clause
//
// The timeline of connection set-up (btl_fabric_trace): every transition of every connection on the progress thread, and of
// every endpoint on the main thread, kept in memory and written when the process ends, as the
// JSON of Chrome's and Perfetto's trace viewers. contrib/wireup/draw makes a picture of the files of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "cpc/core/connection_states.h"
#include "cpc/core/cpc.h"

namespace fabric::cpc {

/// Nothing here is on the packet path.
class Trace {
 public:
  /// Transitions kept of either thread: some megabytes. What comes after is counted, and the file says so.
  static constexpr std::size_t kMost = std::size_t{1} << 17;

  /// Opens the file, so that one that cannot be written is known at the start. In `pattern` %r stands for the rank and %j
  /// for the job (its number under one mpirun: spawned jobs are not 1); a pattern without %r gets it at the end.
  [[nodiscard]] static Result<std::unique_ptr<Trace>> open(std::string_view pattern, const ProcessName& self);

  /// Progress thread.
  void add(const ConnectionKey& key, State from, Event event, State to);
  /// Main thread, in whatever transmit context: of an endpoint. The names live for ever.
  void add(const ConnectionKey& key, std::string_view from, std::string_view event, std::string_view to);

  /// Writes the file. When the progress thread has ended; once.
  [[nodiscard]] Status write();

 private:
  struct Transition {
    std::int64_t nanoseconds;
    ConnectionKey key;
    std::string_view from;
    std::string_view event;
    std::string_view to;
  };
  struct List {
    std::string_view rest;  ///< the state in which nothing is under way
    std::vector<Transition> kept{};
    std::size_t dropped = 0;
    void add(const ConnectionKey& key, std::string_view from, std::string_view event, std::string_view to);
  };
  struct FileCloser {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, FileCloser>;

  Trace(File file, std::string path, const ProcessName& self);
  void write_list(const List& list, int thread, const char* table);
  void write_event(const nlohmann::ordered_json& event);
  void write_name(const char* what, int thread, const std::string& name);

  File file_;
  std::string path_;
  ProcessName self_;
  bool is_first_event_ = true;
  std::int64_t realtime_offset_;  ///< CLOCK_REALTIME less CLOCK_MONOTONIC, at the start
  List connections_{"Closed"};
  std::mutex endpoints_mutex_;  ///< transmit contexts have locks of their own
  List endpoints_{"Idle"};
};

/// `pattern` with %r and %j replaced.
[[nodiscard]] std::string trace_path(std::string_view pattern, const ProcessName& self);

}  // namespace fabric::cpc
