// SPDX-License-Identifier: BSD-3-Clause
//
// A process of test_softhca_storm: it sends to all others and takes what they send, until it is killed.
#pragma once

#include <memory>
#include <vector>

#include "test/softhca/storm_link.h"

namespace storm {

class Peer {
 public:
  Peer(Board* board, unsigned peers, unsigned me, uint32_t life, unsigned seed, int domain_fd)
      : v_(board, me, life, domain_fd), peers_(peers), random_(seed + me * kLives + life) {
    for (unsigned i = 0; i < peers; ++i) links_.push_back(std::make_unique<Link>(v_, i, random_));
    Place& mine = board->places[me];
    mine.datagrams = v_.datagrams->qp_num;
    mine.qkey = v_.qkey();
    STORM_REQUIRE(ibv_get_srq_num(v_.xrc, &mine.srqn) == 0);
    mine.ready = life;
  }

  [[noreturn]] void run() {
    for (uint64_t round = 0;; ++round) {
      bool busy = false;
      for (unsigned i = 0; i < peers_; ++i) {
        if (i == v_.me) continue;
        busy |= links_[i]->step();
        busy |= send_datagram(i);
      }
      while (poll()) busy = true;
      take_events();
      // What completed before an event has been polled by now; so the queue is empty of what has ended.
      while (poll()) busy = true;
      for (auto& link : links_) busy |= link->end_if_done();
      if (round % 64 == 0) {
        STORM_REQUIRE(Memory::guards_are_whole(*v_.memory));
        links_[round / 64 % peers_]->check_region();
      }
      if (!busy) usleep(100);
    }
  }

 private:
  bool poll() {
    ibv_wc wc[16];
    const int n = ibv_poll_cq(v_.cq, 16, wc);
    STORM_REQUIRE(n >= 0);
    for (int i = 0; i < n; ++i) completed(wc[i]);
    return n > 0;
  }

  void completed(const ibv_wc& wc) {
    const unsigned other = wc.wr_id >> 48 & 0xff;
    const unsigned n = wc.wr_id & 0xffff;
    STORM_REQUIRE(other < peers_);
    switch (wc.wr_id >> 56) {
      case kShareds:
        take(shared_posted_, n);
        link_of(wc, false).received(wc, v_.memory->shared[n], kMessage);
        v_.post_shared(give(shared_posted_, n));
        return;
      case kXrcs:
        take(xrc_posted_, n);
        link_of(wc, true).received(wc, v_.memory->xrc[n], kXrcMessage);
        v_.post_xrc(give(xrc_posted_, n));
        return;
      case kDatagramReceives:
        return received_datagram(wc, n);
      case kOwns:
        return links_[other]->received_own(wc);
      case kRcSends:
        return links_[other]->sent(wc, false);
      case kXrcSends:
        return links_[other]->sent(wc, true);
      case kDatagramSends:
        STORM_REQUIRE(wc.status == IBV_WC_SUCCESS);
        datagram_under_way_[other] = false;
        return;
    }
    fail(*v_.board, v_.name.c_str(), "a completion of no request: wr_id %016llx",
         static_cast<unsigned long long>(wc.wr_id));
  }

  // Each request completes once.
  void take(uint64_t& posted, unsigned n) {
    STORM_REQUIRE(n < 64 && (posted >> n & 1) != 0);
    posted &= ~(uint64_t{1} << n);
  }
  static unsigned give(uint64_t& posted, unsigned n) {
    posted |= uint64_t{1} << n;
    return n;
  }

  Link& link_of(const ibv_wc& wc, bool xrc) {
    for (auto& link : links_)
      if (xrc ? link->has_target(wc.qp_num) : link->has_queue(wc.qp_num)) return *link;
    fail(*v_.board, v_.name.c_str(), "a receive request of a shared queue: %s, for no queue pair: %#x",
         ibv_wc_status_str(wc.status), wc.qp_num);
  }

  void take_events() {
    ibv_async_event event{};
    while (ibv_get_async_event(v_.context, &event) == 0) {
      if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
        for (auto& link : links_)
          if (link->has_queue(event.element.qp->qp_num)) link->last_was_reached();
      } else if (event.event_type != IBV_EVENT_COMM_EST) {
        fail(*v_.board, v_.name.c_str(), "event: %s", ibv_event_type_str(event.event_type));
      }
      ibv_ack_async_event(&event);
    }
  }

  // --- Datagrams. Who sends does not learn that the other is dead.

  bool send_datagram(unsigned other) {
    const Place& place = v_.board->places[other];
    const uint32_t life = place.ready;
    if (life == 0 || datagram_under_way_[other]) return false;
    const uint32_t qpn = place.datagrams;
    const uint32_t qkey = place.qkey;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (place.ready != life || qkey != (life << 4 | other)) return false;
    static constexpr uint32_t kLengths[] = {8, 144, 192, 256, 1024};
    const uint32_t bytes = kLengths[random_() % (sizeof kLengths / sizeof *kLengths)];
    uint8_t* at = v_.memory->sent_datagrams[other];
    write_words(at, bytes, {v_.me, other, v_.life, life}, ++datagrams_sent_);
    ibv_sge list = v_.sge(at, bytes);
    ibv_send_wr wr{};
    wr.wr_id = id_of(kDatagramSends, other, 0);
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {v_.ah, qpn, qkey};
    ibv_send_wr* bad = nullptr;
    datagram_under_way_[other] = true;
    STORM_REQUIRE(ibv_post_send(v_.datagrams, &wr, &bad) == 0);
    return true;
  }

  void received_datagram(const ibv_wc& wc, unsigned n) {
    STORM_REQUIRE(wc.status == IBV_WC_SUCCESS);
    STORM_REQUIRE(wc.byte_len > 40 && wc.byte_len % 8 == 0);
    const uint8_t* at = v_.memory->datagrams[n] + 40;
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    const Words words{Words::from_of(word), v_.me, Words::from_life_of(word), v_.life};
    const uint32_t sequence = Words::sequence_of(word);
    const size_t bytes = wc.byte_len - 40;
    if (words.from >= peers_ || first_other_word(at, bytes, words, sequence) != bytes / 8)
      fail(*v_.board, v_.name.c_str(), "a datagram of %zu bytes begins with %016llx", bytes,
           static_cast<unsigned long long>(word));
    uint64_t& last = last_datagram_[words.from];
    const uint64_t this_one = both(words.from_life, sequence);
    // Any number may be lost, so that the number wraps: but none comes twice, and none of an earlier life.
    if (this_one == last || words.from_life < last >> 32)
      fail(*v_.board, v_.name.c_str(), "datagram %#llx of process %u comes behind %#llx",
           static_cast<unsigned long long>(this_one), words.from, static_cast<unsigned long long>(last));
    last = this_one;
    v_.board->done[words.from][v_.me][kDatagram].fetch_add(1);
    v_.post_datagram(n);
  }

  Verbs v_;
  const unsigned peers_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Link>> links_;  // that of its own number is not used
  uint64_t shared_posted_ = ~uint64_t{0} >> (64 - kShared);
  uint64_t xrc_posted_ = shared_posted_;
  bool datagram_under_way_[kPeers] = {};
  uint64_t last_datagram_[kPeers] = {};
  uint32_t datagrams_sent_ = 0;
};

}  // namespace storm
