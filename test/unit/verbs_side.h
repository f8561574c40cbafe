// SPDX-License-Identifier: BSD-3-Clause
//
// A process of a job with a real port and P and S queues: queue pairs, receives, and a main thread that answers upcalls and
// exchanges CTS like the component.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "btl_fabric/peer/endpoint_table.h"
#include "cpc/queue_pairs/handshake_slab.h"
#include "test/unit/verbs_port.h"

namespace fabric::test {

class VerbsSide : private VerbsPort {
 public:
  using VerbsPort::make_stranger;
  using VerbsPort::name;
  using VerbsPort::offers;
  using VerbsPort::token;

  explicit VerbsSide(std::uint32_t rank) : VerbsSide(rank, cpc::ConnectionSettings(), {}) {}
  /// `transport`: of the queue pairs; what belongs to the port is filled in.
  VerbsSide(std::uint32_t rank, const cpc::ConnectionSettings& settings, const cpc::QueuePairSettings& transport)
      : VerbsPort(rank, settings, "P,4096,8,4,4,2:S,4096,16,4,16", kReceives, 256, 32) {
    port_.settings = transport;
    port_.settings.pkey_index = usable_.pkey_index;
    handshakes_ = std::make_unique<cpc::HandshakeSlab>(port_.pd);
    port_.handshakes = handshakes_.get();
    std::ranges::fill(own_message(), static_cast<std::byte>(rank));
    make_shared_queue();
    start();
  }
  /// The progress thread goes before what it uses.
  ~VerbsSide() { manager_.reset(); }

  [[nodiscard]] Transport link() const { return port_.address.link; }
  [[nodiscard]] std::size_t queue_count() const { return queues_.count(); }

  void connect(const VerbsSide& peer, const CpcOffer& offer) { connect(key_to(peer), offer); }
  using VerbsPort::connect;

