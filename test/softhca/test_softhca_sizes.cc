// SPDX-License-Identifier: BSD-3-Clause
//
// SENDs of every size at which the way of a message changes, in pieces and inline, to every kind of receive queue, and what comes of
// requests that go different ways one after the other.
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "test/softhca/xrc_world.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kHeader = 40;  // in front of a datagram
constexpr uint32_t kBuffer = 10000;
constexpr uint32_t kDepth = 16;
constexpr uint32_t kQkey = 11;
constexpr uint32_t kSizes[] = {0,    1,    8,    191,  192,  193,  194,  255,  256,  4055, 4056,
                               4057, 4095, 4096, 4097, 8191, 8192, 8193, 8447, 8448, 8449, kBuffer};

enum Kind { kOwnQueue, kSharedQueue, kXrc, kDatagram, kKinds };

// Two ends of that kind; what is sent lies in the first half of the memory.
struct Lane {
  World world;
  Kind kind;
  std::vector<uint8_t>& memory = *new std::vector<uint8_t>(size_t{2} * kDepth * kBuffer);
  ibv_mr* mr = ibv_reg_mr(world.pd, memory.data(), memory.size(), kAllAccess);
  ibv_cq* sends = ibv_create_cq(world.context, 64, nullptr, nullptr, 0);
  ibv_qp* from = nullptr;
  ibv_qp* to = nullptr;
  ibv_srq* srq = nullptr;
  uint32_t srqn = 0;
  ibv_ah* ah = nullptr;

