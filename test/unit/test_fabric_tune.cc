// SPDX-License-Identifier: BSD-3-Clause
//
// How fabric_tune compares runs, what it makes of that, what it reads and what it says. Its rules: test_fabric_tune_rules.cc.
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "contrib/fabric_tune/program.h"
#include "contrib/fabric_tune/text.h"
#include "contrib/fabric_tune/tuner.h"
#include "test/unit/check_main.h"
#include "test/unit/test_folder.h"
#include "test/unit/tuned_jobs.h"

namespace fabric::tune {
namespace {

using fabric::test::check_text;
using fabric::test::check_text_has;

bool is_near(double one, double other) {
  return std::abs(one - other) < 1e-9;
}

/// Times with and without a proposal that makes a program so many times faster.
std::vector<Pair> pairs_of(const std::vector<double>& factors) {
  std::vector<Pair> pairs;
  for (const double factor : factors) {
    pairs.push_back({10, 10 / factor});
  }
  return pairs;
}

/// A program whose figure, report and problem follow from the settings.
class Pretended final : public Runner {
 public:
  explicit Pretended(std::function<Run(const Settings&)> does) : does_(std::move(does)) {}
  Run run(const Settings& settings, std::optional<std::chrono::duration<double>> limit) override {
    limits.push_back(limit ? limit->count() : 0);
    ran.push_back(settings);
    Run one = does_(settings);
    one.seconds = 1;
    if (one.report) {
      for (const auto& [name, value] : settings) {
        std::erase_if(one.report->settings, [&name](const Setting& set) { return set.name == name; });
        one.report->settings.push_back({name, value, "environment", ""});
      }
    }
    return one;
  }
  std::vector<double> limits;
  std::vector<Settings> ran;

