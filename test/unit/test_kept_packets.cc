// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "btl_fabric/path/kept_packets.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

struct Packet {
  std::uint32_t number;
  std::vector<std::byte> bytes;
  bool in_ring;
};

/// Keeps packets beside a list of them that needs no care for memory.
class Keeper {
 public:
  Keeper(std::size_t most, std::size_t size) : kept_(most, size), size_(size) {}

  void keep(std::size_t length) {
    Packet packet{number_++, {}, number_ % 3 == 0};
    for (std::size_t i = 0; i < length; ++i) {
      packet.bytes.push_back(static_cast<std::byte>(packet.number + i));
    }
    std::byte* const place = kept_.place();
    ck_assert_ptr_nonnull(place);
    std::memset(place, 0xee, size_);  // whoever asks for a place may use all of it
    std::memcpy(place, packet.bytes.data(), length);
    kept_.keep(packet.number, length, packet.in_ring);
    packets_.push_back(std::move(packet));
    ++in_batch_;
  }
  void end_batch() {
    kept_.end_batch();
    batches_.push_back(std::exchange(in_batch_, 0));
  }
  [[nodiscard]] bool has_batches() const { return !batches_.empty(); }
  [[nodiscard]] std::size_t batches() const { return batches_.size(); }
  [[nodiscard]] std::size_t packets() const { return packets_.size(); }
  void batch_arrived() {
    packets_.erase(packets_.begin(), packets_.begin() + static_cast<std::ptrdiff_t>(batches_.front()));
    batches_.pop_front();
    kept_.batch_arrived(packets_.empty() && batches_.empty());
  }
  void compare() const {
    std::size_t seen = 0;
    kept_.for_each([&](std::uint32_t number, std::span<const std::byte> bytes, bool in_ring) {
      ck_assert_uint_lt(seen, packets_.size());
      const Packet& expected = packets_[seen++];
      ck_assert_uint_eq(number, expected.number);
      ck_assert_uint_eq(bytes.size(), expected.bytes.size());
      ck_assert_int_eq(std::memcmp(bytes.data(), expected.bytes.data(), bytes.size()), 0);
      ck_assert(in_ring == expected.in_ring);
    });
    ck_assert_uint_eq(seen, packets_.size());
    ck_assert(!kept_.is_lossy());
  }

 private:
  KeptPackets kept_;
  const std::size_t size_;
  std::uint32_t number_ = 0;
  std::deque<Packet> packets_;
  std::deque<std::size_t> batches_;  ///< packets of each
  std::size_t in_batch_ = 0;
};

START_TEST(all_that_have_not_arrived_are_there) {
  Keeper keeper(4, 20);
  keeper.compare();
  keeper.keep(20);
  keeper.keep(1);
  keeper.compare();
  keeper.end_batch();
  keeper.keep(0);
  keeper.compare();
  keeper.batch_arrived();
  keeper.compare();
  keeper.end_batch();
  keeper.batch_arrived();
  keeper.compare();
}
END_TEST

/// As many as there may be, whatever has been there before.
START_TEST(there_is_room_for_the_most) {
  constexpr std::size_t kMost = 100;
  for (std::size_t before = 0; before < 2 * kMost; ++before) {
    Keeper keeper(kMost, 32);
    for (std::size_t i = 0; i < before; ++i) {
      keeper.keep(i % 33);
      if (i % 4 == 3) {
        keeper.end_batch();
      }
      if (keeper.packets() == kMost / 2) {
        keeper.batch_arrived();
      }
    }
    while (keeper.packets() < kMost) {
      keeper.keep(32);
    }
    keeper.compare();
    keeper.end_batch();
    while (keeper.has_batches()) {
      keeper.batch_arrived();
      keeper.compare();
    }
  }
}
END_TEST

START_TEST(random_traffic_is_kept) {
  std::mt19937 random(static_cast<unsigned>(_i));
  const auto up_to = [&random](std::size_t most) { return static_cast<std::size_t>(random() % (most + 1)); };
  const std::size_t most = 1 + up_to(60);
  const std::size_t size = 1 + up_to(100);
  Keeper keeper(most, size);
  for (int step = 0; step < 3000; ++step) {
    const std::size_t aim = (step / 500) % 2 == 0 ? most : 1 + most / 8;  // many under way at some times, few at others
    if (keeper.packets() < aim && up_to(2) > 0) {
      keeper.keep(up_to(size));
    } else if (up_to(1) == 0 && keeper.batches() < most) {
      keeper.end_batch();  // with no packet of its own, too
    } else if (keeper.has_batches()) {
      keeper.batch_arrived();
    }
    if (step % 7 == 0) {
      keeper.compare();
    }
  }
  keeper.compare();
}
END_TEST

/// Batches that began before there was anything to keep.
START_TEST(batches_before_the_first_packet_count) {
  KeptPackets kept(3, 8);
  kept.end_batch();
  kept.end_batch();
  ck_assert_ptr_nonnull(kept.place());
  kept.keep(1, 8);
  kept.end_batch();
  const auto count = [&kept] {
    int packets = 0;
    kept.for_each([&packets](auto&&...) { ++packets; });
    return packets;
  };
  kept.batch_arrived(false);
  kept.batch_arrived(false);
  ck_assert_int_eq(count(), 1);
  kept.batch_arrived(true);
  ck_assert_int_eq(count(), 0);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("kept_packets", {all_that_have_not_arrived_are_there,
                                          there_is_room_for_the_most,
                                          {random_traffic_is_kept, 0, 200},
                                          batches_before_the_first_packet_count});
}
