// SPDX-License-Identifier: BSD-3-Clause
// The wr_* calls. Between wr_start and wr_complete the requests lie in Qp::batch, one after the other: a header, then its
// scatter/gather list or its inline data. wr_complete appends all of them or none.
#include "verbs/qp_ex.h"

#include <cstring>

#include "transport/transport.h"
#include "verbs/call.h"

namespace softhca {
namespace {

struct Item {
  ibv_send_wr wr;
  uint32_t inline_bytes;  // that follow, when wr.send_flags has IBV_SEND_INLINE; else wr.num_sge scatter/gather entries
};

Qp& of(ibv_qp_ex* qp) {
  return *static_cast<Qp*>(qp);
}

size_t padded(size_t bytes) {
  return (bytes + 7) & ~size_t{7};
}

size_t size_of(const Item& item) {
  return sizeof item + ((item.wr.send_flags & IBV_SEND_INLINE) != 0
                            ? padded(item.inline_bytes)
                            : static_cast<size_t>(item.wr.num_sge) * sizeof(ibv_sge));
}

// The request being built, or nullptr after an error: the batch is lost already.
Item* last_item(Qp& qp) {
  if (qp.batch_error != 0 || qp.batch.empty()) return nullptr;
  return reinterpret_cast<Item*>(qp.batch.data() + qp.batch_last);
}

void set_error(Qp& qp, int error) {
  if (qp.batch_error == 0) qp.batch_error = error;
}

// Room at the end of the batch; nullptr: no memory.
std::byte* extend(Qp& qp, size_t bytes) {
  const size_t before = qp.batch.size();
  try {
    qp.batch.resize(before + bytes);
  } catch (const std::bad_alloc&) {
    set_error(qp, ENOMEM);
    return nullptr;
  }
  return qp.batch.data() + before;
}

// A new request; what is particular to `opcode` comes next.
ibv_send_wr* begin(ibv_qp_ex* base, ibv_wr_opcode opcode) {
  Qp& qp = of(base);
  if (qp.batch_error != 0) return nullptr;
  const size_t start = qp.batch.size();
  auto* item = reinterpret_cast<Item*>(extend(qp, sizeof(Item)));
  if (item == nullptr) return nullptr;
  qp.batch_last = start;
  item->wr.wr_id = base->wr_id;
  item->wr.opcode = opcode;
  item->wr.send_flags = base->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  return &item->wr;
}

void wr_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr, __be32 imm) {
  if (ibv_send_wr* wr = begin(qp, opcode)) {
    wr->wr.rdma.remote_addr = remote_addr;
    wr->wr.rdma.rkey = rkey;
    wr->imm_data = imm;
  }
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
  wr_rdma(qp, IBV_WR_RDMA_READ, rkey, addr, 0);
}
void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr) {
  wr_rdma(qp, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, __be32 imm) {
  wr_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

void wr_atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, uint64_t compare_add, uint64_t swap) {
  if (ibv_send_wr* wr = begin(qp, opcode)) {
    wr->wr.atomic.remote_addr = addr;
    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.compare_add = compare_add;
    wr->wr.atomic.swap = swap;
  }
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
  wr_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t addr, uint64_t add) {
  wr_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

void wr_atomic_write(ibv_qp_ex* base, uint32_t rkey, uint64_t addr, const void* word) {
  Qp& qp = of(base);
  ibv_send_wr* wr = begin(base, IBV_WR_ATOMIC_WRITE);
  if (wr == nullptr) return;
  wr->wr.rdma.remote_addr = addr;
  wr->wr.rdma.rkey = rkey;
  std::byte* to = extend(qp, sizeof(uint64_t));
  if (to == nullptr) return;
  std::memcpy(to, word, sizeof(uint64_t));
  Item* item = last_item(qp);
  item->wr.send_flags |= IBV_SEND_INLINE;
  item->inline_bytes = sizeof(uint64_t);
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_BIND_MW)) {
    wr->bind_mw.mw = mw;
    wr->bind_mw.rkey = rkey;
    wr->bind_mw.bind_info = *info;
  }
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t key) {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_LOCAL_INV)) wr->invalidate_rkey = key;
}

void wr_send(ibv_qp_ex* qp) {
  begin(qp, IBV_WR_SEND);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_SEND_WITH_IMM)) wr->imm_data = imm;
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t key) {
  if (ibv_send_wr* wr = begin(qp, IBV_WR_SEND_WITH_INV)) wr->invalidate_rkey = key;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  if (Item* item = last_item(of(qp))) {
    item->wr.wr.ud.ah = ah;
    item->wr.wr.ud.remote_qpn = remote_qpn;
    item->wr.wr.ud.remote_qkey = remote_qkey;
  }
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t srqn) {
  if (Item* item = last_item(of(qp))) item->wr.qp_type.xrc.remote_srqn = srqn;
}

// The data of the last request: given once, at the batch's end.
bool takes_data(Qp& qp, size_t num_sge, size_t inline_bytes) {
  const Item* item = last_item(qp);
  if (item == nullptr) return false;
  const bool has_data = qp.batch.size() != qp.batch_last + sizeof(Item);
  if (has_data || num_sge > qp.sq.max_sge || inline_bytes > qp.sq.max_inline) {
    set_error(qp, EINVAL);
    return false;
  }
  return true;
}

