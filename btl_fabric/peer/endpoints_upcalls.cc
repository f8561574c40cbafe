// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread says about connections, and what becomes of it.
#include <algorithm>
#include <new>
#include <variant>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

void Endpoints::handle(const cpc::Upcall& upcall) noexcept {
  std::visit(
      [this](const auto& told) {
        using Upcall = std::decay_t<decltype(told)>;
        if constexpr (std::is_same_v<Upcall, cpc::RoomWanted> || std::is_same_v<Upcall, cpc::KeepAliveDue>) {
          on(told);
        } else if constexpr (requires { told.key; }) {
          // A peer that connects with X queues again may come through the queue pair by which it said goodbye.
          if (told.key.direction != cpc::Direction::kBoth) {
            take_what_is_here();
          }
          guarded(find(told.key), [&] { on(told); });
        }
      },
      upcall);
}

/// What waits for an answer of the main thread: all receives of queue pairs of the endpoint's own, or the shared ones
/// that peers will soon send to.
void Endpoints::post_receives(Endpoint& endpoint, const cpc::PostReceives& upcall) {
  Status posted;
  switch (upcall.key.direction) {
    case cpc::Direction::kBoth:
      endpoint.apply(EndpointEvent::kReceivesWanted, {.queue_pairs = &upcall.queue_pairs});
      break;
    case cpc::Direction::kOutgoing:
      posted = path_->start_shared_queues();
      break;
    case cpc::Direction::kIncoming:
      give_up_target(upcall.key);
      posted = endpoint.link().receive_from(upcall.target_qpn, upcall.incarnation);
      break;
  }
  if (!posted) {
    endpoint.apply(EndpointEvent::kSetUpFailed, {.text = posted.error().text, .direction = upcall.key.direction});
  }
  if (endpoint.directions_.is_open(upcall.key.direction)) {
    submit(cpc::ReceivesPosted{upcall.key, upcall.link});
  }
}

Endpoint* Endpoints::open(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
  if (find_closing(key, link) != nullptr) {
    return nullptr;  // crossed our Close
  }
  cpc::LinkNumber& newest = newest_links_[key];
  newest = std::max(newest, link);
  if (is_lost()) {
    submit(cpc::Close{key, link, "the device is gone"});
    return nullptr;
  }
  Endpoint* endpoint = find(key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = endpoint_of_unknown(endpoint_key(key), why_not);
  }
  if (endpoint != nullptr && endpoint->state() != EndpointState::kFailed) {
    endpoint->directions_.open(key.direction, link);
    return endpoint;
  }
  if (endpoint == nullptr || !endpoint->directions_.has(key.direction, link)) {
    submit(cpc::Close{key, link, why_not, true});
  }
  return nullptr;
}

void Endpoints::on(const cpc::PostReceives& upcall) {
  if (Endpoint* const endpoint = open(upcall.key, upcall.link); endpoint != nullptr) {
    post_receives(*endpoint, upcall);
  }
}

void Endpoints::on(const cpc::Connected& upcall) {
  Endpoint* const endpoint = find_any(upcall.key, upcall.link);
  if (endpoint == nullptr || upcall.key.direction == cpc::Direction::kIncoming ||
      !endpoint->directions_.has(upcall.key.direction, upcall.link) ||
      (endpoint->state() != EndpointState::kConnecting && endpoint->state() != EndpointState::kAboutToLeave)) {
    return;  // crossed our Close, or the direction that only the peer sends in
  }
  if (upcall.key.direction == cpc::Direction::kOutgoing) {
    SharedSendQueue& sends = path_->sender(upcall.xrc);
    if (sends.has_failed()) {
      // If it has failed otherwise it need not be in the error state, and a new connection could join it again, for ever.
      const bool is_replaced = sends.has_broken_down();
      endpoint->apply(is_replaced ? EndpointEvent::kSenderGone : EndpointEvent::kSetUpFailed,
                      {.text = "the queue pair that it shares with other processes of the peer's host has failed",
                       .direction = upcall.key.direction});
      return;
    }
    endpoint->share(upcall.xrc, sends);
  }
  endpoint->remote_ends_ = upcall.remote_ends;
  // With X queues the peer's messages come over a connection of their own, whatever becomes of this one.
  endpoint->apply(EndpointEvent::kMade, {.is_missed = endpoint->is_xrc_});
}

void Endpoints::on(const cpc::Linked& upcall) {
  Endpoint* const endpoint = open(upcall.key, upcall.link);
  if (endpoint == nullptr) {
    return;
  }
  handshakes_[upcall.handshake.serial] = endpoint;
  endpoint->take(upcall);
  endpoint->apply(EndpointEvent::kLinked, {.queue_pairs = &upcall.queue_pairs});
  check_early_cts(*endpoint);
}

