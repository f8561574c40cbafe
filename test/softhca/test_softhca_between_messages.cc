// SPDX-License-Identifier: BSD-3-Clause
//
// Messages from one process to another by every kind of queue pair: in pieces, inline, with immediate data, to shared queues;
// solicited events, datagrams and their headers, the limit of a shared queue and its end, fences and what is not signalled.
#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kSizes[] = {0, 1, 192, 193, 4000, 4096, 8448, 8449, 12000};
const Kind kKinds[] = {{},
                       {.shared = true},
                       {.type = IBV_QPT_UC},
                       {.type = IBV_QPT_UD},
                       {.type = IBV_QPT_UD, .shared = true},
                       {.type = IBV_QPT_XRC_SEND}};
constexpr int kKindCount = static_cast<int>(std::size(kKinds));

uint8_t content(uint32_t number, uint32_t at) {
  return static_cast<uint8_t>(number * 37 + at * 7 + at / 256 + 1);
}
bool carries(const Kind& kind, uint32_t length) {
  return kind.type != IBV_QPT_UD || length <= 4096;
}
uint32_t header_of(const Kind& kind) {
  return kind.type == IBV_QPT_UD ? kHeader : 0;
}
ibv_send_wr message(const Side& side, std::vector<ibv_sge>& list) {
  ibv_send_wr wr = side.kind.type == IBV_QPT_UD ? side.datagram(list[0]) : side.request(IBV_WR_SEND, list[0]);
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  return wr;
}

