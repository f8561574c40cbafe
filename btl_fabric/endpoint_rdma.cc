// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/endpoint_rdma.h"

#include <algorithm>
#include <cstring>

#include "btl_fabric/atomic_message.h"
#include "btl_fabric/counters.h"
#include "btl_fabric/endpoint.h"
#include "btl_fabric/module.h"
#include "btl_fabric/params.h"

namespace fabric {

namespace {

/// Requests that wait at most; the upper layers try again later when there are more.
constexpr std::uint32_t kMostWaiting = 1024;

RdmaLimits limits_of(const Module& module) noexcept {
  const ibv_device_attr& device = module.port().device->attributes;
  RdmaLimits limits;
  limits.link = module.port().address.link;
  limits.max_sge = cpc::kSendSges;
  limits.max_read_sge = 1;  // there is one piece of memory, wherever it goes
  limits.max_message = module.max_message();
  limits.max_inline = module.max_inline();
  limits.outstanding_reads = static_cast<std::uint32_t>(std::clamp(device.max_qp_init_rd_atom, 1, cpc::kReadsAsked));
  limits.force_mr = params().force_mr != 0;
  return limits;
}

void count(const RdmaOperation& operation) noexcept {
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

EndpointRdma::EndpointRdma(Endpoint& endpoint, Module& module, EndpointQueue& queue)
    : endpoint_(endpoint),
      module_(module),
      queue_(queue),
      planner_(limits_of(module), queue.tx, module.rdma().regions),
      messages_(static_cast<std::size_t>(params().rdma_depth)) {}

int EndpointRdma::submit(RdmaRequest* request) noexcept {
  request->endpoint = &endpoint_;
  switch (endpoint_.state()) {
    case Endpoint::State::kConnected:
    case Endpoint::State::kSelf:
      if (!waiting_.empty()) {
        break;
      }
      switch (start(request)) {
        case Started::kYes:
          return OPAL_SUCCESS;
        case Started::kLater:
          break;
        case Started::kNever:
          return OPAL_ERR_NOT_AVAILABLE;
        case Started::kFailed:
          return OPAL_ERR_UNREACH;
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
  ++counters.rdma_queued;
  waiting_.push_back(request);
  endpoint_.connect_if_wanted();
  return OPAL_SUCCESS;
}

EndpointRdma::Started EndpointRdma::start(RdmaRequest* request) noexcept {
  return request->as_message ? send_message(request) : post(request);
}

EndpointRdma::Started EndpointRdma::post(RdmaRequest* request) noexcept {
  // Messages keep the room that is theirs.
  if (in_flight_ >= static_cast<std::uint32_t>(params().rdma_depth)) {
    return Started::kLater;
  }
  RdmaOperation& operation = request->operation;
  operation.last_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdma);
  operation.part_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdmaPart);
  DeviceRdma& device = module_.rdma();
  switch (planner_.post(operation, device.verbs.on(queue_.qp))) {
    case RdmaPosted::kYes:
      queue_.unsignaled = 0;
      ++in_flight_;
      count(operation);
      return Started::kYes;
    case RdmaPosted::kNoRoom:
      return Started::kLater;
    case RdmaPosted::kNoRegion:
      if (device.regions.in_use() == 0) {
        return Started::kNever;
      }
      module_.note_rdma_waits();  // what it waits for may belong to another endpoint
      return Started::kLater;
    case RdmaPosted::kTooLarge:
      return Started::kNever;
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
  ++counters.atomics_by_message;
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
  // A communication manager may have agreed on fewer reads than we would have.
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (queue_.qp != nullptr && ibv_query_qp(queue_.qp, &attributes, IBV_QP_MAX_QP_RD_ATOMIC, &initial) == 0 &&
      attributes.max_rd_atomic > 0) {
    planner_.set_outstanding_reads(attributes.max_rd_atomic);
  }
  send_waiting();
}

void EndpointRdma::send_waiting() noexcept {
  while (!waiting_.empty() && endpoint_.is_up()) {
    RdmaRequest* request = waiting_.front();
    const Started started = start(request);
    if (started == Started::kLater) {
      return;
    }
    if (started == Started::kFailed) {
      return;  // abort() has ended it with the others
    }
    waiting_.pop_front();
    if (started == Started::kNever) {
      finish(request, OPAL_ERR_OUT_OF_RESOURCE);
    }
  }
}

void EndpointRdma::completed(RdmaRequest* request, bool good) noexcept {
  --in_flight_;
  if (good) {
    planner_.complete(request->operation);
  } else {
    planner_.error(request->operation);
  }
  finish(request, good ? OPAL_SUCCESS : OPAL_ERROR);
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
  module_.rdma().requests.put(request);
  if (callback != nullptr) {
    callback(&module_, &endpoint_, address, handle, context, data, status);
  }
}

}  // namespace fabric