  explicit Lane(int number) : kind(static_cast<Kind>(number)) {
    ck_assert(mr != nullptr && sends != nullptr);
    for (size_t i = 0; i < memory.size() / 2; ++i) memory[i] = static_cast<uint8_t>(i * 7 + i / 251 + 1);
    ibv_srq_init_attr shared{nullptr, {kDepth, 4, 0}};
    switch (kind) {
      case kOwnQueue:
      case kSharedQueue:
        if (kind == kSharedQueue) srq = ibv_create_srq(world.pd, &shared);
        from = make(IBV_QPT_RC);
        to = make(IBV_QPT_RC);
        world.connect(from, to);
        break;
      case kXrc: {
        ibv_xrcd* xrcd = open_domain(world, memfd_create("domain", 0));
        srq = make_srq(world, xrcd, &srqn);
        from = make(IBV_QPT_XRC_SEND);
        to = new_target(world, xrcd);
        world.connect(from, to);
        break;
      }
      default:
        from = make(IBV_QPT_UD);
        to = make(IBV_QPT_UD);
        for (ibv_qp* qp : {from, to}) make_ready(qp);
        ibv_ah_attr path = world.path();
        ah = ibv_create_ah(world.pd, &path);
        ck_assert_ptr_nonnull(ah);
    }
  }
  ibv_qp* make(ibv_qp_type type) const {
    ibv_qp_init_attr attr = world.qp_attributes(type);
    attr.send_cq = sends;
    attr.cap = {kDepth, kDepth, 6, 4, 220};
    attr.srq = kind == kSharedQueue ? srq : nullptr;
    ibv_qp* qp = ibv_create_qp(world.pd, &attr);
    ck_assert_ptr_nonnull(qp);
    return qp;
  }
  void make_ready(ibv_qp* qp) const {
    ibv_qp_attr attr = world.init_attributes();
    attr.qkey = kQkey;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTR), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = kPsn;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }

  uint32_t header() const { return kind == kDatagram ? kHeader : 0; }
  uint8_t* sent(uint32_t number) const { return memory.data() + size_t{number} * kBuffer; }
  uint8_t* received(uint32_t number) const { return sent(kDepth + number); }
  // So many bytes from there in that many pieces; every other one is empty if there are more than three.
  std::vector<ibv_sge> cut(const uint8_t* begin, uint32_t length, uint32_t pieces) const {
    std::vector<ibv_sge> list;
    const uint32_t full = pieces > 3 ? (pieces + 1) / 2 : pieces;
    uint32_t at = 0;
    for (uint32_t i = 0; i < pieces; ++i) {
      const bool is_empty = pieces > 3 && i % 2 != 0;
      const bool is_last = i + (pieces > 3 && pieces % 2 == 0 ? 2 : 1) == pieces;
      const uint32_t bytes = is_empty ? 0 : is_last ? length - at : length / full;
      list.push_back({reinterpret_cast<uint64_t>(begin + at), bytes, mr->lkey});
      at += bytes;
    }
    return list;
  }

  void post_recv(uint32_t number, uint32_t length = kBuffer, uint32_t pieces = 1) const {
    std::vector<ibv_sge> list = cut(received(number), length, pieces);
    ibv_recv_wr wr{number, nullptr, list.data(), static_cast<int>(pieces)};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(to, &wr, &bad), 0);
  }
  ibv_send_wr request(uint32_t number, std::vector<ibv_sge>& list) const {
    ibv_send_wr wr{};
    wr.wr_id = number;
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    wr.opcode = IBV_WR_SEND;
    if (kind == kXrc) wr.qp_type.xrc.remote_srqn = srqn;
    if (kind == kDatagram) wr.wr.ud = {ah, to->qp_num, kQkey};
    return wr;
  }
  void post_send(uint32_t number, uint32_t length, uint32_t pieces = 1, unsigned flags = 0) const {
    std::vector<ibv_sge> list = cut(sent(number), length, pieces);
    ibv_send_wr wr = request(number, list);
    wr.send_flags = flags;
    ck_assert_int_eq(World::post(from, wr), 0);
  }
  // The next message is the one of that number, and whole.
  ibv_wc take(uint32_t number, uint32_t length) const {
    const ibv_wc completion = world.next();
    ck_assert_uint_eq(completion.wr_id, number);
    ck_assert_msg(completion.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(completion.status));
    ck_assert_uint_eq(completion.byte_len, header() + length);
    uint8_t* begin = received(number) + header();
    ck_assert_msg(std::equal(sent(number), sent(number) + length, begin), "kind %d: %u bytes are damaged", kind,
                  length);
    ck_assert_msg(std::all_of(begin + length, received(number) + kBuffer, [](uint8_t byte) { return byte == 0; }),
                  "kind %d: a message of %u bytes goes beyond its end", kind, length);
    std::fill_n(received(number), kBuffer, uint8_t{0});
    return completion;
  }
  void sent_well() const { ck_assert_int_eq(World::next(sends).status, IBV_WC_SUCCESS); }
  bool carries(uint32_t length) const { return kind != kDatagram || length <= 4096; }
};

START_TEST(every_size_arrives_whole_in_pieces_and_inline) {
  const Lane lane(_i);
  for (const uint32_t length : kSizes) {
    if (!lane.carries(length)) continue;
    for (const uint32_t pieces : {1U, 2U, 3U, 6U})
      for (const uint32_t parts : {1U, 2U, 4U}) {
        if (lane.kind == kXrc && parts > 1) continue;  // its queue's requests have one element
        for (const bool inlined : {false, true}) {
          if (inlined && length > 220) continue;
          lane.post_recv(1, kBuffer, parts);
          lane.post_send(1, length, pieces, inlined ? IBV_SEND_INLINE : 0);
          lane.take(1, length);
          lane.sent_well();
        }
      }
  }
}
END_TEST

START_TEST(a_message_that_fits_exactly_arrives) {
  const Lane lane(_i);
  for (const uint32_t length : kSizes) {
    if (!lane.carries(length)) continue;
    lane.post_recv(2, lane.header() + length);
    lane.post_send(2, length);
    lane.take(2, length);
    lane.sent_well();
  }
}
END_TEST

