// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>
#include <string>

#include "contrib/fabric_info/report.h"
#include "test/unit/check_main.h"

namespace fabric::info {
namespace {

Question question(const char* list) {
  Question result;
  result.queues = *ReceiveQueues::parse(list);
  result.rdma_depth = 10;
  result.cq_size = 4096;
  return result;
}

START_TEST(p_queues_cost_every_peer) {
  const QueueNeeds needs = needs_of(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"), 0, {}, 0);
  ck_assert_uint_eq(needs.bytes_per_peer, 128 * 20);
  ck_assert_uint_eq(needs.bytes_per_process, 0);
  ck_assert_uint_eq(needs.receive_entries, 21);  // one for the handshake
  ck_assert_uint_eq(needs.send_entries, 22);     // and one for the marker
  ck_assert(!needs.carries_rdma);
}
END_TEST

START_TEST(s_queues_cost_the_process) {
  const QueueNeeds needs = needs_of(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"), 1, {}, 0);
  ck_assert_uint_eq(needs.bytes_per_peer, 0);
  ck_assert_uint_eq(needs.bytes_per_process_at_first, 4096 * 8);
  ck_assert_uint_eq(needs.bytes_per_process, 4096 * 32);
  ck_assert_uint_eq(needs.send_entries, 4 + 10 + 1);
  ck_assert(needs.carries_rdma);
}
END_TEST

START_TEST(the_sums_are_sums) {
  const auto all = report(question("P,120,16,8,4,4:S,4088,32,8,4,8,2"))["queues"];
  ck_assert_uint_eq(all["bytes_per_peer"].get<unsigned>(), 2560);
  ck_assert_uint_eq(all["bytes_per_process"].get<unsigned>(), 131072);
  ck_assert_uint_eq(all["completions_per_peer"].get<unsigned>(), 22 + 21 + 15);
  ck_assert_uint_eq(all["queues"].size(), 2);
  test::check_text(all["receive_queues"].get<std::string>(), "P,120,16,8,4,4:S,4088,32,8,4,8,2");
}
END_TEST

START_TEST(text_has_the_numbers) {
  const auto all = report(question("P,120,16,8,4,4"));
  const std::string text = as_text(all);
  ck_assert_msg(text.find("2560") != std::string::npos, "%s", text.c_str());
  ck_assert(text.find("P,120,16,8,4,4") != std::string::npos);
}
END_TEST

}  // namespace
}  // namespace fabric::info

int main() {
  using namespace fabric;
  using namespace fabric::info;
  return test::run_suite(
      "fabric_info", {p_queues_cost_every_peer, s_queues_cost_the_process, the_sums_are_sums, text_has_the_numbers});
}
