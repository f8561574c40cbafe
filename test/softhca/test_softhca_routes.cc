// SPDX-License-Identifier: BSD-3-Clause
//
// A queue pair that has sent short messages knows where they went. What is there now may be something else: a queue of another size, a
// queue pair that has failed, is connected to another, has gone, or that has the number of one that has gone, in the same process or
// in another. Below softhca-run; it looks into the fabric's file.
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "fabric/layout.h"
#include "test/softhca/two_processes.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kBytesOf[] = {8, 1000};  // in a completion, and in the ring of the queue
constexpr uint32_t kSent = 2;               // the first message of a connection goes another way than all others
constexpr size_t kSink = 4096;              // where receive requests are in the memory, each of this
constexpr uint32_t kSlice = 1024;

/// In two halves of runs: with messages of both lengths, and with a receive queue of its own or a shared one.
struct Run {
  uint32_t length;
  bool shared;
  explicit Run(int i) : length(kBytesOf[i % 2]), shared(i / 2 != 0) {}
};
constexpr int kRuns = 4;
// A number comes again after 16000 queue pairs, which take minutes below a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRunsWithNumber = 0;
#else
constexpr int kRunsWithNumber = 2;
#endif

/// `a` has sent to `b`, and knows the way. What b receives completes in `received`.
struct Known {
  const World w;
  const Run run;
  ibv_cq* received = make_cq();
  ibv_srq* srq = run.shared ? make_srq() : nullptr;
  ibv_qp* a = w.make_qp();
  ibv_qp* b = make_receiver(received, srq);
  uint64_t next = 0;

  explicit Known(int which) : run(which) {
    connect(a, b->qp_num, kPsn);
    connect(b, a->qp_num, kPsn);
    for (uint32_t i = 0; i < kSent; ++i) arrives(b, srq, received);
  }
  [[nodiscard]] ibv_cq* make_cq(int entries = 64) const {
    ibv_cq* cq = ibv_create_cq(w.context, entries, nullptr, nullptr, 0);
    ck_assert_ptr_nonnull(cq);
    return cq;
  }
  [[nodiscard]] ibv_srq* make_srq() const {
    ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
    ibv_srq* made = ibv_create_srq(w.pd, &attr);
    ck_assert_ptr_nonnull(made);
    return made;
  }
  [[nodiscard]] ibv_qp* make_receiver(ibv_cq* into, ibv_srq* queue) const {
    ibv_qp_init_attr attr = w.qp_attributes();
    attr.recv_cq = into;
    attr.srq = queue;
    ibv_qp* qp = ibv_create_qp(w.pd, &attr);
    ck_assert_ptr_nonnull(qp);
    return qp;
  }
  /// Both directions begin with that packet.
  void connect(ibv_qp* qp, uint32_t to, uint32_t psn) const {
    w.to_init(qp);
    ibv_qp_attr rtr = w.rtr_attributes(to);
    rtr.rq_psn = psn;
    ck_assert_int_eq(ibv_modify_qp(qp, &rtr, kRtrMask), 0);
    ibv_qp_attr rts = World::rts_attributes();
    rts.sq_psn = psn;
    ck_assert_int_eq(ibv_modify_qp(qp, &rts, kRtsMask), 0);
  }
  /// What a packet's number is after all that `a` has sent.
  [[nodiscard]] uint32_t psn() const { return kPsn + kSent; }

