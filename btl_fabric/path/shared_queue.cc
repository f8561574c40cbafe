// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/shared_queue.h"

#include <algorithm>
#include <cerrno>

namespace fabric {

SharedQueue::SharedQueue(SharedReceiveQueue srq, const QueueSpec& spec, const DeviceCosts& costs,
                         FragmentPool& pool) noexcept(!kHasLedger)
    : spec_(spec), receives_(pool, QueueSpace::for_receives(spec.rd_num, costs)), srq_(std::move(srq)) {
  set_target(spec.rd_init);
}

Result<std::unique_ptr<SharedQueue>> SharedQueue::make(const OpenDevice& device, const QueueSpec& spec,
                                                       const DeviceCosts& costs, FragmentPool& pool) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = spec.rd_num;
  attributes.attr.max_sge = 1;
  SharedReceiveQueue srq(ibv_create_srq(device.pd.get(), &attributes));
  if (!srq) {
    return verbs_failure("creating a shared receive queue of " + std::to_string(spec.rd_num) + " receives on " +
                             device.name + " (which takes " + std::to_string(device.attributes.max_srq_wr) + ")",
                         errno);
  }
  return std::unique_ptr<SharedQueue>(new SharedQueue(std::move(srq), spec, costs, pool));
}

Result<std::unique_ptr<SharedQueue>> SharedQueue::make_xrc(const OpenDevice& device, const QueueSpec& spec,
                                                           const DeviceCosts& costs, FragmentPool& pool,
                                                           const XrcDomain& domain, CompletionQueueRoom room) {
  ibv_srq_init_attr_ex attributes{};
  attributes.attr.max_wr = spec.rd_num;
  attributes.attr.max_sge = 1;
  attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attributes.srq_type = IBV_SRQT_XRC;
  attributes.pd = device.pd.get();
  attributes.xrcd = domain.handle();
  attributes.cq = room.cq();
  SharedReceiveQueue srq(ibv_create_srq_ex(device.context.get(), &attributes));
  if (!srq) {
    return verbs_failure("creating an XRC shared receive queue of " + std::to_string(spec.rd_num) + " receives on " +
                             device.name + " (which takes " + std::to_string(device.attributes.max_srq_wr) + ")",
                         errno);
  }
  std::unique_ptr<SharedQueue> made(new SharedQueue(std::move(srq), spec, costs, pool));
  made->room_ = std::move(room);
  return made;
}

Status SharedQueue::start() {
  if (started_) {
    return {};
  }
  started_ = true;
  refill();
  if (receives_.posted() == 0) {
    started_ = false;
    return failure("no receive buffer of " + std::to_string(spec_.size) + " bytes could be posted; " + memlock_hint());
  }
  arm_limit_event();
  return {};
}

void SharedQueue::limit_reached() noexcept {
  set_target(std::min(target_ * 2, spec_.rd_num));
  refill();
  arm_limit_event();
}

void SharedQueue::set_target(std::uint32_t target) noexcept {
  target_ = target;
  // The watermark keeps its place as the target grows.
  low_ = in_proportion(spec_.rd_low, target, spec_.rd_num);
}

bool SharedQueue::refill() noexcept {
  if (!started_) {
    return true;
  }
  receives_.fill(target_ - receives_.posted(), nullptr, [this](ibv_recv_wr* first, ibv_recv_wr** refused) {
    const int error = ibv_post_srq_recv(srq_.get(), first, refused);
    device_is_gone_ = device_is_gone_ || error == EIO;
    return error;
  });
  return receives_.posted() == target_;
}

void SharedQueue::arm_limit_event() noexcept {
  if (target_ >= spec_.rd_num) {
    return;
  }
  ibv_srq_attr attributes{};
  attributes.srq_limit = std::min(spec_.srq_limit, receives_.posted());
  if (ibv_modify_srq(srq_.get(), &attributes, IBV_SRQ_LIMIT) != 0) {
    // A device without limit events cannot ask for more: give it everything now.
    set_target(spec_.rd_num);
    refill();
  }
}

}  // namespace fabric
