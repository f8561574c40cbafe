// SPDX-License-Identifier: BSD-3-Clause
//
// A process of test_softhca_storm and one of the others: their connection, what is sent over it, and what is seen of the other's death.
#pragma once

#include <random>

#include "test/softhca/storm_verbs.h"

namespace storm {

class Link {
 public:
  Link(Verbs& verbs, unsigned other, std::mt19937& random) : v_(verbs), other_(other), random_(random) {
    fill_region();
    counter() = 0;
  }

  /// Does what there is to do. Whether there was anything.
  bool step() {
    switch (state_) {
      case State::kNone:
        return offer();
      case State::kOffered:
        return is_doomed() ? leave() : take_up();
      case State::kConnected:
        if (v_.board->up[other_][v_.me] == both(life_, v_.life)) {
          state_ = State::kRunning;
          return true;
        }
        return is_doomed() && leave();
      case State::kRunning:
        return post();
      case State::kLeaving:
        return !qps_set_to_error_ && leave();
    }
    return false;
  }

  /// After the completion queue was empty: whether the connection is gone now, and nothing of it is left.
  bool end_if_done() {
    if (state_ != State::kLeaving) return false;
    if (!qps_set_to_error_ || own_outstanding_ != 0 || (with_shared_queue() && !last_was_reached_)) {
      check_patience("what was posted completes");
      return false;
    }
    check_region();
    qps_->destroy(v_);
    delete qps_;
    qps_ = nullptr;
    fill_region();
    counter() = 0;
    last_life_ = life_;
    state_ = State::kNone;
    return true;
  }

  // --- What the process is told of this connection

  bool has_queue(uint32_t qpn) const { return qps_ != nullptr && qps_->rc->qp_num == qpn; }
  bool has_target(uint32_t qpn) const { return qps_ != nullptr && qps_->target->qp_num == qpn; }
  void last_was_reached() { last_was_reached_ = true; }

  void received_own(const ibv_wc& wc) {
    const unsigned n = wc.wr_id & 0xffff;
    STORM_REQUIRE(n < kOwn && (own_posted_ >> n & 1) != 0);
    own_posted_ &= ~(1U << n);
    --own_outstanding_;
    if (received(wc, v_.memory->own[other_][n], kMessage) && state_ != State::kLeaving) post_own(n);
  }

  /// A message has arrived, here or in a shared queue. False: it has not, since the connection has ended.
  bool received(const ibv_wc& wc, const void* at, Kind kind) {
    if (wc.status != IBV_WC_SUCCESS) {
      if (wc.status != IBV_WC_WR_FLUSH_ERR || !is_doomed())
        fail(*v_.board, v_.name.c_str(), "a receive request of process %u, life %u: %s, and that one %s", other_, life_,
             ibv_wc_status_str(wc.status), is_doomed() ? "is dead" : "lives");
      return false;
    }
    STORM_REQUIRE(wc.byte_len % 8 == 0 && wc.byte_len > 0);
    uint32_t& next = kind == kMessage ? next_message_ : next_xrc_;
    check(at, wc.byte_len, incoming(), next, kNoun[kind]);
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) STORM_REQUIRE(wc.imm_data == next);
    ++next;
    count(other_, v_.me, kind);
    return true;
  }

  void sent(const ibv_wc& wc, bool xrc) {
    Sender& s = senders_[xrc ? 1 : 0];
    STORM_REQUIRE(s.done != s.posted && (wc.wr_id & 0xffffffff) == (s.done & 0xffffffff));
    const Request& r = s.requests[s.done % kSends];
    if (wc.status != IBV_WC_SUCCESS) {
      failed(wc, s);
    } else {
      STORM_REQUIRE(!s.failed);
      const uint8_t* at = v_.memory->sends[other_][xrc ? 1 : 0][s.done % kSends];
      if (r.opcode == IBV_WR_RDMA_READ) {
        check(at, r.bytes, outgoing(), r.sequence, "what was written and read back", r.first);
        count(v_.me, other_, kWritten);
      } else if (r.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        uint64_t old = 0;
        std::memcpy(&old, at, 8);
        if (old != r.sequence)
          fail(*v_.board, v_.name.c_str(), "the counter at process %u, life %u: %llu instead of %u", other_, life_,
               static_cast<unsigned long long>(old), r.sequence);
        count(v_.me, other_, kAdded);
      }
    }
    ++s.done;
  }

  /// What the other has written here is its own.
  void check_region() {
    const uint64_t* region = v_.memory->targets[other_].region;
    for (size_t i = 0; i < kRegionWords; ++i) {
      uint64_t word = 0;
      for (int tries = 0; tries < kLooks; ++tries) {
        word = reinterpret_cast<const volatile uint64_t*>(region)[i];
        if (is_filling(word, i) || (qps_ != nullptr && is_incoming(word, i))) break;
        if (tries == kLooks - 1)
          fail(*v_.board, v_.name.c_str(), "word %zu of the region for process %u, life %u, is %016llx", i, other_,
               life_, static_cast<unsigned long long>(word));
        usleep(1000);
      }
    }
  }

