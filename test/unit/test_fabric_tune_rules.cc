// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_tune proposes for which report.
#include <string>
#include <vector>

#include "contrib/fabric_tune/proposals.h"
#include "test/unit/check_main.h"
#include "test/unit/tuned_jobs.h"

namespace fabric::tune {
namespace {

using fabric::test::check_text;
using fabric::test::check_text_has;

/// The proposal for a parameter; without settings if there is none.
Proposal proposal_for(const Recorded& recorded, const std::string& name) {
  for (Proposal& one : propose(recorded)) {
    if (one.settings.contains(name)) {
      return one;
    }
  }
  return {};
}

std::string value_for(const Recorded& recorded, const std::string& name) {
  const Proposal found = proposal_for(recorded, name);
  return found.settings.empty() ? "nothing" : found.settings.at(name);
}

}  // namespace

START_TEST(who_waits_for_nothing_needs_nothing) {
  ck_assert(propose(job()).empty());
}
END_TEST

START_TEST(a_starved_queue_becomes_longer) {
  const std::vector<Proposal> found = propose(starved_job());
  ck_assert_uint_eq(found.size(), 2);
  check_text(found[0].settings.at(kReceiveQueues), queues("P,512,64,,,,64:S,65536,512").canonical());
  check_text_has(found[0].why, "5,000 messages waited for a credit, most of them on P,512,2,1,2,2,2");
  check_text(found[0].counters.at(0), "waits_for_credit");
  check_text(found[1].settings.at(kReceiveQueues), "auto");
}
END_TEST

START_TEST(what_does_not_matter_is_left_alone) {
  Recorded recorded = starved_job();
  recorded.waits[0].matters = false;
  recorded.settings.clear();
  ck_assert(propose(recorded).empty());
}
END_TEST

START_TEST(receives_have_a_limit_of_memory) {
  Recorded recorded = job();
  recorded.queues = queues("P,65536,256");
  recorded.most_peers = 100;
  recorded.waits = {{"waits_for_credit", queues("P,65536,256").canonical(), 5000, true}};
  check_text(value_for(recorded, kReceiveQueues), "nothing");
  recorded.most_peers = 1;
  check_text(value_for(recorded, kReceiveQueues), queues("P,65536,1024,,,,1024").canonical());
}
END_TEST

START_TEST(a_shared_queue_that_runs_low_has_all_receives_at_first) {
  Recorded recorded = job();
  recorded.queues = queues("S,65536,64");
  recorded.waits = {{"srq_limit_events", queues("S,65536,64").canonical(), 14, true}};
  check_text(value_for(recorded, kReceiveQueues), "S,65536,64,48,12,64,3");
}
END_TEST

START_TEST(sends_that_wait_get_room) {
  Recorded recorded = job();
  recorded.queues = queues("S,65536,512,448,8");
  recorded.waits = {{"waits_for_slot", queues("S,65536,512,448,8").canonical(), 14, true}};
  ck_assert_uint_eq(queues(value_for(recorded, kReceiveQueues))[0].sd_max, 32);
  // On iWARP it is a P queue that they wait for a credit of.
  recorded.is_iwarp = true;
  recorded.waits = {{"waits_for_credit", queues("S,65536,512,448,8").without_shared().canonical(), 14, true}};
  ck_assert_uint_eq(queues(value_for(recorded, kReceiveQueues))[0].sd_max, 32);
}
END_TEST

START_TEST(a_repair_is_taken_further_while_it_helps) {
  const Proposal first = proposal_for(starved_job(), kReceiveQueues);
  Recorded still = starved_job(300);
  still.queues = queues(first.settings.at(kReceiveQueues));
  still.waits[0].queue = still.queues.only(std::array<std::uint8_t, 1>{0}).canonical();
  const Proposal next = further(first, still);
  ck_assert_uint_eq(queues(next.settings.at(kReceiveQueues))[0].rd_num, 256);
  check_text(next.why, first.why);
  still.waits[0].matters = false;
  ck_assert(further(first, still).settings.empty());
}
END_TEST

START_TEST(few_peers_of_many_have_receives_of_their_own) {
  Recorded recorded = job();
  recorded.processes = 1000;
  recorded.queues = queues("S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64");
  recorded.most_peers = 6;
  check_text_has(value_for(recorded, kReceiveQueues), "P,128,256,");
  recorded.most_peers = 999;
  check_text(value_for(recorded, kReceiveQueues), "nothing");
  recorded.most_peers = 6;
  recorded.is_iwarp = true;
  check_text(value_for(recorded, kReceiveQueues), "nothing");
}
END_TEST

START_TEST(messages_just_too_long_are_sent_at_once) {
  Recorded recorded = job();
  recorded.reads = {{16384, 40000}, {1048576, 10000}};
  check_text(value_for(recorded, kEagerLimit), "16512");  // with room for headers
  check_text_has(proposal_for(recorded, kEagerLimit).why, "40,000 reads and writes are of 12288 to 16384 bytes");
  recorded.queues = queues("S,16400,512");
  check_text(value_for(recorded, kEagerLimit), "16400");
  recorded.reads = {{16384, 40}, {1048576, 10000}};
  check_text(value_for(recorded, kEagerLimit), "nothing");
}
END_TEST

START_TEST(long_messages_may_be_read) {
  Recorded recorded = job();
  recorded.messages = {{64, 1000}, {8192, 1000}};
  check_text(value_for(recorded, kEagerLimit), "4096");
  recorded.limits[kEagerLimit] = 4096;
  check_text(value_for(recorded, kEagerLimit), "nothing");
}
END_TEST

START_TEST(the_inline_size_grows_where_the_device_may_take_it) {
  Recorded recorded = job();
  recorded.messages = {{64, 1000}, {512, 1000}, {1024, 10}};
  check_text(value_for(recorded, kInlineSize), "512");
  recorded.limits[kInlineSize] = 208;  // of the 256 that it was asked for
  check_text(value_for(recorded, kInlineSize), "nothing");
}
END_TEST

START_TEST(what_runs_out_is_multiplied) {
  Recorded recorded = job();
  recorded.waits = {{"waits_for_buffer", "", 50, true},
                    {"rdma_queued", "", 60, true},
                    {"registrations_at_limit", "", 70, true},
                    {"waits_for_connection", "", 80, true}};
  recorded.settings = {{kRdmaDepth, "300", "file", ""}};
  check_text(value_for(recorded, kSendBuffers), "4096");
  check_text(value_for(recorded, kRdmaDepth), "1024");
  check_text(value_for(recorded, kInPlaceSize), "0");
  check_text(value_for(recorded, kPreconnect), "1");
  recorded.processes = 10000;
  recorded.settings = {
      {kRdmaDepth, "1024", "file", ""}, {kSendBuffers, "0", "file", ""}, {kInPlaceSize, "0", "file", ""}};
  ck_assert(propose(recorded).empty());
}
END_TEST

}  // namespace fabric::tune

int main() {
  using namespace fabric::tune;
  return fabric::test::run_suite(
      "fabric_tune_rules",
      {who_waits_for_nothing_needs_nothing, a_starved_queue_becomes_longer, what_does_not_matter_is_left_alone,
       receives_have_a_limit_of_memory, a_shared_queue_that_runs_low_has_all_receives_at_first,
       sends_that_wait_get_room, a_repair_is_taken_further_while_it_helps, few_peers_of_many_have_receives_of_their_own,
       messages_just_too_long_are_sent_at_once, long_messages_may_be_read,
       the_inline_size_grows_where_the_device_may_take_it, what_runs_out_is_multiplied});
}