START_TEST(all_sizes_arrive_whole_in_pieces_and_inline) {
  const Kind& kind = kKinds[_i];
  between(
      kind,
      [&](const Side& side) {
        uint32_t number = 0;
        for (const uint32_t length : kSizes)
          for (uint32_t pieces = 1; pieces <= 4; ++pieces)
            for (const bool is_inline : {false, true}) {
              if (!carries(kind, length) || (is_inline && length > 200)) continue;
              side.line.await();
              for (uint32_t i = 0; i < length; ++i) side.w.memory[i] = content(number, i);
              ++number;
              std::vector<ibv_sge> list = side.cut(length, pieces);
              if (is_inline)
                for (ibv_sge& piece : list) piece.lkey = 0;  // it needs none
              ibv_send_wr wr = message(side, list);
              wr.wr_id = 1;
              wr.send_flags = is_inline ? IBV_SEND_INLINE : 0;
              if (kind.type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = side.other.srqn;
              ck_assert_int_eq(World::post(side.qp, wr), 0);
              // What was sent inline is free at once.
              if (is_inline) std::fill_n(side.w.memory.begin(), length, 0);
              side.w.expect(1, IBV_WC_SUCCESS);
            }
      },
      [&](const Side& side) {
        uint32_t number = 0;
        const uint32_t header = header_of(kind);
        for (const uint32_t length : kSizes)
          for (uint32_t pieces = 1; pieces <= 4; ++pieces)
            for (const bool is_inline : {false, true}) {
              if (!carries(kind, length) || (is_inline && length > 200)) continue;
              std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
              side.post_recv(number, side.cut(header + length, 5 - pieces));
              side.line.done();
              const ibv_wc wc = side.expect_received(number);
              ck_assert_uint_eq(wc.byte_len, header + length);
              ck_assert_uint_eq(wc.qp_num, side.qp->qp_num);
              for (uint32_t i = 0; i < length; ++i)
                ck_assert_msg(side.w.memory[header + i] == content(number, i), "byte %u of %u is wrong", i, length);
              ck_assert(side.untouched(header + length, side.w.memory.size(), 0xaa));
              ++number;
            }
        ck_assert(side.nothing_received());
      });
}
END_TEST

START_TEST(immediate_data_and_solicited_events) {
  const Kind& kind = kKinds[_i];
  if (!have_device()) return;
  constexpr uint32_t kLength = 100;
  between(
      kind,
      [&](const Side& side) {
        for (const bool is_solicited : {false, true}) {
          side.line.await();
          std::vector<ibv_sge> list = side.cut(kLength, 2);
          ibv_send_wr wr = message(side, list);
          wr.opcode = IBV_WR_SEND_WITH_IMM;
          wr.imm_data = 0x01020304;
          wr.send_flags = is_solicited ? IBV_SEND_SOLICITED : 0;
          side.expect(wr);
          side.line.done();
        }
        if (kind.type == IBV_QPT_UD) return;
        // A write takes a receive request, whose memory it does not use.
        side.line.await();
        ibv_sge list = side.w.sge(0, kLength);
        ibv_send_wr wr = side.request(IBV_WR_RDMA_WRITE_WITH_IMM, list);
        wr.imm_data = 77;
        side.expect(wr);
      },
      [&](const Side& side) {
        for (const bool is_solicited : {false, true}) {
          side.post_recv(5, 8192, 200);
          ck_assert_int_eq(ibv_req_notify_cq(side.receives, 1), 0);
          side.line.done();
          side.line.await();
          if (is_solicited) {
            ck_assert(World::becomes_readable(side.w.channel->fd));
            ibv_cq* cq = nullptr;
            void* context = nullptr;
            ck_assert_int_eq(ibv_get_cq_event(side.w.channel, &cq, &context), 0);
            ck_assert_ptr_eq(cq, side.receives);
            ibv_ack_cq_events(cq, 1);
          } else {
            ck_assert(!World::readable(side.w.channel->fd, 30));
          }
          const ibv_wc wc = side.expect_received(5);
          ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
          ck_assert_uint_eq(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
          ck_assert_uint_eq(wc.imm_data, 0x01020304);
          if (kind.type != IBV_QPT_UD) continue;
          ck_assert_uint_eq(wc.src_qp, side.other.qpn);
          ck_assert_uint_eq((wc.wc_flags & IBV_WC_GRH) != 0, side.w.port.link_layer == IBV_LINK_LAYER_ETHERNET);
        }
        if (kind.type == IBV_QPT_UD) return;
        std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
        side.post_recv(6, 8192, 8);
        side.line.done();
        const ibv_wc wc = side.expect_received(6);
        ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        ck_assert_uint_eq(wc.byte_len, kLength);
        ck_assert_uint_eq(wc.imm_data, 77);
        ck_assert(side.untouched(0, kLength, 0x55) && side.untouched(kLength, side.w.memory.size(), 0xaa));
      });
}
END_TEST

/// Taken below its limit by another process, a shared queue says so, once; and a queue pair in ERR that it takes nothing more.
START_TEST(a_shared_queue_tells_its_limit_and_its_end) {
  between(
      {.shared = true},
      [](const Side& side) {
        ibv_sge list = side.w.sge(0, 8);
        for (int i = 0; i < 4; ++i) {
          side.line.await();
          side.expect(side.request(IBV_WR_SEND, list));
          side.line.done();
        }
        side.line.await();
        ibv_send_wr wr = side.request(IBV_WR_RDMA_WRITE, list);
        wr.wr.rdma.rkey ^= 0x5500;
        side.expect(wr, IBV_WC_REM_ACCESS_ERR);
        side.line.done();
      },
      [](const Side& side) {
        for (uint64_t i = 0; i < 6; ++i) side.post_recv(i, 0, 64);
        ibv_srq_attr attr{0, 0, 4};
        ck_assert_int_eq(ibv_modify_srq(side.srq, &attr, IBV_SRQ_LIMIT), 0);
        for (uint64_t i = 0; i < 4; ++i) {  // 5, 4, 3 and 2 are left
          side.line.done();
          side.line.await();
          side.expect_received(i);
          if (i == 2)
            side.w.expect_event(IBV_EVENT_SRQ_LIMIT_REACHED);
          else
            ck_assert(!World::readable(side.w.context->async_fd, 30));
        }
        side.line.done();
        side.line.await();
        bool told[2] = {false, false};
        while (!told[0] || !told[1]) {
          ibv_async_event event = side.w.next_event();
          ck_assert_ptr_eq(event.element.qp, side.qp);
          told[0] = told[0] || event.event_type == IBV_EVENT_QP_ACCESS_ERR;
          told[1] = told[1] || event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
          ibv_ack_async_event(&event);
        }
        // The requests are the shared queue's: they are not flushed.
        ck_assert(side.nothing_received());
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
      });
}
END_TEST

/// What comes behind a READ with a fence sends what has been read.
START_TEST(a_fence_waits_for_what_was_read) {
  constexpr uint32_t kRounds = 20;
  between(
      {},
      [](const Side& side) {
        greet(side);
        for (uint32_t i = 0; i < kRounds; ++i) {
          side.line.await();
          ibv_sge list = side.w.sge(0, 2000);
          ibv_send_wr read = side.request(IBV_WR_RDMA_READ, list);
          ibv_send_wr send = side.request(IBV_WR_SEND, list);
          send.send_flags = IBV_SEND_FENCE;
          send.wr_id = 2;
          read.wr_id = 1;
          read.next = &send;
          ck_assert_int_eq(World::post(side.qp, read), 0);
          side.w.expect(1, IBV_WC_SUCCESS);
          side.w.expect(2, IBV_WC_SUCCESS);
        }
      },
      [](const Side& side) {
        be_greeted(side);
        for (uint32_t i = 0; i < kRounds; ++i) {
          std::fill_n(side.w.memory.begin(), 2000, static_cast<uint8_t>(i));
          std::fill_n(side.w.memory.begin() + 4096, 2000, uint8_t{0xee});
          side.post_recv(i, 4096, 2000);
          side.line.done();
          side.expect_received(i);
          ck_assert(side.untouched(4096, 4096 + 2000, static_cast<uint8_t>(i)));
        }
      });
}
END_TEST

/// What is not signalled leaves its queue with the next that is, and completes only if it fails.
START_TEST(unsignalled_requests_complete_when_they_fail) {
  between(
      {.selective = true},
      [](const Side& side) {
        greet(side);
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ck_assert_int_eq(ibv_query_qp(side.qp, &attr, IBV_QP_CAP, &init), 0);
        ck_assert_int_eq(init.sq_sig_all, 0);
        ibv_sge list = side.w.sge(0, 8);
        ibv_send_wr wr = side.request(IBV_WR_RDMA_WRITE, list);
        for (uint32_t round = 0; round < 3; ++round) {
          for (uint32_t i = 0; i < attr.cap.max_send_wr; ++i) {
            wr.wr_id = i;
            wr.send_flags = i + 1 == attr.cap.max_send_wr ? IBV_SEND_SIGNALED : 0;
            ck_assert_int_eq(World::post(side.qp, wr), 0);
          }
          side.w.expect(attr.cap.max_send_wr - 1, IBV_WC_SUCCESS);
          ck_assert(side.w.is_empty());
        }
        wr.wr_id = 50;
        wr.send_flags = 0;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        wr.wr_id = 51;
        wr.wr.rdma.rkey ^= 0x5500;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        wr.wr_id = 52;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        side.w.expect(51, IBV_WC_REM_ACCESS_ERR);
        side.w.expect(52, IBV_WC_WR_FLUSH_ERR);
        ck_assert(side.w.is_empty());
      },
      [](const Side& side) { be_greeted(side); });
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite("softhca_between_messages", {{all_sizes_arrive_whole_in_pieces_and_inline, kKindCount},
                                                              {immediate_data_and_solicited_events, kKindCount},
                                                              a_shared_queue_tells_its_limit_and_its_end,
                                                              a_fence_waits_for_what_was_read,
                                                              unsignalled_requests_complete_when_they_fail});
}
