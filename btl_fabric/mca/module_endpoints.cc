// SPDX-License-Identifier: BSD-3-Clause
//
// The endpoints of a module: making them, and what the progress thread says about their connections.
#include <algorithm>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"
#include "common/ports/gid_choice.h"

namespace fabric {

Endpoint* Module::endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not) {
  const std::uint16_t ours = place_.index;
  if (!peer.refusal.empty()) {
    why_not = peer.refusal;
    return nullptr;
  }
  if (!peer.pairs[ours]) {
    why_not = "no port of the peer is on the subnet of " + name() + " (" + to_string(port_.address.subnet) + ")";
    return nullptr;
  }
  const cpc::ConnectionKey key{name_of(*proc), ours, *peer.pairs[ours]};
  if (Endpoint* known = find(key); known != nullptr) {
    return known;
  }
  const CpcOffer* offer = cpc::choose_cpc(Component::get().info(), ours, peer.info, key.remote_port);
  if (offer == nullptr) {
    why_not = "no connection method serves both " + name() +
              " and the peer's port: " + cpc::why_no_cpc(Component::get().info(), ours, peer.info, key.remote_port);
    report_no_connection_method(*this, *proc, why_not);
    return nullptr;
  }
  return add_endpoint(proc, key, peer, *offer, nullptr);
}

Endpoint* Module::endpoint_behind(Endpoint& face) {
  const Peer& peer = *Component::get().peer_of(*face.proc());  // which is known since `face` was made
  const cpc::ConnectionKey key{face.key().peer, place_.index, *peer.pairs[place_.index]};
  const CpcOffer* offer = cpc::choose_cpc(Component::get().info(), key.local_port, peer.info, key.remote_port);
  return add_endpoint(face.proc(), key, peer, *offer, &face);
}

/// Contexts of this port in which a peer is reached that is reached in the first.
unsigned Module::contexts_with(const Peer& peer) const {
  unsigned count = 1;
  while (count < family_.size()) {
    const auto ours = static_cast<std::uint16_t>(place_.index + count);
    if (!peer.pairs[ours] || cpc::choose_cpc(Component::get().info(), ours, peer.info, *peer.pairs[ours]) == nullptr) {
      break;
    }
    ++count;
  }
  return count;
}

Endpoint* Module::add_endpoint(opal_proc_t* proc, const cpc::ConnectionKey& key, const Peer& peer,
                               const CpcOffer& offer, Endpoint* face) {
  cpc::PeerTarget target{offer.kind, offer.blob, peer.info.token, OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags)};
  auto endpoint = face == nullptr ? std::make_unique<Endpoint>(*this, proc, key, std::move(target), contexts_with(peer))
                                  : std::make_unique<Endpoint>(*this, key, std::move(target), *face);
  return endpoints_.emplace(key, std::move(endpoint)).first->second.get();
}

/// By the key of the endpoint, or of a direction of its connection.
Endpoint* Module::find(const cpc::ConnectionKey& key) const noexcept {
  const auto found = endpoints_.find(endpoint_key(key));
  return found == endpoints_.end() ? nullptr : found->second.get();
}

bool Module::is_closing(const cpc::ConnectionKey& key) const noexcept {
  return std::any_of(closing_.begin(), closing_.end(), [&](const auto& endpoint) {
    return endpoint->key() == endpoint_key(key) && endpoint->has(key.direction);
  });
}

void Module::remove_endpoint(Endpoint* face) {
  for (unsigned context = face->contexts(); context-- > 0;) {
    if (Endpoint* endpoint = face->if_in_context(context); endpoint != nullptr) {
      in_context(context).close_endpoint(endpoint);
    }
  }
}

void Module::close_endpoint(Endpoint* endpoint) {
  const auto found = endpoints_.find(endpoint->key());
  if (found == endpoints_.end() || found->second.get() != endpoint) {
    return;
  }
  closing_.push_back(std::move(found->second));
  endpoints_.erase(found);
  endpoint->close("the process has disconnected");
}