// One byte too long: the receiver sees an error of length, the sender an invalid request, and nothing is written.
// A process for each, since the queue pair is of no use after it.
START_TEST(a_buffer_that_is_too_small_is_an_error_of_length) {
  const uint32_t length = kSizes[_i / kKinds];
  const Lane lane(_i % kKinds);
  if (length == 0 || !lane.carries(length)) return;
  lane.post_recv(3, 4096);
  lane.post_send(3, 8);  // the first message goes another way
  lane.take(3, 8);
  lane.sent_well();
  lane.post_recv(4, lane.header() + length - 1);
  lane.post_send(4, length);
  const ibv_wc completion = lane.world.next();
  ck_assert_uint_eq(completion.wr_id, 4);
  ck_assert_int_eq(completion.status, IBV_WC_LOC_LEN_ERR);
  ck_assert_int_eq(World::next(lane.sends).status, lane.kind == kDatagram ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR);
  ck_assert(std::all_of(lane.received(4), lane.received(5), [](uint8_t byte) { return byte == 0; }));
}
END_TEST

// Short and long ones in one list, of which some have to wait for a receive request.
START_TEST(messages_on_different_ways_keep_their_order) {
  const Lane lane(_i);
  if (lane.kind == kDatagram) return;  // has no order, and does not wait
  for (uint32_t round = 0; round < 40; ++round) {
    const auto length_of = [&](uint32_t i) { return kSizes[(i * 5 + round) % std::size(kSizes)]; };
    std::vector<ibv_sge> lists[kDepth];
    ibv_send_wr wrs[kDepth];
    for (uint32_t i = 0; i < kDepth; ++i) {
      lists[i] = lane.cut(lane.sent(i), length_of(i), 1 + i % 3);
      wrs[i] = lane.request(i, lists[i]);
      wrs[i].next = i + 1 < kDepth ? &wrs[i + 1] : nullptr;
    }
    const uint32_t early = round % (kDepth + 1);
    for (uint32_t i = 0; i < early; ++i) lane.post_recv(i);
    ibv_send_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_send(lane.from, wrs, &bad), 0);
    for (uint32_t i = 0; i < early; ++i) lane.take(i, length_of(i));
    for (uint32_t i = early; i < kDepth; ++i) lane.post_recv(i);
    for (uint32_t i = early; i < kDepth; ++i) lane.take(i, length_of(i));
    for (uint32_t i = 0; i < kDepth; ++i) {
      const ibv_wc completion = World::next(lane.sends);
      ck_assert(completion.status == IBV_WC_SUCCESS && completion.wr_id == i);
    }
  }
}
END_TEST

