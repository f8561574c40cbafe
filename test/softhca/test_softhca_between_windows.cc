// SPDX-License-Identifier: BSD-3-Clause
//
// Memory windows of both types between processes: what they allow while they are bound, what ends them, whose they are, and what
// cannot be bound.
#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kLength = 64;
constexpr size_t kWindow = 4096;  // where windows begin
constexpr ibv_mw_type kTypes[] = {IBV_MW_TYPE_1, IBV_MW_TYPE_2};

// Of the side whose memory it is.
struct Window {
  const Side& side;
  ibv_mw* const mw;
  Window(const Side& owner, ibv_mw_type type) : side(owner), mw(ibv_alloc_mw(owner.w.pd, type)) {
    ck_assert_ptr_nonnull(mw);
  }
  // Its key.
  uint32_t bind(uint64_t length, unsigned access, ibv_wc_status status = IBV_WC_SUCCESS,
                ibv_mr* region = nullptr) const {
    const ibv_mw_bind_info info{region != nullptr ? region : side.w.mr, side.w.address(kWindow), length, access};
    if (mw->type == IBV_MW_TYPE_1) {
      ibv_mw_bind request{1, IBV_SEND_SIGNALED, info};
      ck_assert_int_eq(ibv_bind_mw(side.qp, mw, &request), 0);
      side.w.expect(1, status);
      return mw->rkey;
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), info};
    side.expect(wr, status);
    if (status == IBV_WC_SUCCESS) mw->rkey = wr.bind_mw.rkey;
    return mw->rkey;
  }
};

// The owner's: the other uses the window, and is done.
void offer(const Side& side, uint32_t key, uint64_t address) {
  side.line.give(Facts{0, 0, key, address, 0});
  side.line.await();
}

// --- What a window allows

constexpr unsigned kRead = IBV_ACCESS_REMOTE_READ;
constexpr unsigned kWrite = IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kAtomic = IBV_ACCESS_REMOTE_ATOMIC;
constexpr auto kFine = IBV_WC_SUCCESS;
constexpr auto kRefused = IBV_WC_REM_ACCESS_ERR;

struct Use {
  const char* name;
  unsigned access;  // that the window gives
  ibv_wr_opcode opcode;
  uint32_t length;
  int64_t offset;  // from where the window begins, for remote requests
  ibv_wc_status status;
  bool of_old_key = false;
};
constexpr Use kUses[] = {
    {"write", kWrite, IBV_WR_RDMA_WRITE, kLength, 0, kFine},
    {"read", kRead, IBV_WR_RDMA_READ, kLength, 0, kFine},
    {"add", kAtomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, kFine},
    {"swap", kAtomic | kRead, IBV_WR_ATOMIC_CMP_AND_SWP, 8, kLength - 8, kFine},
    {"last byte", kWrite, IBV_WR_RDMA_WRITE, 1, kLength - 1, kFine},
    {"write of nothing", 0, IBV_WR_RDMA_WRITE, 0, 0, kFine},
    {"write from zero", kWrite | IBV_ACCESS_ZERO_BASED, IBV_WR_RDMA_WRITE, kLength, 0, kFine},
    {"read from zero", kRead | IBV_ACCESS_ZERO_BASED, IBV_WR_RDMA_READ, kLength - 8, 8, kFine},
    {"write too far", kWrite, IBV_WR_RDMA_WRITE, kLength + 1, 0, kRefused},
    {"write behind it", kWrite, IBV_WR_RDMA_WRITE, 1, kLength, kRefused},
    {"write too early", kWrite, IBV_WR_RDMA_WRITE, kLength, -1, kRefused},
    {"write too far from zero", kWrite | IBV_ACCESS_ZERO_BASED, IBV_WR_RDMA_WRITE, kLength, 1, kRefused},
    {"read too far", kRead, IBV_WR_RDMA_READ, kLength + 1, 0, kRefused},
    {"read too early", kRead, IBV_WR_RDMA_READ, kLength, -1, kRefused},
    {"add too far", kAtomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, kLength, kRefused},
    {"read of what may be written", kWrite, IBV_WR_RDMA_READ, kLength, 0, kRefused},
    {"write to what may be read", kRead, IBV_WR_RDMA_WRITE, kLength, 0, kRefused},
    {"add to what may be written", kWrite, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, kRefused},
    {"write by the key of before", kWrite, IBV_WR_RDMA_WRITE, kLength, 0, kRefused, true},
};
constexpr int kUseCount = static_cast<int>(std::size(kUses));

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

