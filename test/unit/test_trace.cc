// SPDX-License-Identifier: BSD-3-Clause
//
// What is kept of the transitions of connections: the last ones of each, and all of them in a file.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/transition_history.h"
#include "cpc/core/connection_states.h"
#include "cpc/core/trace.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

nlohmann::json read_and_remove(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json read = nlohmann::json::parse(file, nullptr, false);
  std::remove(path.c_str());
  ck_assert(!read.is_discarded());
  return read;
}

START_TEST(history_keeps_the_last_transitions) {
  using History = TransitionHistory<State, Event>;
  History history;
  ck_assert(history.text().empty());
  history.add(State::kClosed, Event::kConnectWanted, State::kPosting);
  test::check_text(history.text(), "Closed -ConnectWanted-> Posting");
  for (std::size_t i = 0; i < History::kKept; ++i) {
    history.add(State::kRequestSent, Event::kRetryTimer, State::kRequestSent);
  }
  const std::string text = history.text();
  ck_assert(text.find("Closed") == std::string::npos);
  ck_assert_int_eq(std::count(text.begin(), text.end(), ','), static_cast<int>(History::kKept) - 1);
}
END_TEST

START_TEST(trace_files_are_one_for_each_process) {
  const ProcessName self{0x1234'0002, 17};
  test::check_text(trace_path("/tmp/t.%r", self), "/tmp/t.17");
  test::check_text(trace_path("%j-%r.json", self), "2-17.json");
  test::check_text(trace_path("/tmp/t", self), "/tmp/t.17");
  test::check_text(trace_path("100%", self), "100%.17");
}
END_TEST

START_TEST(a_trace_is_bounded_and_says_so) {
  const std::string path = "test_trace." + std::to_string(getpid());
  auto trace = Trace::open(path + "%r", {1, 5});
  ck_assert(trace.has_value());
  for (std::size_t i = 0; i < Trace::kMost + 3; ++i) {
    (*trace)->add({{1, 6}, 0, 0}, State::kRequestSent, Event::kRetryTimer, State::kRequestSent);
  }
  (*trace)->add({{1, 6}, 0, 0}, "Idle", "Linked", "CtsSent");
  ck_assert((*trace)->write().has_value());
  const nlohmann::json written = read_and_remove(path + "5");
  ck_assert_int_eq(written["otherData"]["dropped"].get<int>(), 3);
  const nlohmann::json& events = written["traceEvents"];
  ck_assert(std::any_of(events.begin(), events.end(), [](const auto& event) { return event["name"] == "Linked"; }));
  ck_assert(!Trace::open("/nowhere/at/all", {}).has_value());
}
END_TEST

/// Jobs that have the same name for their traces: the file is that of the last to end, and whole.
START_TEST(the_last_trace_of_a_name_is_kept) {
  const std::string path = "test_trace." + std::to_string(getpid());
  auto of_many = Trace::open(path + "%r", {1, 5});
  auto of_few = Trace::open(path + "%r", {2, 5});
  ck_assert(of_many.has_value() && of_few.has_value());
  for (int i = 0; i < 1000; ++i) {
    (*of_many)->add({{1, 6}, 0, 0}, "Idle", "Linked", "CtsSent");
  }
  ck_assert((*of_many)->write().has_value());
  ck_assert((*of_few)->write().has_value());
  const nlohmann::json written = read_and_remove(path + "5");
  ck_assert_int_eq(written["otherData"]["job"].get<int>(), 2);
}
END_TEST

/// Main threads of several contexts add the transitions of their endpoints, and the progress thread those of connections.
START_TEST(threads_add_at_once) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 3000;
  const std::string path = "test_trace." + std::to_string(getpid());
  auto trace = Trace::open(path + "%r", {1, 5});
  ck_assert(trace.has_value());
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < kEach; ++i) {
        (*trace)->add({{1, 6}, 0, 0}, "Idle", "Linked", "CtsSent");
      }
    });
  }
  for (std::size_t i = 0; i < kEach; ++i) {
    (*trace)->add({{1, 6}, 0, 0}, State::kRequestSent, Event::kRetryTimer, State::kRequestSent);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ck_assert((*trace)->write().has_value());
  std::ifstream file(path + "5");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::remove((path + "5").c_str());
  std::size_t written = 0;
  for (std::size_t at = text.find("\"Linked\""); at != std::string::npos; at = text.find("\"Linked\"", at + 1)) {
    ++written;
  }
  ck_assert_uint_eq(written, kThreads * kEach);
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_computations<60>(
      "trace", {history_keeps_the_last_transitions, trace_files_are_one_for_each_process,
                a_trace_is_bounded_and_says_so, the_last_trace_of_a_name_is_kept, threads_add_at_once});
}
