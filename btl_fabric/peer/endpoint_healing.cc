// SPDX-License-Identifier: BSD-3-Clause
//
// What an endpoint does when a link has broken that may be made anew; see "Healing" in endpoint_table.h.
#include "btl_fabric/peer/endpoint_healing.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "btl_fabric/path/link_healing.h"
#include "btl_fabric/path/link_one_way.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoints.h"
#include "btl_fabric/peer/peer_traffic.h"
#include "common/ports/software_device.h"

namespace fabric {

namespace {

/// After this another port is taken for what does not get through.
constexpr std::chrono::seconds kPatience{1};

/// A link that has not lasted longer is likely to break again.
constexpr std::chrono::seconds kShortLife{2};

/// The next attempt may do better. Not so what the program, the protocol or this host has done wrong.
bool may_pass(const LinkFailure& failure, std::uint32_t vendor_id) noexcept {
  if (failure.kind == LinkFailure::Kind::kDeviceEvent) {
    return failure.event == IBV_EVENT_QP_FATAL;
  }
  if (failure.kind != LinkFailure::Kind::kCompletion) {
    return false;
  }
  switch (failure.completion.status) {
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
      return true;
    case IBV_WC_LOC_QP_OP_ERR:  // of rxe: its interface is down (Linux 6.1, rxe/rxe_req.c, rxe_xmit_packet() has failed)
      return is_soft_roce(vendor_id);
    default:
      return false;
  }
}

std::string what_failed(const LinkFailure& failure) {
  return failure.kind == LinkFailure::Kind::kDeviceEvent ? ibv_event_type_str(failure.event)
                                                         : ibv_wc_status_str(failure.completion.status);
}

}  // namespace

bool Endpoint::may_heal(const EndpointCause& cause) const noexcept {
  const std::chrono::milliseconds time = owner_.heal_timeout();
  return time.count() > 0 && counts_ != nullptr && !owner_.is_ending() && !has_healed_for(time) && !cause.is_final &&
         !cause.is_reported && (cause.failure == nullptr || may_pass(*cause.failure, owner_.port().limits.vendor_id)) &&
         (!link_ || LinkHealing(*link_).is_whole()) && (!owner_.is_lost() || owner_.leads_elsewhere(*this));
}

bool Endpoint::has_healed_for(std::chrono::milliseconds time) const noexcept {
  return is_healing() && std::chrono::steady_clock::now() - std::max(healing_->since, healing_->carried_at) >= time;
}

bool Endpoint::has_posted_all() const noexcept {
  return is_healing() && !has_waiting() && healing_->backlog.requests.empty() &&
         owner_.rdma_of_ending_links(*this) == 0;
}

bool Endpoint::has_carried_all() const noexcept {
  return has_posted_all() && healing_->is_settled && ending_ == nullptr && healing_->backlog.unnumbered.empty() &&
         healing_->backlog.replies.empty() && (!healing_->atomics || healing_->atomics->under_way == 0);
}

/// A process that was spawned, or has spawned us, may disconnect and end at any time, and Open MPI 4.1 tells nobody. It has taken what it
/// wanted: MPI_Comm_disconnect waits for that. Within a job MPI_Finalize waits for all, and who is not there before has died.
bool Endpoint::has_left(const EndpointCause& cause) const noexcept {
  const bool is_of_another_job = key_.peer.job != OPAL_PROC_MY_NAME.jobid;
  return cause.is_final && is_of_another_job && has_posted_all() &&
         (!healing_->atomics || healing_->atomics->under_way == 0);
}

bool Endpoint::waits_for_a_peer_that_is_there() const noexcept {
  return state_ == EndpointState::kCtsSent || state_ == EndpointState::kCtsAwaited ||
         (state_ == EndpointState::kResuming && ending_ == nullptr && is_healing() && healing_->taken.empty());
}

bool Endpoint::owes_answer() const noexcept {
  return is_xrc_ && is_healing() && (owes_counts_ || (link_ && LinkOneWay(*link_).owes_counts()));
}

/// Each link of an endpoint whose links may be made anew.
void Endpoint::prepare_to_heal(EndpointLink& link) {
  if (owner_.heal_timeout().count() == 0 || is_self_) {
    return;
  }
  counts_ = &owner_.counts_with(key_.peer, LinkHealing::counts_of(link));
  LinkHealing(link).continue_from(counts_->queues.get());
  if (is_healing() && healing_->atomics) {
    LinkHealing(link).use_atomics(healing_->atomics);
  }
}

std::span<PacketCounts> Endpoint::counts() const noexcept {
  return {counts_->queues.get(), subset.count() + 1};
}

void Endpoint::begin_healing() {
  if (!is_healing()) {
    healing_ = std::make_unique<EndpointHealing>();
    healing_->since = std::chrono::steady_clock::now();
    owner_.begin_healing(*this);
  }
}

/// A link that is about to be made is to begin with the counts, if the last one has ended in doubt, or that of an endpoint before
/// this one.
void Endpoint::agree_on_counts() {
  if (link_ && counts_ != nullptr && !counts_->is_agreed) {
    begin_healing();
  }
}

/// What the peer says to have taken. Where nobody knows, what it has not taken was not meant to arrive any more.
bool Endpoint::drop_arrived(std::span<const std::uint32_t> taken) noexcept {
  for (std::size_t place = 0; !counts_->is_agreed && place < taken.size(); ++place) {
    counts()[place].sent = taken[place];
  }
  counts_->is_agreed = true;
  return LinkHealing::drop_arrived(healing_->backlog, counts(), taken, upper());
}

/// Of a link that is gone.
EndpointCause Endpoint::cause_of_end(std::string text) const {
  const bool is_going = state_ == EndpointState::kResting || state_ == EndpointState::kParting;
  return {.text = std::move(text), .may_be_agreed = is_going};
}

void Endpoint::break_off(const EndpointCause& cause) {
  set_carrier(nullptr);
  cts_received_ = 0;
  has_heard_ = rest_is_put_off_ = has_asked_ = owes_counts_ = false;  // the next link tells its counts in any case
  begin_healing();
  if (!healing_->has_broken && !cause.may_be_agreed) {
    healing_->has_broken = true;
    healing_->since = std::chrono::steady_clock::now();
    short_lives_ = healing_->since - healed_at_ < kShortLife ? short_lives_ + 1 : 0;
    healing_->resent_before = owner_.path().counters().packets_resent;
    healing_->why =
        cause.failure != nullptr ? describe_queue(cause.failure->qpn) + ": " + what_failed(*cause.failure) : cause.text;
  }
  if (link_ && link_->state() != Link::State::kOpening) {  // else nothing has been sent over it
    healing_->lost_qpn = remote_ends_.empty() ? 0 : remote_ends_.front().qpn;
    counts_->first_since_break = counts_->tellings + 1;
  }
  healing_->taken.clear();
  healing_->is_resending = false;
  const bool goes_on_to_receive = is_xrc_ && link_ && link_->state() == Link::State::kOpening;  // it has sent nothing
  if (link_ && !goes_on_to_receive) {
    LinkHealing healing(*link_);
    healing_->atomics = healing.atomics();
    std::unique_ptr<EndpointLink> next;
    if (is_xrc_) {
      LinkOneWay(*link_).break_sender();
      next = make_link();
    }
    FragmentQueue messages;
    RdmaRequestQueue requests;
    healing.break_off(messages, requests);
    take_from_link(messages, requests);
    take_down_link(std::move(next));
  }
  handshake_ = {};
  directions_.forget(outgoing());
}

/// What waits there goes before what waits here.
void Endpoint::take_from_link(FragmentQueue messages, RdmaRequestQueue requests) noexcept {
  while (!waiting_.empty()) {
    messages.push_back(waiting_.pop_front());
  }
  while (!waiting_rdma_.empty()) {
    requests.push_back(waiting_rdma_.pop_front());
  }
  waiting_ = messages;
  waiting_rdma_ = requests;
}

/// A device is gone, and no link will be made any more.
Status Endpoint::connect_elsewhere(const char* why) {
  if (!owner_.leads_elsewhere(*this)) {
    return failure(std::string(why) + ", and no other device leads to the peer");
  }
  begin_healing();
  if (!healing_->has_broken) {
    healing_->has_broken = true;
    healing_->since = std::chrono::steady_clock::now();
    healing_->why = why;
    if (counts_ != nullptr) {
      counts_->first_since_break = counts_->tellings + 1;
    }
  }
  owner_.connect_other_ports(*this);
  return {};
}

/// A peer, or a way to it, that is not there now is left alone for a while, and for longer each time; so is a way that has broken soon
/// after the last times too, if there is another one.
Status Endpoint::connect_again() {
  constexpr std::chrono::milliseconds kLongest{2000};
  constexpr unsigned kMostDoublings = 10;
  if (owner_.is_lost()) {
    return connect_elsewhere(kDeviceIsGone);
  }
  const unsigned attempt =
      healing_->attempts++ + (short_lives_ > 0 && owner_.way_beside(*this) != nullptr ? short_lives_ : 0);
  if (attempt == 0) {
    return connect();
  }
  const auto pause = owner_.heal_pause() * (1U << std::min(attempt - 1, kMostDoublings));
  healing_->connect_at = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(pause, kLongest);
  return {};
}

void Endpoint::go_on_connecting(std::chrono::steady_clock::time_point now) {
  if (healing_->connect_at && now >= *healing_->connect_at) {
    healing_->connect_at.reset();
    if (!directions_.is_open(outgoing())) {  // else the peer has begun
      apply(EndpointEvent::kPauseOver);
    }
  }
}

void Endpoint::exchange_counts() {
  if (is_healing()) {  // what this link brings, another way is to be told anew
    healing_->is_settled = healing_->is_told_aside = false;
  }
  FragmentQueue messages;  // answers to what has come before the link could send
  RdmaRequestQueue requests;
  link().take_waiting(messages, requests);
  take_from_link(messages, requests);
  LinkHealing(link()).begin();
  go_on_healing();
}

void Endpoint::take_what_is_left(Link& broken) try {
  broken.upper() = upper();  // it is in no list any more, so tell_links() has not reached it
  LinkHealing left(broken);
  left.take_ring();
  if (is_healing() && left.is_whole()) {
    left.collect(healing_->backlog);
    return;
  }
  if (is_healing()) {
    give_up_healing(
        "Nobody can tell whether an atomic operation that was under way has been executed, or there was no memory to keep what was "
        "sent: the connection cannot be made anew");
  }
  if (state_ != EndpointState::kFailed && !is_healing()) {  // the peer has taken leave
    Backlog rest;
    left.collect(rest);
    LinkHealing::end_all(rest, owner_.path(), upper(), OPAL_SUCCESS);
  }
  broken.upper() = upper();  // the endpoint may have failed since
  broken.end_waiting();
} catch (const std::bad_alloc&) {
  broken.end_waiting();
  throw;
}

void Endpoint::give_up_healing(const std::string& why) {
  apply(EndpointEvent::kLinkFailed, {.text = healing_->why + ". " + why, .is_final = true});
  close_all(why);
}

void Endpoint::go_on_healing() {
  const bool is_wanted = is_healing() || owes_counts_ || owes_counts_aside_;
  if (!is_wanted || ending_ != nullptr || owner_.is_being_closed(key_)) {
    return;  // what has been taken is not final
  }
  answer_aside();
  if (!link_) {
    return;
  }
  if (owes_counts_) {
    owes_counts_ = false;
    LinkHealing(*link_).tell_counts(++counts_->tellings);
  }
  if (!is_healing() || state_ != EndpointState::kResuming) {
    return;
  }
  if (!LinkHealing(*link_).has_told()) {
    LinkHealing(*link_).tell_counts(++counts_->tellings);
  }
  if (state_ != EndpointState::kResuming || healing_->taken.empty() || healing_->is_resending) {
    return;
  }
  healing_->is_resending = true;
  const Link* const newest = link_.get();
  const bool is_possible = drop_arrived(healing_->taken);
  if (!is_healing() || link_.get() != newest || state_ != EndpointState::kResuming) {
    return;  // a callback has made progress, and something else has happened
  }
  if (!is_possible) {
    give_up_healing("Over the next connection the peer said that it has taken other messages than can be");
    return;
  }
  const bool has_way = !healing_->is_blocked && owner_.way_beside(*this) != nullptr;
  if (!makes_progress(has_way ? std::min<std::chrono::milliseconds>(kPatience, owner_.heal_timeout())
                              : owner_.heal_timeout())) {
    if (has_way) {  // it is left alone, until the other port has carried what it does not
      apply(EndpointEvent::kLinkFailed, {.text = "the same message, or read or write, did not arrive again"});
      return;
    }
    give_up_healing(
        "Over one connection after the other the same message, or read or write, did not arrive: the way to the peer does not take it");
    return;
  }
  LinkHealing(*link_).resend(healing_->backlog);
}

/// True unless what goes first of what is sent again, of a queue or of reads and writes, has done so for longer than `time`, over one
/// link after the other. A packet that is larger than a switch on the way takes, for example, breaks them all.
bool Endpoint::makes_progress(std::chrono::milliseconds time) {
  const auto now = std::chrono::steady_clock::now();
  auto oldest = now;
  std::vector<std::optional<std::uint32_t>> first;
  for (const auto& packets : healing_->backlog.queues) {
    first.push_back(packets.empty() ? std::nullopt : std::optional(packets.front().number));
  }
  bool is_stuck = obstacle_ != nullptr;
  for (std::size_t place = 0, stuck = 0; obstacle_ && place < first.size(); ++place) {
    stuck += first[place] && first[place] == obstacle_->first[place] ? 1 : 0;
    is_stuck = stuck > 0;
  }
  if (is_stuck) {
    oldest = obstacle_->since;
  } else {
    obstacle_ = std::make_unique<Obstacle>(Obstacle{now, std::move(first)});
  }
  for (RdmaRequest* one = healing_->backlog.requests.front(); one != nullptr; one = one->next) {
    one->repeated_since = one->repeated_since.time_since_epoch().count() == 0 ? now : one->repeated_since;
    oldest = std::min(oldest, one->repeated_since);
  }
  return now - oldest <= time;
}

void Endpoint::hear_counts(Link& link, std::span<const std::byte> body) {
  if (counts_ == nullptr) {
    const std::string why =
        "the connection has broken, and the peer wants to go on where it ended, which this process or its device does not: "
        "btl_fabric_heal_timeout is to be 0 in all processes, or in none";
    apply(EndpointEvent::kLinkFailed, {.text = why, .is_missed = true, .is_final = true});
    close_all(why);
    return;
  }
  const std::size_t size = counts_size(counts().size());
  if (body.size() != size + (is_xrc_ ? CountsOfOneWay::kSize : 0)) {
    const LinkFailure failure{.kind = LinkFailure::Kind::kBadPacket, .qpn = link.queues().front().qpn, .packet = body};
    apply(EndpointEvent::kLinkFailed, {.failure = &failure, .is_missed = true});
    return;
  }
  counts_->newest_heard = load_be<std::uint32_t>(body.data() + size - sizeof(std::uint32_t));
  bool is_answer = true;
  if (is_xrc_) {
    const CountsOfOneWay told = CountsOfOneWay::read(body.data() + size);
    is_answer = LinkOneWay(link).has_asked_for(told);
    owes_counts_ = LinkOneWay(link).hear(told) || owes_counts_;
    if (owes_counts_ && state_ == EndpointState::kIdle) {  // for that alone
      begin_healing();
      apply(EndpointEvent::kSendWanted);
    }
  } else if (!is_healing()) {
    owes_counts_ = !LinkHealing(link).has_told();
  }
  if (is_healing() && is_answer) {
    healing_->taken.clear();
    for (std::size_t place = 0; place < counts().size(); ++place) {
      healing_->taken.push_back(load_be<std::uint32_t>(body.data() + place * sizeof(std::uint32_t)));
    }
  }
  go_on_healing();
}

/// The new link starts: what is left to be done again beside messages.
RdmaRequestQueue Endpoint::end_healing() {
  const std::unique_ptr<EndpointHealing> done = std::move(healing_);
  owner_.end_healing(*this);
  LinkHealing(link()).owe(std::move(done->backlog.replies));
  if (!done->has_broken) {
    return done->backlog.requests;
  }
  healed_at_ = std::chrono::steady_clock::now();
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - done->since);
  const std::uint64_t resent = owner_.path().counters().packets_resent - done->resent_before;
  if (traffic_ != nullptr) {
    ++traffic_->heals;
    traffic_->packets_resent += resent;
  }
  owner_.report_healed(*this, done->why, took, resent);
  return done->backlog.requests;
}

/// `status`: what whoever waits for the rest hears; none: nobody hears anything.
void Endpoint::stop_healing(std::optional<int> status) noexcept {
  if (is_healing()) {
    const std::unique_ptr<EndpointHealing> ended = std::move(healing_);
    owner_.end_healing(*this);
    LinkHealing::end_all(ended->backlog, owner_.path(), upper(), status);
  }
}

}  // namespace fabric
