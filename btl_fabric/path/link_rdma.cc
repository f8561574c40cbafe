// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_rdma.h"

#include <algorithm>
#include <cstring>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "common/rdma/single_requests.h"

namespace fabric {

namespace {

/// No less than ob1's longest header.
constexpr std::size_t kAnswerBytes = 64;

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

RdmaChannel::RdmaChannel(const PacketPath& path, TxCredits& credits) noexcept
    : planner(path.settings().rdma_limits, credits, path.rdma().regions) {}

void RdmaChannel::learn_reads(ibv_qp* queue_pair) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  if (ibv_query_qp(queue_pair, &attributes, IBV_QP_MAX_QP_RD_ATOMIC, &initial) == 0 && attributes.max_rd_atomic > 0) {
    planner.set_outstanding_reads(attributes.max_rd_atomic);
  }
}

LinkRdma::LinkRdma(Link& link, PacketPath& path, LinkQueue& queue)
    : link_(link),
      path_(path),
      queue_(queue),
      answers_(link.queue(std::min(path.queue_for(kAnswerBytes), path.receive_queues().count() - 1))),
      own_channel_(path, queue.own_sends.tx),
      atomics_(std::make_shared<Atomics>()) {
  atomics_->places.resize(path.settings().rdma_depth);
}

/// The queue pair is gone by now, or has failed for all who share it.
LinkRdma::~LinkRdma() {
  while (!held_.empty()) {
    path_.rdma().requests.put(held_.pop_front());
  }
  while (!stranded_.empty()) {
    RdmaRequest* request = stranded_.pop_front();
    channel_->planner.error(request->operation);
    path_.rdma().requests.put(request);
  }
}

/// Others are before it.
bool LinkRdma::must_wait() const noexcept {
  return !waiting_.empty() || (queue_.share != nullptr && queue_.share->sends.has_waiting());
}

int LinkRdma::submit(RdmaRequest* request) noexcept {
  request->link = &link_;
  if (!must_wait()) {
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
  }
  if (waiting_.count() >= RdmaRequestQueue::kMost) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ++path_.counters().rdma_queued;
  waiting_.push_back(request);
  if (queue_.share != nullptr) {
    queue_.share->sends.enqueue(*this);
  }
  return OPAL_SUCCESS;
}

void LinkRdma::forget_callers() noexcept {
  waiting_.forget_callers();
  held_.forget_callers();
  unfinished_.forget_callers();
  for (RdmaRequest* request : atomics_->places) {
    if (request != nullptr) {
      request->callback = nullptr;
    }
  }
}

void LinkRdma::take_waiting(RdmaRequestQueue& requests) noexcept {
  tell_held();
  while (!waiting_.empty()) {
    requests.push_back(waiting_.pop_front());
  }
}

LinkRdma::Started LinkRdma::start(RdmaRequest* request) noexcept {
  return request->as_message ? send_message(request) : post(request);
}

LinkRdma::Started LinkRdma::post(RdmaRequest* request) noexcept {
  // Messages keep the room that is theirs.
  if (channel_->in_flight + held_.count() >= path_.settings().rdma_depth) {
    return Started::kNoRoom;
  }
  RdmaOperation& operation = request->operation;
  operation.last_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdma);
  operation.part_id = reinterpret_cast<std::uintptr_t>(request) | static_cast<std::uint64_t>(SendTag::kRdmaPart);
  DeviceRdma& device = path_.rdma();
  switch (channel_->planner.post_quickly(operation, device.verbs.on(queue_.sends->qp, queue_.remote_srqn()))) {
    case RdmaPosted::kYes:
      queue_.sends->signaled();
      ++channel_->in_flight;
      ++in_flight_;
      queue_.was_used = true;
      count(operation, path_.counters());
      path_.counters().windows_bound += operation.windows;
      return Started::kYes;
    case RdmaPosted::kNoRoom:
      return borrow_for(request);
    case RdmaPosted::kNoRegion:
      if (device.regions.in_use() == 0 && device.verbs.device_refused()) {
        return Started::kNever;
      }
      path_.retry_later(link_);  // what it waits for may belong to another link
      return Started::kLater;
    case RdmaPosted::kTooLarge:
      return Started::kNever;
    case RdmaPosted::kBroken:
      request->stranded = true;
      break;
    case RdmaPosted::kRefused:
      if (is_of_lost_device(link_, errno)) {
        return Started::kLater;  // it goes by another one
      }
      break;
  }
  link_.post_refused(queue_, errno);
  return Started::kFailed;
}