 private:
  std::function<Run(const Settings&)> does_;
};

Run ended(double figure, Recorded report) {
  Run run;
  run.figure = figure;
  run.report = std::move(report);
  return run;
}

/// Waits until its queue has 1024 receives, and is twice as fast then.
Run starved_program(const Settings& settings) {
  const auto set = settings.find(kReceiveQueues);
  Recorded report = starved_job();
  if (set == settings.end()) {
    return ended(2, report);
  }
  if (set->second == "auto") {
    Run other = ended(1.9, job());
    return other;
  }
  report.queues = queues(set->second);
  if (report.queues[0].rd_num >= 1024) {
    report.waits.clear();
    report.totals.clear();
    return ended(1, report);
  }
  report.waits[0].queue = report.queues.only(std::array<std::uint8_t, 1>{0}).canonical();
  return ended(2, report);
}

/// Has no need of its queues, but waits for send buffers, for reads in flight and for memory: three proposals.
Recorded job_that_waits() {
  Recorded made = job();
  made.waits = {
      {"waits_for_buffer", "", 50, true}, {"rdma_queued", "", 60, true}, {"registrations_at_limit", "", 70, true}};
  return made;
}

/// Each of these settings makes that twice as fast, and no wait goes on.
Run waiting_program(const Settings& settings) {
  Recorded report = job_that_waits();
  if (!settings.empty()) {
    report.waits.clear();
  }
  return ended(8 / std::pow(2.0, static_cast<double>(settings.size())), report);
}

/// The same, but it fails with both of them.
Pretended program_that_fails_with(const char* one, const char* other) {
  return Pretended([one, other](const Settings& settings) {
    Run run = waiting_program(settings);
    if (settings.contains(one) && settings.contains(other)) {
      run.problem = "its exit status is 3";
    }
    return run;
  });
}

/// That about a parameter.
const Trial& trial_of(const Tuning& tuning, const char* name) {
  for (const Trial& one : tuning.trials) {
    if (one.proposal.settings.contains(name)) {
      return one;
    }
  }
  ck_abort_msg("no proposal for %s", name);
}

Tuning tuned(Pretended& program, const TunerOptions& options = {}) {
  return tune(program, options, [](const std::string&) {});
}

}  // namespace

// ---- Statistics

START_TEST(a_range_needs_five_pairs) {
  ck_assert_uint_eq(first_mean_of_range(4), 0);
  ck_assert(!gain_of(pairs_of({2, 2, 2, 2}), false));
  // By the tables of Wilcoxon's test: the largest number whose probability is at most 0.05 on one side, and one more.
  const std::vector<std::size_t> known{1, 3, 4, 6, 9, 11, 14, 18};  // of 5 pairs to 12
  for (std::size_t i = 0; i < known.size(); ++i) {
    ck_assert_uint_eq(first_mean_of_range(5 + i), known[i]);
  }
}
END_TEST

START_TEST(a_gain_is_told_with_its_range) {
  const auto gain = gain_of(pairs_of({1.04, 1.07, 1.06, 1.11, 1.08}), false);
  ck_assert(gain && gain->is_sure());
  ck_assert(is_near(gain->low, 0.04) && is_near(gain->high, 0.11));
  ck_assert(gain->middle > 0.065 && gain->middle < 0.08);
  check_text(as_text(*gain, {}).substr(0, 12), "7.0 % faster");
  check_text_has(as_text(*gain, {}), " (4.0 to 11 %, 5 runs)");
}
END_TEST

START_TEST(more_may_be_better) {
  const std::vector<Pair> pairs(5, Pair{100, 120});
  ck_assert(is_near(gain_of(pairs, true)->low, 0.2));
  ck_assert(gain_of(pairs, false)->high < 0);
  check_text(as_text(*gain_of(pairs, false), {"better", "worse"}), "17 % worse (-17 to -17 %, 5 runs)");
}
END_TEST

START_TEST(what_may_be_chance_is_no_gain) {
  ck_assert(!gain_of(pairs_of({1.3, 1.2, 1.4, 1.3, 0.99}), false)->is_sure());
  ck_assert(!gain_of(pairs_of({1, 1, 1, 1, 1}), false)->is_sure());
}
END_TEST

START_TEST(one_run_that_was_disturbed_moves_little) {
  std::vector<double> factors(10, 1.1);
  factors[3] = 0.02;  // the machine stood still
  const auto gain = gain_of(pairs_of(factors), false);
  ck_assert(gain->is_sure() && is_near(gain->middle, 0.1));
}
END_TEST

// ---- The procedure

START_TEST(what_helps_is_kept_and_measured_anew) {
  Pretended program(starved_program);
  const Tuning tuning = tuned(program);
  check_text(tuning.failure, "");
  const Trial& first = tuning.trials.at(0);
  ck_assert(first.is_kept && first.gain->is_sure());
  ck_assert_uint_eq(first.waits.at(0).before, 5000);
  ck_assert_uint_eq(first.waits.at(0).after, 0);
  ck_assert_uint_eq(queues(tuning.settings.at(kReceiveQueues))[0].rd_num, 1024);  // after 64 and 256
  ck_assert(!tuning.trials.at(1).is_kept);
  ck_assert(is_near(tuning.together->low, 1));
  // The first run, three steps and five pairs; one look at auto and five pairs; five pairs of all.
  ck_assert_uint_eq(program.ran.size(), 1 + 3 + 10 + 1 + 10 + 10);
  ck_assert(program.ran[4].empty() && !program.ran[5].empty() && !program.ran[6].empty() && program.ran[7].empty());
  ck_assert(program.limits[0] == 0 && program.limits[1] == 33);
  check_text_has(as_text(tuning, {"./app", {}, true}),
                 "waits_for_credit 5,000 -> 0\n   100 % faster (100 to 100 %, 5 runs)");
}
END_TEST

START_TEST(what_the_user_has_set_stays) {
  for (const char* source : {"environment", "override"}) {
    Pretended program([&](const Settings& settings) {
      Run run = starved_program(settings);
      for (Setting& one : run.report->settings) {
        one.source = source;
      }
      return run;
    });
    const Tuning tuning = tuned(program);
    ck_assert_uint_eq(program.ran.size(), 1);
    check_text_has(tuning.trials.at(0).not_tried, "btl_fabric_receive_queues is set by ");
    ck_assert(tuning.settings.empty());
    check_text_has(as_text(tuning, {}), "it stays");
  }
  Pretended program(starved_program);
  TunerOptions options;
  options.kept = {kReceiveQueues};
  check_text_has(tuned(program, options).trials.at(0).not_tried, "is to stay");
}
END_TEST

START_TEST(what_fails_is_dropped) {
  Pretended program([](const Settings& settings) {
    Run run = starved_program(settings);
    if (settings.contains(kReceiveQueues)) {
      run.problem = "its exit status is 3";
    }
    return run;
  });
  const Tuning tuning = tuned(program);
  check_text(tuning.failure, "");
  check_text(tuning.trials.at(0).dropped, "its exit status is 3");
  check_text(tuning.trials.at(1).dropped, "its exit status is 3");
  ck_assert_uint_eq(program.ran.size(), 3);
  ck_assert(tuning.settings.empty());
}
END_TEST

START_TEST(a_step_too_far_leaves_the_one_before) {
  Pretended program([](const Settings& settings) {
    Run run = starved_program(settings);
    if (run.report->queues[0].rd_num >= 1024) {
      run.problem = "its exit status is 3";
    } else if (!settings.empty()) {
      run.figure = 1.5;
    }
    return run;
  });
  const Tuning tuning = tuned(program);
  ck_assert(tuning.trials.at(0).is_kept);
  ck_assert_uint_eq(queues(tuning.trials.at(0).proposal.settings.at(kReceiveQueues))[0].rd_num, 256);
}
END_TEST

START_TEST(what_does_not_come_into_force_is_dropped) {
  Pretended other([](const Settings& settings) {
    Run run = starved_program(settings);
    run.report = settings.empty() ? run.report : std::nullopt;
    return run;
  });
  check_text(tuned(other).trials.at(0).dropped, "btl_fabric is not used with it");
  Pretended fewer([](const Settings& settings) {
    Run run = starved_program(settings);
    run.report->ports = settings.empty() ? 2 : 1;
    return run;
  });
  check_text(tuned(fewer).trials.at(0).dropped, "not all processes or ports are used with it");
}
END_TEST

START_TEST(a_gain_that_was_chance_is_none_in_the_end) {
  int runs = 0;
  Pretended program([&runs](const Settings& settings) {
    Run run = starved_program(settings);
    run.figure = ++runs > 30 ? 1 : run.figure;  // by then all has been tried, and nothing makes a difference any more
    return run;
  });
  TunerOptions options;
  options.most_proposals = 1;
  options.pairs = 14;
  const Tuning tuning = tuned(program, options);
  ck_assert(tuning.trials.at(0).is_kept);
  ck_assert(!tuning.together->is_sure() && tuning.settings.empty());
  check_text_has(as_text(tuning, {}), "no gain worth keeping: together ");
  check_text(tuning.trials.at(1).not_tried, "it is one too many for --proposals");
}
END_TEST

START_TEST(what_works_alone_only_is_compared_with_what_it_does_not_work_with) {
  Pretended equal = program_that_fails_with(kSendBuffers, kRdmaDepth);
  const Tuning tuning = tuned(equal);
  const Trial& late = trial_of(tuning, kRdmaDepth);
  check_text(late.clash, "its exit status is 3");
  check_text(late.dropped, "");
  ck_assert(!late.is_kept && is_near(late.gain->middle, 0));
  ck_assert(tuning.settings.contains(kSendBuffers) && tuning.settings.contains(kInPlaceSize));
  check_text_has(as_text(tuning, {}),
                 "does not work with all that was kept before it (its exit status is 3), so it takes the place of it");
  // With the first one gone, the second is better than it.
  Pretended better([](const Settings& settings) {
    Run run = waiting_program(settings);
    run.figure = settings.contains(kRdmaDepth) ? 1 : settings.empty() ? 8 : 4;
    if (settings.contains(kSendBuffers) && settings.contains(kRdmaDepth)) {
      run.problem = "its exit status is 3";
    }
    return run;
  });
  const Tuning changed = tuned(better);
  ck_assert(trial_of(changed, kRdmaDepth).is_kept && !trial_of(changed, kSendBuffers).is_kept);
  check_text(as_text(changed.settings),
             std::string(kRdmaDepth) + ' ' + trial_of(changed, kRdmaDepth).proposal.settings.at(kRdmaDepth));
  check_text_has(as_text(changed, {}), "given up: 100 % faster");
  check_text_has(as_text(changed, {}), "it does not work with btl_fabric_rdma_depth ");
}
END_TEST

START_TEST(what_clashes_keeps_what_it_works_with) {
  Pretended program = program_that_fails_with(kSendBuffers, kInPlaceSize);
  const Tuning tuning = tuned(program);
  const Trial& last = trial_of(tuning, tuning.trials.back().proposal.settings.begin()->first.c_str());
  check_text(last.clash, "its exit status is 3");
  ck_assert(last.tried_with.size() == 1 && last.tried_with.contains(kRdmaDepth));
  ck_assert_uint_eq(tuning.settings.size(), 2);
  ck_assert(tuning.settings.contains(kRdmaDepth) && is_near(tuning.together->middle, 3));
}
END_TEST

START_TEST(what_fails_alone_too_is_dropped_after_one_more_run) {
  Pretended program([](const Settings& settings) {
    Run run = waiting_program(settings);
    run.problem = settings.contains(kRdmaDepth) ? "its exit status is 3" : "";
    return run;
  });
  const Tuning tuning = tuned(program);
  check_text(trial_of(tuning, kRdmaDepth).dropped, "its exit status is 3");
  check_text(trial_of(tuning, kRdmaDepth).clash, "");
  ck_assert(tuning.settings.size() == 2);
}
END_TEST

/// All are kept one by one; then the program fails with two of them in each run, which one run has not shown.
START_TEST(all_that_fail_together_leave_the_best_part) {
  const auto fails_at_last = [](bool with_each) {
    return [with_each, runs = 0](const Settings& settings) mutable {
      Run run = waiting_program(settings);
      // The first run; a look and five pairs of each of three.
      const bool is_late = ++runs > 1 + 3 * 11;
      const bool is_bad = settings.contains(kSendBuffers) && settings.contains(kRdmaDepth);
      if (is_late && (with_each ? !settings.empty() : is_bad)) {
        run.problem = "its exit status is 3";
      }
      run.figure = settings.contains(kRdmaDepth) ? run.figure / 2 : run.figure;
      return run;
    };
  };
  Pretended program(fails_at_last(false));
  const Tuning tuning = tuned(program);
  check_text(tuning.failure, "");
  check_text(tuning.together_failed, "its exit status is 3");
  ck_assert(tuning.settings.size() == 2 && tuning.settings.contains(kRdmaDepth) &&
            tuning.settings.contains(kInPlaceSize));
  ck_assert(is_near(tuning.together->middle, 7));
  ck_assert(!trial_of(tuning, kSendBuffers).is_kept);
  check_text(trial_of(tuning, kSendBuffers).given_up, "all together failed: its exit status is 3");
  check_text_has(
      as_text(tuning, {}),
      "all together failed: its exit status is 3\nthe best part of them that works is btl_fabric_in_place_size 0, btl_");
  check_text(as_json(tuning, "").at("together_failed").get<std::string>(), "its exit status is 3");
  Pretended bad(fails_at_last(true));
  const Tuning nothing = tuned(bad);
  ck_assert(nothing.settings.empty() && !nothing.together);
  check_text_has(as_text(nothing, {}), "all together failed: its exit status is 3\nno gain worth keeping\n");
}
END_TEST

START_TEST(nothing_is_run_after_an_interruption) {
  Pretended program([&program](const Settings& settings) {
    Run run = starved_program(settings);
    run.is_interrupted = program.ran.size() == 7;
    return run;
  });
  Pretended at_once([](const Settings&) {
    Run run;
    run.problem = "it was interrupted";
    run.is_interrupted = true;
    return run;
  });
  check_text(tuned(at_once).failure, "");
  check_text_has(as_text(tuned(at_once), {}), "interrupted\n");
  const Tuning tuning = tuned(program);
  ck_assert(tuning.is_interrupted && tuning.settings.empty());
  ck_assert_uint_eq(program.ran.size(), 7);
  check_text_has(as_text(tuning, {}), "interrupted\n");
}
END_TEST

START_TEST(a_program_that_fails_as_it_is_cannot_be_tuned) {
  Pretended program([](const Settings&) {
    Run run;
    run.problem = "its exit status is 1";
    return run;
  });
  check_text(tuned(program).failure, "the program as it is: its exit status is 1");
  Pretended other([](const Settings&) { return Run{}; });
  check_text(tuned(other).failure, "the program has left no report of btl_fabric");
}
END_TEST

// ---- What comes in and goes out

START_TEST(figures_are_found) {
  const std::regex time("time: ([0-9.e+-]+) s");
  ck_assert(figure_in("time: 3 s\nx\ntime: 4.5e1 s, time: 46 s\n", time) == 46);
  ck_assert(!figure_in("time: - s\n", time));
  ck_assert(!figure_in(std::string(5000, 'x') + "time: 3 s\n", time));
  ck_assert(figure_in("a 17 b", std::regex("[0-9]+")) == 17);
}
END_TEST

START_TEST(a_report_is_read) {
  const char* text = R"({"processes": 2, "operations": 7, "hosts": [{}], "ports": [{"link": "iWARP"}],
    "receive_queues": [{"list": "S,65536,512", "why": ""}], "limits": [{"limits": {"btl_fabric_eager_limit": 9}}],
    "settings": [{"name": "btl_fabric_mtu", "value": "5", "source": "file", "file": "f"}],
    "waits": [{"counter": "rdma_held", "total": 8, "matters": true}], "totals": {"puts": 3},
    "sizes": {"messages": [{"up_to": 64, "count": 5}], "writes": [], "reads": [], "peers": [], "most_peers": 1}})";
  const auto json = nlohmann::ordered_json::parse(text);
  const auto recorded = read_recorded(json);
  ck_assert_msg(recorded.has_value(), "%s", recorded ? "" : recorded.error().text.c_str());
  ck_assert(recorded->is_iwarp && recorded->limit(kEagerLimit) == 9 && recorded->total("puts") == 3);
  check_text(recorded->setting("btl_fabric_mtu")->file, "f");
  ck_assert_uint_eq(recorded->messages.at(0).count, 5);
  for (const auto& [key, value] : json.items()) {
    auto less = json;
    less.erase(key);
    ck_assert_msg(!read_recorded(less), "without %s", key.c_str());
  }
  ck_assert(!read_recorded(nlohmann::ordered_json::parse("[", nullptr, false)));
}
END_TEST

