// SPDX-License-Identifier: BSD-3-Clause
//
// A link that breaks again and again, and its peer, which is played: it takes part of what was posted, says how much, and must have
// every message once and in order in the end.
#pragma once

#include <cstring>
#include <deque>
#include <optional>
#include <random>

#include "btl_fabric/path/link_healing.h"
#include "test/unit/eager_rdma_bench.h"

namespace fabric::test {

/// Ours, as the floor above has it, and the peer, which counts.
class Pair {
 public:
  Pair(const BenchOptions& options, unsigned seed)
      : bench(options),
        random_(seed),
        queues_(static_cast<std::uint32_t>(bench.queues_.count())),
        uses_rings_(options.eager_rdma == EagerRdma::kOn) {
    counts_.resize(queues_ + 1);
    taken_.resize(queues_ + 1);
    next_.resize(queues_);
    expected_.resize(queues_);
    bench.on_failure = [this](Link& link) { link_failed(link); };
    new_link();
    bench.start(*link_);
  }

  [[nodiscard]] std::uint32_t pick(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % count); }

  /// One step of either side.
  void step() {
    switch (pick(14)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return send();
      case 4:
        return write();
      case 5:
      case 6:
        return arrive(pick(queues_), 1 + pick(3));
      case 7:
        return complete(pick(queues_));
      case 8:
        return come();
      case 9:
        (void)bench.watch.tick();
        break;
      case 10:
        if (pick(8) == 0) {
          lose();
        }
        break;
      case 11:
        offer_ring();
        break;
      case 12:
        write_to_ring();
        break;
      default:
        break;
    }
    (void)bench.path->progress();
    go_on();
  }