/// An operation may need more than the send queue owns, and then nothing else brings it room.
LinkRdma::Started LinkRdma::borrow_for(RdmaRequest* request) noexcept {
  if (path_.lend(*queue_.sends)) {
    return post(request);
  }
  if (channel_->in_flight > 0 || queue_.sends->lender == nullptr) {
    return Started::kNoRoom;
  }
  path_.retry_later(link_);
  return Started::kLater;
}

bool LinkRdma::describe(RdmaRequest& request, AtomicMessage& message) noexcept {
  if (atomics_->under_way == atomics_->places.size()) {
    return false;
  }
  std::uint32_t place = 0;
  while (atomics_->places[place] != nullptr) {
    ++place;
  }
  request.serial = atomics_->next_serial++;
  message.place = place;
  message.serial = request.serial;
  message.address = request.operation.remote_address;
  message.rkey = request.operation.rkey;
  message.op = static_cast<std::uint16_t>(request.is_swap ? 0 : request.op);
  message.is_32_bit = request.is_32_bit;
  message.operand = request.operation.operand;
  message.compare = request.operation.compare;
  return true;
}

void LinkRdma::await_reply(RdmaRequest* request, std::uint32_t place) noexcept {
  ++path_.counters().atomics_by_message;
  atomics_->places[place] = request;
  ++atomics_->under_way;
}

LinkRdma::Started LinkRdma::send_message(RdmaRequest* request) noexcept {
  AtomicMessage message;
  if (!describe(*request, message)) {
    return Started::kLater;
  }
  Fragment* fragment = path_.get_send(path_.queue_for(AtomicMessage::kSize));
  if (fragment == nullptr) {
    path_.retry_later(link_);
    return Started::kLater;
  }
  message.write(fragment->packet + PacketHeader::kSize);
  // Only then is it one of those under way: if it is refused, everything of the link ends while it is sent, but this is
  // the caller's still.
  if (!link_.send_internal(*fragment, PacketKind::kAtomic, AtomicMessage::kSize)) {
    return Started::kFailed;
  }
  await_reply(request, message.place);
  return Started::kYes;
}

void LinkRdma::start(RdmaRequestQueue& requests) noexcept {
  while (!requests.empty()) {
    RdmaRequest* request = requests.pop_front();
    request->link = &link_;
    waiting_.push_back(request);
  }
  if (queue_.share != nullptr) {
    channel_ = &queue_.share->sends.rdma();
  } else if (queue_.qp != nullptr) {
    own_channel_.learn_reads(queue_.qp);
  }
  send_waiting();
}

void LinkRdma::send_waiting() noexcept {
  if (queue_.share != nullptr) {
    if (!waiting_.empty()) {
      queue_.share->sends.enqueue(*this);
      queue_.share->sends.serve();
    }
    return;
  }
  while (!waiting_.empty() && link_.is_up()) {
    const Started started = start_first();
    if (started != Started::kYes && started != Started::kNever) {
      return;
    }
  }
}

