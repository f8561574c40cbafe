// SPDX-License-Identifier: BSD-3-Clause
//
// Room in the ring of a completion queue for payloads: what is handed out, and when it is free again.
#include <memory>
#include <random>
#include <vector>

#include "test/unit/check_main.h"
#include "transport/landing.h"

namespace {

using namespace softhca;

// A queue with a ring and what is in it, oldest first.
class Queue {
 public:
  // Lines are counted in 32 bits: the counter begins again soon.
  Queue() {
    constexpr uint64_t kStart = (uint64_t{1} << 32) * kLandingLine - 2 * kLandingRingBytes;
    cq_->landings = {.offset = 4096, .end = kStart, .freed_seen = kStart};
    cq_->landings_freed.store(kStart);
  }

  bool add(uint64_t length) {
    Landed where{};
    if (!find_landing(*cq_, tail_, length, where)) return false;
    keep_landing(*cq_, where);
    check(where, length);
    waiting_.push_back(where);
    ++tail_;
    return true;
  }
  // As the one who polls does.
  void poll() {
    const Landed where = waiting_.front();
    waiting_.erase(waiting_.begin());
    CqEntry entry{};
    note_landed(entry, where);
    cq_->landings_freed.store(freed_by(entry, cq_->landings_freed.load()));
    ck_assert_uint_eq(cq_->landings_freed.load(), where.end);
    cq_->head.store(cq_->head.load() + 1);
  }
  // As when the queue pair of the newest entries is reset: they are not polled.
  void remove_newest(size_t count) {
    waiting_.resize(waiting_.size() - count);
    cq_->head.store(cq_->head.load() + static_cast<uint32_t>(count));  // what is left moves towards the tail
  }
  size_t waiting() const { return waiting_.size(); }

 private:
  // In one piece, and not where something waits.
  void check(const Landed& where, uint64_t length) const {
    ck_assert_uint_ge(where.end - where.begin, length);
    ck_assert_uint_le(where.begin % kLandingRingBytes + length, kLandingRingBytes);
    for (const Landed& other : waiting_) {
      ck_assert_uint_le(other.end, where.begin);
      ck_assert_uint_le(where.end - other.begin, kLandingRingBytes);
    }
  }

  std::unique_ptr<CqShared> cq_ = std::make_unique<CqShared>();
  uint32_t tail_ = 0;
  std::vector<Landed> waiting_;
};

START_TEST(a_full_ring_has_room_when_the_oldest_is_polled) {
  Queue queue;
  size_t count = 0;
  while (queue.add(kMostLanded)) ++count;
  ck_assert_uint_eq(count, kLandingRingBytes / kMostLanded);
  queue.poll();
  ck_assert(queue.add(kMostLanded));
  ck_assert(!queue.add(1));
}
END_TEST

START_TEST(what_is_too_long_or_has_no_ring_finds_no_room) {
  Queue queue;
  ck_assert(!queue.add(kMostLanded + 1));
  const auto without = std::make_unique<CqShared>();
  Landed where{};
  ck_assert(!find_landing(*without, 0, 200, where));
}
END_TEST

START_TEST(entries_that_were_removed_hold_nothing) {
  Queue queue;
  for (int round = 0; round < 100; ++round) {
    while (queue.add(5000)) {
    }
    queue.remove_newest(queue.waiting() / 2);
    while (queue.waiting() != 0) queue.poll();
    for (int i = 0; i < 40; ++i) ck_assert(queue.add(5000));
    queue.remove_newest(queue.waiting());
  }
}
END_TEST

START_TEST(payloads_never_lie_on_each_other) {
  std::mt19937 random(7);
  Queue queue;
  size_t added = 0;
  for (int i = 0; i < 100000; ++i) {
    if (random() % 2 == 0 || queue.waiting() == 0) {
      added += queue.add(193 + random() % (kMostLanded - 192)) ? 1 : 0;
    } else if (random() % 50 == 0) {
      queue.remove_newest(random() % (queue.waiting() + 1));
    } else {
      queue.poll();
    }
  }
  ck_assert_uint_gt(added, 10000);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_landing_ring",
      {a_full_ring_has_room_when_the_oldest_is_polled, what_is_too_long_or_has_no_ring_finds_no_room,
       entries_that_were_removed_hold_nothing, payloads_never_lie_on_each_other});
}
