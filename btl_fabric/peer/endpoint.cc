// SPDX-License-Identifier: BSD-3-Clause
//
// Set-up and teardown of an endpoint, and what is sent before it is connected.
#include "btl_fabric/peer/endpoint.h"

#include <cassert>
#include <cstdio>
#include <new>

#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

Endpoint::Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts, Endpoint* first)
    : owner_(owner),
      first_(first != nullptr ? first : this),
      contexts_(contexts),
      others_(contexts > 1 ? std::make_unique<std::atomic<Endpoint*>[]>(contexts) : nullptr),
      proc_(proc),
      key_(key),
      target_(std::move(target)),
      spoke_(target_.cpc.exchanges_cts || target_.cpc.one_way),
      exchanges_cts_(target_.cpc.exchanges_cts),
      is_xrc_(target_.cpc.one_way) {}

Endpoint::Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts)
    : Endpoint(owner, proc, key, std::move(target), contexts, nullptr) {}

Endpoint::Endpoint(Endpoints& owner, const cpc::ConnectionKey& key, cpc::PeerTarget target, Endpoint& first)
    : Endpoint(owner, first.proc(), key, std::move(target), 1, &first) {
  first.alive_others_.fetch_add(1, std::memory_order_relaxed);
  first.others_[owner.number_of_context()].store(this, std::memory_order_release);
}

Endpoint::~Endpoint() {
  assert(alive_others_.load(std::memory_order_relaxed) == 0);
  if (first_ != this) {
    first_->alive_others_.fetch_sub(1, std::memory_order_release);
  }
}

Endpoint* Endpoint::in_context(unsigned number) noexcept try {
  Endpoint* known = if_in_context(number);
  return known != nullptr ? known : owner_.in_context(number).add_to(*this);
} catch (const std::bad_alloc&) {
  return nullptr;
}

cpc::ConnectionKey Endpoint::key(cpc::Direction direction) const noexcept {
  cpc::ConnectionKey key = key_;
  key.direction = direction;
  return key;
}

UpperHandles Endpoint::upper() const noexcept {
  return {owner_.upper_module(), first_};
}

EndpointLink& Endpoint::link() {
  if (!link_) {
    link_ = std::make_unique<EndpointLink>(*this, owner_.path(), upper(), is_xrc_);
  }
  return *link_;
}

// ---- Sending

int Endpoint::send_later(Fragment& fragment) noexcept try {
  switch (state_) {
    case State::kIdle:
    case State::kConnecting:
      if (state_ == State::kIdle) {
        want_connection();
      }
      ++owner_.path().counters().waits_for_connection;
      waiting_.push_back(&fragment);
      break;
    case State::kConnected:  // never: its link carries
    case State::kSelf:       // btl/self carries messages to ourselves
      return OPAL_ERR_UNREACH;
    case State::kPeerLeft:
      owner_.connection_failed(*this, "the peer has closed the connection, and there is a message for it");
      return OPAL_ERR_UNREACH;
    case State::kFailed:
    case State::kClosing:
      return OPAL_ERR_UNREACH;
  }
  fragment.callback_due = true;
  return OPAL_SUCCESS;
} catch (const std::bad_alloc&) {
  return OPAL_ERR_OUT_OF_RESOURCE;
}

int Endpoint::submit(RdmaRequest* request) noexcept try {
  if (link_ && link_->is_up()) [[likely]] {
    return link_->rdma().submit(request);
  }
  switch (state_) {
    case State::kPeerLeft:
      owner_.connection_failed(*this, "the peer has closed the connection, and its memory is wanted");
      return OPAL_ERR_UNREACH;
    case State::kFailed:
    case State::kClosing:
      return OPAL_ERR_UNREACH;
    case State::kIdle:
    case State::kConnecting:
    case State::kConnected:
    case State::kSelf:
      break;
  }
  if (waiting_rdma_.count() >= RdmaRequestQueue::kMost) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ++owner_.path().counters().rdma_queued;
  waiting_rdma_.push_back(request);
  connect_if_wanted();
  return OPAL_SUCCESS;
} catch (const std::bad_alloc&) {
  return OPAL_SUCCESS;  // it waits; whatever is sent next to the peer tries to connect again
}

std::uint32_t Endpoint::rdma_outstanding() noexcept {
  return waiting_rdma_.count() + (link_ ? link_->rdma().outstanding() : 0);
}

// ---- Set-up

void Endpoint::want_connection() {
  const cpc::Direction direction = is_xrc_ ? cpc::Direction::kOutgoing : cpc::Direction::kBoth;
  if (owner_.is_closing(key(direction))) {
    return;  // the last connection with this peer is still being taken down; when it is gone, this is asked again
  }
  (void)link();
  if (owner_.is_self(*this)) {
    state_ = State::kConnecting;
    owner_.connect_self();
    return;
  }
  owner_.submit(cpc::Connect{key(direction), target_});
  directions_.open(direction);
  state_ = State::kConnecting;
}