LinkRdma::Started LinkRdma::start_first() noexcept {
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

/// Behind a drain marker nothing may be posted, so a link that has stopped leaves windows as they are, and nobody uses them again.
RdmaNext LinkRdma::proceed(RdmaRequest* request) noexcept {
  RdmaOperation& operation = request->operation;
  if (operation.windows == 0) [[likely]] {
    return RdmaNext::kDone;
  }
  if (!link_.may_post()) {
    channel_->planner.error(operation);
    return RdmaNext::kDone;
  }
  const RdmaNext next =
      channel_->planner.proceed(operation, path_.rdma().verbs.on(queue_.sends->qp, queue_.remote_srqn()));
  if (next == RdmaNext::kMore) {
    queue_.sends->signaled();
    path_.counters().windows_invalidated += operation.windows;
  } else if (next == RdmaNext::kRefused && is_of_lost_device(link_, errno)) {
    channel_->planner.error(operation);
    return RdmaNext::kDone;
  }
  return next;
}

void LinkRdma::completed(RdmaRequest* request, bool good) noexcept {
  const RdmaNext next = good ? proceed(request) : RdmaNext::kDone;
  if (next == RdmaNext::kMore) {
    return;
  }
  --in_flight_;
  --channel_->in_flight;
  if (next != RdmaNext::kDone) [[unlikely]] {
    request->stranded = next == RdmaNext::kBroken;
    link_.post_refused(queue_, errno);
  }
  if (!good && link_.state() == Link::State::kBroken && !request->stranded) {
    channel_->planner.error(request->operation);
    has_lost_atomics_ = has_lost_atomics_ || is_atomic(request->operation.kind);
    unfinished_.push_back(request);
    return;
  }
  if (!good || next != RdmaNext::kDone) {
    if (!request->stranded) {
      channel_->planner.error(request->operation);
    }
    finish(request, OPAL_ERR_UNREACH);
    return;
  }
  channel_->planner.complete(request->operation);
  if (is_atomic(request->operation.kind) || request->is_piece) {  // no message of ob1's follows
    finish(request, OPAL_SUCCESS);
  } else {
    tell(request);
  }
}

void LinkRdma::tell(RdmaRequest* request) noexcept {
  if (held_.empty() && answers_.waiting.empty() && may_tell()) [[likely]] {
    finish(request, OPAL_SUCCESS);
  } else {
    hold(request);
  }
}

/// X queues wait for nothing of the peer's.
bool LinkRdma::may_tell() const noexcept {
  return answers_.room() == Room::kYes || !link_.is_up() || link_.is_to_ourselves_ || queue_.share != nullptr;
}

[[gnu::cold]] void LinkRdma::hold(RdmaRequest* request) noexcept {
  ++path_.counters().rdma_held;
  if (held_.empty()) {
    held_since_ = std::chrono::steady_clock::now();
  }
  held_.push_back(request);
  path_.retry_later(link_);
}

/// A peer that makes no progress gives no credits, and an origin of one-sided operations does not wait for its target: what is
/// held too long is told.
[[gnu::cold]] void LinkRdma::tell_held() noexcept {
  constexpr auto kLongest = std::chrono::seconds(1);
  if (held_.empty()) {
    return;
  }
  const bool too_long = std::chrono::steady_clock::now() - held_since_ >= kLongest;
  std::uint32_t most = held_.count();  // callbacks may add to them
  while (most-- > 0 && !held_.empty() && (too_long || may_tell())) {
    link_.answers_first_ = true;
    finish(held_.pop_front(), OPAL_SUCCESS);
    link_.answers_first_ = false;
  }
  if (!held_.empty()) {
    path_.retry_later(link_);
  }
}

bool LinkRdma::replied(const AtomicReply& reply) noexcept {
  if (reply.place >= atomics_->places.size() || atomics_->places[reply.place] == nullptr ||
      atomics_->places[reply.place]->serial != reply.serial) {
    return false;
  }
  RdmaRequest* request = atomics_->places[reply.place];
  atomics_->places[reply.place] = nullptr;
  --atomics_->under_way;
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

void LinkRdma::abort() noexcept {
  if (queue_.share != nullptr) {
    queue_.share->sends.leave(*this);
  }
  while (!held_.empty()) {
    finish(held_.pop_front(), OPAL_SUCCESS);
  }
  while (!unfinished_.empty()) {
    finish(unfinished_.pop_front(), OPAL_ERR_UNREACH);
  }
  while (!waiting_.empty()) {
    finish(waiting_.pop_front(), OPAL_ERR_UNREACH);
  }
  for (RdmaRequest*& request : atomics_->places) {
    if (request != nullptr) {
      RdmaRequest* ended = request;
      request = nullptr;
      --atomics_->under_way;
      finish(ended, OPAL_ERR_UNREACH);
    }
  }
}

/// The callback may start more.
void LinkRdma::finish(RdmaRequest* request, int status) noexcept {
  end_request(link_.upper(), request, status, [this](RdmaRequest* ended) {
    if (ended->stranded) {
      stranded_.push_back(ended);
    } else {
      path_.rdma().requests.put(ended);
    }
  });
}

}  // namespace fabric
