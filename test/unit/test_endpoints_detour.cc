// SPDX-License-Identifier: BSD-3-Clause
//
// An endpoint whose link has broken, and another port to the same peer, which carries what is left meanwhile.
#include <vector>

#include "btl_fabric/base/detour_header.h"
#include "test/unit/check_main.h"
#include "test/unit/two_ports.h"

namespace fabric::test {
namespace {

/// The peer is told the counts, which it was `before` times, and has the message again when it has said, as its telling `number`, that
/// it knows of the break.
void expect_answer_and_message(Ports& ports, std::size_t before, std::uint32_t number) {
  ck_assert_uint_eq(ports.told_aside(), before + 1);
  ck_assert_uint_eq(ports.messages_carried(), 0);
  ports.counts_come_aside(0, number);
  ck_assert_uint_eq(ports.messages_carried(), 1);
}

}  // namespace

START_TEST(the_peer_is_told_and_asked_by_another_port) {
  Ports ports;
  ck_assert_uint_eq(ports.told_aside(), 1);
  const std::vector<std::byte> packet = ports.last_aside();
  DetourHeader header;
  ck_assert(header.read(packet.data() + PacketHeader::kSize, packet.size() - PacketHeader::kSize));
  ck_assert(header.what == DetourHeader::What::kCountsAndYours);
  ck_assert_uint_eq(ports.messages_carried(), 0);
}
END_TEST

START_TEST(what_has_not_arrived_goes_by_another_port) {
  Ports ports;
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 1);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
  ck_assert_int_eq(ports.broken.sends_ended[0], OPAL_SUCCESS);
  ck_assert_uint_eq(ports.broken.counters.carried_by_other_ports, 1);
  // So does what is sent meanwhile.
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ports.progress();
  ck_assert_uint_eq(ports.messages_carried(), 2);
  // The peer cannot be reached there by the write: it has no key for it, and waits.
  ck_assert_uint_eq(ports.broken.endpoint().rdma_outstanding(), 1);
}
END_TEST

/// The upper layer hears of it through the port that it was meant for: it answers there.
START_TEST(a_message_that_comes_by_another_port_is_this_ones) {
  static const mca_btl_base_module_t* heard_through;
  heard_through = nullptr;
  Ports ports;
  ports.broken.deliver_to([](mca_btl_base_module_t* module, auto... /*more*/) { heard_through = module; });
  ports.say_aside(DetourHeader::What::kMessage, {1, 2});
  ck_assert_ptr_eq(heard_through, &ports.broken.module);
}
END_TEST

/// A message that breaks every way to the peer would be passed on for ever.
START_TEST(what_has_broken_many_ports_is_not_passed_on) {
  for (const std::uint8_t detours : {std::uint8_t{3}, std::uint8_t{4}}) {
    Ports ports;
    ports.counts_come_aside(1, 1);
    Fragment* const fragment = ports.broken.endpoints.path().get_send(0);
    fragment->segments[0].seg_len = 8;
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    fragment->des_cbfunc = nullptr;
    fragment->detours = detours;
    ck_assert_int_eq(ports.broken.endpoint().send(*fragment), OPAL_SUCCESS);
    ports.progress();
    ck_assert_uint_eq(ports.messages_carried(), (detours < 4 ? 1 : 0));
  }
}
END_TEST

START_TEST(what_has_arrived_is_not_sent_again) {
  Ports ports;
  ports.counts_come_aside(1, 1);
  ck_assert_uint_eq(ports.messages_carried(), 0);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
}
END_TEST

/// It was told before the link was made anew, and what that has brought is not in it.
START_TEST(what_is_told_late_by_another_port_is_not_believed) {
  Ports ports;
  ports.connect_again(2);
  ck_assert_uint_eq(ports.broken.endpoint().carrier() != nullptr ? 1 : 0, 1);  // the message is sent again over it
  ports.lose();
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 0);
  ports.counts_come_aside(1, 3);
  ck_assert_uint_eq(ports.messages_carried(), 0);  // the message has arrived
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ports.progress();
  ck_assert_uint_eq(ports.messages_carried(), 1);
}
END_TEST

/// It has taken leave over the other port, and ended. One that has something left is told.
START_TEST(a_peer_that_has_ended_is_not_missed) {
  for (const bool writes : {false, true}) {
    Ports ports(writes);
    ports.counts_come_aside(0, 1);
    ck_assert_uint_eq(ports.messages_carried(), 1);
    ports.broken.tell(cpc::Failed{EndpointsBench::key(), ++ports.broken.link, "nobody listens", "", true, true});
    ports.progress();
    ck_assert_uint_eq(ports.broken.reports, writes ? 1 : 0);
    ck_assert_uint_eq(ports.broken.upper_layer_told, writes ? 1 : 0);
  }
}
END_TEST

/// A side that has noticed nothing learns it so, and answers.
START_TEST(a_break_is_heard_of_by_another_port) {
  Ports ports;
  ports.connect_again(1);
  ck_assert_ptr_nonnull(ports.broken.endpoint().carrier());
  const std::size_t before = ports.told_aside();
  ports.counts_come_aside(0, 2, DetourHeader::What::kCountsAndYours);
  ck_assert_ptr_null(ports.broken.endpoint().carrier());
  ports.drain();
  expect_answer_and_message(ports, before, 3);
}
END_TEST

