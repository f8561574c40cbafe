// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/endpoint_rdma.h"

#include <algorithm>
#include <cstring>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoint.h"

namespace fabric {

namespace {

/// Requests that wait at most; the upper layers try again later when there are more.
constexpr std::uint32_t kMostWaiting = 1024;

RdmaLimits limits_of(const Module& module) noexcept {
  RdmaLimits limits = cpc::rdma_limits(module.port().address.link, module.max_message(), module.max_inline(),
                                       module.port().device->attributes.max_qp_init_rd_atom);
  limits.force_mr = params().force_mr != 0;
  return limits;
}

void count(const RdmaOperation& operation, Counters& counters) noexcept {
  switch (operation.kind) {
    case RdmaKind::kWrite:
      ++counters.puts;
      counters.put_bytes += operation.length();
      break;
    case RdmaKind::kRead:
      ++counters.gets;
      counters.get_bytes += operation.length();
      break;
    case RdmaKind::kFetchAdd:
    case RdmaKind::kCompareSwap:
      ++counters.atomics_by_device;
      break;
  }
}

}  // namespace

RdmaChannel::RdmaChannel(Module& module, TxCredits& credits) noexcept
    : planner(limits_of(module), credits, module.rdma().regions) {}

void RdmaChannel::learn_reads(ibv_qp* queue_pair) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (ibv_query_qp(queue_pair, &attributes, IBV_QP_MAX_QP_RD_ATOMIC, &initial) == 0 && attributes.max_rd_atomic > 0) {
    planner.set_outstanding_reads(attributes.max_rd_atomic);
  }
}

EndpointRdma::EndpointRdma(Endpoint& endpoint, Module& module, EndpointQueue& queue)
    : endpoint_(endpoint),
      module_(module),
      queue_(queue),
      own_channel_(module, queue.own_sends.tx),
      messages_(module.context().settings.rdma_depth) {}

/// The queue pair is gone by now, or has failed for all who share it.
EndpointRdma::~EndpointRdma() {
  while (!stranded_.empty()) {
    RdmaRequest* request = stranded_.pop_front();
    channel_->planner.error(request->operation);
    module_.rdma().requests.put(request);
  }
}

/// Others are before it.
bool EndpointRdma::must_wait() const noexcept {
  return !waiting_.empty() || (queue_.share != nullptr && queue_.share->sends.has_line());
}

int EndpointRdma::submit(RdmaRequest* request) noexcept {
  request->endpoint = &endpoint_;
  switch (endpoint_.state()) {
    case Endpoint::State::kConnected:
    case Endpoint::State::kSelf:
      if (must_wait()) {
        break;
      }
      switch (start(request)) {
        case Started::kYes:
          return OPAL_SUCCESS;
        case Started::kNoRoom:
        case Started::kLater:
          break;
        case Started::kNever:
          return OPAL_ERR_NOT_AVAILABLE;
        case Started::kFailed:
          if (!request->stranded) {
            return OPAL_ERR_UNREACH;
          }
          finish(request, OPAL_ERR_UNREACH);  // so that it stays ours
          return OPAL_SUCCESS;
      }
      break;
    case Endpoint::State::kIdle:
    case Endpoint::State::kConnecting:
      break;
    case Endpoint::State::kPeerLeft:
      module_.connection_failed(endpoint_, "the peer has closed the connection, and its memory is wanted");
      return OPAL_ERR_UNREACH;
    case Endpoint::State::kFailed:
    case Endpoint::State::kClosing:
      return OPAL_ERR_UNREACH;
  }
  if (waiting_.count() >= kMostWaiting) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ++module_.counters().rdma_queued;
  waiting_.push_back(request);
  if (queue_.share != nullptr) {
    queue_.share->sends.line_up(*this);
  }
  endpoint_.connect_if_wanted();
  return OPAL_SUCCESS;
}

EndpointRdma::Started EndpointRdma::start(RdmaRequest* request) noexcept {
  return request->as_message ? send_message(request) : post(request);
}

EndpointRdma::Started EndpointRdma::post(RdmaRequest* request) noexcept {
  // Messages keep the room that is theirs.
  if (channel_->in_flight >= module_.context().settings.rdma_depth) {
    return Started::kNoRoom;
  }
  RdmaOperation& operation = request->operation;
  operation.last_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdma);
  operation.part_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdmaPart);
  DeviceRdma& device = module_.rdma();
  switch (channel_->planner.post(operation, device.verbs.on(queue_.sends->qp, queue_.remote_srqn))) {
    case RdmaPosted::kYes:
      queue_.sends->unsignaled = 0;
      ++channel_->in_flight;
      ++in_flight_;
      count(operation, module_.counters());
      return Started::kYes;
    case RdmaPosted::kNoRoom:
      return Started::kNoRoom;
    case RdmaPosted::kNoRegion:
      if (device.regions.in_use() == 0) {
        return Started::kNever;
      }
      module_.note_rdma_waits();  // what it waits for may belong to another endpoint
      return Started::kLater;
    case RdmaPosted::kTooLarge:
      return Started::kNever;
    case RdmaPosted::kBroken:
      request->stranded = true;
      break;
    case RdmaPosted::kRefused:
      break;
  }
  module_.post_failed(endpoint_, queue_);
  return Started::kFailed;
}