/// Endpoints whose last completion is in can go.
void Module::reap_drained() {
  for (std::size_t i = 0; i < closing_.size();) {
    if (!closing_[i]->is_drained()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Endpoint> endpoint = std::move(closing_[i]);
    closing_.erase(closing_.begin() + static_cast<std::ptrdiff_t>(i));
    handshakes_.erase(endpoint->handshake().serial);
    forget_queue_pairs(*endpoint);
    endpoint->destroy();
    if (Endpoint* successor = find(endpoint->key()); successor != nullptr) {
      successor->connect_if_wanted();
    }
  }
}

void Module::forget_queue_pairs(Endpoint& endpoint) noexcept {
  for (std::size_t i = 0; i < queues_.count(); ++i) {
    const EndpointQueue& queue = endpoint.queue(i);
    if (queue.qp != nullptr) {
      queue_pairs_.erase(queue.qp->qp_num);
    }
    if (queue.share != nullptr) {
      queue.share->endpoint = nullptr;
    }
  }
  if (endpoint.target() != 0) {
    queue_pairs_.erase(endpoint.target());
  }
}

Status Module::start_shared_queues() {
  for (const auto& shared : shared_queues_) {
    if (Status started = shared ? shared->start() : Status(); !started) {
      return started;
    }
  }
  return {};
}

/// With X queues: messages that come in through the queue pair with this number are the endpoint's.
Status Module::receive_from(Endpoint& endpoint, std::uint32_t target_qpn) {
  if (endpoint.target() != 0) {
    queue_pairs_.erase(endpoint.target());
  }
  if (queue_pairs_.find(target_qpn) != nullptr) {
    return failure("another process sends through queue pair " + std::to_string(target_qpn) + " already");
  }
  endpoint.set_target(target_qpn);
  queue_pairs_.insert(target_qpn, &endpoint.queue(0));
  return start_shared_queues();
}

/// What waits for an answer of the main thread: all receives of queue pairs of the endpoint's own, or the shared ones
/// that peers will soon send to.
void Module::post_receives(Endpoint& endpoint, const cpc::PostReceives& upcall) {
  Status posted;
  switch (upcall.key.direction) {
    case cpc::Direction::kBoth:
      posted = endpoint.post_receives(upcall.queue_pairs);
      break;
    case cpc::Direction::kOutgoing:
      posted = start_shared_queues();
      break;
    case cpc::Direction::kIncoming:
      posted = receive_from(endpoint, upcall.target_qpn);
      break;
  }
  if (!posted) {
    connection_failed(endpoint, posted.error().text);
    return;
  }
  connections_->submit(cpc::ReceivesPosted{upcall.key});
}

void Module::handle(const cpc::PostReceives& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = Component::get().endpoint_of_stranger(*this, endpoint_key(upcall.key), why_not);
  }
  if (endpoint == nullptr || (endpoint->state() == Endpoint::State::kFailed && !endpoint->has(upcall.key.direction))) {
    connections_->submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->opened(upcall.key.direction);
  if (endpoint->state() != Endpoint::State::kFailed) {  // else our Close has crossed this
    post_receives(*endpoint, upcall);
  }
}

/// The queue pair to the port of a node, for all processes there.
SharedSendQueue& Module::sender(const cpc::XrcPath& path) {
  std::unique_ptr<SharedSendQueue>& found = senders_[path.sender];
  if (!found) {
    found = std::make_unique<SharedSendQueue>(path.queue_pair, sender_space(), *this);
    ++counters().xrc_senders;
  }
  return *found;
}

void Module::handle(const cpc::Connected& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr || endpoint->state() != Endpoint::State::kConnecting) {
    return;  // crossed our Close, or the direction that only the peer sends in
  }
  if (upcall.key.direction == cpc::Direction::kBoth) {
    endpoint->connected(upcall.remote_ends);
  } else if (upcall.key.direction == cpc::Direction::kOutgoing) {
    SharedSendQueue& sends = sender(upcall.xrc);
    if (sends.has_failed()) {
      connection_failed(*endpoint, "the queue pair that it shares with other processes of the peer's host has failed");
      return;
    }
    endpoint->connected(upcall.xrc, sends, upcall.remote_ends);
  }
}

void Module::handle(const cpc::Linked& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = Component::get().endpoint_of_stranger(*this, upcall.key, why_not);
  }
  if (endpoint == nullptr || endpoint->state() == Endpoint::State::kFailed) {
    connections_->submit(cpc::Close{upcall.key, why_not});
    return;
  }
  endpoint->opened(upcall.key.direction);
  handshakes_[upcall.handshake.serial] = endpoint;
  if (Status linked = endpoint->linked(upcall); !linked) {
    connection_failed(*endpoint, linked.error().text);
    return;
  }
  check_early_cts(*endpoint);
}

void Module::handle(const cpc::PeerLeft& upcall) {
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr) {
    peer_left(*endpoint);
  }
}

void Module::connection_failed(Endpoint& endpoint, const std::string& reason) noexcept {
  if (endpoint.state() == Endpoint::State::kFailed) {
    return;
  }
  std::string doing;
  if (endpoint.exchanges_cts()) {
    doing.append("clear-to-send exchange: ").append(cpc::to_string(endpoint.cts_state()));
  }
  report_connection_failed(*this, endpoint, reason, doing);
  fail(endpoint);
  endpoint.give_up(reason);
}

/// A peer that wants to talk to us may change its mind, or be gone before it has: that is no reason to end the job.
void Module::forget_peers_wish(Endpoint& endpoint, const std::string& reason) noexcept {
  report_not_missed(*this, endpoint, reason);
  endpoint.forget_peers_wish();
}

void Module::handle(const cpc::Failed& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr && !is_closing(upcall.key)) {
    connections_->submit(
        cpc::Close{upcall.key, upcall.reason});  // a stranger's; the stranger has been told and reports it
  }
  if (endpoint == nullptr) {
    return;
  }
  endpoint->opened(upcall.key.direction);
  if (endpoint->is_peers_wish()) {  // who wants it has been told
    forget_peers_wish(*endpoint, upcall.reason);
    endpoint->give_up(upcall.key.direction, upcall.reason);
    return;
  }
  if (endpoint->state() != Endpoint::State::kFailed) {
    report_connection_failed(*this, *endpoint, upcall.reason, upcall.history);
    fail(*endpoint);
  }
  endpoint->give_up(upcall.reason);
}

void Module::handle(const cpc::Flushing& upcall) {
  for (const auto& endpoint : closing_) {
    if (endpoint->key() == endpoint_key(upcall.key) && endpoint->has(upcall.key.direction)) {
      endpoint->flushed(upcall.key.direction);
      return;
    }
  }
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr && endpoint->has(upcall.key.direction)) {
    endpoint->flushed(upcall.key.direction);  // it has failed, and is there until Open MPI takes it away
  } else {
    connections_->submit(cpc::Destroy{upcall.key});  // refused: no endpoint ever used its queue pairs
  }
}

}  // namespace fabric
