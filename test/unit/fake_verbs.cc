// SPDX-License-Identifier: BSD-3-Clause
#include "test/unit/fake_verbs.h"

#include <cassert>
#include <cerrno>
#include <cstring>

namespace fabric::test {

namespace {

FakeQueuePair& pair_of(ibv_qp* qp) {
  auto& pair = *static_cast<FakeQueuePair*>(qp->qp_context);
  assert(!pair.is_destroyed);
  return pair;
}

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** refused) {
  const FakeAtWork at_work;
  FakeDevice& device = FakeDevice::of(qp->context);
  FakeQueuePair& pair = pair_of(qp);
  for (ibv_send_wr* request = first; request != nullptr; request = request->next) {
    if (device.send_error != 0 && device.posts_before_error == 0) {
      *refused = request;
      errno = 0;  // only what is returned counts
      return device.send_error;
    }
    device.posts_before_error -= device.send_error != 0 ? 1 : 0;
    FakeSend send{request->wr_id, request->opcode, request->send_flags, {}, request->qp_type.xrc.remote_srqn};
    const bool is_write = request->opcode == IBV_WR_RDMA_WRITE;
    if (is_write) {
      send.remote_address = request->wr.rdma.remote_addr;
      send.rkey = request->wr.rdma.rkey;
    }
    const bool is_copied = is_write && (request->send_flags & IBV_SEND_INLINE) != 0;
    for (int i = 0; (request->opcode == IBV_WR_SEND || is_copied) && i < request->num_sge; ++i) {
      const auto* bytes = reinterpret_cast<const std::byte*>(request->sg_list[i].addr);
      send.bytes.insert(send.bytes.end(), bytes, bytes + request->sg_list[i].length);
    }
    pair.sends.push_back(send);
    pair.all_sends.push_back(send);
  }
  return 0;
}

int take_receives(const FakeDevice& device, FakeReceives& receives, ibv_recv_wr* first, ibv_recv_wr** refused) {
  const FakeAtWork at_work;
  for (ibv_recv_wr* request = first; request != nullptr; request = request->next) {
    if (device.receive_error != 0) {
      *refused = request;
      return device.receive_error;
    }
    receives.push_back({request->wr_id, request->sg_list[0]});
  }
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** refused) {
  return take_receives(FakeDevice::of(qp->context), pair_of(qp).receives, first, refused);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** refused) {
  return take_receives(FakeDevice::of(srq->context), *static_cast<FakeReceives*>(srq->srq_context), first, refused);
}

int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  FakeDevice& device = FakeDevice::of(queue->context);
  std::deque<ibv_wc>& ready = device.completions;
  int count = 0;
  for (; count < most && !ready.empty(); ++count) {
    completions[count] = ready.front();
    ready.pop_front();
  }
  device.empty_polls += count == 0 ? 1 : 0;
  return count;
}

bool has_completion(const FakeSend& send) {
  return (send.flags & IBV_SEND_SIGNALED) != 0;
}

ibv_wc_opcode opcode_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

/// Of a failed completion only wr_id, status, vendor_err and qp_num are valid: the rest is made wrong.
ibv_wc failed(std::uint64_t id, std::uint32_t qpn, ibv_wc_status status) {
  ibv_wc completion;
  std::memset(&completion, 0xff, sizeof completion);
  completion.wr_id = id;
  completion.status = status;
  completion.vendor_err = 7;
  completion.qp_num = qpn;
  return completion;
}

}  // namespace

FakeDevice::FakeDevice() {
  context_.device = this;
  context_.ops.post_send = post_send;
  context_.ops.post_recv = post_recv;
  context_.ops.post_srq_recv = post_srq_recv;
  context_.ops.poll_cq = poll_cq;
  pd_.context = &context_;
}

FakeQueuePair& FakeDevice::make_queue_pair() {
  FakeQueuePair& pair = queue_pairs.emplace_back();
  pair.verbs.context = &context_;
  pair.verbs.qp_context = &pair;
  pair.verbs.qp_num = 0x100 + static_cast<std::uint32_t>(queue_pairs.size());
  return pair;
}

void FakeDevice::complete_send(FakeQueuePair& pair) {
  while (!pair.sends.empty()) {
    const FakeSend send = pair.sends.front();
    pair.sends.pop_front();
    if (has_completion(send)) {
      ibv_wc completion{};
      completion.wr_id = send.id;
      completion.status = IBV_WC_SUCCESS;
      completion.opcode = opcode_of(send.opcode);
      completion.qp_num = pair.verbs.qp_num;
      completions.push_back(completion);
      return;
    }
  }
}