 private:
  enum class State { kNone, kOffered, kConnected, kRunning, kLeaving };
  // A millisecond lies between two. A look may be amid a copy, for as long as who copies has lost its processor.
  static constexpr int kLooks = 100;
  static constexpr const char* kNoun[] = {"a message", "an XRC message"};

  struct Request {
    ibv_wr_opcode opcode;
    uint32_t sequence;
    uint32_t bytes;
    size_t first;  // word of the region
  };
  struct Sender {
    Request requests[kSends];
    uint64_t posted = 0;
    uint64_t done = 0;
    bool failed = false;
  };

  Place& place() const { return v_.board->places[other_]; }
  bool is_doomed() const { return place().doomed >= life_; }
  bool with_shared_queue() const { return (v_.me + other_) % 2 != 0; }
  Words incoming() const { return {other_, v_.me, life_, v_.life}; }
  Words outgoing() const { return {v_.me, other_, v_.life, life_}; }
  uint64_t& counter() const { return v_.memory->targets[other_].counter; }
  void count(unsigned from, unsigned to, Kind kind) { v_.board->done[from][to][kind].fetch_add(1); }

  // The last byte of a WRITE is stored after all others, and who was killed between has not stored it.
  bool is_incoming(uint64_t word, size_t i) const {
    const uint64_t whole = incoming().word(i, Words::sequence_of(word));
    const uint64_t before = Words{v_.me, v_.me, v_.life, v_.life}.word(i, 0);
    return word << 8 == whole << 8 && (word >> 56 == whole >> 56 || word >> 56 == before >> 56);
  }
  bool is_filling(uint64_t word, size_t i) const { return word == Words{v_.me, v_.me, v_.life, v_.life}.word(i, 0); }
  void fill_region() {
    write_words(v_.memory->targets[other_].region, kRegionBytes, {v_.me, v_.me, v_.life, v_.life}, 0);
  }

  void check_patience(const char* what) {
    if (Clock::now() > until_)
      fail(
          *v_.board, v_.name.c_str(),
          "process %u, life %u, is dead, and yet not: %s (sends %llu of %llu, XRC %llu of %llu, receives left %u, last %d)",
          other_, life_, what, static_cast<unsigned long long>(senders_[0].done),
          static_cast<unsigned long long>(senders_[0].posted), static_cast<unsigned long long>(senders_[1].done),
          static_cast<unsigned long long>(senders_[1].posted), own_outstanding_, last_was_reached_);
  }

  // --- From one life of the other to the next

  bool offer() {
    check_region();  // nobody has written since it was filled: the dead do not
    life_ = place().ready;
    if (life_ == last_life_ || is_doomed()) return false;
    qps_ = new QueuePairs(v_, with_shared_queue());
    senders_[0] = senders_[1] = {};
    next_message_ = next_xrc_ = next_sequence_[0] = next_sequence_[1] = written_ = added_ = 0;
    own_posted_ = own_outstanding_ = 0;
    qps_set_to_error_ = last_was_reached_ = false;
    if (!with_shared_queue())
      for (unsigned n = 0; n < kOwn; ++n) post_own(n);
    Offer& mine = v_.board->offers[v_.me][other_];
    mine.lives = 0;
    mine.rc = qps_->rc->qp_num;
    mine.initiator = qps_->initiator->qp_num;
    mine.target = qps_->target->qp_num;
    mine.rkey = v_.targets->rkey;
    mine.region = reinterpret_cast<uint64_t>(v_.memory->targets[other_].region);
    mine.counter = reinterpret_cast<uint64_t>(&counter());
    mine.lives = both(v_.life, life_);
    state_ = State::kOffered;
    return true;
  }

  bool take_up() {
    const Offer& theirs = v_.board->offers[other_][v_.me];
    if (theirs.lives != both(life_, v_.life)) return false;
    rkey_ = theirs.rkey;
    region_ = theirs.region;
    their_counter_ = theirs.counter;
    srqn_ = place().srqn;
    const uint32_t rc = theirs.rc;
    const uint32_t initiator = theirs.initiator;
    const uint32_t target = theirs.target;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (theirs.lives != both(life_, v_.life) || place().ready != life_) return true;  // a newcomer writes there already
    qps_->connect(v_, rc, initiator, target);
    v_.board->up[v_.me][other_] = both(v_.life, life_);
    state_ = State::kConnected;
    return true;
  }

  // The other is dead. What was sent to it has to complete by itself, before the queue pairs are set to ERR.
  bool leave() {
    if (state_ != State::kLeaving) {
      state_ = State::kLeaving;
      until_ = Clock::now() + kPatience;
    }
    for (const Sender& s : senders_)
      if (s.done != s.posted) {
        check_patience("what was sent to it completes");
        return false;
      }
    qps_->to_error(v_);
    qps_set_to_error_ = true;
    until_ = Clock::now() + kPatience;
    return true;
  }

