// SPDX-License-Identifier: BSD-3-Clause
//
// SENDs of all sizes whose payloads wait to be polled: in a completion, in the ring of the completion queue, or in their buffers
// already, because the ring was full.
#include <algorithm>
#include <numeric>

#include "test/softhca/verbs_world.h"

namespace {

using verbs_test::kAllAccess;
using verbs_test::World;

constexpr uint32_t kDepth = 128;
constexpr uint32_t kBuffer = 10000;  // no multiple of anything, and longer than what goes through the ring

// A connected pair with room for many messages: those from `a` lie in the first half of the memory, buffers in the second.
struct Pair {
  World world;
  std::vector<uint8_t>& memory = *new std::vector<uint8_t>(size_t{2} * kDepth * kBuffer);
  ibv_mr* mr = ibv_reg_mr(world.pd, memory.data(), memory.size(), kAllAccess);
  ibv_cq* sends = ibv_create_cq(world.context, 2 * kDepth, nullptr, nullptr, 0);
  ibv_qp* a = make();
  ibv_qp* b = make();

  Pair() {
    ck_assert_ptr_nonnull(mr);
    world.connect(a, b);
    for (size_t i = 0; i < memory.size() / 2; ++i) memory[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  ibv_qp* make() const {
    ibv_qp_init_attr attr = world.qp_attributes();
    attr.send_cq = sends;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = kDepth;
    ibv_qp* qp = ibv_create_qp(world.pd, &attr);
    ck_assert_ptr_nonnull(qp);
    return qp;
  }
  uint8_t* sent(uint32_t number) const { return memory.data() + size_t{number} * kBuffer; }
  uint8_t* received(uint32_t number) const { return sent(kDepth + number); }

  void post_recv(ibv_qp* qp, uint32_t number, const ibv_mr* region) const {
    ibv_sge list{reinterpret_cast<uint64_t>(received(number)), kBuffer, region->lkey};
    ibv_recv_wr wr{number, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(qp, &wr, &bad), 0);
  }
  void post_recv(uint32_t number) const { post_recv(b, number, mr); }
  // In two pieces, for more than one to be gathered.
  void post_send(ibv_qp* qp, uint32_t number, uint32_t length) const {
    const auto address = reinterpret_cast<uint64_t>(sent(number));
    ibv_sge list[2] = {{address, length / 3, mr->lkey}, {address + length / 3, length - length / 3, mr->lkey}};
    ibv_send_wr wr{};
    wr.wr_id = number;
    wr.sg_list = list;
    wr.num_sge = 2;
    wr.opcode = IBV_WR_SEND;
    ck_assert_int_eq(World::post(qp, wr), 0);
  }
  void post_send(uint32_t number, uint32_t length) const { post_send(a, number, length); }

  void check(uint32_t number, uint32_t length) const {
    ck_assert_msg(std::equal(sent(number), sent(number) + length, received(number)),
                  "message %u of %u bytes is damaged", number, length);
    ck_assert_msg(
        std::all_of(received(number) + length, received(number) + kBuffer, [](uint8_t byte) { return byte == 0; }),
        "message %u of %u bytes went beyond its end", number, length);
  }
  // The next message, which is the one of that number.
  void take(uint32_t number, uint32_t length) const {
    sent_well(1);
    const ibv_wc completion = world.next();
    ck_assert_uint_eq(completion.wr_id, number);
    ck_assert_int_eq(completion.status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(completion.byte_len, length);
    check(number, length);
  }
  void sent_well(uint32_t count) const {
    for (uint32_t i = 0; i < count; ++i) ck_assert_int_eq(World::next(sends).status, IBV_WC_SUCCESS);
  }
  void clear() const { std::fill(received(0), received(kDepth), uint8_t{0}); }
};

START_TEST(every_size_arrives_whole) {
  const Pair pair;
  for (const uint32_t length :
       {0U, 1U, 2U, 3U, 191U, 192U, 193U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 8191U, 8192U, 8193U, kBuffer}) {
    pair.clear();
    pair.post_recv(0);
    pair.post_send(0, length);
    pair.take(0, length);
  }
}
END_TEST

START_TEST(messages_beyond_the_ring_keep_their_order) {
  const Pair pair;
  for (uint32_t round = 0; round < 20; ++round) {
    pair.clear();
    const auto length_of = [&](uint32_t i) { return (i * 2503 + round * 977) % kBuffer; };
    for (uint32_t i = 0; i < kDepth; ++i) pair.post_recv(i);
    for (uint32_t i = 0; i < kDepth; ++i) pair.post_send(i, length_of(i));
    for (uint32_t i = 0; i < kDepth; ++i) pair.take(i, length_of(i));
  }
}
END_TEST

START_TEST(a_ring_is_used_again_and_again) {
  const Pair pair;
  constexpr uint32_t kAhead = 5;
  const auto length_of = [](uint32_t i) { return 193 + i * 37 % 8000; };
  pair.clear();
  for (uint32_t i = 0; i < 2000; ++i) {
    if (i >= kAhead) {
      const uint32_t number = (i - kAhead) % kDepth;
      pair.take(number, length_of(i - kAhead));
      std::fill_n(pair.received(number), kBuffer, uint8_t{0});
    }
    pair.post_recv(i % kDepth);
    pair.post_send(i % kDepth, length_of(i));
  }
}
END_TEST

START_TEST(memory_that_is_deregistered_has_its_messages) {
  const Pair pair;
  ibv_mr* buffers = ibv_reg_mr(pair.world.pd, pair.received(0), size_t{kBuffer} * 8, kAllAccess);
  for (uint32_t i = 0; i < 8; ++i) pair.post_recv(pair.b, i, buffers);
  for (uint32_t i = 0; i < 8; ++i) pair.post_send(i, 1000 + i * 900);
  pair.sent_well(8);
  ck_assert_int_eq(ibv_dereg_mr(buffers), 0);
  for (uint32_t i = 0; i < 8; ++i) pair.check(i, 1000 + i * 900);
  pair.clear();  // from now on it is the program's
  for (uint32_t i = 0; i < 8; ++i) (void)pair.world.next();
  for (uint32_t i = 0; i < 8; ++i) pair.check(i, 0);
}
END_TEST

START_TEST(payloads_stay_when_another_queue_pair_is_reset) {
  const Pair pair;
  ibv_qp* c = pair.make();
  ibv_qp* d = pair.make();
  for (uint32_t round = 0; round < 50; ++round) {
    pair.world.connect(c, d);
    pair.clear();
    // Those of both pairs lie between each other.
    for (uint32_t i = 0; i < 16; ++i) {
      pair.post_recv(i);
      pair.post_recv(d, 32 + i, pair.mr);
      pair.post_send(i, 5000);
      pair.post_send(c, 32 + i, 6000);
    }
    pair.sent_well(32);
    ck_assert_int_eq(World::set_state(c, IBV_QPS_RESET), 0);
    ck_assert_int_eq(World::set_state(d, IBV_QPS_RESET), 0);
    for (uint32_t i = 0; i < 16; ++i) {
      const ibv_wc completion = pair.world.next();
      ck_assert(completion.status == IBV_WC_SUCCESS && completion.wr_id == i);
      pair.check(i, 5000);
    }
    ck_assert(pair.world.is_empty());
  }
}
END_TEST

START_TEST(payloads_survive_another_size_of_the_queue) {
  const Pair pair;
  for (const int entries : {1000, 300, 2000}) {
    pair.clear();
    for (uint32_t i = 0; i < kDepth; ++i) pair.post_recv(i);
    for (uint32_t i = 0; i < kDepth; ++i) pair.post_send(i, 193 + i * 60);
    ck_assert_int_eq(ibv_resize_cq(pair.world.cq, entries), 0);
    for (uint32_t i = 0; i < kDepth; ++i) pair.take(i, 193 + i * 60);
  }
}
END_TEST

START_TEST(more_queues_than_have_rings_work) {
  const World world;
  ibv_cq* queues[100];
  for (ibv_cq*& queue : queues) {
    queue = ibv_create_cq(world.context, 16, nullptr, nullptr, 0);
    ck_assert_ptr_nonnull(queue);
    ibv_qp_init_attr attr = world.qp_attributes();
    attr.recv_cq = queue;
    ibv_qp* a = ibv_create_qp(world.pd, &attr);
    ibv_qp* b = ibv_create_qp(world.pd, &attr);
    ck_assert(a != nullptr && b != nullptr);
    world.connect(a, b);
    std::iota(world.memory.begin(), world.memory.begin() + 4096, uint8_t{1});
    std::fill_n(world.memory.begin() + 8192, 4096, uint8_t{0});
    ck_assert_int_eq(world.post_recv(b, 1, 8192, 4096), 0);
    ck_assert_int_eq(world.post_send(a, 2, 0, 4096), 0);
    ck_assert_int_eq(World::next(queue).status, IBV_WC_SUCCESS);
    ck_assert_int_eq(world.next().status, IBV_WC_SUCCESS);
    ck_assert(std::equal(world.memory.begin(), world.memory.begin() + 4096, world.memory.begin() + 8192));
    ck_assert(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
    if (&queue - queues >= 50) ck_assert_int_eq(ibv_destroy_cq(queue), 0);
  }
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_landing",
      {every_size_arrives_whole, messages_beyond_the_ring_keep_their_order, a_ring_is_used_again_and_again,
       memory_that_is_deregistered_has_its_messages, payloads_stay_when_another_queue_pair_is_reset,
       payloads_survive_another_size_of_the_queue, more_queues_than_have_rings_work},
      60);
}
