// SPDX-License-Identifier: BSD-3-Clause
//
// An open packet between two threads: one that appends and posts, one that posts what lies. Whatever the order, each byte leaves
// once. ThreadSanitizer runs this too.
#include <atomic>
#include <cstdint>
#include <thread>

#include "btl_fabric/path/packet_watch.h"
#include "test/unit/check_main.h"

namespace {

using fabric::OpenPacket;
using fabric::PacketWatch;

std::atomic<std::uint64_t> posted_bytes = 0;
std::atomic<std::uint64_t> posted_packets = 0;

int post_send(ibv_qp* /*queue_pair*/, ibv_send_wr* request, ibv_send_wr** /*refused*/) {
  posted_bytes += request->sg_list[0].length;
  ++posted_packets;
  return 0;
}

/// Counts from its making on.
struct CountingQueuePair {
  CountingQueuePair() {
    context.ops.post_send = post_send;
    verbs.context = &context;
    posted_bytes = posted_packets = 0;
  }
  ibv_context context{};
  ibv_qp verbs{};
};

START_TEST(each_byte_leaves_once) {
  CountingQueuePair queue_pair;

  std::atomic<bool> ticks = false;
  std::atomic<bool> ends = false;
  PacketWatch watch([&] { ticks = true; });
  std::uint64_t ticked = 0;
  std::thread thread([&] {
    while (!ends) {
      if (ticks) {
        ++ticked;
        ticks = watch.tick();
      }
    }
  });
  OpenPacket packet;
  ck_assert(watch.add(packet));
  std::uint64_t appended = 0;
  std::uint64_t opened = 0;
  bool is_open = false;
  for (unsigned i = 0; i < 300'000; ++i) {
    if (i % 1000 == 999) {
      std::this_thread::yield();  // computes, so that something lies
    }
    if (is_open && i % 37 == 0) {
      ck_assert_int_eq(packet.post(), 0);
      is_open = false;
      continue;
    }
    const bool is_new = !is_open || !packet.take();
    if (is_new) {
      if (is_open) {
        ck_assert_int_eq(packet.post(), 0);
      }
      packet.open(&queue_pair.verbs, {}, 0);
      ++opened;
    }
    packet.grow(1);
    ++appended;
    packet.give();
    is_open = true;
    if (is_new) {
      watch.opened();
    }
  }
  if (is_open) {
    ck_assert_int_eq(packet.post(), 0);
  }
  watch.remove(packet);
  ends = true;
  thread.join();
  ck_assert_uint_gt(ticked, 0);
  ck_assert_uint_eq(posted_packets, opened);
  ck_assert_uint_eq(posted_bytes, appended);
}
END_TEST

START_TEST(a_closed_packet_is_not_posted) {
  CountingQueuePair queue_pair;
  PacketWatch watch([] {});
  OpenPacket packet;
  ck_assert(watch.add(packet));
  packet.open(&queue_pair.verbs, {}, 0);
  packet.give();
  (void)watch.tick();
  ck_assert(!packet.close());
  (void)watch.tick();
  ck_assert_uint_eq(posted_packets, 0);
  packet.open(&queue_pair.verbs, {}, 0);
  packet.give();
  (void)watch.tick();
  (void)watch.tick();
  ck_assert(packet.close());
  ck_assert_uint_eq(posted_packets, 1);
  watch.remove(packet);
}
END_TEST

/// Whoever else goes, and in whatever order.
START_TEST(who_stays_is_looked_after) {
  CountingQueuePair queue_pair;
  PacketWatch watch([] {});
  OpenPacket packets[5];
  for (OpenPacket& packet : packets) {
    ck_assert(watch.add(packet));
    packet.open(&queue_pair.verbs, {}, 0);
    packet.give();
  }
  for (const std::size_t goes : {1, 4, 0}) {
    watch.remove(packets[goes]);
  }
  (void)watch.tick();
  (void)watch.tick();
  ck_assert_uint_eq(posted_packets, 2);
  ck_assert(packets[2].close() && packets[3].close());
  watch.remove(packets[2]);
  watch.remove(packets[3]);
  (void)watch.tick();
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("packet_watch",
                                 {each_byte_leaves_once, a_closed_packet_is_not_posted, who_stays_is_looked_after});
}
