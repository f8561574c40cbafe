// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_doctor makes of what it has found: who tries whom, which figures stand out, who wins, and the report.
#include <set>
#include <string>
#include <utility>

#include "contrib/fabric_doctor/checks/check_list.h"
#include "contrib/fabric_doctor/job/outliers.h"
#include "contrib/fabric_doctor/job/pair_result.h"
#include "contrib/fabric_doctor/job/rounds.h"
#include "contrib/fabric_doctor/report.h"
#include "test/unit/check_main.h"

namespace fabric::doctor {
namespace {

/// In each round partners are each other's, and over all rounds every pair comes once.
START_TEST(every_pair_comes_once) {
  for (std::uint32_t size = 2; size < 20; ++size) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint32_t round = 0; round < rounds_for_all(size); ++round) {
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const auto partner = partner_of(rank, size, round);
        if (partner) {
          ck_assert_uint_ne(*partner, rank);
          ck_assert(partner_of(*partner, size, round) == rank);
        }
        if (partner && rank < *partner) {
          ck_assert(pairs.insert({rank, *partner}).second);
        }
      }
    }
    ck_assert_uint_eq(pairs.size(), std::size_t{size} * (size - 1) / 2);
  }
}
END_TEST

START_TEST(figures_far_from_the_median_stand_out) {
  ck_assert(outliers({1, 1.1, 9}, false) == std::vector<std::size_t>{2});
  ck_assert(outliers({100, 10, 90, 110}, true) == std::vector<std::size_t>{1});
  ck_assert(outliers({1, 2, 1.5, 2.4}, false).empty());
  ck_assert(outliers({1, 100}, false).empty());  // which of them is usual?
}
END_TEST

Host host_with(const std::string& pml, std::vector<MpiBtl> btls) {
  Host host;
  host.open_mpi.version = "4.1.4";
  host.open_mpi.pml = pml;
  host.open_mpi.btls = std::move(btls);
  return host;
}

START_TEST(another_pml_is_a_failure) {
  Host host = host_with("ucx", {{"fabric", 1024}, {"self", 65536}});
  host.open_mpi.settings = {{"pml", "ucx", "/etc/params.conf", true}, {"pml_ucx_priority", "51", "", false}};
  const Findings found = check_selection(host);
  ck_assert_int_eq(static_cast<int>(worst(found)), static_cast<int>(Level::kFail));
  test::check_text_has(found.front().what, "the PML ucx wins (pml = ucx, by /etc/params.conf; ucx has priority 51)");
  test::check_text_has(found.front().remedy, "--mca pml ob1");
}
END_TEST

START_TEST(the_btl_of_the_highest_exclusivity_carries_everything) {
  ck_assert(worst(check_selection(host_with("ob1", {{"fabric", 1024}, {"tcp", 100}, {"self", 65536}}))) == Level::kOk);
  ck_assert(worst(check_selection(host_with("ob1", {{"fabric", 1024}, {"vader", 65536}}))) == Level::kOk);
  ck_assert(worst(check_selection(host_with("ob1", {{"fabric", 1024}, {"openib", 1024}}))) == Level::kWarn);
  ck_assert(worst(check_selection(host_with("ob1", {{"fabric", 1024}, {"ofi", 65536}}))) == Level::kFail);
  ck_assert(worst(check_selection(host_with("ob1", {{"tcp", 100}, {"self", 65536}}))) == Level::kFail);
}
END_TEST

START_TEST(a_component_is_found_and_loads) {
  Host host = host_with("ob1", {});
  ck_assert(worst(check_component(host)) == Level::kFail);
  host.open_mpi.component = "/lib/mca_btl_fabric.so";
  host.open_mpi.component_version = "0.0.0";  // of another release
  ck_assert(worst(check_component(host)) == Level::kWarn);
  host.open_mpi.load_error = "libopen-pal.so.80: cannot open shared object file";
  const Findings found = check_component(host);
  ck_assert(worst(found) == Level::kFail);
  test::check_text_has(found.front().what, "libopen-pal.so.80");
}
END_TEST

START_TEST(a_port_that_does_not_answer_is_the_devices_fault) {
  Host host;
  host.scan.refusals = {{"a:1", "it does not answer: Input/output error"}};
  const Findings found = check_ports(host);
  ck_assert(worst(found) == Level::kFail);
  test::check_text_has(found.front().remedy, "dmesg");
}
END_TEST

