// SPDX-License-Identifier: BSD-3-Clause
//
// Receive requests that a sender has taken and not completed, since it has died or has no message after all: each goes back to
// its queue or is flushed, whatever else has happened to that queue meanwhile. Below softhca-run; what the sender has done is
// written to the fabric's file.
#include "test/softhca/fabric_file.h"
#include "test/softhca/two_processes.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kDepth = 16;
constexpr uint64_t kSent = 1000;  // the wr_id of sends
constexpr uint32_t kLength = 64;

/// Queue pairs for datagrams, and the requests that they receive with: a queue of their own, or a shared one.
struct Receiver {
  World w;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp* sender = w.make_qp(nullptr, IBV_QPT_UD);
  ibv_ah* ah = nullptr;
  uint64_t posted = 0;

  explicit Receiver(bool shared) {
    ibv_srq_init_attr attr{nullptr, {kDepth, 2, 0}};
    if (shared) srq = ibv_create_srq(w.pd, &attr);
    ibv_ah_attr path = w.path();
    ah = ibv_create_ah(w.pd, &path);
    ck_assert_ptr_nonnull(ah);
    to_datagrams(w, sender);
    qp = make_qp();
    for (uint32_t i = 0; i < kDepth; ++i) ck_assert_int_eq(post(), 0);
  }
  ibv_qp* make_qp() const {
    ibv_qp* made = w.make_qp(srq, IBV_QPT_UD);
    to_datagrams(w, made);
    return made;
  }
  /// In two pieces, so that the kernel copies what another process sends.
  int post() {
    ibv_sge pieces[2] = {w.sge(8192, kHeader), w.sge(8192 + kHeader, kLength)};
    ibv_recv_wr wr{posted, nullptr, pieces, 2};
    ibv_recv_wr* bad = nullptr;
    const int error = srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
    if (error == 0) ++posted;
    return error;
  }
  void send(const ibv_qp* to) const {
    ibv_sge list = w.sge(0, kLength);
    ibv_send_wr wr{};
    wr.wr_id = kSent;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, to->qp_num, 11};
    ck_assert_int_eq(World::post(sender, wr), 0);
  }
  void arrives(const ibv_qp* to, uint64_t request) const {
    send(to);
    w.expect(request, IBV_WC_SUCCESS);
    w.expect(kSent, IBV_WC_SUCCESS);
  }
  static softhca::QpShared& shared_of(const ibv_qp* to) {
    return slot_of(to->qp_num).qps[softhca::index_of_qpn(to->qp_num)];
  }
  softhca::RecvRing& ring_of(const ibv_qp* to) const {
    return srq != nullptr ? slot_of(to->qp_num).srqs[srq->handle].ring : shared_of(to).rq;
  }
  /// Somebody takes the next request for a message to that queue pair, and dies.
  void lose_sender(const ibv_qp* to) const {
    softhca::RecvRing& ring = ring_of(to);
    const uint32_t number = ring.taken.load();
    shared_of(to).taken_wr_id = number;  // they are posted with these
    shared_of(to).taken_valid.store(number << 1 | 1);
    ring.taken.store(number + 1);
  }
};

START_TEST(it_goes_back) {
  Receiver r(_i != 0);
  r.lose_sender(r.qp);
  for (uint64_t i = 0; i < kDepth; ++i) r.arrives(r.qp, i);
}
END_TEST

/// The owner has posted another in its place: it counts as taken.
START_TEST(it_is_flushed_if_the_queue_is_full) {
  Receiver r(_i != 0);
  r.lose_sender(r.qp);
  ck_assert_int_eq(r.post(), 0);
  ck_assert_int_eq(r.post(), ENOMEM);
  r.send(r.qp);
  r.w.expect(0, IBV_WC_WR_FLUSH_ERR);
  r.w.expect(1, IBV_WC_SUCCESS);
  r.w.expect(kSent, IBV_WC_SUCCESS);
  for (uint64_t i = 2; i < r.posted; ++i) r.arrives(r.qp, i);
}
END_TEST

/// Another queue pair has taken the next request of the shared queue.
START_TEST(it_is_flushed_if_another_was_taken_since) {
  Receiver r(true);
  const ibv_qp* other = r.make_qp();
  r.lose_sender(r.qp);
  r.arrives(other, 1);
  r.send(r.qp);
  r.w.expect(0, IBV_WC_WR_FLUSH_ERR);
  r.w.expect(2, IBV_WC_SUCCESS);
  r.w.expect(kSent, IBV_WC_SUCCESS);
  for (uint64_t i = 3; i < kDepth; ++i) r.arrives(r.qp, i);
}
END_TEST

/// A process whose messages have no bytes at first: what they are to be of is not mapped.
int send_nothing_and_then_messages(const Stage& stage) {
  const World w;
  ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_UD);
  to_datagrams(w, qp);
  void* hole = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const ibv_mr* mr = ibv_reg_mr(w.pd, hole, kBytes, 0);
  ck_assert_ptr_nonnull(mr);
  ck_assert_int_eq(munmap(hole, kBytes), 0);
  stage.await(1);
  ibv_ah_attr path = w.path();
  ibv_sge list{reinterpret_cast<uint64_t>(hole), kLength, mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {ibv_create_ah(w.pd, &path), stage.board->peer_qpn, 11};
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.next();
  stage.reach(2);
  stage.await(3);
  list = w.sge(0, kLength);
  for (uint32_t i = 0; i < kDepth; ++i) {
    ck_assert_int_eq(World::post(qp, wr), 0);
    w.expect(0, IBV_WC_SUCCESS);
  }
  return 0;
}

/// The owner has seen that it was taken, before it came back: the queue holds no more than its depth nevertheless.
START_TEST(what_came_back_is_counted_again) {
  const Stage stage;
  const pid_t sender = play([&] { return send_nothing_and_then_messages(stage); });
  Receiver r(_i != 0);
  constexpr uint64_t kArrived = kDepth / 2;
  for (uint64_t i = 0; i < kArrived; ++i) r.arrives(r.qp, i);
  r.lose_sender(r.qp);
  ck_assert_int_eq(r.post(), 0);
  stage.board->peer_qpn = r.qp->qp_num;
  stage.reach(1);
  stage.await(2);
  while (r.post() == 0) {
  }
  ck_assert_uint_eq(r.posted, kArrived + kDepth);
  stage.reach(3);
  for (uint64_t i = kArrived; i < r.posted; ++i) r.w.expect(i, IBV_WC_SUCCESS);
  ck_assert_int_eq(end_of(sender), 0);
}
END_TEST

/// The owner has looked before one came back, and notes afterwards what it saw: there is one more in the queue than it may hold.
START_TEST(a_late_note_does_no_harm) {
  Receiver r(_i != 0);
  r.ring_of(r.qp).taken_seen.store(1);
  ck_assert_int_eq(r.post(), 0);
  ck_assert_int_eq(r.post(), ENOMEM);
  for (uint64_t i = 0; i < r.posted; ++i) r.arrives(r.qp, i);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("softhca_taken", {{it_goes_back, 2},
                                                   {it_is_flushed_if_the_queue_is_full, 2},
                                                   it_is_flushed_if_another_was_taken_since,
                                                   {what_came_back_is_counted_again, 2},
                                                   {a_late_note_does_no_harm, 2}});
}