EndpointRdma::Started EndpointRdma::send_message(RdmaRequest* request) noexcept {
  if (messages_under_way_ == messages_.size()) {
    return Started::kLater;
  }
  Fragment* fragment = module_.get_send(module_.queue_for(AtomicMessage::kSize));
  if (fragment == nullptr) {
    module_.note_rdma_waits();
    return Started::kLater;
  }
  std::size_t place = 0;
  while (messages_[place] != nullptr) {
    ++place;
  }
  request->serial = next_serial_++;
  AtomicMessage message;
  message.place = static_cast<std::uint32_t>(place);
  message.serial = request->serial;
  message.address = request->operation.remote_address;
  message.rkey = request->operation.rkey;
  message.op = static_cast<std::uint16_t>(request->is_swap ? 0 : request->op);
  message.is_32_bit = request->is_32_bit;
  message.operand = request->operation.operand;
  message.compare = request->operation.compare;
  message.write(fragment->packet + PacketHeader::kSize);
  ++module_.counters().atomics_by_message;
  messages_[place] = request;
  ++messages_under_way_;
  if (!endpoint_.send_internal(*fragment, PacketKind::kAtomic, AtomicMessage::kSize)) {
    messages_[place] = nullptr;
    --messages_under_way_;
    return Started::kFailed;
  }
  return Started::kYes;
}

void EndpointRdma::connected() noexcept {
  if (queue_.share != nullptr) {
    channel_ = &queue_.share->sends.rdma();
  } else {
    own_channel_.learn_reads(queue_.qp);
  }
  send_waiting();
}

void EndpointRdma::send_waiting() noexcept {
  if (queue_.share != nullptr) {
    if (!waiting_.empty()) {
      queue_.share->sends.line_up(*this);
      queue_.share->sends.serve();
    }
    return;
  }
  while (!waiting_.empty() && endpoint_.is_up()) {
    const Started started = start_first();
    if (started != Started::kYes && started != Started::kNever) {
      return;
    }
  }
}

EndpointRdma::Started EndpointRdma::start_first() noexcept {
  RdmaRequest* request = waiting_.front();
  const Started started = start(request);
  if (started == Started::kYes || started == Started::kNever) {
    waiting_.pop_front();
  }
  if (started == Started::kNever) {
    finish(request, OPAL_ERR_OUT_OF_RESOURCE);
  }
  return started;  // after a failure, abort() has ended it with the others
}

void EndpointRdma::completed(RdmaRequest* request, bool good) noexcept {
  --in_flight_;
  --channel_->in_flight;
  if (good) {
    channel_->planner.complete(request->operation);
  } else {
    channel_->planner.error(request->operation);
  }
  finish(request, good ? OPAL_SUCCESS : OPAL_ERR_UNREACH);
}

bool EndpointRdma::replied(const AtomicReply& reply) noexcept {
  if (reply.place >= messages_.size() || messages_[reply.place] == nullptr ||
      messages_[reply.place]->serial != reply.serial) {
    return false;
  }
  RdmaRequest* request = messages_[reply.place];
  messages_[reply.place] = nullptr;
  --messages_under_way_;
  if (reply.done && request->local_address != nullptr) {
    if (request->is_32_bit) {
      const auto value = static_cast<std::uint32_t>(reply.value);
      std::memcpy(request->local_address, &value, sizeof value);
    } else {
      std::memcpy(request->local_address, &reply.value, sizeof reply.value);
    }
  }
  finish(request, reply.done ? OPAL_SUCCESS : OPAL_ERROR);
  if (!waiting_.empty()) {
    send_waiting();
  }
  return true;
}

void EndpointRdma::abort() noexcept {
  if (queue_.share != nullptr) {
    queue_.share->sends.leave(*this);
  }
  while (!waiting_.empty()) {
    finish(waiting_.pop_front(), OPAL_ERR_UNREACH);
  }
  for (RdmaRequest*& request : messages_) {
    if (request != nullptr) {
      RdmaRequest* ended = request;
      request = nullptr;
      --messages_under_way_;
      finish(ended, OPAL_ERR_UNREACH);
    }
  }
}

/// The callback may start more.
void EndpointRdma::finish(RdmaRequest* request, int status) noexcept {
  const mca_btl_base_rdma_completion_fn_t callback = request->callback;
  void* const address = request->local_address;
  mca_btl_base_registration_handle_t* const handle = request->local_handle;
  void* const context = request->context;
  void* const data = request->data;
  if (request->stranded) {
    stranded_.push_back(request);
  } else {
    module_.rdma().requests.put(request);
  }
  if (callback != nullptr) {
    callback(&module_.face(), &endpoint_.face(), address, handle, context, data, status);
  }
}

}  // namespace fabric