void FakeDevice::fail_send(FakeQueuePair& pair, ibv_wc_status status) {
  assert(!pair.sends.empty());
  completions.push_back(failed(pair.sends.front().id, pair.verbs.qp_num, status));
  pair.sends.pop_front();
}

void FakeDevice::flush(FakeQueuePair& pair) {
  while (!pair.sends.empty()) {
    fail_send(pair, IBV_WC_WR_FLUSH_ERR);
  }
  while (!pair.receives.empty()) {
    fail_receive(pair, IBV_WC_WR_FLUSH_ERR);
  }
}

void FakeDevice::receive(FakeReceives& receives, const FakeQueuePair& pair, std::span<const std::byte> message) {
  assert(!receives.empty() && message.size() <= receives.front().memory.length);
  const FakeReceive taken = receives.front();
  receives.pop_front();
  std::memcpy(reinterpret_cast<void*>(taken.memory.addr), message.data(), message.size());
  ibv_wc completion{};
  completion.wr_id = taken.id;
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = IBV_WC_RECV;
  completion.byte_len = static_cast<std::uint32_t>(message.size());
  completion.qp_num = pair.verbs.qp_num;
  completions.push_back(completion);
}

void FakeDevice::fail_receive(FakeReceives& receives, const FakeQueuePair& pair, ibv_wc_status status) {
  assert(!receives.empty());
  completions.push_back(failed(receives.front().id, pair.verbs.qp_num, status));
  receives.pop_front();
}

FakeSharedQueue& FakeDevice::make_shared_queue() {
  FakeSharedQueue& queue = shared_queues_.emplace_back();
  queue.verbs.context = &context_;
  queue.verbs.srq_context = &queue.receives;
  return queue;
}

}  // namespace fabric::test

// ---- The functions of libibverbs

using fabric::test::FakeDevice;

#undef ibv_reg_mr

namespace {

ibv_mr* make_region(ibv_pd* pd, void* address, std::size_t length) {
  FakeDevice& device = FakeDevice::of(pd->context);
  if (!device.registers) {
    errno = ENOMEM;
    return nullptr;
  }
  static std::uint32_t key = 0x1000;
  const fabric::test::FakeAtWork at_work;
  auto* region = new ibv_mr{};
  region->context = pd->context;
  region->pd = pd;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = ++key;
  ++device.regions;
  return region;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int /*access*/) {
  return make_region(pd, address, length);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t /*iova*/, unsigned /*access*/) {
  return make_region(pd, address, length);
}
int ibv_dereg_mr(ibv_mr* region) {
  --FakeDevice::of(region->context).regions;
  delete region;
  return 0;
}
int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* /*attributes*/) {
  return ENOSYS;
}
int ibv_query_qp(ibv_qp* /*qp*/, ibv_qp_attr* /*attributes*/, int /*mask*/, ibv_qp_init_attr* /*initial*/) {
  return ENOSYS;
}
int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode /*opcode*/, std::uint32_t /*flags*/) {
  return FakeDevice::of(qp->context).writes_in_order ? 1 : 0;
}
int ibv_dealloc_pd(ibv_pd* /*pd*/) {
  return 0;
}
int ibv_close_device(ibv_context* /*context*/) {
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* /*channel*/,
                      int /*vector*/) {
  auto* queue = new ibv_cq{};
  queue->context = context;
  queue->cqe = entries;
  queue->cq_context = cq_context;
  return queue;
}
int ibv_resize_cq(ibv_cq* /*queue*/, int /*entries*/) {
  return EOPNOTSUPP;
}
int ibv_destroy_cq(ibv_cq* queue) {
  delete queue;
  return 0;
}
ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* /*attributes*/) {
  return &FakeDevice::of(pd->context).make_shared_queue().verbs;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* /*attributes*/, int /*mask*/) {
  ++static_cast<fabric::test::FakeQueuePair*>(qp->qp_context)->modified;
  return 0;
}
int ibv_modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/, int /*mask*/) {
  return 0;
}
int ibv_destroy_srq(ibv_srq* /*srq*/) {
  return 0;
}

#pragma GCC visibility pop
}
