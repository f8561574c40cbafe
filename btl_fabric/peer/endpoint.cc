// SPDX-License-Identifier: BSD-3-Clause
//
// Set-up and teardown of an endpoint, and what is sent before it is connected.
#include "btl_fabric/peer/endpoint.h"

#include <cassert>
#include <cstdio>
#include <new>

#include "btl_fabric/path/immediate_sends.h"
#include "btl_fabric/path/link_rest.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"
#include "btl_fabric/peer/peer_traffic.h"

namespace fabric {

Endpoint::Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts, std::unique_ptr<const SteeringTable> steering, Endpoint* first)
    : subset(owner.port().subsets.at(target.subset)),
      owner_(owner),
      first_(first != nullptr ? first : this),
      contexts_(contexts),
      steering_(std::move(steering)),
      others_(contexts > 1 ? std::make_unique<std::atomic<Endpoint*>[]>(contexts) : nullptr),
      proc_(proc),
      key_(key),
      target_(std::move(target)),
      traffic_(owner.counts_traffic() ? std::make_unique<PeerTraffic>() : nullptr),
      exchanges_cts_(target_.cpc.exchanges_cts),
      is_xrc_(target_.cpc.one_way) {}

Endpoint::Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts, std::unique_ptr<const SteeringTable> steering)
    : Endpoint(owner, proc, key, std::move(target), contexts, std::move(steering), nullptr) {}

Endpoint::Endpoint(Endpoints& owner, const cpc::ConnectionKey& key, cpc::PeerTarget target, Endpoint& first)
    : Endpoint(owner, first.proc(), key, std::move(target), 1, nullptr, &first) {
  first.alive_others_.fetch_add(1, std::memory_order_relaxed);
  first.others_[owner.number_of_context()].store(this, std::memory_order_release);
}

Endpoint::~Endpoint() {
  assert(alive_others_.load(std::memory_order_relaxed) == 0);
  if (first_ != this) {
    first_->others_[owner_.number_of_context()].store(nullptr, std::memory_order_relaxed);
    first_->alive_others_.fetch_sub(1, std::memory_order_release);
  }
}

Endpoint* Endpoint::make_in_context(unsigned number) noexcept try {
  return owner_.in_context(number).add_to(*this);
} catch (const std::bad_alloc&) {
  return nullptr;
}

cpc::ConnectionKey Endpoint::key(cpc::Direction direction) const noexcept {
  cpc::ConnectionKey key = key_;
  key.direction = direction;
  return key;
}

opal_proc_t* Endpoint::proc() const noexcept {
  opal_proc_t* known = proc_.load(std::memory_order_relaxed);
  if (known == nullptr) {
    known = opal_proc_for_name({key_.peer.job, key_.peer.rank});
    proc_.store(known, std::memory_order_relaxed);
  }
  return known;
}

UpperHandles Endpoint::upper() const noexcept {
  return {owner_.upper_module(), first_, awaited_, gone_};
}

void end_unsent(const Endpoint& endpoint, Fragment& message, int status) noexcept {
  end_send(endpoint.upper(), &message, status);
}

EndpointLink& Endpoint::link() {
  if (!link_) {
    link_ = make_link();
  }
  return *link_;
}

std::unique_ptr<EndpointLink> Endpoint::make_link() {
  auto made = std::make_unique<EndpointLink>(*this, owner_.path(), upper(), subset, is_xrc_);
  prepare_to_heal(*made);
  return made;
}

// ---- Sending

int Endpoint::send_later(Fragment& fragment) noexcept try {
  apply(EndpointEvent::kSendWanted);
  if (carrier_ != nullptr) {
    return carrier_->send(fragment);
  }
  if (state_ > kLastThatWaits) {  // kSelf: btl/self carries messages to ourselves
    return OPAL_ERR_UNREACH;
  }
  ++owner_.path().counters().waits_for_connection;
  waiting_.push_back(&fragment);
  fragment.callback_due = true;
  carry_at_once();
  return OPAL_SUCCESS;
} catch (const std::bad_alloc&) {
  return OPAL_ERR_OUT_OF_RESOURCE;
}

bool Endpoint::send_immediately(const ImmediateMessage& message) noexcept {
  return carrier_ != nullptr && carrier_->send_immediately(message);
}

int Endpoint::submit(RdmaRequest* request) noexcept {
  return link_ && link_->is_up() ? link_->rdma().submit(request) : submit_later(request);
}

/// Not connected, or not any more.
int Endpoint::submit_later(RdmaRequest* request) noexcept try {
  if (waiting_rdma_.count() >= RdmaRequestQueue::kMost) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  apply(EndpointEvent::kSendWanted);
  if (link_ && link_->is_up()) {
    return link_->rdma().submit(request);
  }
  if (state_ > kLastThatWaits) {
    return OPAL_ERR_UNREACH;
  }
  ++owner_.path().counters().rdma_queued;
  waiting_rdma_.push_back(request);
  return OPAL_SUCCESS;
} catch (const std::bad_alloc&) {
  return OPAL_ERR_OUT_OF_RESOURCE;
}

std::uint32_t Endpoint::rdma_outstanding() noexcept {
  std::uint32_t between_links = 0;
  if (is_healing()) {
    between_links = healing_->backlog.requests.count();
    between_links += !link_ && healing_->atomics ? static_cast<std::uint32_t>(healing_->atomics->under_way) : 0;
  }
  return waiting_rdma_.count() + (link_ ? link_->rdma().outstanding() : 0) + between_links +
         owner_.rdma_of_ending_links(*this);
}

