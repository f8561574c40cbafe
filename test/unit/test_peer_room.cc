// SPDX-License-Identifier: BSD-3-Clause
//
// How much room there is to each peer, as threads see it that hold no lock.
#include <atomic>
#include <thread>

#include "btl_fabric/base/peer_room.h"
#include "test/unit/path_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

constexpr std::uint32_t kJob = 7;

struct Source final : RoomSource {
  Source(std::uint64_t sends, std::uint64_t receives) : tx(sends), rx(receives) {}
  [[nodiscard]] std::uint64_t tx_size_left() const noexcept override { return tx; }
  [[nodiscard]] std::uint64_t rx_size_left() const noexcept override { return rx; }
  std::uint64_t tx;
  std::uint64_t rx;
};

std::vector<unsigned long long> room(std::uint64_t (RoomSource::*question)() const noexcept, std::size_t ranks = 3) {
  std::vector<unsigned long long> by_rank(ranks);
  RoomListing::add_up(kJob, by_rank, question);
  return by_rank;
}

const RoomSource& room_of(const Link& link) {
  return link;
}

}  // namespace

START_TEST(connections_with_a_peer_are_added_up) {
  const Source first(1, 10);
  const Source second(2, 20);
  const Source third(4, 40);
  RoomListing a;
  RoomListing b;
  RoomListing c;
  a.list({kJob, 1}, first);
  b.list({kJob, 2}, second);
  c.list({kJob, 1}, third);
  ck_assert(room(&RoomSource::tx_size_left) == (std::vector<unsigned long long>{0, 5, 2}));
  ck_assert(room(&RoomSource::rx_size_left) == (std::vector<unsigned long long>{0, 50, 20}));
  a.unlist();
  a.unlist();
  ck_assert(room(&RoomSource::tx_size_left) == (std::vector<unsigned long long>{0, 4, 2}));
  a.list({kJob, 0}, first);
  b.list({kJob, 0}, second);  // a new connection in the place of the old one
  ck_assert(room(&RoomSource::tx_size_left) == (std::vector<unsigned long long>{3, 4, 0}));
}
END_TEST

START_TEST(other_jobs_and_ranks_beyond_the_values_are_not_told) {
  const Source source(1, 1);
  {
    RoomListing other;
    RoomListing beyond;
    other.list({kJob + 1, 1}, source);
    beyond.list({kJob, 3}, source);
    ck_assert(room(&RoomSource::tx_size_left) == (std::vector<unsigned long long>{0, 0, 0}));
    ck_assert_uint_eq(room(&RoomSource::tx_size_left, 4)[3], 1);
  }
  ck_assert_uint_eq(room(&RoomSource::tx_size_left, 4)[3], 0);
}
END_TEST

START_TEST(a_link_says_what_its_queues_have) {
  PathBench bench({.queues = "P,256,8,4,2,2:S,4096,16,8,4"});
  Link& link = bench.connect();
  const std::uint64_t sends = room_of(link).tx_size_left();
  const std::uint64_t receives = room_of(link).rx_size_left();
  ck_assert_uint_eq(sends, link.queues()[0].sends->tx.size_left() + link.queues()[1].sends->tx.size_left());
  ck_assert_uint_eq(link.queues()[0].receives.rx_size_left(), 0);  // all are posted
  ck_assert_uint_eq(receives, 16 - 4);                             // rd_init, a quarter, are

  ck_assert_int_ge(bench.send(link, 0, 200), 0);  // not inline: it holds its room until it is done
  ck_assert_int_ge(bench.send(link, 1, 2000), 0);
  ck_assert_uint_eq(room_of(link).tx_size_left(), sends - 2);
  bench.device.complete_send(bench.pair(link, 0));
  bench.path->progress();
  ck_assert_uint_eq(room_of(link).tx_size_left(), sends - 1);

  std::uint64_t within = 0;
  bench.on_message = [&] { within = room_of(link).rx_size_left(); };
  bench.receive(link);
  bench.path->progress();
  ck_assert_uint_eq(within, receives + 1);  // while the upper layer has the buffer
}
END_TEST

START_TEST(x_queues_share_the_room_to_send) {
  PathBench bench({.queues = "X,256,8,4,4:X,4096,8,4,4"});
  cpc::XrcPath way_out;
  way_out.sender = 1;
  way_out.queue_pair = &bench.device.make_queue_pair().verbs;
  SharedSendQueue& sends = bench.path->sender(way_out);
  const Link& link = bench.share(sends, 77);
  ck_assert_uint_eq(room_of(link).tx_size_left(), sends.tx.size_left());
}
END_TEST

START_TEST(a_reader_needs_no_lock) {
  constexpr std::uint64_t kBytes = 64;
  constexpr std::uint64_t kMost = 1000;
  TxCredits credits(QueueSpace::for_operations(kMost, {{}, kBytes}, 1, 0));
  std::atomic<bool> stop = false;
  std::atomic<unsigned> reads = 0;
  bool is_good = true;
  std::thread reader([&] {
    while (!stop) {
      is_good = is_good && credits.size_left_seen() <= kMost;
      const auto seen = room(&RoomSource::tx_size_left);
      is_good = is_good && (seen[1] == 0 || seen[1] == 3);
      ++reads;
    }
  });
  const Source source(3, 0);
  for (unsigned round = 0; round < 1000 || reads < 10; ++round) {
    RoomListing listing;
    listing.list({kJob, 1}, source);
    const std::uint64_t carried = credits.take_signaled(kBytes);
    credits.completed(carried);
  }
  stop = true;
  reader.join();
  ck_assert(is_good);
}
END_TEST

int main() {
  return run_suite("peer_room",
                   {connections_with_a_peer_are_added_up, other_jobs_and_ranks_beyond_the_values_are_not_told,
                    a_link_says_what_its_queues_have, x_queues_share_the_room_to_send, a_reader_needs_no_lock});
}
