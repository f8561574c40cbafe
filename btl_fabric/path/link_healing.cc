// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_healing.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <iterator>
#include <utility>

#include "btl_fabric/base/ring_message.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"
#include "btl_fabric/path/shared_send_queue.h"

namespace fabric {

namespace {

/// Numbers go round.
bool is_before(std::uint32_t one, std::uint32_t other) noexcept {
  return static_cast<std::int32_t>(one - other) < 0;
}

/// What was written to a ring, as a packet for a queue.
std::vector<std::byte> packet_of(std::span<const std::byte> written) {
  const std::span<const std::byte> trailer = written.last(RingTrailer::kSize);
  RingTrailer read;
  const bool is_ours = read.read(trailer.data(), written.size());
  assert(is_ours);
  (void)is_ours;
  std::vector<std::byte> packet(PacketHeader::kSize + read.size);
  PacketHeader{PacketKind::kMessage, read.header.tag, {}}.write(packet.data());
  std::copy_n(written.begin(), read.size, packet.begin() + PacketHeader::kSize);
  return packet;
}

/// Of those that several links share.
bool is_kept_by(const LinkQueue& queue, std::span<const std::byte> packet) noexcept {
  return std::memcmp(&packet.back() + 1 - SendShare::kKeeperBytes, &queue.keeper, SendShare::kKeeperBytes) == 0;
}

}  // namespace

// ---- The link that has broken

bool LinkHealing::is_whole() const noexcept {
  const bool is_kept = std::none_of(link_.queues_.begin(), link_.queues_.end(), [](const LinkQueue& queue) {
    return queue.kept != nullptr && queue.kept->is_lossy();
  });
  return is_kept && !link_.rdma_.has_lost_atomics_;
}

bool LinkHealing::keeps() const noexcept {
  const bool may_break = link_.is_up() || link_.state_ == Link::State::kResting ||
                         link_.state_ == Link::State::kResuming || link_.state_ == Link::State::kLeaving;
  return link_.state_ == Link::State::kBroken || (may_break && link_.path_.settings().heals);
}

void LinkHealing::break_off(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept {
  link_.stop(Link::State::kBroken);
  link_.rests_to_say_ = link_.goodbyes_to_say_ = 0;
  link_.owes_counts_ = link_.owes_stay_ = link_.owes_ring_left_ = false;
  if (const Backlog* const rest = std::exchange(link_.backlog_, nullptr); rest != nullptr) {
    for (std::size_t place = 0; place < link_.queues_.size(); ++place) {  // they have their numbers still
      link_.queues_[place].counts->sent += static_cast<std::uint32_t>(rest->queues[place].size());
    }
  }
  link_.take_waiting(messages, requests);
}

[[gnu::cold]] void LinkHealing::flush_again() noexcept {
  for (LinkQueue& queue : link_.queues_) {
    if (queue.qp != nullptr && queue.receives.posted() > 0) {
      ibv_qp_attr error{};
      error.qp_state = IBV_QPS_ERR;
      (void)ibv_modify_qp(queue.qp, &error, IBV_QP_STATE);  // a device that refuses this flushes by itself
    }
  }
}

void LinkHealing::take_ring() noexcept {
  if (link_.ring_in_.is_open()) {
    (void)link_.take_from_ring();
  }
}

void LinkHealing::collect(Backlog& backlog) {
  backlog.queues.resize(link_.queues_.size());
  for (std::size_t place = 0; place < link_.queues_.size(); ++place) {
    LinkQueue& queue = link_.queues_[place];
    std::deque<Backlog::Packet> packets;
    if (queue.kept != nullptr) {
      queue.kept->for_each([&](std::uint32_t number, std::span<const std::byte> packet, bool in_ring) {
        if (in_ring) {
          backlog.ring.push_back({.number = number, .copy = packet_of(packet)});
        } else if (!link_.is_xrc_) {
          packets.push_back({.number = number, .copy = {packet.begin(), packet.end()}});
        } else if (is_kept_by(queue, packet)) {
          packets.push_back({.number = number, .copy = {packet.begin(), packet.end() - SendShare::kKeeperBytes}});
        }
      });
    }
    const auto copies = static_cast<std::ptrdiff_t>(packets.size());
    for (Fragment* one = queue.unfinished.front(); one != nullptr; one = one->next) {
      packets.push_back({.number = one->number, .fragment = one});
    }
    std::inplace_merge(packets.begin(), packets.begin() + copies, packets.end(),
                       [](const auto& one, const auto& other) { return is_before(one.number, other.number); });
    std::deque<Backlog::Packet>& rest = backlog.queues[place];
    rest.insert(rest.begin(), std::make_move_iterator(packets.begin()), std::make_move_iterator(packets.end()));
    queue.unfinished = FragmentQueue();
    queue.own_kept.reset();
    queue.kept = nullptr;
  }
  backlog.replies.insert(backlog.replies.end(), link_.replies_.begin(), link_.replies_.end());
  link_.replies_.clear();
  RdmaRequestQueue requests = std::exchange(link_.rdma_.unfinished_, {});
  while (!backlog.requests.empty()) {
    requests.push_back(backlog.requests.pop_front());
  }
  backlog.requests = requests;
}

const std::shared_ptr<LinkRdma::Atomics>& LinkHealing::atomics() const noexcept {
  return link_.rdma_.atomics_;
}

// ---- The one that takes its place

void LinkHealing::continue_from(PacketCounts* counts) noexcept {
  for (LinkQueue& queue : link_.queues_) {
    queue.counts = counts++;
  }
  link_.ring_counts_ = counts;
}

void LinkHealing::use_atomics(const std::shared_ptr<LinkRdma::Atomics>& atomics) noexcept {
  link_.rdma_.atomics_ = atomics;
}

void LinkHealing::owe(std::vector<AtomicReply> replies) {
  link_.replies_.insert(link_.replies_.end(), replies.begin(), replies.end());
  if (!link_.replies_.empty()) {  // also those to atomics that came while it could not answer
    link_.path_.retry_later(link_);
  }
}

void LinkHealing::begin() noexcept {
  assert(link_.state_ == Link::State::kOpening);
  link_.state_ = Link::State::kResuming;
  link_.has_told_counts_ = link_.has_told_counts_ && !link_.is_xrc_;  // X queues: of a connection before this one
}

void LinkHealing::tell_counts(std::uint32_t number) noexcept {
  link_.counts_number_ = number;
  link_.owes_counts_ = link_.has_told_counts_ = true;
  say_counts();
}

bool LinkHealing::has_told() const noexcept {
  return link_.has_told_counts_;
}

void LinkHealing::say_counts() noexcept {
  const std::size_t counts = counts_size(counts_of(link_));
  const std::size_t size = counts + (link_.is_xrc_ ? CountsOfOneWay::kSize : 0);
  LinkQueue& queue = link_.queue(link_.path_.queue_for(size));
  const bool may_speak =
      link_.is_up() || link_.state_ == Link::State::kResuming || link_.state_ == Link::State::kResting;
  if (!may_speak || !queue.waiting.empty() || !link_.make_room(queue)) {
    link_.path_.retry_later(link_);
    return;
  }
  std::array<std::byte, Link::kMostOwn> body;
  write_counts(body.data(), {link_.queues_.front().counts, counts_of(link_)}, link_.counts_number_);
  if (link_.is_xrc_) {
    const std::uint32_t asks = link_.state_ == Link::State::kResuming ? link_.outgoing_incarnation_ : 0;
    CountsOfOneWay{asks, link_.asked_incarnation_}.write(body.data() + counts);
  }
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  link_.owes_counts_ = !link_.post_own(queue, PacketKind::kCounts, {body.data(), size});
  if (link_.owes_counts_) {
    if (!queue.is_shared) {
      queue.credits.return_credit();
    }
    link_.path_.retry_later(link_);
  }
}

bool LinkHealing::drop_arrived(Backlog& backlog, std::span<PacketCounts> counts, std::span<const std::uint32_t> taken,
                               const UpperHandles& upper) noexcept {
  assert(taken.size() == counts.size());
  const std::size_t queues = counts.size() - 1;
  backlog.queues.resize(queues);
  bool is_possible = true;
  FragmentQueue arrived;
  for (std::size_t place = 0; place < taken.size(); ++place) {
    const bool is_ring = place == queues;
    std::deque<Backlog::Packet>& packets = is_ring ? backlog.ring : backlog.queues[place];
    if (is_ring && backlog.is_ring_settled) {
      is_possible = is_possible && counts[place].sent == taken[place];
      continue;
    }
    while (!packets.empty() && is_before(packets.front().number, taken[place])) {
      if (Fragment* const fragment = packets.front().fragment; fragment != nullptr) {
        arrived.push_back(fragment);
      }
      packets.pop_front();
    }
    // Whatever is after those must be here, each of it.
    std::uint32_t next = taken[place];
    for (const Backlog::Packet& packet : packets) {
      is_possible = is_possible && packet.number == next++;
    }
    is_possible = is_possible && next == counts[place].sent;
  }
  backlog.is_ring_settled = true;  // what is left of it goes by queues, and gets its numbers there
  counts.back().sent = taken.back();
  while (!arrived.empty()) {  // a callback may fail the endpoint, and the backlog with it
    end_send(upper, arrived.pop_front(), OPAL_SUCCESS);
  }
  return is_possible;
}

/// What has had numbers was sent before what has none yet.
void LinkHealing::unnumber(Backlog& backlog, std::span<PacketCounts> counts) noexcept {
  std::deque<Backlog::Packet> first;
  for (std::size_t place = 0; place < backlog.queues.size(); ++place) {
    std::deque<Backlog::Packet>& packets = backlog.queues[place];
    counts[place].sent -= static_cast<std::uint32_t>(packets.size());
    std::move(packets.begin(), packets.end(), std::back_inserter(first));
    packets.clear();
  }
  std::move(backlog.ring.begin(), backlog.ring.end(), std::back_inserter(first));
  backlog.ring.clear();
  std::move(backlog.unnumbered.begin(), backlog.unnumbered.end(), std::back_inserter(first));
  backlog.unnumbered = std::move(first);
}

void LinkHealing::resend(Backlog& backlog) noexcept {
  for (std::size_t place = 0; place < link_.queues_.size(); ++place) {
    const std::size_t again = backlog.queues[place].size();
    link_.queues_[place].counts->sent -= static_cast<std::uint32_t>(again);
    link_.path_.counters().packets_resent += again;
  }
  link_.path_.counters().packets_resent += backlog.ring.size() + backlog.unnumbered.size();
  link_.backlog_ = &backlog;
  send_more();
}

void LinkHealing::send_more() noexcept {
  bool is_all = true;
  for (std::size_t place = 0; place < link_.queues_.size() && link_.state_ == Link::State::kResuming; ++place) {
    is_all = send_as_many(link_.backlog_->queues[place], &link_.queues_[place]) && is_all;
  }
  if (link_.state_ != Link::State::kResuming) {
    return;  // one was refused
  }
  if (!is_all || !send_as_many(link_.backlog_->unnumbered, nullptr) || !send_as_many(link_.backlog_->ring, nullptr)) {
    link_.path_.retry_later(link_);
    return;
  }
  link_.backlog_ = nullptr;
  link_.path_.events().resent(link_);
}

std::size_t LinkHealing::queue_index_for(const Backlog::Packet& packet) const noexcept {
  return packet.fragment != nullptr ? packet.fragment->queue
                                    : link_.path_.queue_for(packet.copy.size() - PacketHeader::kSize);
}

/// As there is room for, over a queue, or (null) over the one for each one's size. True if none is left.
bool LinkHealing::send_as_many(std::deque<Backlog::Packet>& packets, LinkQueue* queue) noexcept {
  while (!packets.empty()) {
    LinkQueue& through = queue != nullptr ? *queue : link_.queue(queue_index_for(packets.front()));
    if (!link_.make_room(through)) {
      return false;
    }
    Backlog::Packet packet = std::move(packets.front());
    packets.pop_front();
    send_again(through, packet);
    if (link_.state_ != Link::State::kResuming) {
      return false;
    }
  }
  return true;
}

/// There is room.
void LinkHealing::send_again(LinkQueue& queue, Backlog::Packet& packet) noexcept {
  if (packet.fragment != nullptr) {
    if (link_.post_fragment(queue, *packet.fragment) < 0) {
      end_send(link_.upper_, packet.fragment, OPAL_ERR_UNREACH);
    }
    return;
  }
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  PacketHeader header;
  const bool is_ours = header.read(packet.copy.data(), packet.copy.size());
  assert(is_ours);
  (void)is_ours;
  queue.next_header(header.kind, header.tag).write(packet.copy.data());
  const std::uint32_t number = queue.take_number();
  if (queue.kept != nullptr) {
    queue.share != nullptr ? queue.keep_copy_of_ours(number, packet.copy) : queue.keep_copy(number, packet.copy);
  }
  if (const int error = queue.post_inline(packet.copy); error != 0) {
    link_.post_refused(queue, error);
  }
}

void LinkHealing::end_all(Backlog& backlog, PacketPath& path, const UpperHandles& upper,
                          std::optional<int> status) noexcept {
  backlog.queues.push_back(std::move(backlog.unnumbered));
  for (std::deque<Backlog::Packet>& packets : backlog.queues) {
    while (!packets.empty()) {
      Fragment* const fragment = packets.front().fragment;
      packets.pop_front();
      if (fragment == nullptr) {
        continue;
      }
      if (status) {
        end_send(upper, fragment, *status);
      } else {
        drop_send(fragment);
      }
    }
  }
  while (!backlog.requests.empty()) {
    RdmaRequest* const request = backlog.requests.pop_front();
    request->callback = status ? request->callback : nullptr;
    end_request(upper, request, OPAL_ERR_UNREACH, [&path](RdmaRequest* ended) { path.rdma().requests.put(ended); });
  }
  backlog.replies.clear();
}

}  // namespace fabric