START_TEST(a_file_of_somebody_else_is_not_overwritten) {
  const fabric::test::TestFolder folder;
  const std::string path = folder.file("a");
  const std::string text = params_file({{kEagerLimit, "16512"}}, {"7 % faster"});
  check_text_has(text, "# 7 % faster\nbtl_fabric_eager_limit = 16512\n");
  ck_assert(write_params_file(path, text).has_value());
  ck_assert(write_params_file(path, text).has_value());
  std::ofstream(path) << "btl = fabric,self\n";
  fabric::test::check_error_has(write_params_file(path, text), "not written by fabric_tune");
  fabric::test::check_error_has(write_params_file(path + "/none", text), "cannot be written");
}
END_TEST

}  // namespace fabric::tune

int main() {
  using namespace fabric::tune;
  return fabric::test::run_suite("fabric_tune", {a_range_needs_five_pairs,
                                                 a_gain_is_told_with_its_range,
                                                 more_may_be_better,
                                                 what_may_be_chance_is_no_gain,
                                                 one_run_that_was_disturbed_moves_little,
                                                 what_helps_is_kept_and_measured_anew,
                                                 what_the_user_has_set_stays,
                                                 what_fails_is_dropped,
                                                 a_step_too_far_leaves_the_one_before,
                                                 what_does_not_come_into_force_is_dropped,
                                                 a_gain_that_was_chance_is_none_in_the_end,
                                                 what_works_alone_only_is_compared_with_what_it_does_not_work_with,
                                                 what_clashes_keeps_what_it_works_with,
                                                 what_fails_alone_too_is_dropped_after_one_more_run,
                                                 all_that_fail_together_leave_the_best_part,
                                                 nothing_is_run_after_an_interruption,
                                                 a_program_that_fails_as_it_is_cannot_be_tuned,
                                                 figures_are_found,
                                                 a_report_is_read,
                                                 a_file_of_somebody_else_is_not_overwritten});
}
