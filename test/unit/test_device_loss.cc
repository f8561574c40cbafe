// SPDX-License-Identifier: BSD-3-Clause
//
// A port whose device is gone: it gives no completions any more, and takes no requests.
#include <cerrno>

#include "btl_fabric/peer/device_loss.h"
#include "test/unit/check_main.h"
#include "test/unit/two_ports.h"

namespace fabric::test {
namespace {

void lose_device(Ports& ports) {
  DeviceLoss(ports.broken.endpoints).begin();
  ports.progress();
}
/// The progress thread has moved the queue pairs to the error state, as far as it can.
void flushed(Ports& ports) {
  ports.broken.tell(cpc::Flushing{EndpointsBench::key(), ports.broken.link});
  ports.progress();
}
std::size_t posted(Ports& ports) {
  std::size_t sum = 0;
  for (const FakeQueuePair& one : ports.broken.device.queue_pairs) {
    sum += one.all_sends.size();
  }
  return sum;
}

}  // namespace

/// The link ends though no completion of what was under way comes, and the message goes by the other port, once.
START_TEST(what_was_under_way_goes_by_another_device) {
  Ports ports(false, false);
  const std::size_t before = posted(ports);
  lose_device(ports);
  ck_assert_ptr_null(ports.broken.endpoint().carrier());
  ck_assert_uint_eq(ports.broken.said<cpc::Close>(), 1);
  flushed(ports);
  ck_assert_uint_eq(ports.broken.said<cpc::Destroy>(), 1);
  ck_assert_uint_eq(ports.told_aside(), 1);
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 1);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
  ck_assert_int_eq(ports.broken.sends_ended[0], OPAL_SUCCESS);
  ck_assert_uint_eq(posted(ports), before);
  ck_assert_uint_eq(ports.broken.reports, 0);
  ck_assert_uint_eq(ports.broken.upper_layer_told, 0);
}
END_TEST

/// All of them, in order, and those that have never been posted after them.
START_TEST(messages_keep_their_order) {
  Ports ports(false, false);
  constexpr std::uint8_t kMore = 5;
  for (std::uint8_t i = 0; i < kMore; ++i) {
    Fragment* const fragment = ports.broken.endpoints.path().get_send(0);
    fragment->segments[0].seg_len = 8;
    fragment->packet[PacketHeader::kSize] = std::byte{i};
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    fragment->tag = kTag;
    fragment->callback_due = false;
    fragment->des_cbfunc = nullptr;
    ck_assert_int_eq(ports.broken.endpoint().send(*fragment), OPAL_SUCCESS);
  }
  lose_device(ports);
  flushed(ports);
  ports.counts_come_aside(1, 1);  // the first has arrived
  for (int i = 0; i < 20; ++i) {
    ports.other.device.complete_send(ports.other.pair());
    ports.progress();
  }
  ck_assert_uint_eq(ports.messages_carried(), kMore);
  std::uint8_t next = 0;
  for (const FakeSend& one : ports.other.pair().all_sends) {
    DetourHeader header;
    const std::size_t at = PacketHeader::kSize + DetourHeader::kSize;
    if (one.bytes.size() > at && header.read(one.bytes.data() + PacketHeader::kSize, DetourHeader::kSize) &&
        one.bytes[0] == static_cast<std::byte>(PacketKind::kDetour) && header.what == DetourHeader::What::kMessage) {
      ck_assert_uint_eq(static_cast<std::uint8_t>(one.bytes[at]), next++);
    }
  }
}
END_TEST

/// One has its buffer of another context than the one that it goes by. All contexts lose the device at the same time.
START_TEST(buffers_of_other_contexts) {
  EndpointsBench context;
  context.send_and_connect();
  Ports ports(false, false);
  Fragment* const fragment = context.endpoints.path().get_send(0);
  fragment->segments[0].seg_len = 8;
  fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  fragment->tag = kTag;
  fragment->callback_due = false;
  fragment->des_cbfunc = nullptr;
  ck_assert_int_eq(ports.broken.endpoint().send(*fragment), OPAL_SUCCESS);
  const std::vector<Endpoints*> contexts{&ports.broken.endpoints, &context.endpoints};
  ports.broken.endpoints.set_contexts(contexts, nullptr);
  context.endpoints.set_contexts(contexts, nullptr);
  lose_device(ports);
  ck_assert_ptr_nonnull(ports.broken.endpoint().carrier());  // not by itself
  DeviceLoss(context.endpoints).begin();
  ck_assert(DeviceLoss(context.endpoints).take_effect_in_all());
  ck_assert_ptr_null(ports.broken.endpoint().carrier());
  ck_assert_ptr_null(context.endpoint().carrier());
  flushed(ports);
  ck_assert_uint_eq(ports.broken.said<cpc::Destroy>(), 1);
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 2);
}
END_TEST

/// It was in the completion queue before.
START_TEST(what_had_completed_is_taken) {
  Ports ports(true, false);
  ports.broken.device.complete_send(ports.broken.pair());
  lose_device(ports);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
  ck_assert_int_eq(ports.broken.sends_ended[0], OPAL_SUCCESS);
}
END_TEST

START_TEST(nothing_is_polled_any_more) {
  Ports ports(false, false);
  lose_device(ports);
  const std::size_t before = ports.broken.device.completions.size();
  ports.broken.device.complete_send(ports.broken.pair());
  ports.progress();
  ck_assert_uint_eq(ports.broken.device.completions.size(), before + 1);
}
END_TEST

