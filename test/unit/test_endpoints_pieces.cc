// SPDX-License-Identifier: BSD-3-Clause
//
// Reads and writes that go in pieces, over an endpoint and others: when their caller is told, and of what.
#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

constexpr std::size_t kRdma = 1;  ///< the queue that writes go over

/// An operation through the endpoint of a bench.
struct Whole {
  explicit Whole(EndpointsBench& its_bench, std::uint32_t pieces)
      : bench(its_bench), lead(bench.endpoint()), request(*bench.rdma.requests.get(Transport::kInfiniBand)) {
    request.context = this;
    request.callback = [](mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, mca_btl_base_registration_handle_t*,
                          void* context, void*, int status) { static_cast<Whole*>(context)->told.push_back(status); };
    lead.begin_pieces(request, pieces);
  }
  /// Through the same endpoint.
  void submit_piece() {
    RdmaRequest* const piece = bench.rdma.requests.get(Transport::kInfiniBand);
    piece->operation.pieces = 1;
    piece->operation.local[0] = piece->operation.confirm;
    lead.adopt_piece(*piece, request);
    ck_assert_int_eq(lead.submit(piece), OPAL_SUCCESS);
  }
  /// That of another endpoint has ended.
  void end_piece(int status) { lead.end_piece(&request, status); }

  EndpointsBench& bench;
  Endpoint& lead;
  RdmaRequest& request;
  std::vector<int> told;
};

void complete_piece(EndpointsBench& bench) {
  bench.device.complete_send(bench.pair(kRdma));
  bench.endpoints.progress();
}

void check_told(const Whole& whole, const std::vector<int>& expected) {
  ck_assert(whole.told == expected);
}

}  // namespace

/// What messages may overtake is written through another device of the peer's; ours do not matter.
START_TEST(another_device_of_the_peers_is_aside) {
  mca_btl_base_registration_handle_t of_two{};
  of_two.home = {.rkey = 1, .first_port = 0, .ports = 2};
  of_two.others[0] = {.rkey = 2, .first_port = 2, .ports = 1};
  ck_assert(!of_two.is_aside(of_two.home, 0));
  ck_assert(!of_two.is_aside(of_two.home, 1));
  ck_assert(of_two.is_aside(of_two.home, 2));
  ck_assert(of_two.is_aside(of_two.others[0], 1));
  ck_assert(!of_two.is_aside(of_two.others[0], 2));
  // Nobody may read what one device knows, and it need not be.
  mca_btl_base_registration_handle_t of_one{};
  of_one.home = {.rkey = 1, .first_port = 0, .ports = 2};
  ck_assert(!of_one.is_aside(of_one.home, 1));
  ck_assert(!of_one.is_aside(of_one.home, 2));
}
END_TEST

START_TEST(the_last_piece_ends_the_whole) {
  EndpointsBench bench;
  bench.send_and_connect();
  Whole whole(bench, 3);
  whole.submit_piece();
  whole.submit_piece();
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 2);
  complete_piece(bench);
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {});
  complete_piece(bench);
  check_told(whole, {OPAL_SUCCESS});
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 0);
}
END_TEST

/// But the caller hears of it when all have ended: its memory may be in use until then.
START_TEST(the_first_error_is_that_of_the_whole) {
  EndpointsBench bench;
  bench.send_and_connect();
  Whole whole(bench, 3);
  whole.submit_piece();
  whole.end_piece(OPAL_ERR_UNREACH);
  whole.end_piece(OPAL_ERR_NOT_AVAILABLE);
  check_told(whole, {});
  complete_piece(bench);
  check_told(whole, {OPAL_ERR_UNREACH});
}
END_TEST

/// What was under way through it has failed.
START_TEST(a_link_that_fails_ends_its_pieces) {
  EndpointsBench bench;
  bench.send_and_connect();
  Whole whole(bench, 2);
  whole.submit_piece();
  bench.device.flush(bench.pair(kRdma));
  bench.endpoints.progress();
  check_told(whole, {});
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {OPAL_ERR_UNREACH});
}
END_TEST

/// The link that the caller has chosen is gone, or has never been: nothing is lost but the wait for its credits.
START_TEST(others_carry_what_the_chosen_one_does_not) {
  EndpointsBench bench;
  Whole whole(bench, 2);
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {});
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {OPAL_SUCCESS});
}
END_TEST

/// The last piece ends elsewhere, and the caller's next message goes over this link.
START_TEST(an_end_waits_until_a_message_can_follow) {
  EndpointsBench bench;
  bench.send_and_connect();
  for (int i = 0; i < 7; ++i) {  // of 8 credits
    ck_assert_int_ge(bench.send(), 0);
  }
  for (int i = 0; i < 8; ++i) {
    bench.messages_arrive();
  }
  Whole whole(bench, 2);
  whole.submit_piece();
  complete_piece(bench);
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {});
  ck_assert_uint_eq(bench.counters.rdma_held, 1);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
  bench.credits_arrive(1);
  bench.endpoints.progress();
  check_told(whole, {OPAL_SUCCESS});
}
END_TEST

START_TEST(a_port_takes_pieces_when_it_is_connected) {
  EndpointsBench bench;
  ck_assert(!bench.endpoint().takes_pieces());
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 1);
  ck_assert(!bench.endpoint().takes_pieces());
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 1);
  bench.post_receives();
  bench.connected();
  ck_assert(bench.endpoint().takes_pieces());
}
END_TEST

/// Pieces that are under way elsewhere name it.
START_TEST(an_endpoint_stays_until_its_pieces_have_ended) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.messages_arrive();
  Whole whole(bench, 1);
  take_away(bench);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 0);
  whole.end_piece(OPAL_SUCCESS);
  check_told(whole, {OPAL_SUCCESS});
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
}
END_TEST

int main() {
  return run_suite("endpoints: pieces",
                   {another_device_of_the_peers_is_aside, the_last_piece_ends_the_whole,
                    the_first_error_is_that_of_the_whole, a_link_that_fails_ends_its_pieces,
                    others_carry_what_the_chosen_one_does_not, an_end_waits_until_a_message_can_follow,
                    a_port_takes_pieces_when_it_is_connected, an_endpoint_stays_until_its_pieces_have_ended});
}