START_TEST(a_window_allows_what_it_is_bound_for) {
  const Use& use = kUses[_i / 2];
  const ibv_mw_type type = kTypes[_i % 2];
  if (is_atomic(use.opcode) && !have_device()) return;
  between(
      {},
      [&](const Side& side) {
        greet(side);
        const auto at = side.line.take<Facts>();
        ibv_sge list = side.w.sge(0, use.length);
        side.expect(Side::request(use.opcode, list, at), use.status);
        ck_assert_int_eq(World::state_of(side.qp), use.status == kFine ? IBV_QPS_RTS : IBV_QPS_ERR);
        const bool answers = use.status == kFine && use.opcode != IBV_WR_RDMA_WRITE;
        ck_assert_msg(side.untouched(0, use.length, answers ? 0xaa : 0x55), "%s: the answer is wrong", use.name);
        ck_assert(side.untouched(use.length, side.w.memory.size(), 0x55));
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        const Window window(side, type);
        const uint32_t old = window.mw->rkey;
        const uint32_t key = window.bind(kLength, use.access);
        ck_assert_uint_ne(key, old);
        ck_assert_int_eq(ibv_dereg_mr(side.w.mr), EBUSY);
        const uint64_t begin = (use.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : side.w.address(kWindow);
        offer(side, use.of_old_key ? old : key, begin + static_cast<uint64_t>(use.offset));
        if (use.status != kFine) side.w.expect_event(IBV_EVENT_QP_ACCESS_ERR);
        const bool writes = use.status == kFine && use.opcode == IBV_WR_RDMA_WRITE;
        const size_t from = kWindow + static_cast<size_t>(use.offset);
        if (writes) {
          ck_assert_msg(side.untouched(from, from + use.length, 0x55), "%s: nothing has come", use.name);
          std::fill_n(side.w.memory.begin() + static_cast<long>(from), use.length, uint8_t{0xaa});
        }
        if (use.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && use.status == kFine) {
          uint64_t value = 0;
          std::memcpy(&value, side.w.memory.data() + from, sizeof value);
          ck_assert_uint_eq(value, 0xaaaaaaaaaaaaaaaa + 1);
          std::fill_n(side.w.memory.begin() + static_cast<long>(from), 8, uint8_t{0xaa});
        }
        ck_assert_msg(side.untouched(0, side.w.memory.size(), 0xaa), "%s: memory has changed", use.name);
        ck_assert_int_eq(ibv_dealloc_mw(window.mw), 0);
        ck_assert_int_eq(ibv_dereg_mr(side.w.mr), 0);
      });
}
END_TEST

// --- What ends it

/// A window's key is of no use after each of the ways in which it ends; but for requests without a byte, which use none.
enum End { kByPeer, kByOwner, kBoundAgain, kBoundToNothing, kDeallocated, kEnds };
START_TEST(a_window_ends) {
  const auto end = static_cast<End>(_i);
  between(
      {},
      [&](const Side& side) {
        greet(side);
        const auto at = side.line.take<Facts>();
        ibv_sge list = side.w.sge(0, kLength);
        side.expect(Side::request(IBV_WR_RDMA_WRITE, list, at));
        if (end == kByPeer) {
          ibv_send_wr wr = Side::request(IBV_WR_SEND_WITH_INV, list, {});
          wr.invalidate_rkey = at.rkey;
          side.expect(wr);
        }
        side.line.done();
        side.line.await();
        ibv_sge nothing = side.w.sge(0, 0);
        side.expect(Side::request(IBV_WR_RDMA_WRITE, nothing, at));
        side.expect(Side::request(IBV_WR_RDMA_WRITE, list, at), kRefused);
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        const bool first = end == kBoundAgain || end == kBoundToNothing;
        const Window window(side, first ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
        const uint32_t key = window.bind(kLength, kWrite);
        if (end == kByPeer) side.post_recv(5, 0, kLength);
        offer(side, key, side.w.address(kWindow));
        ck_assert(side.untouched(kWindow, kWindow + kLength, 0x55));
        std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
        ibv_send_wr wr{};
        wr.opcode = IBV_WR_LOCAL_INV;
        wr.invalidate_rkey = key;
        switch (end) {
          case kByPeer: {
            const ibv_wc wc = side.expect_received(5);
            ck_assert((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == key);
            std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);  // what came with it
            break;
          }
          case kByOwner:
            side.expect(wr);
            break;
          case kBoundAgain:
            ck_assert_uint_ne(window.bind(kLength, kWrite), key);
            break;
          case kBoundToNothing:
            window.bind(0, kWrite);
            ck_assert_int_eq(ibv_dereg_mr(side.w.mr), 0);  // it holds its region no longer
            break;
          default:
            ck_assert_int_eq(ibv_dealloc_mw(window.mw), 0);
            ck_assert_int_eq(ibv_dereg_mr(side.w.mr), 0);
        }
        side.line.done();
        side.line.await();
        side.w.expect_event(IBV_EVENT_QP_ACCESS_ERR);
        ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
      });
}
END_TEST

/// A type 2 window can be bound again when it has been invalidated, by a new key: the old one stays dead.
START_TEST(a_window_lives_again) {
  constexpr int kRounds = 5;
  between(
      {},
      [](const Side& side) {
        greet(side);
        ibv_sge list = side.w.sge(0, kLength);
        Facts before;
        for (int i = 0; i < kRounds; ++i) {
          before = side.line.take<Facts>();
          side.expect(Side::request(IBV_WR_RDMA_WRITE, list, before));
          side.line.done();
        }
        side.line.await();
        side.expect(Side::request(IBV_WR_RDMA_WRITE, list, before), kRefused);
        side.line.done();
      },
      [](const Side& side) {
        be_greeted(side);
        const Window window(side, IBV_MW_TYPE_2);
        for (int i = 0; i < kRounds; ++i) {
          const uint32_t key = window.bind(kLength, kWrite);
          offer(side, key, side.w.address(kWindow));
          ck_assert(side.untouched(kWindow, kWindow + kLength, 0x55));
          std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
          ibv_send_wr wr{};
          wr.opcode = IBV_WR_LOCAL_INV;
          wr.invalidate_rkey = key;
          side.expect(wr);
        }
        window.bind(kLength, kWrite);
        side.line.done();
        side.line.await();
        ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
      });
}
END_TEST

// --- Whose it is

// A second queue pair, which both sides connect.
ibv_qp* second(const Side& side) {
  ibv_qp_init_attr attr = side.attributes();
  ibv_qp* qp = ibv_create_qp(side.w.pd, &attr);
  ck_assert_ptr_nonnull(qp);
  side.line.give(qp->qp_num);
  side.w.to_init(qp);
  side.w.to_rtr(qp, side.line.take<uint32_t>());
  World::to_rts(qp);
  side.line.done();
  side.line.await();
  return qp;
}

/// A type 1 window is of all queue pairs of its domain, a type 2 window of the one that it was bound through: others can neither use
/// it nor end it.
enum Foreign { kUsed, kEnded, kForeigns };
START_TEST(a_window_of_another_queue_pair) {
  const auto how = static_cast<Foreign>(_i / 2);
  const ibv_mw_type type = kTypes[_i % 2];
  if (!have_device()) return;
  const bool is_fine = how == kUsed && type == IBV_MW_TYPE_1;
  between(
      {},
      [&](const Side& side) {
        greet(side);
        ibv_qp* qp = second(side);
        const auto at = side.line.take<Facts>();
        ibv_sge list = side.w.sge(0, kLength);
        ibv_send_wr wr = Side::request(how == kUsed ? IBV_WR_RDMA_WRITE : IBV_WR_SEND_WITH_INV, list, at);
        if (how == kEnded) wr.invalidate_rkey = at.rkey;
        ck_assert_int_eq(World::post(qp, wr), 0);
        side.w.expect(0, is_fine ? kFine : kRefused);
        side.line.done();
        side.line.await();
        // Through the first it is as before.
        side.expect(Side::request(IBV_WR_RDMA_WRITE, list, at));
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        ibv_qp* qp = second(side);
        ibv_sge list = side.w.sge(0, kLength);
        ibv_recv_wr receive{5, nullptr, &list, 1};
        ibv_recv_wr* bad = nullptr;
        ck_assert_int_eq(ibv_post_recv(qp, &receive, &bad), 0);
        const Window window(side, type);
        offer(side, window.bind(kLength, kWrite), side.w.address(kWindow));
        if (!is_fine) {
          ibv_async_event event = side.w.next_event();
          ck_assert_int_eq(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
          ck_assert_ptr_eq(event.element.qp, qp);
          ibv_ack_async_event(&event);
          side.expect_received(5, IBV_WC_WR_FLUSH_ERR);
          ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
        }
        side.line.done();
        side.line.await();
        ck_assert(side.untouched(kWindow, kWindow + kLength, 0x55));
        ck_assert(side.untouched(0, kWindow, 0xaa));
      });
}
END_TEST

/// Its key is none for who owns it; but on iWARP an answer to a READ comes like a write of the peer's.
START_TEST(a_window_is_for_the_peer) {
  const ibv_mw_type type = kTypes[_i % 2];
  const ibv_wr_opcode opcode = _i / 2 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  between(
      {},
      [&](const Side& side) {
        greet(side);
        const Window window(side, type);
        ibv_sge list{side.w.address(kWindow), kLength, window.bind(kLength, kWrite | kRead)};
        const bool is_fine = side.iwarp && opcode == IBV_WR_RDMA_READ;
        side.expect(side.request(opcode, list), is_fine ? kFine : IBV_WC_LOC_PROT_ERR);
        ck_assert(side.untouched(kWindow, kWindow + kLength, is_fine ? 0xaa : 0x55));
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        side.line.await();
        ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
      });
}
END_TEST

// --- What cannot be bound

/// An error at home, and nothing that the peer could use.
enum Unbindable {
  kNoRight,
  kTooLong,
  kOfNoLength,
  kNoLocalWrite,
  kNoSuchRight,
  kOtherDomain,
  kBound,
  kOfAnotherKey,
  kUnbindables
};
START_TEST(windows_that_cannot_be) {
  const auto what = static_cast<Unbindable>(_i);
  between(
      {},
      [](const Side& side) {
        greet(side);
        const auto at = side.line.take<Facts>();
        if (side.iwarp)  // the connection has ended with the other side's error
          while (World::state_of(side.qp) != IBV_QPS_ERR) Stage::pause_a_moment();
        ibv_sge list = side.w.sge(0, kLength);
        side.expect(Side::request(IBV_WR_RDMA_WRITE, list, at),
                    side.iwarp ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        const auto region = [&](int access, ibv_pd* pd) {
          return ibv_reg_mr(pd, side.w.memory.data(), side.w.memory.size(), access);
        };
        ibv_mr* mr = side.w.mr;
        unsigned access = kWrite;
        uint64_t length = kLength;
        if (what == kNoRight) mr = region(kAllAccess & ~int{IBV_ACCESS_MW_BIND}, side.w.pd);
        if (what == kNoLocalWrite) mr = region(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, side.w.pd);
        if (what == kNoSuchRight) access = IBV_ACCESS_MW_BIND;  // no right of a window
        if (what == kOtherDomain) mr = region(kAllAccess, ibv_alloc_pd(side.w.context));
        if (what == kTooLong) length = side.w.memory.size() - kWindow + 1;
        if (what == kOfNoLength) length = 0;
        ck_assert_ptr_nonnull(mr);
        const Window window(side, IBV_MW_TYPE_2);
        if (what == kBound) window.bind(kLength, kWrite);
        if (what == kOfAnotherKey) window.mw->rkey += 0x100;
        window.bind(length, access, IBV_WC_MW_BIND_ERR, mr);
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
        offer(side, ibv_inc_rkey(window.mw->rkey), side.w.address(kWindow));
        ck_assert(!World::readable(side.w.context->async_fd, 0));
        ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
      });
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite("softhca_between_windows", {{a_window_allows_what_it_is_bound_for, 2 * kUseCount},
                                                             {a_window_ends, kEnds},
                                                             a_window_lives_again,
                                                             {a_window_of_another_queue_pair, 2 * kForeigns},
                                                             {a_window_is_for_the_peer, 4},
                                                             {windows_that_cannot_be, kUnbindables}});
}