bool Endpoint::takes_pieces() noexcept {
  if ((!link_ || !link_->is_up()) && !owner_.is_lost()) {
    try {
      apply(EndpointEvent::kSendWanted);
    } catch (const std::bad_alloc&) {  // the next one tries again
    }
  }
  return link_ && link_->is_up() && link_->rdma().takes_more();
}

void Endpoint::begin_pieces(RdmaRequest& whole, std::uint32_t count) noexcept {
  whole.pieces_to_come = count;
  ++in_pieces_;
}

void Endpoint::adopt_piece(RdmaRequest& piece, RdmaRequest& whole) noexcept {
  piece.is_piece = true;
  piece.context = this;
  piece.data = &whole;
  piece.callback = [](mca_btl_base_module_t* /*module*/, mca_btl_base_endpoint_t* /*endpoint*/, void* /*address*/,
                      mca_btl_base_registration_handle_t* /*handle*/, void* context, void* data, int status) {
    static_cast<Endpoint*>(context)->end_piece(static_cast<RdmaRequest*>(data), status);
  };
}

void Endpoint::end_piece(RdmaRequest* whole, int status) noexcept {
  if (whole->status == OPAL_SUCCESS) {
    whole->status = status;
  }
  if (--whole->pieces_to_come > 0) {
    return;
  }
  --in_pieces_;
  if (whole->status == OPAL_SUCCESS && link_ && link_->is_up()) {
    link_->rdma().tell(whole);
    return;
  }
  UpperHandles told = upper();  // a piece may have failed elsewhere, and this endpoint not yet
  if (told.awaited == nullptr) {
    told.awaited = owner_.awaited_of(*this);
    told.gone = told.awaited != nullptr ? proc() : nullptr;
  }
  end_request(told, whole, whole->status, [this](RdmaRequest* request) { owner_.path().rdma().requests.put(request); });
}

bool Endpoint::has_waiting() const noexcept {
  return !waiting_.empty() || !waiting_rdma_.empty() || (link_ && link_->has_waiting());
}

std::uint64_t Endpoint::idle_since(std::uint64_t round) noexcept {
  if (link_ && LinkRest(*link_).take_use()) {
    last_used_ = round;
  }
  return last_used_;
}

bool Endpoint::is_idle() const noexcept {
  return link_ && LinkRest(*link_).is_idle() && waiting_.empty() && waiting_rdma_.empty() && in_pieces_ == 0;
}

void Endpoint::forget_callers() noexcept {
  waiting_.forget_callers();
  waiting_rdma_.forget_callers();
  stop_healing(std::nullopt);
  if (link_) {
    for (LinkQueue& queue : link_->queues()) {
      queue.waiting.forget_callers();
    }
    link_->rdma().forget_callers();
  }
}

void Endpoint::connect_if_wanted() {
  if (state_ == EndpointState::kIdle && has_waiting()) {
    apply(EndpointEvent::kSendWanted);
  }
}

// ---- Teardown

void Endpoint::close(cpc::Direction direction, const std::string& reason) {
  if (directions_.is_open(direction)) {
    owner_.submit(cpc::Close{key(direction), directions_.link(direction), reason});
    directions_.end(direction);
  }
}

void Endpoint::flushed(cpc::Direction direction) {
  directions_.flushed(direction);
  if (state_ == EndpointState::kClosing && direction == cpc::Direction::kBoth && link_) {
    link_->post_drain_markers();
  }
}

bool Endpoint::has_left_for(std::chrono::milliseconds time) const noexcept {
  return is_leaving() && std::chrono::steady_clock::now() - leaving_since_ >= time;
}

bool Endpoint::is_drained() const noexcept {
  if (alive_others_.load(std::memory_order_acquire) > 0 || ending_ != nullptr || in_pieces_ > 0) {
    return false;  // their callbacks name this one
  }
  return directions_.all_flushed() && (!link_ || link_->is_drained());
}

void Endpoint::destroy() {
  link_.reset();
  for (const cpc::Direction direction : Directions::kAll) {
    if (directions_.has(direction)) {
      owner_.submit(cpc::Destroy{key(direction), directions_.link(direction)});
      directions_.forget(direction);
    }
  }
}

// ---- For messages to users

std::string Endpoint::describe_queue(std::uint32_t qpn) const {
  char text[64];
  for (std::size_t i = 0; link_ && i < link_->queues().size(); ++i) {
    const LinkQueue& queue = link_->queues()[i];
    if (queue.sends->qp == nullptr || queue.sends->qp->qp_num != qpn) {
      continue;
    }
    if (is_xrc_ && !remote_ends_.empty()) {
      std::snprintf(text, sizeof text, "X queues, QPN 0x%06x -> 0x%06x", qpn, remote_ends_[0].qpn);
    } else if (i < remote_ends_.size()) {
      std::snprintf(text, sizeof text, "queue %zu, QPN 0x%06x -> 0x%06x", i, qpn, remote_ends_[i].qpn);
    } else {
      std::snprintf(text, sizeof text, "queue %zu, QPN 0x%06x", i, qpn);
    }
    return text;
  }
  if (link_ && qpn != 0 && link_->uses(qpn)) {
    std::snprintf(text, sizeof text, "X queues, messages that come in through QPN 0x%06x", qpn);
    return text;
  }
  return "no queue pair";
}

}  // namespace fabric