void Endpoint::connect_if_wanted() {
  if (state_ == State::kIdle && has_waiting()) {
    want_connection();
  }
}

Status Endpoint::post_receives(const std::vector<ibv_qp*>& queue_pairs) {
  Link& opening = link();
  state_ = State::kConnecting;
  return opening.post_receives(queue_pairs);
}

void Endpoint::connected(std::vector<cpc::QueuePairEnd> remote_ends) {
  remote_ends_ = std::move(remote_ends);
  state_ = State::kConnected;
  ++owner_.path().counters().connections_made;
  spoke_ = true;
  carrier_ = &link();
  carrier_->start(waiting_, waiting_rdma_);
}

void Endpoint::connected(const cpc::XrcPath& path, SharedSendQueue& sends, std::vector<cpc::QueuePairEnd> remote_ends) {
  link().share(sends, path.srq_numbers);
  connected(std::move(remote_ends));
}

void Endpoint::connected_to_self(ibv_qp* queue_pair) {
  link().set_loopback(queue_pair);
  state_ = State::kSelf;
  link().start(waiting_, waiting_rdma_);
}

void Endpoint::peer_spoke() {
  if (!spoke_) {
    owner_.submit(cpc::PeerSpoke{key_});
    spoke_ = true;
  }
}

// ---- Teardown

bool Endpoint::is_peers_wish() const noexcept {
  return (state_ == State::kIdle || state_ == State::kConnecting) && !has_waiting();
}

bool Endpoint::has_waiting() const noexcept {
  return !waiting_.empty() || !waiting_rdma_.empty() || (link_ && link_->has_waiting());
}

void Endpoint::forget_peers_wish() noexcept {
  if (is_xrc_) {
    return;
  }
  state_ = State::kPeerLeft;
  if (link_) {
    link_->stop(Link::State::kPeerLeft);
  }
}

void Endpoint::give_up(cpc::Direction direction, const std::string& reason) {
  if (directions_.is_open(direction)) {
    owner_.submit(cpc::Close{key(direction), reason});
    directions_.close(direction);
  }
}

void Endpoint::give_up(const std::string& reason) {
  for (const cpc::Direction direction : Directions::kAll) {
    give_up(direction, reason);
  }
}

void Endpoint::flushed(cpc::Direction direction) {
  directions_.flushed(direction);
  if (state_ == State::kClosing && direction == cpc::Direction::kBoth && link_) {
    link_->post_drain_markers();
  }
}

void Endpoint::fail() noexcept {
  state_ = State::kFailed;
  carrier_ = nullptr;
  if (link_) {
    link_->stop(Link::State::kFailed);
  }
}

void Endpoint::end_waiting_rdma() noexcept {
  while (!waiting_rdma_.empty()) {
    end_request(upper(), waiting_rdma_.pop_front(), OPAL_ERR_UNREACH,
                [this](RdmaRequest* request) { owner_.path().rdma().requests.put(request); });
  }
}

void Endpoint::fail_waiting() noexcept {
  if (link_) {
    link_->end_waiting();
  }
  end_waiting_rdma();
  while (!waiting_.empty()) {
    end_send(upper(), waiting_.pop_front(), OPAL_ERR_UNREACH);
  }
}

void Endpoint::close(const std::string& reason) {
  state_ = State::kClosing;
  carrier_ = nullptr;
  while (!waiting_.empty()) {
    put_back(waiting_.pop_front());
  }
  if (link_) {
    link_->stop(Link::State::kClosed);
    link_->end_waiting();
  }
  end_waiting_rdma();
  give_up(reason);
  if (directions_.is_flushed(cpc::Direction::kBoth) && link_) {
    link_->post_drain_markers();  // it had failed before
  }
}

bool Endpoint::is_drained() const noexcept {
  if (alive_others_.load(std::memory_order_acquire) > 0) {
    return false;  // their callbacks name this one
  }
  return directions_.all_flushed() && (!link_ || link_->is_drained());
}

void Endpoint::destroy() {
  link_.reset();
  for (const cpc::Direction direction : Directions::kAll) {
    if (directions_.has(direction)) {
      owner_.submit(cpc::Destroy{key(direction)});
      directions_.forget(direction);
    }
  }
}

// ---- For messages to users

std::string Endpoint::describe_queue(std::uint32_t qpn) const {
  char text[64];
  for (std::size_t i = 0; link_ && i < owner_.path().receive_queues().count(); ++i) {
    const LinkQueue& queue = link_->queue(i);
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
