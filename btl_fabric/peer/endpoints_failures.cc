// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of an endpoint when its link or its connection fails, or the peer leaves. All failures come here; here they
// are reported, once.
#include <algorithm>
#include <new>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

namespace {

Endpoint& endpoint_of(Link& link) noexcept {
  return static_cast<EndpointLink&>(link).endpoint;
}

}  // namespace

// ---- What the packet path says

void Endpoints::connection_wanted(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  guarded(&endpoint, [&] { endpoint.connect_if_wanted(); });
}

void Endpoints::peer_spoke(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  guarded(&endpoint, [&] { endpoint.peer_spoke(); });
}

void Endpoints::link_failed(Link& link, const LinkFailure& failure) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  switch (failure.kind) {
    case LinkFailure::Kind::kCompletion:
      completion_failed(endpoint, failure);
      return;
    case LinkFailure::Kind::kRefusedPost:
    case LinkFailure::Kind::kDeviceEvent:
      services_.report_link_failed(endpoint, failure);
      if (SharedSendQueue* const sends = link.shared_sends(); sends != nullptr && sends->qp->qp_num == failure.qpn) {
        fail_sharers(*sends, endpoint);
      } else {
        fail(endpoint);
      }
      return;
    case LinkFailure::Kind::kBadPacket:
    case LinkFailure::Kind::kNoMemory:
      services_.report_link_failed(endpoint, failure);
      fail(endpoint);
      return;
  }
}

void Endpoints::completion_failed(Endpoint& endpoint, const LinkFailure& failure) noexcept {
  const Endpoint::State state = endpoint.state();
  if (state == Endpoint::State::kClosing || state == Endpoint::State::kFailed) {
    return;  // has been dealt with
  }
  // An iWARP connection that the peer closes flushes what is posted here; on other links that follows an error of ours.
  const bool is_goodbye = failure.completion.status == IBV_WC_WR_FLUSH_ERR && port_.address.link == Transport::kIwarp;
  if (is_goodbye && !failure.is_missed) {
    peer_left(endpoint);
  } else if (state != Endpoint::State::kPeerLeft || failure.is_missed) {
    services_.report_link_failed(endpoint, failure);
    fail(endpoint);
  }
}

/// A request to an endpoint (or to one that is gone) has failed, and with it the queue pair. One report is enough, and the
/// queue pair of those who all are leaving is not missed.
void Endpoints::sender_failed(SharedSendQueue& sends, Link* link, const LinkFailure& failure) noexcept {
  const auto is_alive = [](const Link* one) { return one != nullptr && one->is_up(); };
  if (!is_alive(link)) {
    const auto alive = std::find_if(sends.shares().begin(), sends.shares().end(),
                                    [&](const SendShare& share) { return is_alive(share.link); });
    link = alive != sends.shares().end() ? alive->link : nullptr;
  }
  if (link != nullptr && !sends.has_failed()) {
    services_.report_link_failed(endpoint_of(*link), failure);
    fail_sharers(sends, endpoint_of(*link));
  }
}

/// Nobody can send through it any more, neither `first` nor the others.
void Endpoints::fail_sharers(SharedSendQueue& sends, Endpoint& first) noexcept {
  sends.fail();
  fail(first);
  for (std::size_t i = 0; i < sends.shares().size(); ++i) {  // the upper layer, being told, may add to them
    Link* const link = sends.shares()[i].link;
    if (link != nullptr && link->is_up()) {
      Endpoint& endpoint = endpoint_of(*link);
      fail(endpoint);
      guarded(&endpoint, [&] {
        endpoint.give_up(cpc::Direction::kOutgoing, "the queue pair that it shared with rank " +
                                                        std::to_string(first.key().peer.rank) + " has failed");
      });
    }
  }
}

/// Where nothing is under way no completion tells that a queue pair has failed. Where something is, both do, in either
/// order.
void Endpoints::queue_pair_failed(std::uint32_t qpn, ibv_event_type event) noexcept {
  for (const auto& [name, endpoint] : endpoints_) {
    const Endpoint::State state = endpoint->state();
    if (!endpoint->link_ || !endpoint->link_->uses(qpn) || state == Endpoint::State::kFailed ||
        state == Endpoint::State::kClosing) {
      continue;
    }
    link_failed(*endpoint->link_, {.kind = LinkFailure::Kind::kDeviceEvent, .qpn = qpn, .event = event});
    return;
  }
}

// ---- What the progress thread says

[[gnu::cold]] void Endpoints::peer_left(Endpoint& endpoint) noexcept {
  if (endpoint.state() == Endpoint::State::kFailed || endpoint.state() == Endpoint::State::kClosing) {
    return;
  }
  guarded(&endpoint, [&] {
    const bool is_peers_wish = endpoint.is_peers_wish();
    if (Status fine = endpoint.peer_left(); !fine && is_peers_wish) {
      forget_peers_wish(endpoint, fine.error().text);
      endpoint.give_up(fine.error().text);
    } else if (!fine) {
      connection_failed(endpoint, fine.error().text);
    }
  });
}

void Endpoints::connection_failed(Endpoint& endpoint, const std::string& reason) noexcept {
  if (endpoint.state() == Endpoint::State::kFailed) {
    return;
  }
  guarded(&endpoint, [&] {
    std::string doing;
    if (endpoint.exchanges_cts_) {
      doing.append("clear-to-send exchange: ").append(cpc::to_string(endpoint.cts_));
    }
    services_.report_connection_failed(endpoint, reason, doing);
    fail(endpoint);
    endpoint.give_up(reason);
  });
}

/// A peer that wants to talk to us may change its mind, or be gone before it has: that is no reason to end the job.
void Endpoints::forget_peers_wish(Endpoint& endpoint, const std::string& reason) noexcept {
  services_.report_not_missed(endpoint, reason);
  endpoint.forget_peers_wish();
}

/// Tells the PML, which ends the job unless that can live without the peer (ULFM, from Open MPI 5.0 on). Then all that waits
/// for the endpoint fails, and what is under way as its completions come. The endpoint refuses everything from now on.
void Endpoints::fail(Endpoint& endpoint) noexcept {
  ++path_->counters().connections_failed;
  endpoint.fail();
  services_.tell_upper_layer(endpoint.proc());
  endpoint.fail_waiting();
}

void Endpoints::no_memory(Endpoint* endpoint) noexcept {
  services_.report_no_memory();
  if (endpoint == nullptr) {
    services_.tell_upper_layer(nullptr);
  } else if (endpoint->state() != Endpoint::State::kFailed && endpoint->state() != Endpoint::State::kClosing) {
    fail(*endpoint);
  }
}

}  // namespace fabric