/// A read or write that was under way is done again.
START_TEST(writes_are_kept) {
  Ports ports(true, false);
  lose_device(ports);
  flushed(ports);
  ck_assert_uint_eq(ports.broken.said<cpc::Destroy>(), 1);
  ck_assert_uint_eq(ports.broken.requests_ended, 0);
  ck_assert_uint_eq(ports.broken.endpoint().rdma_outstanding(), 1);
  // The bench's write cannot go by the other port: that is told at once, since nothing else will take it.
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.broken.reports, 1);
  ck_assert_uint_eq(ports.broken.requests_ended, 1);
}
END_TEST

/// Also to a peer that no link has led to. Nobody asks for one.
START_TEST(no_link_is_made_any_more) {
  Ports ports(false, false);
  lose_device(ports);
  flushed(ports);
  ports.counts_come_aside(1, 1);
  // From now on at once, without a call of progress(): it may be the last message before the program waits for something else.
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(ports.messages_carried(), 1);
  const std::size_t connects = ports.broken.said<cpc::Connect>();
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ports.progress();
  ck_assert_uint_eq(ports.messages_carried(), 2);
  ck_assert_int_eq(ports.broken.send(ports.broken.endpoint_of_another()), OPAL_SUCCESS);
  ports.progress();
  ck_assert_uint_eq(ports.broken.said<cpc::Connect>(), connects);
  ck_assert_uint_eq(ports.broken.reports, 0);
}
END_TEST

/// Nor one that the peer wants.
START_TEST(what_the_peer_wants_is_closed) {
  Ports ports(false, false);
  lose_device(ports);
  flushed(ports);
  const std::size_t closed = ports.broken.said<cpc::Close>();
  ++ports.broken.link;
  ports.broken.post_receives();
  ck_assert_uint_eq(ports.broken.said<cpc::Close>(), closed + 1);
  ck_assert_uint_eq(ports.broken.said<cpc::ReceivesPosted>(), 1);
}
END_TEST

START_TEST(without_another_device_that_is_told_once) {
  Ports ports(true, false);
  ports.broken.beside = nullptr;
  lose_device(ports);
  flushed(ports);
  ck_assert_uint_eq(ports.broken.reports, 1);
  ck_assert_uint_eq(ports.broken.upper_layer_told, 1);
  ck_assert_uint_eq(ports.broken.sends_ended.size(), 1);
  ck_assert_int_eq(ports.broken.sends_ended[0], OPAL_ERR_UNREACH);
  ck_assert_uint_eq(ports.broken.requests_ended, 1);
  ck_assert_int_eq(ports.broken.send(), OPAL_ERR_UNREACH);
}
END_TEST

/// Open MPI takes the peer away: nothing is waited for.
START_TEST(endpoints_end) {
  for (const bool is_before : {false, true}) {
    Ports ports(true, false);
    if (is_before) {
      ports.broken.endpoints.remove(&ports.broken.endpoint());
    }
    lose_device(ports);
    if (!is_before) {
      ports.broken.endpoints.remove(&ports.broken.endpoint());
    }
    flushed(ports);
    ports.progress();
    ck_assert_uint_eq(ports.broken.said<cpc::Destroy>(), 1);
    ck_assert_uint_eq(ports.broken.reports, 0);
    ck_assert(!ports.broken.endpoints.are_leaving());
  }
}
END_TEST

/// A request that is refused for that is not lost, and no failure.
START_TEST(a_device_that_refuses_requests_is_gone) {
  Ports ports(false, false);
  ports.broken.device.refuse_sends(EIO);
  ck_assert_int_eq(ports.broken.send(), OPAL_SUCCESS);
  ck_assert_int_eq(ports.broken.submit(), OPAL_SUCCESS);
  ck_assert_uint_ge(ports.broken.losses, 2);
  ck_assert_uint_eq(ports.broken.reports, 0);
  lose_device(ports);
  flushed(ports);
  ck_assert_uint_eq(ports.broken.endpoint().rdma_outstanding(), 1);
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 2);
}
END_TEST

/// While a connection is being made: nobody hears of receives that could not be posted.
START_TEST(receives_on_a_device_that_is_gone_count_as_posted) {
  Ports ports(false);
  ++ports.broken.link;
  ports.broken.device.receive_error = EIO;
  ports.broken.post_receives();
  ck_assert_uint_ge(ports.broken.losses, 1);
  ck_assert_uint_eq(ports.broken.reports, 0);
  lose_device(ports);
  flushed(ports);
  ports.counts_come_aside(0, 1);
  ck_assert_uint_eq(ports.messages_carried(), 1);
  ck_assert_uint_eq(ports.broken.upper_layer_told, 0);
}
END_TEST

/// The first connection is refused, by a peer whose device is gone.
START_TEST(a_peer_without_a_device_is_reached_by_another_one) {
  for (const bool has_way : {true, false}) {
    EndpointsBench other;
    other.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    other.send_and_connect();
    EndpointsBench bench;
    bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    bench.beside = has_way ? &other.endpoint() : nullptr;
    bench.tell(cpc::Failed{EndpointsBench::key(), bench.link, "the peer refuses", "", true, false, true});
    bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.reports, has_way ? 0 : 1);
    const std::size_t asked = other.pair().all_sends.back().bytes[0] == static_cast<std::byte>(PacketKind::kDetour);
    ck_assert_uint_eq(asked, has_way ? 1 : 0);
  }
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("device_loss",
                   {what_was_under_way_goes_by_another_device, messages_keep_their_order, buffers_of_other_contexts,
                    what_had_completed_is_taken, nothing_is_polled_any_more, writes_are_kept, no_link_is_made_any_more,
                    what_the_peer_wants_is_closed, without_another_device_that_is_told_once, endpoints_end,
                    a_device_that_refuses_requests_is_gone, receives_on_a_device_that_is_gone_count_as_posted,
                    a_peer_without_a_device_is_reached_by_another_one});
}