  void failed(const ibv_wc& wc, Sender& s) {
    const ibv_wc_status wanted = s.failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
    if (wc.status != wanted || !is_doomed())
      fail(*v_.board, v_.name.c_str(), "a request to process %u, life %u, which %s: %s (%s is for the dead)", other_,
           life_, is_doomed() ? "is dead" : "lives", ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
    s.failed = true;
    if (state_ != State::kLeaving) {
      state_ = State::kLeaving;
      until_ = Clock::now() + kPatience;
    }
  }

  // --- Traffic

  void post_own(unsigned n) {
    own_posted_ |= 1U << n;
    ++own_outstanding_;
    v_.post_receive(qps_->rc, kOwns, other_, n, v_.memory->own[other_][n], kBufferBytes);
  }

  bool post() {
    bool posted = false;
    for (; senders_[0].posted - senders_[0].done <= kSends - 2; posted = true) {
      const auto dice = random_() % 5;
      if (dice == 0)
        post_write_and_read();
      else if (dice == 1)
        post_addition();
      else
        post_message(false);
    }
    for (; senders_[1].posted - senders_[1].done <= kSends / 2; posted = true) post_message(true);
    return posted;
  }

  void post_message(bool xrc) {
    static constexpr uint32_t kLengths[] = {8, 64, 192, 200, 1024, 4096, 8448, 8456, 20000};
    uint32_t& sequence = next_sequence_[xrc ? 1 : 0];
    const uint32_t bytes = kLengths[random_() % (sizeof kLengths / sizeof *kLengths)];
    ibv_send_wr wr{};
    wr.opcode = sequence % 2 != 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    wr.imm_data = sequence;
    if (bytes <= 64 && random_() % 2 != 0) wr.send_flags = IBV_SEND_INLINE;
    wr.qp_type.xrc.remote_srqn = srqn_;
    write_words(slot(xrc), bytes, outgoing(), sequence);
    post_request(wr, xrc, {wr.opcode, sequence, bytes, 0});
    ++sequence;
  }

  void post_write_and_read() {
    const size_t words = 1 + random_() % (random_() % 2 != 0 ? kRegionWords : 32);
    const size_t first = random_() % (kRegionWords - words + 1);
    const auto bytes = static_cast<uint32_t>(words * 8);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_FENCE;  // the READ of the one before has its answer
    wr.wr.rdma = {region_ + first * 8, rkey_};
    write_words(slot(false), bytes, outgoing(), written_, first);
    post_request(wr, false, {wr.opcode, written_, bytes, first});
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = 0;
    post_request(wr, false, {wr.opcode, written_, bytes, first});
    ++written_;
  }

  void post_addition() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = their_counter_;
    wr.wr.atomic.rkey = rkey_;
    wr.wr.atomic.compare_add = 1;
    post_request(wr, false, {wr.opcode, added_++, 8, 0});
  }

  uint8_t* slot(bool xrc) { return v_.memory->sends[other_][xrc ? 1 : 0][senders_[xrc ? 1 : 0].posted % kSends]; }

  void post_request(ibv_send_wr wr, bool xrc, const Request& request) {
    Sender& s = senders_[xrc ? 1 : 0];
    ibv_sge list = v_.sge(slot(xrc), request.bytes);
    wr.wr_id = id_of(xrc ? kXrcSends : kRcSends, other_, s.posted);
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    s.requests[s.posted++ % kSends] = request;
    ibv_send_wr* bad = nullptr;
    STORM_REQUIRE(ibv_post_send(xrc ? qps_->initiator : qps_->rc, &wr, &bad) == 0);
  }

  void check(const void* at, size_t bytes, const Words& words, uint32_t sequence, const char* what, size_t first = 0) {
    const size_t i = first_other_word(at, bytes, words, sequence, first);
    if (i == bytes / 8) return;
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const uint8_t*>(at) + i * 8, 8);
    fail(*v_.board, v_.name.c_str(), "%s of %zu bytes, process %u, life %u: word %zu is %016llx instead of %016llx",
         what, bytes, other_, life_, i, static_cast<unsigned long long>(word),
         static_cast<unsigned long long>(words.word(first + i, sequence)));
  }

  Verbs& v_;
  const unsigned other_;
  std::mt19937& random_;
  State state_ = State::kNone;
  uint32_t life_ = 0;       // of the other
  uint32_t last_life_ = 0;  // that ended
  QueuePairs* qps_ = nullptr;
  Sender senders_[2];  // RC, XRC
  uint32_t next_sequence_[2] = {};
  uint32_t next_message_ = 0;
  uint32_t next_xrc_ = 0;
  uint32_t written_ = 0;
  uint32_t added_ = 0;
  uint32_t own_posted_ = 0;  // a bit each
  unsigned own_outstanding_ = 0;
  bool qps_set_to_error_ = false;
  bool last_was_reached_ = false;
  Clock::time_point until_;
  uint32_t rkey_ = 0;
  uint64_t region_ = 0;
  uint64_t their_counter_ = 0;
  uint32_t srqn_ = 0;
};

}  // namespace storm