void wr_set_sge_list(ibv_qp_ex* base, size_t count, const ibv_sge* list) {
  Qp& qp = of(base);
  if (count == 0 || !takes_data(qp, count, 0)) return;
  std::byte* to = extend(qp, count * sizeof(ibv_sge));
  if (to == nullptr) return;
  std::memcpy(to, list, count * sizeof(ibv_sge));
  last_item(qp)->wr.num_sge = static_cast<int>(count);
}
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  const ibv_sge sge{addr, length, lkey};
  wr_set_sge_list(qp, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* base, size_t count, const ibv_data_buf* list) {
  Qp& qp = of(base);
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += list[i].length;
  if (!takes_data(qp, 0, bytes)) return;
  std::byte* to = extend(qp, padded(bytes));
  if (to == nullptr) return;
  for (size_t i = 0; i < count; to += list[i++].length)
    if (list[i].length != 0) std::memcpy(to, list[i].addr, list[i].length);
  Item* item = last_item(qp);
  item->wr.send_flags |= IBV_SEND_INLINE;
  item->inline_bytes = static_cast<uint32_t>(bytes);
}
void wr_set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  const ibv_data_buf data{addr, length};
  wr_set_inline_data_list(qp, 1, &data);
}

void wr_start(ibv_qp_ex* base) {
  Qp& qp = of(base);
  qp.batch_mutex.lock();
  qp.batch.clear();
  qp.batch_error = 0;
}

void wr_abort(ibv_qp_ex* base) {
  of(base).batch_mutex.unlock();
}

int append_batch(Qp& qp) {
  const uint32_t before = qp.sq.tail;
  for (size_t at = 0; at < qp.batch.size();) {
    auto& item = *reinterpret_cast<Item*>(qp.batch.data() + at);
    at += size_of(item);
    ibv_sge data{reinterpret_cast<uint64_t>(&item + 1), item.inline_bytes, 0};
    if ((item.wr.send_flags & IBV_SEND_INLINE) != 0) {
      item.wr.sg_list = &data;
      item.wr.num_sge = 1;
    } else {
      item.wr.sg_list = reinterpret_cast<ibv_sge*>(&item + 1);
    }
    if (const int error = append(qp, item.wr)) {
      qp.sq.tail = before;
      return error;
    }
  }
  return 0;
}

int wr_complete(ibv_qp_ex* base) {
  Qp& qp = of(base);
  int error = qp.batch_error;
  if (error == 0) error = cannot_use(*qp.owner);
  if (error == 0) {
    std::lock_guard guard(qp.sq_mutex);
    error = append_batch(qp);
    if (error == 0) run_send_queue(qp);
  }
  qp.batch_mutex.unlock();
  return error;
}

constexpr uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr uint64_t kKeys = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr uint64_t kAtomics =
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;

uint64_t send_ops_of(ibv_qp_type type) {
  const bool iwarp = is_iwarp();
  switch (type) {
    case IBV_QPT_UD:
      return kSends;
    case IBV_QPT_RAW_PACKET:
      return IBV_QP_EX_WITH_SEND;
    case IBV_QPT_UC:
      return kSends | kWrites | kKeys;
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      return iwarp ? kKeys | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ
                   : kSends | kWrites | kKeys | kAtomics | IBV_QP_EX_WITH_RDMA_READ;
    default:
      return 0;
  }
}

}  // namespace

bool supports_send_ops(ibv_qp_type type, uint64_t flags) {
  return (flags & ~send_ops_of(type)) == 0;
}

void set_send_ops(Qp& qp, uint64_t flags) {
  const auto asked = [flags](uint64_t flag) { return (flags & flag) != 0; };
  if (asked(IBV_QP_EX_WITH_RDMA_WRITE)) qp.wr_rdma_write = wr_rdma_write;
  if (asked(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)) qp.wr_rdma_write_imm = wr_rdma_write_imm;
  if (asked(IBV_QP_EX_WITH_SEND)) qp.wr_send = wr_send;
  if (asked(IBV_QP_EX_WITH_SEND_WITH_IMM)) qp.wr_send_imm = wr_send_imm;
  if (asked(IBV_QP_EX_WITH_SEND_WITH_INV)) qp.wr_send_inv = wr_send_inv;
  if (asked(IBV_QP_EX_WITH_RDMA_READ)) qp.wr_rdma_read = wr_rdma_read;
  if (asked(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)) qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  if (asked(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)) qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  if (asked(IBV_QP_EX_WITH_ATOMIC_WRITE)) qp.wr_atomic_write = wr_atomic_write;
  if (asked(IBV_QP_EX_WITH_LOCAL_INV)) qp.wr_local_inv = wr_local_inv;
  if (asked(IBV_QP_EX_WITH_BIND_MW)) qp.wr_bind_mw = wr_bind_mw;
  if (qp.qp_base.qp_type == IBV_QPT_UD) qp.wr_set_ud_addr = wr_set_ud_addr;
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND) qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
}

}  // namespace softhca