PairResult pair_with(ConnectionResult connection) {
  PairResult pair;
  pair.b = 1;
  pair.names = "n1 - n2";
  connection.ports = "a:1 - b:1";
  connection.cpc = "oob";
  connection.mtu = 4096;
  pair.connections = {std::move(connection)};
  return pair;
}

Level level_of(const std::vector<PairResult>& pairs, const std::string& check) {
  for (const CheckResult& result : judge_pairs(pairs, 1)) {
    if (result.check == check) {
      return worst(result.findings);
    }
  }
  ck_abort_msg("no check %s", check.c_str());
}

START_TEST(either_side_may_see_the_error) {
  const PairResult good = pair_with({});
  ConnectionResult failed;
  failed.error = "refused";
  ck_assert(level_of({good, good}, "connect") == Level::kOk);
  ck_assert(level_of({good, pair_with(failed)}, "connect") == Level::kFail);
  ConnectionResult lost;
  lost.mtu_error = "retries";
  ck_assert(level_of({pair_with(lost), good}, "packets") == Level::kFail);
  ConnectionResult stalled;
  stalled.stream_error = "retries";
  ck_assert(level_of({good, pair_with(stalled)}, "packets") == Level::kFail);
}
END_TEST

/// Open MPI takes the first method of two ports; that another one fails is no more than a warning.
START_TEST(a_method_that_is_not_chosen_may_fail) {
  PairResult pair = pair_with({});
  pair.connections.push_back({"a:1 - b:1", "rdmacm", "refused", 0, "", 4096, "", "", 0, 0});
  ck_assert(level_of({pair}, "connect") == Level::kWarn);
}
END_TEST

/// Neither the network nor the method is to blame, and the device is, once.
START_TEST(a_device_that_fails_is_told_once) {
  ConnectionResult failed;
  failed.error = "nothing has come from the peer within 10 s";
  ConnectionResult lost;
  lost.message_error = "no message of 8 bytes has come within 5 s";
  for (const ConnectionResult& one : {failed, lost}) {
    const std::string text = as_text({{"", judge_pairs({pair_with(one)}, 1, {{0, "n1", "a"}, {0, "n1", "a"}})}});
    test::check_text_has(text, "FAIL  devices     n1: a failed while it was tried\n");
    ck_assert_uint_eq(text.find("failed while"), text.rfind("failed while"));
    test::check_text_has(text, "n1 - n2 (a:1 - b:1)");
    test::check_text_has(text, "see devices, n1: a\n");
    ck_assert(text.find("TCP") == std::string::npos && text.find("UDP") == std::string::npos);
  }
  // Of the other process, a device of that name.
  const std::string text = as_text({{"", judge_pairs({pair_with(failed)}, 1, {{1, "n2", "a"}})}});
  test::check_text_has(text, "let TCP through");
}
END_TEST

START_TEST(a_firewall_in_one_direction_is_a_warning) {
  PairResult there = pair_with({});
  there.tcp_error = "10.0.0.2:4000: Connection timed out";
  there.tcp_way = "n1 to n2";
  PairResult back = pair_with({});
  back.tcp = "10.0.0.1:4000";
  ck_assert(level_of({there, back}, "tcp") == Level::kWarn);
  there.connections.front().error = "timed out";
  ck_assert(level_of({there, back}, "tcp") == Level::kFail);
}
END_TEST

START_TEST(a_report_travels_as_json) {
  const Section section{"host n1", {{"ports", {ok("good"), fail("bad", "mend it")}}, {"fit", {warn("tight", "less")}}}};
  const nlohmann::ordered_json json = section;
  const std::string text = as_text({json.get<Section>()});
  test::check_text(text,
                   "host n1\nok    ports       good\nFAIL  ports       bad\n                  -> mend it\n"
                   "WARN  fit         tight\n                  -> less\n"
                   "MPI over the fabric BTL will not work here as it is: do what the lines with FAIL say.\n");
  test::check_text(as_json({section})["verdict"].get<std::string>(), "FAIL");
}
END_TEST

}  // namespace
}  // namespace fabric::doctor

int main() {
  using namespace fabric::doctor;
  return fabric::test::run_suite(
      "fabric_doctor", {every_pair_comes_once, figures_far_from_the_median_stand_out, another_pml_is_a_failure,
                        the_btl_of_the_highest_exclusivity_carries_everything, a_component_is_found_and_loads,
                        a_port_that_does_not_answer_is_the_devices_fault, either_side_may_see_the_error,
                        a_method_that_is_not_chosen_may_fail, a_device_that_fails_is_told_once,
                        a_firewall_in_one_direction_is_a_warning, a_report_travels_as_json});
}
