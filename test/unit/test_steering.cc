// SPDX-License-Identifier: BSD-3-Clause
//
// Steering rules: how they are read, and the tables that senders make of them.
#include <string>

#include "common/ports/steering.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using Rules = std::vector<SteeringRule>;
constexpr SteeringRule kAll{};

/// The text of the refusal.
std::string refusal(const std::string& text) {
  const auto rules = parse_steering(text);
  return rules ? "accepted" : rules.error().text;
}

Rules read(const std::string& text) {
  const auto rules = parse_steering(text);
  ck_assert_msg(rules.has_value(), "%s", rules ? "" : rules.error().text.c_str());
  return *rules;
}

/// The context of a tag of what comes from `source`; -1: whichever the sender likes.
int context_of(const std::string& text, std::uint32_t source, unsigned tag, unsigned contexts = 64) {
  const auto table = steering_table(read(text), source, contexts);
  return table == nullptr || (*table)[tag] == kNotSteered ? -1 : (*table)[tag];
}

START_TEST(reads_rules) {
  ck_assert(read("").empty());
  ck_assert(read("*:2") == (Rules{{0, UINT32_MAX, 0, 255, 2}}));
  ck_assert(read("source=3,tag=65:1") == (Rules{{3, 3, 65, 65, 1}}));
  ck_assert(read("tag=65-73,source=0-3:63") == (Rules{{0, 3, 65, 73, 63}}));
  ck_assert(read("source=*,tag=*:0") == (Rules{{kAll.first_source, kAll.last_source, 0, 255, 0}}));
  ck_assert(read("source=4294967295:1;tag=255:2") ==
            (Rules{{UINT32_MAX, UINT32_MAX, 0, 255, 1}, {0, UINT32_MAX, 255, 255, 2}}));
  ck_assert_uint_eq(read("*:1;").size(), 1);
}
END_TEST

START_TEST(knows_names_of_tags) {
  ck_assert(read("tag=pml:1") == (Rules{{0, UINT32_MAX, 64, 95, 1}}));
  ck_assert(read("tag=usr:1") == (Rules{{0, UINT32_MAX, 128, 255, 1}}));
  ck_assert(read("tag=match:1;tag=fin:2") == (Rules{{0, UINT32_MAX, 65, 65, 1}, {0, UINT32_MAX, 73, 73, 2}}));
}
END_TEST

START_TEST(shows_the_part_that_is_wrong) {
  test::check_text(refusal("*"), "rule \"*\": no :CONTEXT follows");
  test::check_text(refusal(";*:1"), "rule \"\": no :CONTEXT follows");
  test::check_text(refusal("*:1;tag=9"), "rule \"tag=9\": no :CONTEXT follows");
  test::check_text(refusal("*:64"), "rule \"*:64\": context \"64\" is not a number of 0 to 63");
  test::check_text(refusal("*:-1"), "rule \"*:-1\": context \"-1\" is not a number of 0 to 63");
  test::check_text(refusal("*:"), "rule \"*:\": context \"\" is not a number of 0 to 63");
  test::check_text(refusal("*: 1"), "rule \"*: 1\": context \" 1\" is not a number of 0 to 63");
  test::check_text(refusal(":1"), "rule \":1\": \"\" is none of source=RANKS and tag=TAGS");
  test::check_text(refusal("rank=1:1"), "rule \"rank=1:1\": \"rank=1\" is none of source=RANKS and tag=TAGS");
  test::check_text(refusal("source:1"), "rule \"source:1\": \"source\" is none of source=RANKS and tag=TAGS");
  test::check_text(refusal("source=1,source=2:1"), "rule \"source=1,source=2:1\": \"source\" is there twice");
  const std::string ranks = " is not a rank, a range of ranks as in 0-3, or *";
  test::check_text(refusal("source=a:1"), "rule \"source=a:1\": source \"a\"" + ranks);
  test::check_text(refusal("source=3-1:1"), "rule \"source=3-1:1\": source \"3-1\"" + ranks);
  test::check_text(refusal("source=4294967296:1"), "rule \"source=4294967296:1\": source \"4294967296\"" + ranks);
  const std::string tags =
      " is not a number of 0 to 255, a range of such, * or one of pml, osc, usr, match, rndv, rget, ack, nack, frag, get, "
      "put, fin, cid";
  test::check_text(refusal("tag=256:1"), "rule \"tag=256:1\": tag \"256\"" + tags);
  test::check_text(refusal("tag=mtach:1"), "rule \"tag=mtach:1\": tag \"mtach\"" + tags);
}
END_TEST

START_TEST(there_are_so_many_rules_and_no_more) {
  std::string text;
  for (std::size_t i = 0; i < kMostSteeringRules; ++i) {
    text += "*:1;";
  }
  ck_assert_uint_eq(read(text).size(), kMostSteeringRules);
  test::check_text(refusal(text + "*:2"), "rule \"*:2\" is one too many: at most 64");
}
END_TEST

START_TEST(the_first_rule_that_matches_counts) {
  const std::string rules = "source=3,tag=65:1;source=2-4,tag=64-70:2;tag=9:3";
  ck_assert_int_eq(context_of(rules, 3, 65), 1);
  ck_assert_int_eq(context_of(rules, 3, 66), 2);
  ck_assert_int_eq(context_of(rules, 2, 65), 2);
  ck_assert_int_eq(context_of(rules, 4, 70), 2);
  ck_assert_int_eq(context_of(rules, 4, 71), -1);
  ck_assert_int_eq(context_of(rules, 5, 65), -1);
  ck_assert_int_eq(context_of(rules, 5, 9), 3);
  ck_assert_int_eq(context_of(rules + ";*:4", 5, 10), 4);  // the default
}
END_TEST

START_TEST(who_no_rule_is_for_has_no_table) {
  ck_assert(steering_table({}, 0, 4) == nullptr);
  ck_assert(steering_table(read("source=1:1"), 0, 4) == nullptr);
  ck_assert(steering_table(read("source=1:1"), 1, 4) != nullptr);
}
END_TEST

START_TEST(a_context_that_is_not_in_common_means_the_remainder) {
  ck_assert_int_eq(context_of("*:5", 0, 1, 4), 1);
  ck_assert_int_eq(context_of("*:5", 0, 1, 1), 0);
  ck_assert_int_eq(context_of("*:5", 0, 1, 6), 5);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "steering", {reads_rules, knows_names_of_tags, shows_the_part_that_is_wrong, there_are_so_many_rules_and_no_more,
                   the_first_rule_that_matches_counts, who_no_rule_is_for_has_no_table,
                   a_context_that_is_not_in_common_means_the_remainder});
}