START_TEST(a_key_that_does_not_allow_it_stops_a_message_of_any_size) {
  for (const uint32_t length : {8U, 1000U, kBuffer})
    for (const bool is_senders : {true, false}) {
      const Lane lane(_i);
      if (!lane.carries(length)) continue;
      lane.post_recv(1);
      lane.post_send(1, 8);
      lane.take(1, 8);
      lane.sent_well();
      const ibv_mr* read_only = ibv_reg_mr(lane.world.pd, lane.received(0), kBuffer, 0);
      ck_assert_ptr_nonnull(read_only);
      ibv_sge list{reinterpret_cast<uint64_t>(lane.received(0)), kBuffer, read_only->lkey};
      ibv_recv_wr receive{0, nullptr, &list, 1};
      ibv_recv_wr* bad = nullptr;
      if (is_senders)
        lane.post_recv(0);
      else
        ck_assert_int_eq(
            lane.srq != nullptr ? ibv_post_srq_recv(lane.srq, &receive, &bad) : ibv_post_recv(lane.to, &receive, &bad),
            0);
      std::vector<ibv_sge> pieces = lane.cut(lane.sent(0), length, 1);
      if (is_senders) pieces[0].lkey ^= 0xff;
      ck_assert_int_eq(World::post(lane.from, lane.request(0, pieces)), 0);
      const ibv_wc_status status = World::next(lane.sends).status;
      if (is_senders) {
        ck_assert_int_eq(status, IBV_WC_LOC_PROT_ERR);
        ck_assert(lane.world.is_empty());
      } else {
        ck_assert_int_eq(status, lane.kind == kDatagram ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
        ck_assert_int_eq(lane.world.next().status, IBV_WC_LOC_PROT_ERR);
      }
      ck_assert(std::all_of(lane.received(0), lane.received(1), [](uint8_t byte) { return byte == 0; }));
    }
}
END_TEST

START_TEST(immediate_data_and_solicited_events_come_along) {
  const Lane lane(_i);
  lane.post_recv(1);
  lane.post_send(1, 8);
  lane.take(1, 8);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (World::readable(lane.world.channel->fd, 0)) {
    ck_assert_int_eq(ibv_get_cq_event(lane.world.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
  }
  for (const uint32_t length : {0U, 8U, 192U, 193U, 4000U}) {
    ck_assert_int_eq(ibv_req_notify_cq(lane.world.cq, 1), 0);
    lane.post_recv(1);
    lane.post_send(1, length);
    ck_assert_uint_eq(lane.take(1, length).wc_flags & IBV_WC_WITH_IMM, 0);
    ck_assert(!World::readable(lane.world.channel->fd, 0));
    lane.post_recv(2);
    std::vector<ibv_sge> list = lane.cut(lane.sent(2), length, 1);
    ibv_send_wr wr = lane.request(2, list);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = 0x12345678 + length;
    wr.send_flags = IBV_SEND_SOLICITED;
    ck_assert_int_eq(World::post(lane.from, wr), 0);
    ck_assert(World::becomes_readable(lane.world.channel->fd));
    ck_assert_int_eq(ibv_get_cq_event(lane.world.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    const ibv_wc completion = lane.take(2, length);
    ck_assert((completion.wc_flags & IBV_WC_WITH_IMM) != 0 && completion.imm_data == 0x12345678 + length);
    ck_assert_uint_eq(completion.src_qp, lane.from->qp_num);
  }
}
END_TEST

// A queue of requests of which only every fourth completes has room again when that one is polled.
START_TEST(unsignalled_messages_leave_their_queue) {
  const World world;
  ibv_qp_init_attr attr = world.qp_attributes();
  attr.sq_sig_all = 0;
  attr.cap.max_send_wr = 4;
  ibv_qp* a = ibv_create_qp(world.pd, &attr);
  ibv_qp* b = ibv_create_qp(world.pd, &attr);
  world.connect(a, b);
  for (uint32_t round = 0; round < 200; ++round) {
    for (uint32_t i = 0; i < 4; ++i) {
      ck_assert_int_eq(world.post_recv(b, 10 + i, 4096, 4096), 0);
      ibv_sge list = world.sge(0, 1 + round * 20);
      ibv_send_wr wr{};
      wr.wr_id = i;
      wr.sg_list = &list;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = i == 3 ? IBV_SEND_SIGNALED : 0;
      ck_assert_int_eq(World::post(a, wr), 0);
    }
    if (round % 3 == 0) {
      ibv_sge list = world.sge(0, 8);
      ibv_send_wr wr{};
      wr.sg_list = &list;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      ck_assert_int_eq(World::post(a, wr), ENOMEM);
    }
    int own = 0;
    for (uint32_t i = 0; i < 5; ++i) {
      const ibv_wc completion = world.next();
      ck_assert_int_eq(completion.status, IBV_WC_SUCCESS);
      own += completion.opcode == IBV_WC_SEND ? 1 : 0;
    }
    ck_assert_int_eq(own, 1);
    ck_assert(world.is_empty());
  }
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_sizes",
      {{every_size_arrives_whole_in_pieces_and_inline, kKinds},
       {a_message_that_fits_exactly_arrives, kKinds},
       {a_buffer_that_is_too_small_is_an_error_of_length, kKinds * static_cast<int>(std::size(kSizes))},
       {messages_on_different_ways_keep_their_order, kKinds},
       {a_key_that_does_not_allow_it_stops_a_message_of_any_size, kKinds},
       {immediate_data_and_solicited_events_come_along, kKinds},
       unsignalled_messages_leave_their_queue},
      120);
}