  /// All that was sent has arrived in the end, and everybody has heard so.
  void finish() {
    for (int i = 0; i < 500 && (is_broken_ || !all_has_ended() || !all_has_arrived()); ++i) {
      for (std::uint32_t queue = 0; queue < queues_; ++queue) {
        arrive(queue, 1000);
        while (link_pair(queue) != nullptr && !link_pair(queue)->sends.empty()) {
          complete(queue);
        }
      }
      come();
      (void)bench.path->progress();
      go_on();
    }
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
      ck_assert_uint_eq(next_[queue], expected_[queue]);
    }
    ck_assert(all_has_ended());
    for (const int status : bench.sends_ended) {
      ck_assert_int_eq(status, OPAL_SUCCESS);
    }
    for (const int status : bench.requests_ended) {
      ck_assert_int_eq(status, OPAL_SUCCESS);
    }
    ck_assert_uint_eq(bench.messages, came_);
    abandon();
  }

  /// Ends the link, whatever is under way.
  void abandon() {
    bench.on_failure = nullptr;
    if (!is_broken_) {
      bench.close(*link_);
    }
    link_->post_drain_markers();
    flush();
    LinkHealing::end_all(backlog_, *bench.path, {&bench.module, &bench.endpoint}, std::nullopt);
  }

  enum class Fault { kNone, kToldBeforeTheDrain, kRingNotTaken, kFreedWhenPosted } fault = Fault::kNone;
  unsigned wrong = 0;    ///< messages that came twice, or not at all, or too early
  unsigned noticed = 0;  ///< counts that cannot be
  unsigned breaks = 0;
  unsigned again = 0;  ///< breaks while the last one was being healed
  unsigned rings = 0;  ///< that the peer was offered
  unsigned aside = 0;  ///< packets that the peer got by another way
  PathBench bench;

 private:
  [[nodiscard]] bool all_has_ended() {
    return bench.sends_ended.size() == callbacks_ && bench.requests_ended.size() == writes_ && !link_->has_waiting() &&
           waiting_.empty() && waiting_rdma_.empty();
  }

  /// What the device has copied has ended before that.
  [[nodiscard]] bool all_has_arrived() {
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
      if (seen_[queue] < link_pair(queue)->all_sends.size()) {
        return false;
      }
    }
    return true;
  }

  // ---- Our side

  void new_link() {
    link_ = &bench.open();
    LinkHealing(*link_).continue_from(counts_.data());
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
      seen_[queue] = 0;
      granted_[queue] = explicit_[queue] = 0;
    }
    has_ring_ = false;
    writer_.reset();
    freed_ = 0;
    in_ring_ = 0;
  }

  /// By any of the ways.
  void send() {
    const std::uint32_t queue = pick(queues_);
    const std::uint32_t number = expected_[queue];
    const bool is_small = queue == 0;
    const std::size_t size = is_small ? 8 + pick(90) : 300 + pick(1000);
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), &number, sizeof number);
    if (is_small && !is_broken_ && link_->is_up() && pick(2) == 0 &&
        link_->send_immediately({nullptr, bytes.data(), size, 0, PathBench::kTag})) {
      ++expected_[queue];
      return;
    }
    const bool wants_callback = pick(2) == 0;
    Fragment* const fragment = bench.message(queue, size, wants_callback);
    if (fragment == nullptr) {
      return;
    }
    std::memcpy(fragment->packet + PacketHeader::kSize, bytes.data(), size);
    const bool is_up = !is_broken_ && link_->is_up();
    const int result = is_up ? link_->send(*fragment) : OPAL_SUCCESS;
    if (!is_up) {
      fragment->callback_due = true;
      waiting_.push_back(fragment);
    }
    ck_assert_int_ge(result, 0);
    ++expected_[queue];
    callbacks_ += result == OPAL_SUCCESS ? 1 : 0;
  }

  void write() {
    RdmaRequest* const request = bench.request(RdmaKind::kWrite);
    ++writes_;
    if (!is_broken_ && link_->is_up()) {
      ck_assert_int_eq(bench.submit(*link_, request), OPAL_SUCCESS);
    } else {
      waiting_rdma_.push_back(request);
    }
  }

  void link_failed(Link& link) {
    ck_assert(bench.failures.empty() || bench.failures.back().kind == LinkFailure::Kind::kCompletion);
    if (&link != link_ || is_broken_) {
      return;  // it is known
    }
    FragmentQueue messages;
    RdmaRequestQueue requests;
    LinkHealing(link).break_off(messages, requests);
    while (!waiting_.empty()) {
      messages.push_back(waiting_.pop_front());
    }
    while (!waiting_rdma_.empty()) {
      requests.push_back(waiting_rdma_.pop_front());
    }
    waiting_ = messages;
    waiting_rdma_ = requests;
    is_broken_ = true;
    ++breaks;
    again += is_resuming_ ? 1 : 0;
    is_resuming_ = false;
    resumed_ = bench.links_resent;
  }

  /// What the progress thread and the floor above do next.
  void go_on() {
    if (is_broken_ && pick(3) == 0) {
      ck_assert(LinkHealing(*link_).is_whole());
      link_->post_drain_markers();
      flush();
      ck_assert(link_->is_drained());
      LinkHealing(*link_).take_ring();
      LinkHealing(*link_).collect(backlog_);
      if (fault == Fault::kNone && pick(2) == 0) {
        go_aside();
      }
      bench.links.clear();
      new_link();
      is_broken_ = false;
      is_resuming_ = true;
      was_told_ = false;
      LinkHealing(*link_).begin();
      LinkHealing(*link_).tell_counts(++tellings_);
      for (std::uint32_t queue = 0; queue <= queues_; ++queue) {
        told_[queue] = counts_[queue].taken;
      }
      ck_assert_uint_eq(told_[queues_], written_);  // whatever the peer has written has been taken
    }
    if (is_resuming_ && !was_told_ && pick(3) == 0) {  // the peer says what it has
      was_told_ = true;
      std::vector<std::uint32_t> told = taken_;
      if (fault == Fault::kToldBeforeTheDrain && !backlog_.queues[0].empty() &&
          backlog_.queues[0].front().number != told[0]) {
        --told[0];
      }
      if (fault == Fault::kRingNotTaken && !backlog_.ring.empty() && backlog_.ring.front().number != told[queues_]) {
        --told[queues_];
      }
      if (fault == Fault::kFreedWhenPosted && counts_[0].sent != told[0]) {
        while (!backlog_.queues[0].empty() && backlog_.queues[0].front().number - told[0] > 1U << 31) {
          backlog_.queues[0].pop_front();
        }
        backlog_.queues[0].pop_front();
      }
      if (!LinkHealing::drop_arrived(backlog_, counts_, told, link_->upper())) {
        ++noticed;
        return;
      }
      for (std::uint32_t queue = 0; queue < queues_ && fault == Fault::kNone; ++queue) {
        ck_assert_uint_eq(backlog_.queues[queue].size(), counts_[queue].sent - taken_[queue]);
      }
      LinkHealing(*link_).resend(backlog_);
    }
    if (is_resuming_ && bench.links_resent > resumed_) {
      resumed_ = bench.links_resent;
      is_resuming_ = false;
      RdmaRequestQueue requests = backlog_.requests;
      backlog_ = {};
      while (!waiting_rdma_.empty()) {
        requests.push_back(waiting_rdma_.pop_front());
      }
      link_->start(waiting_, requests);
    }
  }

  /// By another way the peer says what it has, and gets some of the rest, which have no numbers then.
  void go_aside() {
    ck_assert(LinkHealing::drop_arrived(backlog_, counts_, taken_, link_->upper()));
    LinkHealing::unnumber(backlog_, counts_);
    for (std::size_t left = pick(4); left > 0 && !backlog_.unnumbered.empty(); --left, ++aside) {
      const Backlog::Packet packet = std::move(backlog_.unnumbered.front());
      backlog_.unnumbered.pop_front();
      if (Fragment* const fragment = packet.fragment; fragment != nullptr) {
        take_messages(fragment->queue, {fragment->packet, PacketHeader::kSize + fragment->segments[0].seg_len});
        end_send(link_->upper(), fragment, OPAL_SUCCESS);
      } else {
        take_messages(0, packet.copy);
      }
    }
  }

  void flush() {
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
      bench.device.flush(bench.pair(*link_, queue));
    }
    while (bench.path->progress() > 0) {
    }
  }

  // ---- The peer, and the way to it

  [[nodiscard]] FakeQueuePair* link_pair(std::uint32_t queue) {
    return is_broken_ ? nullptr : &bench.pair(*link_, queue);
  }

  /// So many more of the packets that were posted arrive.
  void arrive(std::uint32_t queue, std::uint32_t count) {
    FakeQueuePair* const pair = link_pair(queue);
    for (; pair != nullptr && count > 0 && seen_[queue] < pair->all_sends.size(); --count) {
      take(queue, pair->all_sends[seen_[queue]++]);
    }
  }

  void take(std::uint32_t queue, const FakeSend& packet) {
    if (packet.opcode == IBV_WR_RDMA_WRITE && packet.rkey == ring_.offer().rkey) {
      const RingTrailer trailer = trailer_of(packet);
      ++taken_[queues_];
      ++freed_;
      take_message(
          queue, packet.bytes.data() + packet.bytes.size() - RingTrailer::kSize - RingTrailer::room_for(trailer.size));
      in_ring_ -= trailer.header.ring_slots();
      return;
    }
    if (packet.opcode != IBV_WR_SEND || packet.bytes.empty()) {
      return;  // a write, or a marker
    }
    PacketHeader header;
    ck_assert(header.read(packet.bytes.data(), packet.bytes.size()));
    ++(header.kind == PacketKind::kCredits ? explicit_ : granted_)[queue];
    in_ring_ -= header.ring_slots();
    const std::byte* const body = packet.bytes.data() + PacketHeader::kSize;
    if (is_counted(header.kind)) {
      ++taken_[queue];
      take_messages(queue, packet.bytes);
    } else if (header.kind == PacketKind::kRing) {
      writer_.emplace(packet);
      ++rings;
    } else if (header.kind == PacketKind::kCounts) {
      for (std::uint32_t one = 0; one <= queues_; ++one) {
        ck_assert_uint_eq(load_be<std::uint32_t>(body + 4 * one), told_[one]);
      }
    }
  }

  void take_messages(std::uint32_t queue, std::span<const std::byte> packet) {
    PacketHeader header;
    ck_assert(header.read(packet.data(), packet.size()));
    const std::byte* at = packet.data() + PacketHeader::kSize;
    if (header.kind == PacketKind::kMessage) {
      take_message(queue, at);
      return;
    }
    ck_assert(header.kind == PacketKind::kMessages);
    for (std::size_t left = packet.size() - PacketHeader::kSize; left > 0;) {
      RecordHeader record;
      ck_assert(record.read(at, left));
      take_message(queue, at + RecordHeader::kSize);
      at += RecordHeader::room_for(record.size);
      left -= RecordHeader::room_for(record.size);
    }
  }

  void take_message(std::uint32_t queue, const std::byte* body) {
    std::uint32_t number = 0;
    std::memcpy(&number, body, sizeof number);
    if (queue == 0 && uses_rings_) {  // what goes by the ring has no order with the rest
      had_.resize(std::max<std::size_t>(had_.size(), number + 1));
      wrong += had_[number] ? 1 : 0;
      had_[number] = true;
      ++next_[queue];
      return;
    }
    wrong += number == next_[queue] ? 0 : 1;
    next_[queue] = number + 1;
  }

  /// The oldest completes, which has arrived by then.
  void complete(std::uint32_t queue) {
    FakeQueuePair* const pair = link_pair(queue);
    if (pair == nullptr || pair->sends.empty()) {
      return;
    }
    const std::size_t before = pair->sends.size();
    bench.device.complete_send(*pair);
    const std::size_t arrived = pair->all_sends.size() - before + (before - pair->sends.size());
    if (arrived > seen_[queue]) {
      arrive(queue, static_cast<std::uint32_t>(arrived - seen_[queue]));
    }
    (void)bench.path->progress();
  }

  /// A message of the peer's, with the credits that it owes.
  void come() {
    for (std::uint32_t queue = 0; queue < queues_ && !is_broken_; ++queue) {
      const bool is_shared = bench.queues_[queue].kind == QueueKind::kShared;
      if (is_shared || (granted_[queue] == 0 && explicit_[queue] == 0) || bench.pair(*link_, queue).receives.empty()) {
        continue;
      }
      ++came_;
      std::vector<std::byte> message = PathBench::packet(PacketKind::kMessage);
      PacketHeader{PacketKind::kMessage,
                   PathBench::kTag,
                   {.credits = static_cast<std::uint16_t>(granted_[queue]),
                    .explicit_seen = static_cast<std::uint16_t>(explicit_[queue])},
                   queue == 0 ? std::exchange(freed_, std::uint16_t{0}) : std::uint16_t{0}}
          .write(message.data());
      test::arrive(bench, *link_, message, queue);
      granted_[queue] = explicit_[queue] = 0;
    }
  }

  /// The peer has a ring for us.
  void offer_ring() {
    if (uses_rings_ && !is_broken_ && !has_ring_ && !bench.pair(*link_).receives.empty()) {
      has_ring_ = true;
      test::arrive(bench, *link_, offer_packet(ring_.offer()));
    }
  }

  /// The peer writes to ours, if it knows of one.
  void write_to_ring() {
    if (writer_ && !is_broken_ && in_ring_ < kSlots) {
      writer_->write(1);
      ++in_ring_;
      ++written_;
      ++came_;
    }
  }

  /// The connection breaks. What is under way may have arrived or not.
  void lose() {
    if (is_broken_) {
      return;
    }
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
      arrive(queue, pick(20));
    }
    write_to_ring();
    const std::uint32_t queue = pick(queues_);
    FakeQueuePair& pair = bench.pair(*link_, queue);
    if (!pair.sends.empty() && seen_[queue] <= pair.all_sends.size() && pick(2) == 0) {
      bench.device.fail_send(pair, IBV_WC_RETRY_EXC_ERR);
      (void)bench.path->progress();
    } else {
      link_failed(*link_);  // the progress thread says so
    }
  }

  std::mt19937 random_;
  const std::uint32_t queues_;
  const bool uses_rings_;
  const PeerRing ring_;
  Link* link_ = nullptr;
  std::vector<PacketCounts> counts_;
  std::uint32_t tellings_ = 0;
  FragmentQueue waiting_;
  RdmaRequestQueue waiting_rdma_;
  Backlog backlog_;
  bool is_broken_ = false;
  bool is_resuming_ = false;
  bool was_told_ = false;
  int resumed_ = 0;
  std::size_t callbacks_ = 0;
  std::size_t writes_ = 0;
  unsigned came_ = 0;
  std::vector<std::uint32_t> expected_;      ///< messages that were sent
  std::vector<std::uint32_t> taken_;         ///< packets that the peer has
  std::vector<std::uint32_t> next_;          ///< messages that the peer has
  std::array<std::size_t, 4> seen_{};        ///< of what was posted on the link's queue pairs
  std::array<std::uint32_t, 4> granted_{};   ///< credits that the peer owes
  std::array<std::uint32_t, 4> explicit_{};  ///< the same of explicit messages
  std::array<std::uint32_t, 4> told_{};      ///< to the peer, of what we have taken
  bool has_ring_ = false;                    ///< we have, of the peer's
  std::optional<Writer> writer_;             ///< to ours
  std::uint16_t freed_ = 0;                  ///< slots that the peer owes us
  std::uint32_t in_ring_ = 0;                ///< written to ours, and not given back
  std::uint32_t written_ = 0;                ///< to ours
  std::vector<bool> had_;                    ///< messages of the first queue that the peer has
};

}  // namespace fabric::test
