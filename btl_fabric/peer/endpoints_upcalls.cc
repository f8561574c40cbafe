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
      posted = endpoint.post_receives(upcall.queue_pairs);
      break;
    case cpc::Direction::kOutgoing:
      posted = path_->start_shared_queues();
      break;
    case cpc::Direction::kIncoming:
      posted = endpoint.link().receive_from(upcall.target_qpn);
      break;
  }
  if (!posted) {
    connection_failed(endpoint, posted.error().text);
    return;
  }
  submit(cpc::ReceivesPosted{upcall.key});
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
      (endpoint->state() == Endpoint::State::kFailed && !endpoint->directions_.has(upcall.key.direction))) {
    submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->directions_.open(upcall.key.direction);
  if (endpoint->state() != Endpoint::State::kFailed) {  // else our Close has crossed this
    post_receives(*endpoint, upcall);
  }
}

void Endpoints::on(const cpc::Connected& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr || endpoint->state() != Endpoint::State::kConnecting) {
    return;  // crossed our Close, or the direction that only the peer sends in
  }
  if (upcall.key.direction == cpc::Direction::kBoth) {
    endpoint->connected(upcall.remote_ends);
  } else if (upcall.key.direction == cpc::Direction::kOutgoing) {
    SharedSendQueue& sends = path_->sender(upcall.xrc);
    if (sends.has_failed()) {
      connection_failed(*endpoint, "the queue pair that it shares with other processes of the peer's host has failed");
      return;
    }
    endpoint->connected(upcall.xrc, sends, upcall.remote_ends);
  }
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
  if (endpoint == nullptr || endpoint->state() == Endpoint::State::kFailed) {
    submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->directions_.open(upcall.key.direction);
  handshakes_[upcall.handshake.serial] = endpoint;
  if (Status linked = endpoint->linked(upcall); !linked) {
    connection_failed(*endpoint, linked.error().text);
    return;
  }
  check_early_cts(*endpoint);
}

void Endpoints::on(const cpc::PeerLeft& upcall) {
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr) {
    peer_left(*endpoint);
  }
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
  if (endpoint->is_peers_wish()) {  // who wants it has been told
    forget_peers_wish(*endpoint, upcall.reason);
    endpoint->give_up(upcall.key.direction, upcall.reason);
    return;
  }
  if (endpoint->state() != Endpoint::State::kFailed) {
    services_.report_connection_failed(*endpoint, upcall.reason, upcall.history);
    fail(*endpoint);
  }
  endpoint->give_up(upcall.reason);
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
