// SPDX-License-Identifier: BSD-3-Clause
//
// What the packet path says of links: failures and goodbyes, as events of their endpoints; and what endpoints have said to
// the user and to the PML.
#include <algorithm>
#include <new>

#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

namespace {

Endpoint& endpoint_of(Link& link) noexcept {
  return static_cast<EndpointLink&>(link).endpoint;
}

/// The peer, over the queue with this queue pair.
bool has_said_goodbye(Link& link, std::uint32_t qpn) noexcept {
  const auto queues = link.queues();
  const auto found = std::find_if(queues.begin(), queues.end(), [qpn](const LinkQueue& one) { return one.qpn == qpn; });
  return found == queues.end() || found->said_goodbye;
}

/// It sends messages, or is about to when the peer has said what it has of those before.
bool carries(const Link* link) noexcept {
  return link != nullptr && (link->is_up() || link->state() == Link::State::kResuming);
}
/// The same, or it has its goodbye to send.
bool sends_anything(const Link* link) noexcept {
  return carries(link) || (link != nullptr && link->state() == Link::State::kLeaving);
}

}  // namespace

// ---- What the packet path says

void Endpoints::connection_wanted(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  guarded(&endpoint, [&] { endpoint.connect_if_wanted(); });
}

void Endpoints::peer_spoke(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.apply(EndpointEvent::kPeerSpoke, {.direction = endpoint.incoming()}); });
  }
}

void Endpoints::goodbye_arrived(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] {
      endpoint.apply(
          EndpointEvent::kGoodbyeArrived,
          {.text = "the peer has closed the connection, and messages for it wait", .direction = endpoint.incoming()});
      close_if_over(endpoint);
    });
  }
}

void Endpoints::goodbye_done(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.apply(EndpointEvent::kGoodbyeDone); });
  }
}

void Endpoints::rest_asked(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.apply(EndpointEvent::kRestAsked); });
  }
}

void Endpoints::rest_declined(Link& link) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.apply(EndpointEvent::kRestDeclined); });
  }
}

void Endpoints::link_failed(Link& link, const LinkFailure& failure) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  // Of one that is being taken down only what somebody waits for is news.
  const bool may_be_missed =
      failure.kind == LinkFailure::Kind::kCompletion && failure.is_missed && !endpoint.is_leaving();
  if (!endpoint.is_current(link) && !may_be_missed) {
    return;
  }
  if (failure.kind == LinkFailure::Kind::kCompletion) {
    completion_failed(link, failure);
    return;
  }
  const SendShare* const share = link.queues().front().share;  // of X queues
  SharedSendQueue* const sends = share != nullptr ? &share->sends : nullptr;
  const EndpointState before = endpoint.state();
  guarded(&endpoint,
          [&] { endpoint.apply(EndpointEvent::kLinkFailed, {.failure = &failure, .is_missed = failure.is_missed}); });
  if (before != EndpointState::kFailed && sends != nullptr && sends->qp->qp_num == failure.qpn) {
    heal_timeout_.count() > 0 ? break_sharers(*sends, nullptr, failure) : fail_sharers(*sends, endpoint);
  }
}

void Endpoints::completion_failed(Link& link, const LinkFailure& failure) noexcept {
  Endpoint& endpoint = endpoint_of(link);
  // What is flushed and nobody waits for tells nothing new: it follows an error of ours, whose own completion comes before, an
  // event of the device, or the end of the connection, of which the progress thread tells after this. But on iWARP each
  // queue pair is a TCP connection: goodbye over it has come before it is flushed. And where connections are made anew, what nobody waits
  // for may have been lost too.
  if (failure.completion.status == IBV_WC_WR_FLUSH_ERR && !failure.is_missed) {
    // Of one that is being set up the progress thread says why. What X queues receive tells of the peer's connection, and it knows.
    const bool heals = heal_timeout_.count() > 0 && !endpoint.is_xrc_ && link.state() != Link::State::kOpening;
    const bool tells = port_.address.link == Transport::kIwarp || heals;
    if (tells && !has_said_goodbye(link, failure.qpn)) {
      guarded(&endpoint, [&] {
        endpoint.apply(EndpointEvent::kLost,
                       endpoint.cause_of_end("the connection is gone, and the peer has not said goodbye"));
      });
    }
    return;
  }
  guarded(&endpoint,
          [&] { endpoint.apply(EndpointEvent::kLinkFailed, {.failure = &failure, .is_missed = failure.is_missed}); });
}

/// A request to an endpoint (or to one that is gone) has failed, and with it the queue pair. One report is enough, and the
/// queue pair of those who all are leaving is not missed. A goodbye to a process that has gone fails like that: then the others
/// connect anew when they have something to send, if nothing of theirs was under way.
void Endpoints::sender_failed(SharedSendQueue& sends, Link* link, const LinkFailure& failure) noexcept {
  if (link != nullptr && !carries(link) && failure.is_missed) {
    completion_failed(*link, failure);  // it is being taken down, and somebody waits for what it has sent
  }
  if (sends.has_failed()) {
    return;
  }
  if (!carries(link) && sends.loses_nothing_with(link, failure.goodbye_carried)) {
    leave_sender(sends);
    return;
  }
  if (heal_timeout_.count() > 0) {
    break_sharers(sends, link, failure);
    return;
  }
  if (!carries(link)) {
    const auto alive = std::find_if(sends.shares().begin(), sends.shares().end(),
                                    [&](const SendShare& share) { return carries(share.link); });
    link = alive != sends.shares().end() ? alive->link : nullptr;
  }
  if (link != nullptr) {
    Endpoint& first = endpoint_of(*link);
    guarded(&first,
            [&] { first.apply(EndpointEvent::kLinkFailed, {.failure = &failure, .is_missed = failure.is_missed}); });
    fail_sharers(sends, first);
  }
}