/// Neither does it wait over the next link for the counts of a peer that has lost that one already.
START_TEST(the_break_of_a_link_that_resumes_is_heard_of_too) {
  Ports ports;
  ++ports.broken.link;
  ports.broken.post_receives();
  ports.broken.connected();
  ports.progress();
  const std::size_t before = ports.told_aside();
  const std::size_t closed = ports.broken.said<cpc::Close>();
  ports.counts_come_aside(0, 1, DetourHeader::What::kCountsAndYours);
  ck_assert_uint_eq(ports.broken.said<cpc::Close>(), closed + 1);
  ports.drain();
  expect_answer_and_message(ports, before, 2);
}
END_TEST

/// Two sides tell each other at the same time. The peer may have told before our last link came up at its end, and take messages from
/// it since.
START_TEST(what_is_told_without_knowing_of_the_break_is_not_final) {
  Ports ports;
  const std::size_t before = ports.told_aside();
  ports.say_aside(DetourHeader::What::kCounts, {0, 0, 0, 1, 0, 0});
  ck_assert_uint_eq(ports.messages_carried(), 0);
  ck_assert_uint_eq(ports.told_aside(), before + 1);  // and asked
  ports.counts_come_aside(1, 2);
  ck_assert_uint_eq(ports.messages_carried(), 0);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
}
END_TEST

/// What the peer has sent over it would come too, when it is up here, and by the other port once more.
START_TEST(the_link_that_the_peer_has_lost_does_not_come_up) {
  for (const bool is_that_one : {false, true}) {
    Ports ports;
    ++ports.broken.link;
    ports.broken.post_receives();
    const std::size_t closed = ports.broken.said<cpc::Close>();
    const std::uint32_t qpn = ports.broken.pair().verbs.qp_num;
    ports.counts_come_aside(0, 1, DetourHeader::What::kCountsAndYours, is_that_one ? qpn : qpn + 100);
    ck_assert_uint_eq(ports.broken.said<cpc::Close>(), closed + (is_that_one ? 1 : 0));
  }
}
END_TEST

/// Whatever becomes of the link that it was meant for: an answer that waited for that one was lost with it, and the peer waited for ever.
/// Its sender may be in a call that makes no progress right after.
START_TEST(what_waits_for_the_first_connection_goes_by_another_port) {
  EndpointsBench other;
  EndpointsBench early;
  other.send_and_connect();
  early.beside = &other.endpoint();
  const std::size_t before = other.pair().all_sends.size();
  ck_assert_int_eq(early.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(other.pair().all_sends.size(), before + 1);
  ck_assert_uint_eq(early.counters.carried_by_other_ports, 1);
  ck_assert_uint_eq(early.sends_ended.size(), 1);
  ck_assert_int_eq(early.sends_ended[0], OPAL_SUCCESS);
}
END_TEST

/// The connection was refused, for the peer has lost its device: there is nothing that the peer would have to say first.
START_TEST(where_nothing_is_in_doubt_the_peer_is_not_asked) {
  Ports ports(false, false);
  ports.broken.device.complete_send(ports.broken.pair());
  ports.progress();
  ports.lose();
  ck_assert_uint_eq(ports.told_aside(), 1);
  DetourHeader header;
  const std::vector<std::byte> packet = ports.last_aside();
  ck_assert(header.read(packet.data() + PacketHeader::kSize, packet.size() - PacketHeader::kSize));
  ck_assert(header.what == DetourHeader::What::kCounts);
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(ports.messages_carried(), 1);
}
END_TEST

START_TEST(an_atomic_is_answered_by_the_way_that_it_has_come) {
  Ports ports;
  ports.connect_again(1);
  const std::size_t before = ports.told_aside();
  ports.say_aside(DetourHeader::What::kAtomic, {0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
  ck_assert_uint_eq(ports.told_aside(), before + 1);
  DetourHeader header;
  ck_assert(header.read(ports.last_aside().data() + PacketHeader::kSize, DetourHeader::kSize));
  ck_assert(header.what == DetourHeader::What::kAtomicReply);
}
END_TEST

/// The one that carries takes it for what it is, and fails.
START_TEST(nonsense_is_refused) {
  for (const auto what : {DetourHeader::What::kCounts, DetourHeader::What::kAtomic, DetourHeader::What::kAtomicReply,
                          static_cast<DetourHeader::What>(9)}) {
    Ports ports;
    ports.say_aside(what, {1, 2});
    ck_assert_uint_eq(ports.other.reports, 1);
  }
}
END_TEST

/// Counts that no honest peer can have.
START_TEST(impossible_counts_are_refused) {
  Ports ports;
  ports.counts_come_aside(5, 1);
  ck_assert_uint_eq(ports.broken.reports, 1);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite(
      "endpoints_detour",
      {the_peer_is_told_and_asked_by_another_port, what_has_not_arrived_goes_by_another_port,
       a_message_that_comes_by_another_port_is_this_ones, a_peer_that_has_ended_is_not_missed,
       what_has_broken_many_ports_is_not_passed_on, what_has_arrived_is_not_sent_again,
       what_is_told_late_by_another_port_is_not_believed, a_break_is_heard_of_by_another_port,
       the_break_of_a_link_that_resumes_is_heard_of_too, what_is_told_without_knowing_of_the_break_is_not_final,
       the_link_that_the_peer_has_lost_does_not_come_up, what_waits_for_the_first_connection_goes_by_another_port,
       where_nothing_is_in_doubt_the_peer_is_not_asked, an_atomic_is_answered_by_the_way_that_it_has_come,
       nonsense_is_refused, impossible_counts_are_refused});
}
