// SPDX-License-Identifier: BSD-3-Clause
//
// Carries out endpoint_table.h.
#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include "btl_fabric/path/link_one_way.h"
#include "btl_fabric/path/link_rest.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"
#include "cpc/core/trace.h"

namespace fabric {

EndpointGuards Endpoint::guards(const EndpointCause& cause) const noexcept {
  return {.may_speak_first = may_speak_first_,
          .missed = !owner_.is_ending() &&
                    (cause.is_missed || has_waiting() || (is_healing() && healing_->has_broken) || owes_answer()),
          .crossed = has_asked_ && !cause.was_wanted,
          .theirs = !has_asked_ && !cause.was_wanted,
          .is_self = is_self_,
          .other_way = cause.direction == cpc::Direction::kIncoming,
          .heard = has_heard_,
          .idle = is_idle(),
          .heals = may_heal(cause),
          .healing = is_healing(),
          .nothing_left = has_carried_all() || has_left(cause),
          .posted_all = has_posted_all(),
          .receives = is_xrc_ && contexts_ == 1 && first_ == this && directions_.is_open(cpc::Direction::kIncoming)};
}

void Endpoint::apply(EndpointEvent event, const EndpointCause& cause) {
  const EndpointStep step = endpoint_step(state_, event, guards(cause));
  if (step.outcome == Outcome::kIgnored) {
    return;
  }
  const EndpointState from = state_;
  if (cpc::Trace* const trace = owner_.trace(); trace != nullptr) {
    trace->add(key_, to_string(from), to_string(event), to_string(step.next));
  }
  EndpointCause known = cause;
  if (step.outcome == Outcome::kProtocolError) {
    known.text = "protocol error: " + std::string(step.why);
  }
  if (known.history.empty() && !known.is_reported) {
    known.history = "endpoint: " + std::string(to_string(from));
  }
  if (from == EndpointState::kIdle) {
    connecting_since_ = std::chrono::steady_clock::now();
  }
  state_ = step.next;
  history_.add(from, event, step.next);
  in_state_since_ = std::chrono::steady_clock::now();
  for (const EndpointAction action : step.actions) {
    Status done;
    try {
      done = perform(action, known);
    } catch (const std::bad_alloc&) {
      if (action == EndpointAction::kConnect) {
        state_ = from;  // whoever sends is told, and may try again
        throw;
      }
      done = failure("out of memory");
    }
    if (!done) {
      apply(EndpointEvent::kSetUpFailed, {.text = done.error().text, .direction = cause.direction});
      return;
    }
  }
  if (rest_is_put_off_ && (carrier_ != nullptr || state_ == EndpointState::kClear)) {
    rest_is_put_off_ = false;
    apply(EndpointEvent::kRestAsked);
  }
}

Status Endpoint::perform(EndpointAction action, const EndpointCause& cause) {
  switch (action) {
    case EndpointAction::kNone:
      return {};
    case EndpointAction::kConnect:
      return connect();
    case EndpointAction::kConnectAgain:
      return connect_again();
    case EndpointAction::kPostReceives:
      (void)link();
      agree_on_counts();
      return link().post_receives(*cause.queue_pairs);
    case EndpointAction::kSendCts:
      return send_cts();
    case EndpointAction::kTellPeerSpoke:
      has_heard_ = !is_xrc_;
      owner_.submit(cpc::PeerSpoke{key(cause.direction), directions_.link(cause.direction)});
      return {};
    case EndpointAction::kStart:
      start();
      return {};
    case EndpointAction::kBeginToLeave:
      leaving_since_ = std::chrono::steady_clock::now();
      return {};
    case EndpointAction::kSayGoodbye:
      say_goodbye();
      return {};
    case EndpointAction::kAskToRest:
      set_carrier(nullptr);
      LinkRest(link()).ask();
      return {};
    case EndpointAction::kDeclineRest:
      LinkRest(link()).decline();
      return {};
    case EndpointAction::kPutOffRest:
      rest_is_put_off_ = true;
      return {};
    case EndpointAction::kResume:
      set_carrier(&link());
      LinkRest(link()).resume(waiting_, waiting_rdma_);
      return {};
    case EndpointAction::kStopSending:
      set_carrier(nullptr);
      link().queues().front().share->sends.release(link());
      return {};
    case EndpointAction::kRetire:
      retire();
      return {};
    case EndpointAction::kDoubtCounts:
      if (counts_ != nullptr) {
        counts_->is_agreed = false;
      }
      return {};
    case EndpointAction::kBreakOff:
      break_off(cause);
      return {};
    case EndpointAction::kExchangeCounts:
      exchange_counts();
      return {};
    case EndpointAction::kReport:
      owner_.report(*this, cause);
      return {};
    case EndpointAction::kNote:
      owner_.note(*this, cause.text);
      return {};
    case EndpointAction::kFailAll:
      fail_all();
      return {};
    case EndpointAction::kDropAll:
      drop_all();
      return {};
    case EndpointAction::kCloseDirection:
      close(cause.direction, cause.text);
      return {};
    case EndpointAction::kCloseSending:
      close(outgoing(), cause.text);
      return {};
    case EndpointAction::kCloseAll:
      close_all(cause.text);
      return {};
  }
  return {};
}

// ---- Set-up

Status Endpoint::connect() {
  (void)link();
  if (is_self_) {
    return owner_.connect_self();
  }
  if (owner_.is_lost()) {
    return connect_elsewhere(kDeviceIsGone);
  }
  agree_on_counts();
  const cpc::LinkNumber number = owner_.next_link(key(outgoing()));
  cpc::PeerTarget target = target_;
  if (is_healing()) {
    target.was_there = true;
    target.retry_time_ms = static_cast<unsigned>(std::min<std::int64_t>(owner_.heal_timeout().count(), UINT_MAX));
  }
  owner_.submit(cpc::Connect{key(outgoing()), number, std::move(target)});
  directions_.open(outgoing(), number);
  has_asked_ = true;
  owner_.connect_other_ports(*this);
  return {};
}

void Endpoint::take(const cpc::Linked& linked) {
  handshake_ = linked.handshake;
  cts_number_ = linked.cts;
  remote_ends_ = linked.remote_ends;
  may_speak_first_ = linked.may_speak_first;
}

void Endpoint::cts_arrived() {
  if (++cts_received_ == handshake_.queues) {
    apply(EndpointEvent::kCtsArrived);
  }
}

Status Endpoint::send_cts() {
  ++owner_.path().counters().cts_messages;
  for (std::size_t i = 0; i < handshake_.queues; ++i) {
    if (const int error = link().queues()[i].post_cts(handshake_, cts_number_); error != 0) {
      return failure(std::string("posting the first message: ") + std::strerror(error));
    }
  }
  return {};
}

/// Before the queues are given away, after they are there: tools look at those of a carrier.
void Endpoint::set_carrier(Link* link) noexcept {
  carrier_ = link;
  if (link != nullptr) {
    room_.list(key_.peer, *link);
  } else {
    room_.unlist();
  }
}

void Endpoint::note_connected() noexcept {
  Counters& counters = owner_.path().counters();
  const auto took = std::chrono::steady_clock::now() - connecting_since_;
  ++counters.connections_made;
  if (state_ != EndpointState::kSelf && !is_healing()) {
    const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(took);
    counters.tally.connected(key_.peer, static_cast<unsigned>(target_.cpc.kind), microseconds);
    owner_.report_connected(*this, microseconds);
  }
}

void Endpoint::start() {
  note_connected();
  has_asked_ = false;
  if (state_ != EndpointState::kSelf) {
    set_carrier(&link());
  }
  RdmaRequestQueue requests;
  if (is_healing()) {
    requests = end_healing();
  }
  while (!waiting_rdma_.empty()) {
    requests.push_back(waiting_rdma_.pop_front());
  }
  link().start(waiting_, requests);
}

/// What is under way is told of its end; what has not been posted waits for the next link. With X queues the connection by which
/// the peer sends ends by itself: while it is open a link that has not started, with nothing of ours under way, goes on to receive,
/// or the next one.
void Endpoint::retire() {
  set_carrier(nullptr);
  cts_received_ = 0;
  has_heard_ = rest_is_put_off_ = false;
  if (state_ == EndpointState::kIdle) {
    has_asked_ = false;
    stop_healing(OPAL_SUCCESS);  // the peer, taking leave, says that it wants nothing more
  }
  const bool receives = directions_.is_open(cpc::Direction::kIncoming);
  if (link_ && link_->state() == Link::State::kOpening && receives) {
    directions_.forget(cpc::Direction::kOutgoing);
    return;
  }
  if (link_) {
    std::unique_ptr<EndpointLink> next = receives ? make_link() : nullptr;
    EndpointLink& ending = *link_;
    ending.stop(Link::State::kFailed);
    if (!receives) {
      (void)ending.receive_from(0, 0);
    }
    ending.take_waiting(waiting_, waiting_rdma_);
    take_down_link(std::move(next));
    ending.end_waiting();
  }
  forget_connections();
}

/// It goes when it is drained. `next`: of X queues, what goes on to receive; or null.
void Endpoint::take_down_link(std::unique_ptr<EndpointLink> next) noexcept {
  if (next) {
    LinkOneWay(*link_).leave_receiving_to(*next);
  }
  link_->key = key(outgoing());
  link_->number = directions_.link(outgoing());
  link_->is_flushed = !directions_.has(outgoing()) || directions_.told(outgoing()) == Told::kFlushed;
  owner_.take_down(std::exchange(link_, std::move(next)));
}

/// But for the one by which the peer sends on, of X queues.
void Endpoint::forget_connections() noexcept {
  handshake_ = {};
  directions_.forget(outgoing());
  if (!directions_.is_open(incoming())) {
    directions_.forget(incoming());
  }
}

// ---- The end

void Endpoint::say_goodbye() {
  set_carrier(nullptr);
  link().say_goodbye();
}

/// Tells the PML, which ends the job unless that can live without the peer (ULFM, from Open MPI 5.0 on). Then all that
/// waits for the endpoint fails, and what is under way as its completions come, as far as the PML still waits for it.
void Endpoint::fail_all() {
  set_carrier(nullptr);
  has_asked_ = false;
  if (link_) {
    link_->stop(Link::State::kFailed);
  }
  owner_.failed(*this);
  if (const Awaited* const awaited = owner_.awaited_of(*this); awaited != nullptr) {
    awaited_ = awaited;
    gone_ = proc();
    owner_.tell_links(*this);
  }
  if (link_) {
    link_->end_waiting();
  }
  stop_healing(OPAL_ERR_UNREACH);
  while (!waiting_rdma_.empty()) {
    end_request(upper(), waiting_rdma_.pop_front(), OPAL_ERR_UNREACH,
                [this](RdmaRequest* request) { owner_.path().rdma().requests.put(request); });
  }
  while (!waiting_.empty()) {
    end_send(upper(), waiting_.pop_front(), OPAL_ERR_UNREACH);
  }
}

void Endpoint::forget_gone() noexcept {
  static constexpr NothingAwaited kNothing;
  if (awaited_ != nullptr) {
    awaited_ = &kNothing;
    owner_.tell_links(*this);
  }
}

void Endpoint::drop_all() noexcept {
  set_carrier(nullptr);
  has_asked_ = false;
  while (!waiting_.empty()) {
    drop_send(waiting_.pop_front());
  }
  stop_healing(std::nullopt);
  if (link_ && state_ == EndpointState::kClosing) {  // else it goes on to receive
    link_->stop(Link::State::kClosed);
    link_->end_waiting();
  }
  while (!waiting_rdma_.empty()) {
    end_request(upper(), waiting_rdma_.pop_front(), OPAL_ERR_UNREACH,
                [this](RdmaRequest* request) { owner_.path().rdma().requests.put(request); });
  }
}

void Endpoint::close_all(const std::string& reason) {
  for (const cpc::Direction direction : Directions::kAll) {
    close(direction, reason);
  }
  if (state_ == EndpointState::kClosing && directions_.told(cpc::Direction::kBoth) == Told::kFlushed && link_) {
    link_->post_drain_markers();  // it had failed before
  }
}

}  // namespace fabric