/// The goodbye of a connection is in the completion queues before the progress thread hears of the next one.
void Endpoints::take_what_is_here() noexcept {
  constexpr int kMost = 1000;  // others may send all the time
  for (int i = 0; i < kMost && path_->progress() > 0; ++i) {
  }
}

/// The peer may connect again by the queue pair that it used before, and what we close receives nothing more from it.
void Endpoints::give_up_target(const cpc::ConnectionKey& key) noexcept {
  closing_.for_each_to(key.peer, [&](const Endpoint& endpoint) {
    if (endpoint.key() == endpoint_key(key) && endpoint.link_) {
      (void)endpoint.link_->receive_from(0, 0);
    }
  });
}

/// What the peer has sent before it left is here already, its goodbye above all; on iWARP it may still be on its way, and
/// comes before the receives of its queue pair are flushed.
void Endpoints::on(const cpc::PeerLeft& upcall) {
  take_what_is_here();
  Endpoint* const endpoint = find_any(upcall.key, upcall.link);
  if (endpoint == nullptr || !endpoint->directions_.has(upcall.key.direction, upcall.link) ||
      (port_.address.link == Transport::kIwarp &&
       (endpoint->state() == EndpointState::kConnected || endpoint->state() == EndpointState::kResuming ||
        endpoint->state() == EndpointState::kResting))) {
    return;
  }
  const bool is_up = endpoint->state() == EndpointState::kConnected;
  endpoint->apply(EndpointEvent::kLost,
                  endpoint->cause_of_end(is_up ? "the connection is gone, and the peer has not said goodbye"
                                               : "the peer closed the connection before it was ready to receive"));
}

/// The peer's goodbye may have come before its end of the connection went.
void Endpoints::on(const cpc::Failed& upcall) {
  take_what_is_here();
  cpc::LinkNumber& newest = newest_links_[upcall.key];
  const bool is_new = upcall.link > newest;  // nothing was heard of it before
  newest = std::max(newest, upcall.link);
  Endpoint* const endpoint = find_any(upcall.key, upcall.link);
  if (endpoint == nullptr || (is_new && !upcall.was_wanted)) {
    return;  // an unknown peer's, or one that only the peer wanted, which has been told and reports it
  }
  if (is_new && endpoint->state() != EndpointState::kFailed) {
    endpoint->directions_.open(upcall.key.direction, upcall.link);  // what our Connect was joined to
  }
  if (!endpoint->directions_.has(upcall.key.direction, upcall.link) ||
      !endpoint->directions_.is_open(upcall.key.direction)) {
    return;  // it is being taken down already
  }
  endpoint->directions_.end(upcall.key.direction);  // the progress thread closes it by itself
  if (upcall.has_no_device && upcall.was_wanted && heal_timeout_.count() > 0 && leads_elsewhere(*endpoint) &&
      endpoint->state() == EndpointState::kConnecting && !endpoint->is_healing()) {
    (void)endpoint->connect_elsewhere(is_lost() ? kDeviceIsGone : "the peer's device, or this one, is gone");
  }
  endpoint->apply(EndpointEvent::kSetUpFailed, {.text = upcall.reason,
                                                .history = upcall.history,
                                                .is_final = upcall.is_final,
                                                .was_wanted = upcall.was_wanted,
                                                .direction = upcall.key.direction});
}

void Endpoints::on(const cpc::Flushing& upcall) {
  const auto& [key, number] = upcall;
  if (EndpointLink* const one = find_ending(key, number); one != nullptr) {
    one->is_flushed = true;
    one->flushed_at = std::chrono::steady_clock::now();
    one->post_drain_markers();
    return;
  }
  if (Endpoint* const closing = find_closing(key, number); closing != nullptr) {
    closing->flushed(key.direction);
    if (closing->is_leaving()) {
      closing->apply(EndpointEvent::kSuperseded);
    }
    return;
  }
  Endpoint* const endpoint = find(key);
  if (endpoint == nullptr || !endpoint->directions_.has(key.direction, number)) {
    submit(cpc::Destroy{key, number});  // no endpoint ever used its queue pairs
    return;
  }
  if (key.direction == cpc::Direction::kIncoming && endpoint->state() != EndpointState::kFailed) {
    submit(cpc::Destroy{key, number});  // nothing of ours is under way over it
    (void)endpoint->link().receive_from(0, 0);
    endpoint->directions_.forget(key.direction);
    close_if_over(*endpoint);
    return;
  }
  if (key.direction == cpc::Direction::kOutgoing &&
      (endpoint->state() == EndpointState::kIdle || endpoint->state() == EndpointState::kConnecting)) {
    submit(cpc::Destroy{key, number});  // it was given up before anything could be sent over it
    endpoint->directions_.forget(key.direction);
  } else {
    endpoint->flushed(key.direction);
  }
  endpoint->apply(EndpointEvent::kSuperseded,
                  endpoint->cause_of_end("the peer has connected anew, and what it was sent before may be lost"));
}

}  // namespace fabric
