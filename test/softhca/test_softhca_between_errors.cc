// SPDX-License-Identifier: BSD-3-Clause
//
// What is wrong with a request of a reliable connection, or with what it meets in the other process, and how both sides see it:
// the status of the request and of the receive request, the event, the state of both queue pairs, and memory, which stays as it
// was. InfiniBand Architecture Specification, volume 1, 9.9 (errors) and 11.6.2 (completion status).
#include <sys/mman.h>

#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

constexpr int kNone = -1;  // no event
constexpr uint32_t kLength = 64;
constexpr uint32_t kAtomic = sizeof(uint64_t);
constexpr uint32_t kLong = 12000;  // by no shared memory
constexpr size_t kTarget = 1024;   // of the responder's memory
constexpr uint64_t kReceive = 7;
constexpr uint64_t kBehind = 2;

struct Case {
  const char* name;
  ibv_wr_opcode opcode;
  uint32_t length;
  void (*prepare)(const Side&, Facts&);  // at the responder: another place or key, or something else that is in the way
  void (*spoil)(const Side&, ibv_send_wr&);  // at the requester
  ibv_wc_status status;
  ibv_wc_status received;  // success: the request is still there
  int event;
  Kind kind = {};
  bool iwarp = true;  // it can be had there
};

// --- At the responder