  void post_recv(ibv_qp* qp, ibv_srq* queue, uint64_t wr_id) const {
    const size_t at = kSink + wr_id % 8 * kSlice;
    std::fill_n(w.memory.begin() + static_cast<long>(at), kSlice, uint8_t{0xaa});
    ck_assert_int_eq(queue != nullptr ? w.post_srq_recv(queue, wr_id, at, kSlice) : w.post_recv(qp, wr_id, at, kSlice),
                     0);
  }
  void send(ibv_qp* from, uint64_t wr_id) const {
    std::fill_n(w.memory.begin(), run.length, static_cast<uint8_t>(wr_id));
    send_as_it_is(from, wr_id);
  }
  /// The same payload as others that may not have been sent yet.
  void send_as_it_is(ibv_qp* from, uint64_t wr_id) const {
    ck_assert_int_eq(w.post_send(from, wr_id, 0, run.length), 0);
  }
  void expect_received(ibv_cq* from, uint64_t wr_id, const ibv_qp* by) const {
    const ibv_wc wc = World::next(from);
    ck_assert_uint_eq(wc.wr_id, wr_id);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(wc.qp_num, by->qp_num);
    ck_assert_uint_eq(wc.byte_len, run.length);
    const auto at = w.memory.begin() + static_cast<long>(kSink + wr_id % 8 * kSlice);
    ck_assert(std::all_of(at, at + run.length, [&](uint8_t byte) { return byte == static_cast<uint8_t>(wr_id); }));
    ck_assert(std::all_of(at + run.length, at + kSlice, [](uint8_t byte) { return byte == 0xaa; }));
  }
  /// The next message of `a` comes to that queue pair.
  void arrives(ibv_qp* to, ibv_srq* queue, ibv_cq* into) {
    post_recv(to, queue, ++next);
    send(a, next);
    w.expect(next, IBV_WC_SUCCESS);
    expect_received(into, next, to);
  }
  /// It does not come to anybody.
  void is_lost() {
    send(a, ++next);
    w.expect(next, IBV_WC_RETRY_EXC_ERR);
  }
  [[nodiscard]] static bool nothing_in(ibv_cq* cq) {
    ibv_wc wc{};
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }
  /// A queue pair with the number of one that has gone, as there are no more others.
  [[nodiscard]] ibv_qp* make_again(uint32_t number, ibv_cq* into, ibv_srq* queue) const {
    for (unsigned i = 0; i < softhca::kQpsPerSlot; ++i) {
      ibv_qp* qp = make_receiver(into, queue);
      if (qp->qp_num == number) return qp;
      ck_assert_int_eq(ibv_destroy_qp(qp), 0);
    }
    ck_abort_msg("the number %#x does not come again", number);
  }
};

START_TEST(a_queue_of_another_size) {
  Known k(_i);
  // What a ring was is something else then.
  for (const int entries : {1000, 16, 300, 64}) {
    k.post_recv(k.b, k.srq, 1);
    k.send_as_it_is(k.a, 1);
    ck_assert_int_eq(ibv_resize_cq(k.received, entries), 0);
    ibv_cq* other = k.make_cq(entries / 2);
    for (uint64_t n = 2; n < 6; ++n) {
      k.post_recv(k.b, k.srq, n);
      k.send_as_it_is(k.a, n);
    }
    for (uint64_t n = 1; n < 6; ++n) {
      k.w.expect(n, IBV_WC_SUCCESS);
      const ibv_wc wc = World::next(k.received);
      ck_assert(wc.wr_id == n && wc.status == IBV_WC_SUCCESS && wc.byte_len == k.run.length);
    }
    ck_assert(Known::nothing_in(k.received) && Known::nothing_in(other));
    ck_assert_int_eq(ibv_destroy_cq(other), 0);
  }
}
END_TEST

START_TEST(one_that_has_failed) {
  Known k(_i);
  ck_assert_int_eq(World::set_state(k.b, IBV_QPS_ERR), 0);
  k.is_lost();
  ck_assert(Known::nothing_in(k.received));
}
END_TEST

/// The device of the receiver fails, with requests posted there: nothing comes to it any more.
/// `a` is connected to `b`, which is another device's and the last one that it has.
struct TwoDevices {
  const World w;
  const World other;
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;

