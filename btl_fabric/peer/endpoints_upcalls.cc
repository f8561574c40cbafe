// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread says about connections, and what becomes of it.
#include <new>
#include <variant>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

void Endpoints::handle(const cpc::Upcall& upcall) noexcept {
  std::visit(
      [this](const auto& told) {
        if constexpr (requires { told.key; }) {
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
      posted = endpoint.link().receive_from(upcall.target_qpn);
      break;
  }
  if (!posted) {
    endpoint.apply(EndpointEvent::kSetUpFailed, {.text = posted.error().text, .direction = upcall.key.direction});
  }
  if (endpoint.directions_.is_open(upcall.key.direction)) {
    submit(cpc::ReceivesPosted{upcall.key});
  }
}

void Endpoints::on(const cpc::PostReceives& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = endpoint_of_unknown(endpoint_key(upcall.key), why_not);
  }
  if (endpoint == nullptr ||
      (endpoint->state() == EndpointState::kFailed && !endpoint->directions_.has(upcall.key.direction))) {
    submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->directions_.open(upcall.key.direction);
  if (endpoint->state() != EndpointState::kFailed) {  // else our Close has crossed this
    post_receives(*endpoint, upcall);
  }
}

void Endpoints::on(const cpc::Connected& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr || upcall.key.direction == cpc::Direction::kIncoming ||
      endpoint->state() != EndpointState::kConnecting) {
    return;  // crossed our Close, or the direction that only the peer sends in
  }
  if (upcall.key.direction == cpc::Direction::kOutgoing) {
    SharedSendQueue& sends = path_->sender(upcall.xrc);
    if (sends.has_failed()) {
      endpoint->apply(EndpointEvent::kSetUpFailed,
                      {.text = "the queue pair that it shares with other processes of the peer's host has failed",
                       .direction = upcall.key.direction});
      return;
    }
    endpoint->share(upcall.xrc, sends);
  }
  endpoint->remote_ends_ = upcall.remote_ends;
  endpoint->apply(EndpointEvent::kMade);
}

void Endpoints::on(const cpc::Linked& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = endpoint_of_unknown(upcall.key, why_not);
  }
  if (endpoint == nullptr || endpoint->state() == EndpointState::kFailed) {
    submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->directions_.open(upcall.key.direction);
  handshakes_[upcall.handshake.serial] = endpoint;
  endpoint->take(upcall);
  endpoint->apply(EndpointEvent::kLinked, {.queue_pairs = &upcall.queue_pairs});
  check_early_cts(*endpoint);
}

/// What the peer has sent before it left is in the completion queues already, its goodbye above all; on iWARP it may still
/// be on its way, and comes before the receives of its queue pair are flushed.
void Endpoints::on(const cpc::PeerLeft& upcall) {
  constexpr int kMost = 1000;  // others may send all the time
  for (int i = 0; i < kMost && path_->progress() > 0; ++i) {
  }
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr ||
      (port_.address.link == Transport::kIwarp && endpoint->state() == EndpointState::kConnected)) {
    return;
  }
  const bool is_up = endpoint->state() == EndpointState::kConnected;
  endpoint->apply(EndpointEvent::kLost,
                  {.text = is_up ? "the connection is gone, and the peer has not said goodbye"
                                 : "the peer closed the connection before it was ready to receive"});
}

void Endpoints::on(const cpc::Failed& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr && !is_closing(upcall.key)) {
    submit(cpc::Close{upcall.key, upcall.reason});  // an unknown peer's, which has been told and reports it
  }
  if (endpoint == nullptr) {
    return;
  }
  endpoint->directions_.open(upcall.key.direction);
  endpoint->apply(EndpointEvent::kSetUpFailed,
                  {.text = upcall.reason, .history = upcall.history, .direction = upcall.key.direction});
}

void Endpoints::on(const cpc::Flushing& upcall) {
  for (const auto& endpoint : closing_) {
    if (endpoint->key() == endpoint_key(upcall.key) && endpoint->directions_.has(upcall.key.direction)) {
      endpoint->flushed(upcall.key.direction);
      return;
    }
  }
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr && endpoint->directions_.has(upcall.key.direction)) {
    endpoint->flushed(upcall.key.direction);  // it has failed, and is there until Open MPI takes it away
  } else {
    submit(cpc::Destroy{upcall.key});  // refused: no endpoint ever used its queue pairs
  }
}

}  // namespace fabric
