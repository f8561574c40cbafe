// SPDX-License-Identifier: BSD-3-Clause
#include <set>

#include "btl_fabric/base/param_reader.h"
#include "btl_fabric/base/param_values.h"
#include "common/base/nearest_name.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "test/unit/check_main.h"
#include "test/unit/cpc_parameters.h"

namespace {

using fabric::kParamTable;
using fabric::ParamSpec;

START_TEST(every_row_is_whole) {
  std::set<std::string> names;
  for (const ParamSpec& spec : kParamTable) {
    ck_assert_msg(names.insert(spec.name).second, "%s is declared twice", spec.name);
    ck_assert_msg((spec.number == nullptr) != (spec.text == nullptr), "%s is neither a number nor a text", spec.name);
    ck_assert_msg(spec.level >= 1 && spec.level <= 9, "%s has level %d", spec.name, spec.level);
    ck_assert_msg(std::string(spec.help).size() > 20, "%s is not explained", spec.name);
    if (spec.number != nullptr) {
      ck_assert_msg(fabric::broken_rule(spec, spec.default_number).empty(), "the default of %s breaks its rule",
                    spec.name);
    }
  }
}
END_TEST

START_TEST(rules_are_told) {
  for (const ParamSpec& spec : kParamTable) {
    if (spec.number == nullptr) {
      continue;
    }
    ck_assert(!fabric::broken_rule(spec, std::int64_t{spec.min} - 1).empty());
    fabric::test::check_text(fabric::broken_rule(spec, std::int64_t{1} << 40),
                             "must be at most " + std::to_string(spec.max));
    if (spec.max != fabric::kNoLimit) {
      const std::string rule = "must be between " + std::to_string(spec.min) + " and " + std::to_string(spec.max);
      ck_assert(fabric::broken_rule(spec, spec.max + 1).starts_with(rule));
    }
  }
  fabric::test::check_text(fabric::broken_rule(*fabric::ParamReader::find("retry_count"), 8),
                           "must be between 0 and 7");
  fabric::test::check_text(fabric::broken_rule(*fabric::ParamReader::find("mtu"), 4000),
                           "must be between 0 and 5, or 256, or 512, or 1024, or 2048, or 4096");
  fabric::test::check_text(fabric::broken_rule(*fabric::ParamReader::find("gid_index"), 300),
                           "must be between -1 and 255, or auto");
}
END_TEST

/// As Open MPI reads them, but wholly.
START_TEST(numbers_are_read) {
  using fabric::read_number;
  ck_assert_int_eq(*read_number("7"), 7);
  ck_assert_int_eq(*read_number(" -3 "), -3);
  ck_assert_int_eq(*read_number("0x1f"), 31);
  ck_assert_int_eq(*read_number("010"), 8);
  ck_assert_int_eq(*read_number("16k"), 16384);
  ck_assert_int_eq(*read_number("2M"), 2 * 1024 * 1024);
  ck_assert_int_eq(*read_number("1g"), 1024 * 1024 * 1024);
  for (const char* text :
       {"", " ", "true", "x7", "7x", "7kk", "7 k", "0x", "1.5", "-", "99999999999999999999", "9999999999999999g"}) {
    ck_assert_msg(!read_number(text), "\"%s\" is taken for a number", text);
  }
}
END_TEST

START_TEST(words_and_times_are_read) {
  using fabric::read_value;
  const ParamSpec& mtu = *fabric::ParamReader::find("mtu");
  ck_assert_int_eq(*read_value(mtu, "4096"), 5);
  ck_assert_int_eq(*read_value(mtu, "256"), 1);
  ck_assert_int_eq(*read_value(mtu, "3"), 3);
  ck_assert(!read_value(mtu, "auto"));
  const ParamSpec& gid = *fabric::ParamReader::find("gid_index");
  ck_assert_int_eq(*read_value(gid, "auto"), -1);
  ck_assert(!read_value(gid, "v2"));
  const ParamSpec& timeout = *fabric::ParamReader::find("connect_timeout");
  ck_assert_int_eq(*read_value(timeout, "500ms"), 500);
  ck_assert_int_eq(*read_value(timeout, "10s"), 10000);
  ck_assert_int_eq(*read_value(timeout, "2min"), 120000);
  ck_assert_int_eq(*read_value(timeout, "700"), 700);
  const ParamSpec& heal = *fabric::ParamReader::find("heal_timeout");
  ck_assert_int_eq(*read_value(heal, "90s"), 90);
  ck_assert_int_eq(*read_value(heal, "2000ms"), 2);
  for (const char* text : {"1500ms", "s", "1 s", "1.5s", "1h", "min", "9999999999999999min", "10m", "1M", "5k", "1g"}) {
    ck_assert_msg(!read_value(heal, text), "\"%s\" is taken for a time", text);
  }
  ck_assert(!read_value(timeout, "1m"));
  fabric::test::check_text(fabric::allowed_values(heal), "at least 0; ms, s or min may follow");
  const ParamSpec& queue = *fabric::ParamReader::find("cq_size");
  ck_assert_int_eq(*read_value(queue, "1m"), 1 << 20);
}
END_TEST

START_TEST(misspelt_names_are_recognized) {
  const std::vector<std::string_view> known = {"gid_index", "heal_timeout", "receive_queues", "if_include"};
  ck_assert(fabric::nearest_name("gid_idx", known) == "gid_index");
  ck_assert(fabric::nearest_name("recieve_queues", known) == "receive_queues");
  ck_assert(fabric::nearest_name("heal", known) == "heal_timeout");
  ck_assert(fabric::nearest_name("if_includes", known) == "if_include");
  ck_assert(fabric::nearest_name("warn_no_device", known).empty());
  ck_assert_uint_eq(fabric::edit_distance("kitten", "sitting"), 3);
  ck_assert_uint_eq(fabric::edit_distance("", "abc"), 3);
}
END_TEST

START_TEST(receive_queues_are_chosen_by_default) {
  for (const fabric::ParamSpec& spec : fabric::kParamTable) {
    if (spec.text == &fabric::Params::receive_queues) {
      ck_assert_str_eq(spec.default_text, fabric::cpc::kAutoQueues);
      return;
    }
  }
  ck_abort_msg("receive_queues is not declared");
}
END_TEST

/// Each connection method finds the parameters that it asks for (CpcOptions fails on others), and its name begins the
/// name of its priority.
START_TEST(methods_have_their_parameters) {
  const auto made = fabric::test::CpcOptions().make();
  ck_assert_uint_eq(made.size(), fabric::cpc::kCpcs.size());
  for (const auto& cpc : made) {
    const ParamSpec* const spec = fabric::ParamReader::find(std::string(cpc->traits().name) + "_priority");
    ck_assert(spec != nullptr);
    ck_assert_int_eq(cpc->priority(), spec->default_number);
  }
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("param_table", {every_row_is_whole, rules_are_told, numbers_are_read,
                                                 words_and_times_are_read, misspelt_names_are_recognized,
                                                 receive_queues_are_chosen_by_default, methods_have_their_parameters});
}