  explicit TwoDevices(unsigned before_it = 0) : other(open_second()) {
    for (unsigned i = 0; i < before_it; ++i) (void)other.make_qp();
    a = w.make_qp();
    b = other.make_qp();
    connect(w, a, other, b);
    connect(other, b, w, a);
  }
  static ibv_context* open_second() {
    ibv_device** list = ibv_get_device_list(nullptr);
    ck_assert_msg(list[0] != nullptr && list[1] != nullptr, "this wants two devices");
    ibv_context* const opened = ibv_open_device(list[1]);
    ibv_free_device_list(list);
    return opened;
  }
  static void connect(const World& from, ibv_qp* qp, const World& to, const ibv_qp* dest) {
    from.to_init(qp);
    ibv_qp_attr rtr = from.rtr_attributes(dest->qp_num);
    rtr.ah_attr = to.path();
    ck_assert_int_eq(ibv_modify_qp(qp, &rtr, kRtrMask), 0);
    World::to_rts(qp);
  }
  static void lose_other() { ck_assert_int_eq(std::system("contrib/softhca/softhca-ctl device-fatal 0 1"), 0); }
};

START_TEST(one_whose_device_has_gone) {
  const TwoDevices d;
  for (uint64_t n = 1; n <= kSent + 1; ++n) {
    ck_assert_int_eq(d.other.post_recv(d.b, n, n * kSlice, kSlice), 0);
  }
  for (uint64_t n = 1; n <= kSent; ++n) {
    ck_assert_int_eq(d.w.post_send(d.a, n, 0, kBytesOf[_i]), 0);
    d.w.expect(n, IBV_WC_SUCCESS);
    d.other.expect(n, IBV_WC_SUCCESS);
  }
  TwoDevices::lose_other();
  ibv_async_event event{};
  ck_assert_int_eq(ibv_get_async_event(d.other.context, &event), 0);
  ck_assert_int_eq(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  ck_assert_int_eq(d.w.post_send(d.a, kSent + 1, 0, kBytesOf[_i]), 0);
  d.w.expect(kSent + 1, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

/// What a device writes has no order with a program that looks at it, of which ThreadSanitizer is not to hear.
[[gnu::no_sanitize("thread"), gnu::noinline]] uint64_t look_at(const volatile uint64_t* word) {
  return *word;
}

/// Who sees by a call that its device has gone takes what has arrived, and tells the peer that this was all.
START_TEST(nothing_arrives_once_calls_fail) {
  const TwoDevices d(2000);
  std::thread sender([&d] {
    auto* const bytes = reinterpret_cast<volatile uint64_t*>(d.w.memory.data());
    for (uint64_t n = 1;; ++n) {
      bytes[0] = n;
      ck_assert_int_eq(d.w.post_rdma(d.a, IBV_WR_RDMA_WRITE, n, 8, d.other.address(kSink), d.other.mr->rkey), 0);
      if (d.w.next().status != IBV_WC_SUCCESS) return;
    }
  });
  const auto* const arrived = reinterpret_cast<const volatile uint64_t*>(d.other.memory.data() + kSink);
  while (look_at(arrived) == 0) std::this_thread::yield();
  std::thread other_hand(TwoDevices::lose_other);
  while (d.other.post_recv(d.b, 1, 0, 8) != EIO) continue;
  const uint64_t last = look_at(arrived);
  sender.join();
  other_hand.join();
  ck_assert_uint_eq(look_at(arrived), last);
}
END_TEST

/// A driver knows that its device does not answer before it says so (--set fatal_us=).
START_TEST(calls_fail_before_that_is_told) {
  const TwoDevices d;
  TwoDevices::lose_other();
  while (d.other.post_recv(d.b, 1, 0, 8) != EIO) std::this_thread::yield();
  ibv_device_attr attributes;
  ck_assert_int_eq(ibv_query_device(d.other.context, &attributes), EIO);
  ck_assert_ptr_null(ibv_reg_mr(d.other.pd, d.other.memory.data(), 4096, 0));
  ck_assert_int_eq(errno, EIO);
  pollfd told{d.other.context->async_fd, POLLIN, 0};
  ck_assert_int_eq(poll(&told, 1, 0), 0);
  ibv_async_event event{};
  ck_assert_int_eq(ibv_get_async_event(d.other.context, &event), 0);
  ck_assert_int_eq(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
}
END_TEST

START_TEST(one_that_is_connected_to_another) {
  Known k(_i);
  ibv_qp* c = k.w.make_qp();
  ck_assert_int_eq(World::set_state(k.b, IBV_QPS_RESET), 0);
  k.connect(k.b, c->qp_num, k.psn());
  k.connect(c, k.b->qp_num, k.psn());
  k.post_recv(k.b, k.srq, 7);
  k.is_lost();
  ck_assert(Known::nothing_in(k.received));
  k.send(c, 7);
  k.w.expect(7, IBV_WC_SUCCESS);
  k.expect_received(k.received, 7, k.b);
}
END_TEST

START_TEST(one_that_has_gone) {
  Known k(_i);
  ck_assert_int_eq(ibv_destroy_qp(k.b), 0);
  k.is_lost();
  ck_assert(Known::nothing_in(k.received));
}
END_TEST

/// The number of the one that has gone is another's, who expects messages of another.
START_TEST(one_with_its_number) {
  Known k(_i * (kRuns - 1));
  const uint32_t number = k.b->qp_num;
  ck_assert_int_eq(ibv_destroy_qp(k.b), 0);
  ibv_cq* other = k.make_cq();
  ibv_srq* queue = k.run.shared ? k.make_srq() : nullptr;
  ibv_qp* same = k.make_again(number, other, queue);
  ibv_qp* c = k.w.make_qp();
  k.connect(same, c->qp_num, k.psn());
  k.connect(c, number, k.psn());
  k.post_recv(same, queue, 7);
  k.is_lost();
  ck_assert(Known::nothing_in(k.received) && Known::nothing_in(other));
  k.send(c, 7);
  k.w.expect(7, IBV_WC_SUCCESS);
  k.expect_received(other, 7, same);
}
END_TEST

/// The same, but it expects the next message of that sender: who does not know that it is another has no reason to stop.
START_TEST(one_that_takes_its_place) {
  Known k(_i * (kRuns - 1));
  const uint32_t number = k.b->qp_num;
  ck_assert_int_eq(ibv_destroy_qp(k.b), 0);
  if (k.srq != nullptr) ck_assert_int_eq(ibv_destroy_srq(k.srq), 0);
  ibv_cq* other = k.make_cq();
  ibv_srq* queue = k.run.shared ? k.make_srq() : nullptr;
  ibv_qp* same = k.make_again(number, other, queue);
  k.connect(same, k.a->qp_num, k.psn());
  for (int i = 0; i < 3; ++i) k.arrives(same, queue, other);
  ck_assert(Known::nothing_in(k.received));
}
END_TEST

/// It is the sender that is connected to another.
START_TEST(another_that_the_sender_is_connected_to) {
  Known k(_i);
  ibv_cq* other = k.make_cq();
  ibv_srq* queue = k.run.shared ? k.make_srq() : nullptr;
  ibv_qp* c = k.make_receiver(other, queue);
  k.post_recv(k.b, k.srq, 7);  // it would still take what comes
  ck_assert_int_eq(World::set_state(k.a, IBV_QPS_RESET), 0);
  k.connect(k.a, c->qp_num, k.psn());
  k.connect(c, k.a->qp_num, k.psn());
  for (int i = 0; i < 3; ++i) k.arrives(c, queue, other);
  ck_assert(Known::nothing_in(k.received));
}
END_TEST

// --- In another process

/// The place of the next process that joins.
void choose_slot(unsigned slot) {
  const int fd = open((std::string(getenv("SOFTHCA_DIR")) + "/slots").c_str(), O_RDWR);
  ck_assert_int_ge(fd, 0);
  const uint32_t next = slot - 1;
  ck_assert_int_eq(pwrite(fd, &next, sizeof next, offsetof(softhca::Slot, arena) + offsetof(softhca::Hub, next_slot)),
                   sizeof next);
  close(fd);
}

/// Receives what is sent to it, from that packet on, at the place `step` of the play.
int be_receiver(const Stage& stage, int step, uint32_t psn, uint32_t messages) {
  stage.await(step);
  const World w;
  ibv_qp* qp = w.make_qp();
  stage.board->peer_qpn = qp->qp_num;
  stage.reach(step + 1);
  stage.await(step + 2);
  w.to_init(qp);
  for (uint64_t n = 1; n <= kSent; ++n) ck_assert_int_eq(w.post_recv(qp, n, kSink + n * kSlice, kSlice), 0);
  ibv_qp_attr rtr = w.rtr_attributes(stage.board->sender_qpn);
  rtr.rq_psn = psn;
  ck_assert_int_eq(ibv_modify_qp(qp, &rtr, kRtrMask), 0);
  World::to_rts(qp);
  stage.reach(step + 3);
  for (uint64_t n = 1; n <= messages; ++n) w.expect(n, IBV_WC_SUCCESS);
  stage.reach(step + 4);
  stage.await(step + 5);
  return w.is_empty() ? 0 : 1;
}

/// The process has died, and a newcomer in its place has a queue pair with the same number, which expects the next message.
START_TEST(a_newcomer_in_its_place) {
  constexpr int kFirst = 1;
  constexpr int kSecond = 10;
  const Stage stage;
  const pid_t first = play([&] { return be_receiver(stage, kFirst, kPsn, kSent); });
  const pid_t second = play([&] { return be_receiver(stage, kSecond, kPsn + kSent, 0); });
  const World w;
  ibv_qp* a = w.make_qp();
  stage.board->sender_qpn = a->qp_num;
  stage.reach(kFirst);
  stage.await(kFirst + 1);
  const uint32_t number = stage.board->peer_qpn;
  w.to_init(a);
  w.to_rtr(a, number);
  World::to_rts(a);
  stage.reach(kFirst + 2);
  stage.await(kFirst + 3);
  for (uint64_t n = 1; n <= kSent; ++n) {
    ck_assert_int_eq(w.post_send(a, n, 0, kBytesOf[_i]), 0);
    w.expect(n, IBV_WC_SUCCESS);
  }
  stage.await(kFirst + 4);
  kill(first, SIGKILL);
  end_of(first);
  choose_slot(softhca::slot_of_qpn(number));
  stage.reach(kSecond);
  stage.await(kSecond + 1);
  ck_assert_uint_eq(stage.board->peer_qpn, number);
  stage.reach(kSecond + 2);
  stage.await(kSecond + 4);
  ck_assert_int_eq(w.post_send(a, 9, 0, kBytesOf[_i]), 0);
  w.expect(9, IBV_WC_RETRY_EXC_ERR);
  stage.reach(kSecond + 5);
  ck_assert_int_eq(end_of(second), 0);
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  if (std::getenv("TOLD_LATE") != nullptr) {
    return fabric::test::run_suite("softhca_routes", {calls_fail_before_that_is_told});
  }
  return fabric::test::run_suite("softhca_routes", {{a_queue_of_another_size, kRuns},
                                                    {one_that_has_failed, kRuns},
                                                    {one_whose_device_has_gone, 2},
                                                    {nothing_arrives_once_calls_fail, 1},
                                                    {one_that_is_connected_to_another, kRuns},
                                                    {one_that_has_gone, kRuns},
                                                    {one_with_its_number, kRunsWithNumber},
                                                    {one_that_takes_its_place, kRunsWithNumber},
                                                    {another_that_the_sender_is_connected_to, kRuns},
                                                    {a_newcomer_in_its_place, 2}});
}