  /// From now on failures are what is waited for: the first is kept, and the connection closed.
  void expect_failure() { failure_is_fine_ = true; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  /// As far as CTS and what ends it have made it; CPCs that exchange none leave it as it is.
  [[nodiscard]] EndpointState state() const { return state_; }
  /// The main thread knows of a connection with queue pairs.
  [[nodiscard]] bool has_queue_pairs() const { return !queue_pairs_.empty(); }
  [[nodiscard]] bool connected() const { return connected_; }

  /// Sends our pattern.
  void send(std::size_t queue) { post_send(queue_pairs_[queue], sge_of(own_message()), kSent); }
  /// How many completions there have to be from now on.
  void expect(int completions) {
    good_ = 0;
    expected_ = completions;
  }
  [[nodiscard]] bool has_all() const { return good_ == expected_; }
  /// True if every message so far was the peer's pattern.
  [[nodiscard]] bool heard(const VerbsSide& peer) const {
    return !heard_.empty() && std::all_of(heard_.begin(), heard_.end(), [&](std::byte one) {
      return one == static_cast<std::byte>(peer.name().rank);
    });
  }

  void close(const VerbsSide& peer) { close(key_to(peer)); }
  void close(const cpc::ConnectionKey& key) {
    closing_ = true;
    manager_->submit(cpc::Close{key, newest_[key], "done"});
  }
  [[nodiscard]] bool is_flushed() const { return flushed_ && outstanding_ == 0; }
  /// Back to the beginning.
  void destroy() {
    for (const auto& [key, link] : std::exchange(over_, {})) {
      manager_->submit(cpc::Destroy{key, link});
    }
    queue_pairs_.clear();
    heard_.clear();
    handshake_ = {};
    state_ = EndpointState::kIdle;
    cts_received_ = 0;
    connected_ = closing_ = flushed_ = false;
    failure_.clear();
  }

  /// When the main thread answers PostReceives; until then it "computes".
  bool posts = true;
  /// Completions are taken, too.
  bool polls = true;
  /// Connections whose receives it has posted.
  [[nodiscard]] int posted_connections() const { return posted_connections_; }

  /// Does what there is to do.
  void pump() {
    if (posts) {
      post();
    }
    take_upcalls([this](const auto& upcall) { on(upcall); });
    if (polls) {
      poll([this](const ibv_wc& completion) { on(completion); });
    }
  }

  [[nodiscard]] std::string describe() const {
    return "rank " + std::to_string(name().rank) + ": " + std::to_string(good_) + " of " + std::to_string(expected_) +
           " completions, " + std::to_string(outstanding_) + " receives, endpoint " + std::string(to_string(state_)) +
           (flushed_ ? ", flushed" : "");
  }

 private:
  static constexpr std::size_t kReceives = 10;  // posted to each queue
  // wr_ids, none of which looks like a handshake's; those of receives have the place above.
  static constexpr std::uint64_t kSent = 1;
  static constexpr std::uint64_t kCtsSent = 2;
  static constexpr std::uint64_t kReceived = 3;
  static constexpr std::uint64_t kSharedReceived = 5;

  void make_shared_queue() {
    port_.srqs = {nullptr, nullptr};
    if (has_shared()) {
      ibv_srq_init_attr attributes{};
      attributes.attr.max_wr = kReceives;
      attributes.attr.max_sge = 1;
      srq_.reset(ibv_create_srq(port_.pd, &attributes));
      ck_assert(srq_ != nullptr);
      port_.srqs[1] = srq_.get();
      for (std::size_t i = 0; i < kReceives; ++i) {
        post_receive(nullptr, i);
      }
    }
  }
  [[nodiscard]] bool has_shared() const { return queues_[1].kind == QueueKind::kShared; }

  [[nodiscard]] static cpc::ConnectionKey key_to(const VerbsSide& peer) { return {peer.name(), 0, 0}; }

  /// To the shared queue if there is no queue pair.
  void post_receive(ibv_qp* queue_pair, std::size_t place) {
    const std::uint64_t number = place << cpc::kHandshakeTagBits;
    if (queue_pair != nullptr) {
      VerbsPort::post_receive(ibv_post_recv, queue_pair, place, number | kReceived);
    } else {
      VerbsPort::post_receive(ibv_post_srq_recv, srq_.get(), place, number | kSharedReceived);
    }
  }
  void post_receives(const std::vector<ibv_qp*>& queue_pairs) {
    queue_pairs_ = queue_pairs;
    ++posted_connections_;
    for (std::size_t queue = 0; queue < queue_count(); ++queue) {
      if (queues_[queue].kind == QueueKind::kPerPeer) {
        for (std::size_t i = 0; i < kReceives; ++i) {
          post_receive(queue_pairs[queue], i);
          ++outstanding_;
        }
      }
    }
  }

  void on(const cpc::PostReceives& upcall) {
    to_post_ = upcall;
    if (posts) {
      post();
    }
  }
  void post() {
    if (const auto asked = std::exchange(to_post_, std::nullopt); asked) {
      post_receives(asked->queue_pairs);
      manager_->submit(cpc::ReceivesPosted{asked->key, asked->link});
    }
  }
  void on(const cpc::Connected&) { connected_ = true; }
  void on(const cpc::Linked& upcall) {
    handshake_ = upcall.handshake;
    may_speak_first_ = upcall.may_speak_first;
    queue_pairs_ = upcall.queue_pairs;
    apply(EndpointEvent::kLinked);
    if (cts_received_ == handshake_.queues) {
      apply(EndpointEvent::kCtsArrived);
    }
  }
  void on(const cpc::PeerLeft& upcall) {
    if (!connected_) {  // these processes say no goodbye
      apply(EndpointEvent::kLost);
    }
    note_failure(upcall.reason);
  }
  void note_failure(const std::string& reason) {
    if (failure_.empty()) {
      failure_ = reason;
    }
  }
  void on(const cpc::Failed& upcall) {
    if (failure_is_fine_) {
      note_failure(upcall.reason);
      return;
    }
    ck_assert_msg(closing_, "%s; %s", upcall.reason.c_str(), upcall.history.c_str());
  }
  void on(const cpc::Flushing& upcall) {
    if (to_post_ && to_post_->key == upcall.key && to_post_->link == upcall.link) {
      to_post_.reset();
    }
    over_.emplace_back(upcall.key, upcall.link);
    flushed_ = upcall.link == newest_[upcall.key];  // otherwise a newer one has taken its place
  }
  void on(const cpc::QueuePairsGone&) {}
  void on(const cpc::AsyncEvent&) {}
  void on(const cpc::Shortage&) {}
  void on(const cpc::Remark&) {}
  void on(const cpc::RoomWanted&) {}
  void on(const cpc::KeepAliveDue&) {}

  void on(const ibv_wc& completion) {
    const bool good = completion.status == IBV_WC_SUCCESS;
    const std::uint64_t kind = completion.wr_id & ((1U << cpc::kHandshakeTagBits) - 1);
    if (failure_is_fine_ && !good) {
      note_failure(ibv_wc_status_str(completion.status));
    }
    ck_assert_msg(good || closing_ || failure_is_fine_ || completion.status == IBV_WC_WR_FLUSH_ERR, "%s",
                  ibv_wc_status_str(completion.status));
    if (kind == cpc::kHandshakeTag) {
      if (good && ++cts_received_ == handshake_.queues && state_ != EndpointState::kIdle) {
        apply(EndpointEvent::kCtsArrived);
      }
      return;
    }
    if (kind == kReceived) {
      --outstanding_;
    }
    if (!good || kind == kCtsSent) {
      return;
    }
    ++good_;
    if (kind != kSent) {
      const std::size_t number = completion.wr_id >> cpc::kHandshakeTagBits;
      const auto message = place(number).first(completion.byte_len);
      heard_.insert(heard_.end(), message.begin(), message.end());
      if (kind == kSharedReceived) {
        post_receive(nullptr, number);
      }
    }
  }

  /// There is always something to be sent.
  void apply(EndpointEvent event) {
    const EndpointStep step = endpoint_step(state_, event, {.may_speak_first = may_speak_first_, .missed = true});
    state_ = step.next;
    for (const EndpointAction action : step.actions) {
      perform(action);
    }
    ck_assert_msg(step.outcome != Outcome::kProtocolError, "%s", std::string(step.why).c_str());
  }
  void perform(EndpointAction action) {
    switch (action) {
      case EndpointAction::kPostReceives:
        post_receives(queue_pairs_);
        break;
      case EndpointAction::kSendCts:
        for (std::size_t queue = 0; queue < handshake_.queues; ++queue) {
          post_send(queue_pairs_[queue],
                    {reinterpret_cast<std::uintptr_t>(handshake_.send), cpc::kHandshakeBytes, handshake_.lkey},
                    kCtsSent);
        }
        break;
      case EndpointAction::kStart:
        connected_ = true;
        break;
      case EndpointAction::kReport:
        ck_assert_msg(failure_is_fine_, "the peer closed the connection before it was ready to receive");
        break;
      default:  // the test closes, when it has seen the failure
        break;
    }
  }

  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  SharedReceiveQueue srq_;
  std::vector<ibv_qp*> queue_pairs_;  ///< the connection's
  std::vector<std::byte> heard_;
  cpc::HandshakeSlot handshake_;
  EndpointState state_ = EndpointState::kIdle;
  int cts_received_ = 0;
  bool may_speak_first_ = true;
  bool connected_ = false;
  bool failure_is_fine_ = false;
  std::string failure_;
  bool closing_ = false;
  bool flushed_ = false;
  std::vector<std::pair<cpc::ConnectionKey, cpc::LinkNumber>> over_;  ///< to be destroyed
  std::optional<cpc::PostReceives> to_post_;                          ///< not answered yet
  int outstanding_ = 0;                                               ///< receives on P queues
  int posted_connections_ = 0;
  int good_ = 0;  ///< completions of messages
  int expected_ = 0;
};

/// Pumps both sides until `done`.
template <class Done>
void run_until(VerbsSide& a, VerbsSide& b, const char* what, Done done) {
  for (int i = 0; i < 20000 && !done(); ++i) {
    a.pump();
    b.pump();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ck_assert_msg(done(), "%s did not happen; %s; %s", what, a.describe().c_str(), b.describe().c_str());
}

}  // namespace fabric::test