void nothing(const Side&, Facts&) {}
uint32_t region(const Side& side, int access, ibv_pd* pd = nullptr) {
  World const& w = side.w;
  const ibv_mr* mr = ibv_reg_mr(pd != nullptr ? pd : w.pd, w.memory.data(), w.memory.size(), access);
  ck_assert_ptr_nonnull(mr);
  return mr->rkey;
}
template <int kAccess>
void of_a_region_with(const Side& side, Facts& target) {
  target.rkey = region(side, kAccess);
}
void of_another_domain(const Side& side, Facts& target) {
  target.rkey = region(side, kAllAccess, ibv_alloc_pd(side.w.context));
}
void of_what_was_deregistered(const Side& side, Facts& target) {
  ibv_mr* mr = ibv_reg_mr(side.w.pd, side.w.memory.data(), side.w.memory.size(), kAllAccess);
  target.rkey = mr->rkey;
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}
void of_nobody(const Side&, Facts& target) {
  target.rkey ^= 0x5500;
}
void one_byte_beyond(const Side& side, Facts& target) {
  target.address = side.w.address(side.w.memory.size() - kLength + 1);
}
void one_byte_before(const Side& side, Facts& target) {
  target.address = side.w.address(0) - 1;
}
void not_aligned(const Side&, Facts& target) {
  target.address += 4;
}
template <unsigned kAccess>
void by_a_queue_pair_with(const Side& side, Facts&) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.qp_access_flags = kAccess;
  ck_assert_int_eq(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
}
void of_a_hole(const Side& side, Facts& target) {
  void* page = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const ibv_mr* mr = ibv_reg_mr(side.w.pd, page, 65536, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  ck_assert_int_eq(munmap(page, 65536), 0);
  target.address = reinterpret_cast<uint64_t>(page);
  target.rkey = mr->rkey;
}
// Each takes the place of the usual receive request.
template <uint32_t kBytes>
void into(const Side& side, Facts&) {
  side.post_recv(kReceive, kTarget, kBytes);
}
void into_a_wrong_key(const Side& side, Facts&) {
  ibv_sge list = side.w.sge(kTarget, kLong);
  list.lkey ^= 0x5500;
  side.post_recv(kReceive, {list});
}
void into_what_is_read_only(const Side& side, Facts&) {
  ibv_sge list = side.w.sge(kTarget, kLong);
  list.lkey = region(side, 0);
  side.post_recv(kReceive, {list});
}
void into_a_second_piece_of_a_wrong_key(const Side& side, Facts&) {
  ibv_sge second = side.w.sge(kTarget + 8, kLong);
  second.lkey ^= 0x5500;
  side.post_recv(kReceive, {side.w.sge(kTarget, 8), second});
}
void into_a_hole(const Side& side, Facts&) {
  Facts hole;
  of_a_hole(side, hole);
  side.post_recv(kReceive, {ibv_sge{hole.address, kLong, hole.rkey}});
}

// --- At the requester

void as_it_is(const Side&, ibv_send_wr&) {}
void with_a_wrong_key(const Side&, ibv_send_wr& wr) {
  wr.sg_list[0].lkey ^= 0x5500;
}
void from_beyond_the_end(const Side& side, ibv_send_wr& wr) {
  wr.sg_list[0].addr = side.w.address(side.w.memory.size() - wr.sg_list[0].length + 1);
}
void into_read_only(const Side& side, ibv_send_wr& wr) {
  wr.sg_list[0].lkey = region(side, IBV_ACCESS_REMOTE_READ);
}
void from_another_domain(const Side& side, ibv_send_wr& wr) {
  wr.sg_list[0].lkey = region(side, kAllAccess, ibv_alloc_pd(side.w.context));
}
void of_no_key(const Side&, ibv_send_wr& wr) {
  wr.invalidate_rkey = 0x12345;
}
void of_a_regions_key(const Side& side, ibv_send_wr& wr) {
  wr.invalidate_rkey = side.w.mr->rkey;
}

constexpr unsigned kNoWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kNoRead = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kNoAtomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr Kind kNoReads{.resources = 0};
constexpr auto kFlushed = IBV_WC_WR_FLUSH_ERR;
constexpr auto kStill = IBV_WC_SUCCESS;

constexpr auto WRITE = IBV_WR_RDMA_WRITE;
constexpr auto READ = IBV_WR_RDMA_READ;
constexpr auto SEND = IBV_WR_SEND;
constexpr auto ADD = IBV_WR_ATOMIC_FETCH_AND_ADD;
constexpr auto SWAP = IBV_WR_ATOMIC_CMP_AND_SWP;
constexpr auto WRITE_IMM = IBV_WR_RDMA_WRITE_WITH_IMM;
constexpr auto SEND_INV = IBV_WR_SEND_WITH_INV;
constexpr auto kAccess = IBV_WC_REM_ACCESS_ERR;
constexpr auto kInvalid = IBV_WC_REM_INV_REQ_ERR;
constexpr auto kProtection = IBV_WC_LOC_PROT_ERR;
constexpr int kAccessEvent = IBV_EVENT_QP_ACCESS_ERR;
constexpr int kRequestEvent = IBV_EVENT_QP_REQ_ERR;

// clang-format off
const Case kCases[] = {
  // What is named does not allow it: the responder's fault is an access error, its receives are flushed.
  {"write, no such key", WRITE, kLength, of_nobody, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read, no such key", READ, kLength, of_nobody, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"add, no such key", ADD, kAtomic, of_nobody, as_it_is, kAccess, kFlushed, kAccessEvent, {}, false},
  {"write with immediate data, no such key", WRITE_IMM, kLength, of_nobody, as_it_is, kAccess, kFlushed, kAccessEvent, {}, false},
  {"long write, no such key", WRITE, kLong, of_nobody, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"write, deregistered", WRITE, kLength, of_what_was_deregistered, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read, deregistered", READ, kLength, of_what_was_deregistered, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"write, another domain", WRITE, kLength, of_another_domain, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read, another domain", READ, kLength, of_another_domain, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"write beyond the end", WRITE, kLength, one_byte_beyond, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read beyond the end", READ, kLength, one_byte_beyond, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"write before the beginning", WRITE, kLength, one_byte_before, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read before the beginning", READ, kLength, one_byte_before, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"write, region to be read", WRITE, kLength, of_a_region_with<IBV_ACCESS_REMOTE_READ>, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read, region to be written", READ, kLength, of_a_region_with<IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE>, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"swap, region without atomics", SWAP, kAtomic, of_a_region_with<int{kNoAtomic}>, as_it_is, kAccess, kFlushed, kAccessEvent, {}, false},
  {"write into a hole", WRITE, kLength, of_a_hole, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"long write into a hole", WRITE, kLong, of_a_hole, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"read from a hole", READ, kLength, of_a_hole, as_it_is, kAccess, kFlushed, kAccessEvent},
  {"add in a hole", ADD, kAtomic, of_a_hole, as_it_is, kAccess, kFlushed, kAccessEvent, {}, false},
  {"invalidates no key", SEND_INV, kLength, into<kLength>, of_no_key, kAccess, kFlushed, kAccessEvent},
  // What the queue pair does not take: an invalid request.
  {"write, queue pair without", WRITE, kLength, by_a_queue_pair_with<kNoWrite>, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"empty write, queue pair without", WRITE, 0, by_a_queue_pair_with<kNoWrite>, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"write with immediate data, queue pair without", WRITE_IMM, kLength, by_a_queue_pair_with<kNoWrite>, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"read, queue pair without", READ, kLength, by_a_queue_pair_with<kNoRead>, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"add, queue pair without", ADD, kAtomic, by_a_queue_pair_with<kNoAtomic>, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"read, no resources", READ, kLength, nothing, as_it_is, kInvalid, kFlushed, kRequestEvent, kNoReads, false},
  {"swap, no resources", SWAP, kAtomic, nothing, as_it_is, kInvalid, kFlushed, kRequestEvent, kNoReads, false},
  {"add, not aligned", ADD, kAtomic, not_aligned, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  {"swap, not aligned", SWAP, kAtomic, not_aligned, as_it_is, kInvalid, kFlushed, kRequestEvent, {}, false},
  // The receive request does not fit: it says so itself, and there is no event.
  {"one byte too long", SEND, kLength, into<kLength - 1>, as_it_is, kInvalid, IBV_WC_LOC_LEN_ERR, kNone},
  {"too long for the ring", SEND, 4000, into<3999>, as_it_is, kInvalid, IBV_WC_LOC_LEN_ERR, kNone},
  {"much too long", SEND, kLong, into<8>, as_it_is, kInvalid, IBV_WC_LOC_LEN_ERR, kNone},
  {"receive, wrong key", SEND, kLength, into_a_wrong_key, as_it_is, IBV_WC_REM_OP_ERR, kProtection, kNone},
  {"long receive, wrong key", SEND, kLong, into_a_wrong_key, as_it_is, IBV_WC_REM_OP_ERR, kProtection, kNone},
  {"receive, wrong second key", SEND, kLength, into_a_second_piece_of_a_wrong_key, as_it_is, IBV_WC_REM_OP_ERR, kProtection, kNone},
  {"receive, read-only", SEND, kLength, into_what_is_read_only, as_it_is, IBV_WC_REM_OP_ERR, kProtection, kNone},
  {"receive, hole", SEND, kLong, into_a_hole, as_it_is, IBV_WC_REM_OP_ERR, kProtection, kNone},
  // What is wrong at home is not seen by the other.
  {"send, wrong key", SEND, kLength, into<kLength>, with_a_wrong_key, kProtection, kStill, kNone},
  {"long send, wrong key", SEND, kLong, into<kLong>, with_a_wrong_key, kProtection, kStill, kNone},
  {"send beyond the end", SEND, kLength, into<kLength>, from_beyond_the_end, kProtection, kStill, kNone},
  {"send, another domain", SEND, kLength, into<kLength>, from_another_domain, kProtection, kStill, kNone},
  {"write, wrong key", WRITE, kLength, nothing, with_a_wrong_key, kProtection, kStill, kNone},
  {"read into read-only memory", READ, kLength, nothing, into_read_only, kProtection, kStill, kNone},
  {"add, answer into read-only memory", ADD, kAtomic, nothing, into_read_only, kProtection, kStill, kNone, {}, false},
  {"invalidates a region here", IBV_WR_LOCAL_INV, 0, nothing, of_a_regions_key, IBV_WC_MW_BIND_ERR, kStill, kNone},
};
// clang-format on
constexpr int kCaseCount = static_cast<int>(std::size(kCases));

bool posts_itself(const Case& c) {
  return c.opcode == SEND || c.opcode == SEND_INV;
}

void request(const Case& c, const Side& side) {
  greet(side);
  const auto target = side.line.take<Facts>();
  ibv_sge list = side.w.sge(0, c.length);
  ibv_send_wr wr = Side::request(c.opcode, list, target);
  wr.wr_id = 1;
  if (c.opcode == IBV_WR_LOCAL_INV) wr.num_sge = 0;
  c.spoil(side, wr);
  // It would succeed.
  ibv_sge good = side.w.sge(0, kLength);
  ibv_send_wr behind = side.request(WRITE, good);
  behind.wr_id = kBehind;
  wr.next = &behind;
  ck_assert_int_eq(World::post(side.qp, wr), 0);
  side.w.expect(1, c.status);
  side.w.expect(kBehind, IBV_WC_WR_FLUSH_ERR);
  ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
  ck_assert(side.w.is_empty() && !World::readable(side.w.context->async_fd, 0));
  ck_assert_msg(side.untouched(0, side.w.memory.size(), 0x55), "%s: the requester's memory has changed", c.name);
  side.line.done();
}

void respond(const Case& c, const Side& side) {
  be_greeted(side);
  Facts target = {0, 0, side.w.mr->rkey, side.w.address(kTarget), 0};
  c.prepare(side, target);
  if (!posts_itself(c)) side.post_recv(kReceive, kTarget, kLength);
  side.line.give(target);
  side.line.await();
  // On iWARP a connection that fails at one side is closed at the other.
  const ibv_wc_status received = side.iwarp && c.received == kStill ? kFlushed : c.received;
  if (received != kStill) side.expect_received(kReceive, received);
  if (c.event != kNone) {
    ibv_async_event event = side.w.next_event();
    ck_assert_str_eq(ibv_event_type_str(event.event_type), ibv_event_type_str(static_cast<ibv_event_type>(c.event)));
    ck_assert_ptr_eq(event.element.qp, side.qp);
    ibv_ack_async_event(&event);
  }
  ck_assert(!World::readable(side.w.context->async_fd, 30));
  ck_assert_int_eq(World::state_of(side.qp), received == kStill ? IBV_QPS_RTS : IBV_QPS_ERR);
  ck_assert(side.nothing_received() && side.w.is_empty());
  ck_assert_msg(side.untouched(0, side.w.memory.size(), 0xaa), "%s: the responder's memory has changed", c.name);
}

START_TEST(both_sides_see_what_is_wrong) {
  const Case& c = kCases[_i];
  if (!c.iwarp && !have_device()) return;
  between(
      c.kind, [&](const Side& side) { request(c, side); }, [&](const Side& side) { respond(c, side); });
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite("softhca_between_errors", {{both_sides_see_what_is_wrong, kCaseCount}});
}
