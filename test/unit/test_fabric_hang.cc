// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/fabric_hang makes of what processes have told.
#include <string>
#include <vector>

#include "contrib/fabric_hang/analysis.h"
#include "contrib/fabric_hang/answer.h"
#include "contrib/fabric_hang/jobs.h"
#include "contrib/fabric_hang/text.h"
#include "contrib/fabric_hang/wait_graph.h"
#include "test/unit/check_main.h"

namespace fabric::hang {
namespace {

using Json = nlohmann::ordered_json;

/// A P queue of 16 receives on both sides, nothing of which is under way.
Json queue(unsigned sent, unsigned taken) {
  return {{"kind", "P"},   {"size", 128},  {"sent", sent}, {"taken", taken},
          {"credits", 16}, {"missing", 0}, {"owed", 0},    {"depth", 16}};
}

Json peer(unsigned rank, Json queue) {
  return {{"rank", rank},
          {"job", 1},
          {"local_port", 0},
          {"remote_port", 0},
          {"state", "Connected"},
          {"is_moving", false},
          {"queues", Json::array({std::move(queue)})}};
}

/// One that waits for a credit.
Json held_up_by(unsigned rank) {
  Json one = peer(rank, queue(5, 0));
  one["still_ms"] = 1200;
  one["queues"][0]["waiting"] = 2;
  one["queues"][0]["waits_for"] = "credit";
  return one;
}

Json process(unsigned rank, std::vector<Json> peers) {
  Json port{{"port", "hca0:1"}, {"peers", std::move(peers)}};
  return {{"pid", 100 + rank},
          {"program", "solver"},
          {"host", "node"},
          {"job", 1},
          {"rank", rank},
          {"is_moving", false},
          {"answer", {{"call", "MPI_Recv"}, {"ports", Json::array({port})}}}};
}

Json silent(unsigned rank, const char* why) {
  return {{"pid", 100 + rank},
          {"program", "solver"},
          {"host", "node"},
          {"rank", rank},
          {"silent", {{"why", why}, {"state", "T"}}}};
}

/// All of it, as people see it.
std::string told(const Json& processes, bool is_wrong) {
  std::string all;
  for (const Json& job : by_job(processes)) {
    const Json findings = analyse(job);
    ck_assert_int_eq(is_something_wrong(findings), is_wrong);
    all += as_text(job, findings);
  }
  return all;
}

void check_has(const std::string& text, const char* part) {
  ck_assert_msg(text.find(part) != std::string::npos, "not \"%s\" in\n%s", part, text.c_str());
}

START_TEST(cycles_are_found_and_those_who_wait_for_them_are_in_none) {
  WaitGraph graph(7);
  for (const auto& [who, whom] : {std::pair{0, 1}, {1, 2}, {2, 0}, {3, 0}, {4, 5}, {5, 4}, {2, 1}}) {
    graph.add(static_cast<std::size_t>(who), static_cast<std::size_t>(whom));
  }
  const auto cycles = graph.cycles();
  ck_assert_uint_eq(cycles.size(), 2);
  ck_assert((cycles[0] == std::vector<std::size_t>{0, 1, 2}));
  ck_assert((cycles[1] == std::vector<std::size_t>{4, 5}));
  ck_assert((graph.held_up_by(0) == std::vector<std::size_t>{1, 2, 3}));
  ck_assert(graph.held_up_by(6).empty());
}
END_TEST

START_TEST(a_cycle_is_told_first) {
  const std::string text =
      told({process(0, {held_up_by(1)}), process(1, {held_up_by(2)}), process(2, {held_up_by(1)})}, true);
  check_has(text, "solver: 3 processes on node\nWHO WAITS FOR WHOM\n  cycle: rank 1 -> rank 2 -> rank 1\n");
  check_has(text, "rank 1 (pid 101 on node) waits for rank 2; nothing has moved for at least 1.2 s on hca0:1:\n");
  check_has(text, "2 messages wait on queue P,128 for a credit");
  check_has(text, "rank 0 (pid 100 on node) waits for rank 1");
}
END_TEST

START_TEST(who_holds_up_others_is_named_with_what_he_does) {
  const std::string text = told({process(0, {held_up_by(1)}), silent(2, "stopped"), process(1, {held_up_by(2)})}, true);
  check_has(
      text,
      "rank 2 (pid 102 on node) is stopped, by SIGSTOP or a debugger: kill -CONT 102 lets it go on\n    it holds up ranks 0, 1\n");
  ck_assert_msg(text.find("cycle") == std::string::npos, "%s", text.c_str());
}
END_TEST

START_TEST(who_computes_and_holds_up_nobody_is_no_fault) {
  check_has(told({process(0, {peer(1, queue(3, 0))}), silent(1, "computes")}, false),
            "NO ANSWER\n  rank 1 (pid 101 on node): computes");
}
END_TEST

START_TEST(messages_and_credits_that_are_nowhere_are_lost) {
  Json sender = peer(1, queue(7, 4));
  Json receiver = peer(0, queue(4, 5));
  sender["queues"][0]["credits"] = 3;
  receiver["queues"][0]["owed"] = 2;
  receiver["queues"][0]["missing"] = 1;
  const std::string text = told({process(0, {sender}), process(1, {receiver})}, true);
  check_has(text, "rank 0 to rank 1 on hca0:1: 2 messages on queue P,128 have been sent and not arrived\n");
  check_has(
      text,
      "rank 0 to rank 1 on hca0:1: 8 credits of 16 on queue P,128 have been given back by the receiver and not arrived");
  sender["is_moving"] = true;
  const std::string moving = told({process(0, {sender}), process(1, {receiver})}, false);
  ck_assert_msg(moving.find("LOST") == std::string::npos, "%s", moving.c_str());
}
END_TEST

START_TEST(what_one_look_alone_has_seen_is_not_lost) {
  Json sender = peer(1, queue(7, 4));
  Json receiver = peer(0, queue(4, 5));
  receiver["is_new"] = true;
  const std::string text = told({process(0, {sender}), process(1, {receiver})}, false);
  ck_assert_msg(text.find("LOST") == std::string::npos, "%s", text.c_str());
}
END_TEST

START_TEST(a_forked_child_does_not_stand_for_its_parent) {
  for (const bool is_child_last : {true, false}) {
    Json both = Json::array({process(1, {peer(0, queue(0, 0))}), silent(1, "closed")});
    both[1]["job"] = 1;
    if (!is_child_last) {
      std::swap(both[0], both[1]);
    }
    const std::string text = told({process(0, {peer(1, queue(0, 0))}), both[0], both[1]}, false);
    check_has(text, "ranks 0, 1: in MPI_Recv");
    ck_assert_msg(text.find("NO ANSWER") == std::string::npos, "%s", text.c_str());
  }
}
END_TEST

START_TEST(nothing_waits_where_all_has_come) {
  Json sender = peer(1, queue(3, 0));
  Json receiver = peer(0, queue(0, 3));
  sender["queues"][0]["credits"] = 13;
  receiver["queues"][0]["missing"] = 3;
  const std::string text = told({process(0, {sender}), process(1, {receiver})}, false);
  check_has(
      text,
      "NOTHING WAITS IN THE TRANSPORT\n  ranks 0, 1: in MPI_Recv\n    rank 0 has sent rank 1 3 packets, which has taken 3\n");
  check_has(text, "matches no receive");
}
END_TEST

START_TEST(a_wait_that_one_look_alone_has_seen_is_none) {
  Json short_wait = held_up_by(1);
  short_wait["still_ms"] = 0;
  (void)told(Json::array({process(0, {short_wait})}), false);
}
END_TEST

START_TEST(who_is_named_twice_counts_once) {
  const Json waits = process(0, {held_up_by(1)});
  const Json works = process(1, {peer(0, queue(3, 5))});
  const std::string once = told({waits, works}, true);
  const std::string twice = told({waits, works, waits, works}, true);
  fabric::test::check_text(twice, once);
  Json as_a_fork = works;  // in another process, which answers too
  as_a_fork["pid"] = 4711;
  ck_assert_uint_eq(analyse({waits, works, as_a_fork, waits})["waits"].size(), 1);
}
END_TEST

START_TEST(a_connection_may_leave_names_out) {
  Json waits = process(0, {held_up_by(1)});
  waits["connections"] = {Json::object(), {{"rank", 1}}, {{"rank", 1}, {"job", 1}, {"state", "RequestSent"}}};
  check_has(told({waits, process(1, {peer(0, queue(0, 0))})}, true), "its progress thread: RequestSent");
}
END_TEST

/// Whoever is asked may say anything.
START_TEST(what_is_no_answer_is_none) {
  for (const char* const line :
       {"", "[]", "7", "{", R"({"ports": "x"})", R"({"ports": [1]})", R"({"ports": [{"peers": {"a": 1}}]})",
        R"({"ports": [{"peers": [{"rank": "none"}]}]})", R"({"rank": 1.5})", R"({"host": 5})",
        R"({"connections": null})", R"({"ports": [{"peers": [{"queues": [{"depth": []}]}]}]})",
        R"({"ports": [{"peers": [{"broken": "no"}]}]})"}) {
    ck_assert_msg(read_answer(line).is_null(), "%s is taken for an answer", line);
  }
  const Json answer =
      read_answer(R"({"call": "MPI_\u001b]0;x\u0007\u00e4", "from_the_future": ["a\tb"], "ports": []})");
  fabric::test::check_text(answer["call"].get<std::string>(), "MPI_?]0;x???");
  fabric::test::check_text(answer["from_the_future"][0].get<std::string>(), "a?b");
  ck_assert(read_answer("{\"\u009b31m\": {\"\u007f\": 1}}").dump() == R"({"??31m":{"?":1}})");
  const std::string deep(100'000, '[');
  const Json nested = read_answer(R"({"a": )" + deep + std::string(deep.size(), ']') + "}");
  ck_assert(nested.is_object() && nested.dump().size() < 100);
  ck_assert(read_answer(process(0, {held_up_by(1)}).dump()) == process(0, {held_up_by(1)}));
}
END_TEST

START_TEST(jobs_that_do_not_know_each_other_are_told_apart) {
  Json other = process(0, {});
  other["job"] = 2;
  const auto jobs = by_job({other, process(0, {peer(1, queue(0, 0))}), silent(1, "stopped")});
  ck_assert_uint_eq(jobs.size(), 2);
  ck_assert_uint_eq(jobs[0].size(), 2);
  ck_assert_uint_eq(jobs[0][1]["job"].get<unsigned>(), 1);
  Json spawned = peer(0, queue(0, 0));
  spawned["job"] = 2;
  ck_assert_uint_eq(by_job({other, process(0, {spawned})}).size(), 1);
}
END_TEST

}  // namespace
}  // namespace fabric::hang

int main() {
  using namespace fabric::hang;
  return fabric::test::run_suite(
      "fabric_hang",
      {cycles_are_found_and_those_who_wait_for_them_are_in_none, a_cycle_is_told_first,
       who_holds_up_others_is_named_with_what_he_does, who_computes_and_holds_up_nobody_is_no_fault,
       messages_and_credits_that_are_nowhere_are_lost, what_one_look_alone_has_seen_is_not_lost,
       a_forked_child_does_not_stand_for_its_parent, nothing_waits_where_all_has_come,
       a_wait_that_one_look_alone_has_seen_is_none, who_is_named_twice_counts_once, a_connection_may_leave_names_out,
       what_is_no_answer_is_none, jobs_that_do_not_know_each_other_are_told_apart});
}