void Endpoints::leave_sender(SharedSendQueue& sends) noexcept {
  sends.break_down();
  for (std::size_t i = 0; i < sends.shares().size(); ++i) {
    Link* const link = sends.shares()[i].link;
    if (sends_anything(link)) {
      Endpoint& endpoint = endpoint_of(*link);
      guarded(&endpoint, [&] {
        endpoint.apply(EndpointEvent::kSenderGone, {.text = "the queue pair to the peer's node has failed",
                                                    .direction = cpc::Direction::kOutgoing});
      });
    }
  }
}

/// Each link that sends through it breaks, and is made anew, or fails by itself. What another one, `first`, has done wrong is the
/// fault of none of the others.
void Endpoints::break_sharers(SharedSendQueue& sends, const Link* first, const LinkFailure& failure) noexcept {
  sends.break_down();
  LinkFailure flushed{.kind = LinkFailure::Kind::kCompletion, .qpn = failure.qpn, .completion = failure.completion};
  flushed.completion.status = IBV_WC_WR_FLUSH_ERR;
  for (std::size_t i = 0; i < sends.shares().size(); ++i) {
    Link* const link = sends.shares()[i].link;
    if (sends_anything(link)) {
      Endpoint& endpoint = endpoint_of(*link);
      guarded(&endpoint, [&] {
        endpoint.apply(EndpointEvent::kLinkFailed, {.failure = link == first ? &failure : &flushed, .is_missed = true});
        if (endpoint.state() == EndpointState::kFailed) {
          endpoint.close(cpc::Direction::kOutgoing, "the queue pair to the peer's node has failed");
        }
      });
    }
  }
}

/// Nobody can send through it any more, neither `first`, which has failed, nor the others.
void Endpoints::fail_sharers(SharedSendQueue& sends, Endpoint& first) noexcept {
  sends.fail();
  for (std::size_t i = 0; i < sends.shares().size(); ++i) {  // the upper layer, being told, may add to them
    Link* const link = sends.shares()[i].link;
    if (sends_anything(link)) {
      Endpoint& endpoint = endpoint_of(*link);
      guarded(&endpoint, [&] {
        endpoint.apply(EndpointEvent::kLinkFailed, {.is_missed = true, .is_reported = true});
        endpoint.close(cpc::Direction::kOutgoing, "the queue pair that it shared with rank " +
                                                      std::to_string(first.key().peer.rank) + " has failed");
      });
    }
  }
}

/// Where nothing is under way no completion tells that a queue pair has failed. Where something is, both do, in either
/// order.
void Endpoints::queue_pair_failed(std::uint32_t qpn, ibv_event_type event) noexcept {
  Endpoint* const endpoint = find_user(qpn);
  if (endpoint == nullptr) {
    return;
  }
  const SendShare* const share = endpoint->link_->queues().front().share;
  const bool is_ours = !endpoint->is_xrc_ || (share != nullptr && share->sends.qp->qp_num == qpn);
  if (is_ours) {
    link_failed(*endpoint->link_, {.kind = LinkFailure::Kind::kDeviceEvent, .qpn = qpn, .event = event});
    return;
  }
  guarded(endpoint, [&] {  // what that costs the peer is an error there
    note(*endpoint, "the queue pair by which the peer sends has failed");
    endpoint->close(cpc::Direction::kIncoming, "its queue pair has failed");
  });
}

/// One whose link uses a queue pair, or null.
Endpoint* Endpoints::find_user(std::uint32_t qpn) const noexcept {
  const auto guard = known_guard();
  const auto uses_it = [qpn](const auto& one) { return one.second->link_ && one.second->link_->uses(qpn); };
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(), uses_it);
  return found != endpoints_.end() ? found->second.get() : nullptr;
}

// ---- What endpoints say

void Endpoints::report(const Endpoint& endpoint, const EndpointCause& cause) {
  if (cause.is_reported || is_ending_) {
    return;
  }
  if (cause.failure != nullptr) {
    services_.report_link_failed(endpoint, *cause.failure);
  } else {
    services_.report_connection_failed(endpoint, cause.text, cause.history);
  }
}

void Endpoints::failed(const Endpoint& endpoint) noexcept {
  ++path_->counters().connections_failed;
  services_.tell_upper_layer(endpoint.proc());
}

void Endpoints::no_memory(Endpoint* endpoint) noexcept {
  services_.report_no_memory();
  if (endpoint == nullptr) {
    services_.tell_upper_layer(nullptr);
    return;
  }
  try {
    endpoint->apply(EndpointEvent::kLinkFailed, {.is_missed = true, .is_reported = true});
  } catch (const std::bad_alloc&) {  // only where there is a trace to write
    services_.tell_upper_layer(endpoint->proc());
  }
}

}  // namespace fabric
