// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints whose connection breaks: how often it is tried to be made anew, for how long, and who hears that it is given up.
#include <chrono>
#include <thread>
#include <vector>

#include "test/unit/broken_endpoints.h"
#include "test/unit/check_main.h"

namespace fabric::test {

START_TEST(what_takes_too_long_is_given_up) {
  EndpointsBench bench;
  begin(bench, std::chrono::milliseconds(20));
  lose(bench);
  ck_assert_uint_eq(bench.reports, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  bench.endpoints.progress();
  expect_given_up(bench);
}
END_TEST

/// Each asks for other ports when it is looked at. Other messages do not wait until hundreds have.
START_TEST(many_that_have_broken_do_not_delay_a_call) {
  constexpr unsigned kPeers = 300;
  constexpr unsigned kMostInACall = 100;
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::seconds(2));
  std::vector<opal_proc_t> peers(kPeers);
  for (unsigned i = 0; i < kPeers; ++i) {
    peers[i].proc_name = {1, 100 + i};
    const cpc::ConnectionKey key{{1, 100 + i}, 0, 0};
    std::string why_not;
    Endpoint* const endpoint = bench.endpoints.endpoint_for(&peers[i], bench.peer, why_not);
    ck_assert_ptr_nonnull(endpoint);
    ck_assert_int_eq(bench.submit(*endpoint), OPAL_SUCCESS);
    bench.make_queue_pairs();
    bench.tell(cpc::PostReceives{key, bench.link, bench.handles});
    bench.tell(cpc::Connected{key, bench.link, std::vector<cpc::QueuePairEnd>(bench.queues.count())});
    bench.endpoints.queue_pair_failed(bench.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
    bench.tell(cpc::Flushing{key, bench.link});
    bench.flush();
  }
  while (bench.said<cpc::Destroy>() < kPeers) {
    bench.endpoints.progress();
  }
  bench.other_ports_wanted = 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // so often they ask
  for (unsigned before = 0; bench.other_ports_wanted < kPeers; before = bench.other_ports_wanted) {
    bench.endpoints.progress();
    ck_assert_uint_gt(bench.other_ports_wanted, before);
    ck_assert_uint_le(bench.other_ports_wanted - before, kMostInACall);
  }
  ck_assert_uint_eq(bench.reports, 0);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (unsigned calls = 0; bench.reports < kPeers && calls < kPeers; ++calls) {
    bench.endpoints.progress();
  }
  ck_assert_uint_eq(bench.reports, kPeers);
  ck_assert_uint_eq(bench.requests_ended, kPeers);
}
END_TEST

/// Open MPI with ULFM ends by itself some of what waits for a peer that is gone, and uses its requests for other messages at once.
class FirstIsAwaited final : public Awaited {
 public:
  bool message(const opal_proc_t& gone, const Fragment& /*message*/, int& status) const noexcept override {
    status = OPAL_SUCCESS;
    ck_assert_ptr_nonnull(&gone);
    return ++asked == 1;
  }
  bool rdma(const opal_proc_t& /*gone*/, const void* context) const noexcept override { return context == is_awaited; }

  mutable unsigned asked = 0;
  void* is_awaited = nullptr;
};

START_TEST(who_goes_on_without_the_peer_hears_what_it_awaits) {
  using std::chrono::milliseconds;
  enum class Fails : std::uint8_t { kWhileConnecting, kAtOnce, kWhileHealing };
  for (const Fails when : {Fails::kWhileConnecting, Fails::kAtOnce, Fails::kWhileHealing}) {
    for (const bool is_rdma_awaited : {false, true}) {
      EndpointsBench bench;
      FirstIsAwaited awaited;
      int other = 0;
      awaited.is_awaited = is_rdma_awaited ? nullptr : &other;  // the bench's requests have no context
      const milliseconds heal_timeout(when == Fails::kWhileHealing ? 20 : 0);
      bench.endpoints.set_observers(nullptr, std::chrono::hours(1), heal_timeout);
      ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
      ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
      ck_assert_int_eq(bench.submit(), OPAL_SUCCESS);
      if (when == Fails::kWhileConnecting) {
        bench.awaited = &awaited;
        bench.tell(cpc::Failed{bench.key(), bench.link, "no way to the peer", "", true, true});
      } else {
        bench.post_receives();
        bench.connected();
        bench.awaited = &awaited;
        bench.endpoints.queue_pair_failed(bench.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
        drain(bench);
      }
      if (when == Fails::kWhileHealing) {
        ck_assert_uint_eq(bench.upper_layer_told, 0);
        ck_assert_int_ge(bench.send(), 0);
        std::this_thread::sleep_for(milliseconds(30));
        bench.endpoints.progress();
      }
      ck_assert_uint_eq(bench.upper_layer_told, 1);
      ck_assert_uint_eq(bench.sends_ended.size(), 1);
      ck_assert_int_eq(bench.sends_ended[0], OPAL_SUCCESS);
      ck_assert_uint_eq(awaited.asked, when == Fails::kWhileHealing ? 3 : 2);
      ck_assert_uint_eq(bench.requests_ended, is_rdma_awaited ? 1 : 0);
    }
  }
}
END_TEST

/// The next connection cannot be made: it is tried again, after a pause, as long as there is time.
START_TEST(set_up_that_fails_is_tried_again) {
  using std::chrono::milliseconds;
  for (const bool is_final : {false, true}) {
    EndpointsBench bench;
    bench.endpoints.set_observers(nullptr, std::chrono::hours(1), milliseconds(400), milliseconds(1));
    bench.send_and_connect();
    ck_assert_int_eq(bench.submit(), OPAL_SUCCESS);
    lose(bench);
    const std::size_t before = bench.said<cpc::Connect>();
    for (unsigned attempt = 1; attempt <= 5; ++attempt) {
      ++bench.link;
      bench.tell(cpc::Failed{bench.key(), bench.link, "no way to the peer", "", true, is_final});
      bench.tell(cpc::Flushing{bench.key(), bench.link});
      bench.endpoints.progress();
      if (is_final) {
        break;
      }
      ck_assert_uint_eq(bench.reports, 0);
      std::this_thread::sleep_for(milliseconds(attempt == 1 ? 2 : 40));
      bench.endpoints.progress();
      ck_assert_uint_eq(bench.said<cpc::Connect>(), before + attempt);
    }
    if (!is_final) {
      std::this_thread::sleep_for(milliseconds(400));
      bench.endpoints.progress();
    }
    expect_given_up(bench);
  }
}
END_TEST

/// A message that breaks each connection that it is sent over is not sent for ever; one after the other that break theirs are.
START_TEST(what_never_arrives_is_given_up) {
  using std::chrono::milliseconds;
  for (const bool arrives : {false, true}) {
    EndpointsBench bench;
    begin(bench, milliseconds(100));
    const auto start = std::chrono::steady_clock::now();
    std::uint32_t sent = 1;
    while (bench.reports == 0 && std::chrono::steady_clock::now() - start < milliseconds(400)) {
      std::this_thread::sleep_for(milliseconds(10));
      lose_again(bench);
      connect_again(bench);
      counts_arrive(bench, arrives ? sent : 0, 0);
      if (arrives) {
        while (!bench.pair(1).sends.empty()) {  // the write, which would be next
          bench.device.complete_send(bench.pair(1));
        }
        bench.endpoints.progress();
        ck_assert_int_ge(bench.send(), 0);
        ++sent;
      }
    }
    if (arrives) {
      ck_assert_uint_eq(bench.reports, 0);
    } else {
      expect_given_up(bench);
    }
  }
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("endpoints: giving up", {what_takes_too_long_is_given_up, many_that_have_broken_do_not_delay_a_call,
                                            who_goes_on_without_the_peer_hears_what_it_awaits,
                                            set_up_that_fails_is_tried_again, what_never_arrives_is_given_up});
}
