// SPDX-License-Identifier: BSD-3-Clause
//
// A process of a job with a real port: a ConnectionManager, queue pairs, receives, and a main thread that answers upcalls
// and exchanges CTS like the component.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/port_scan.h"
#include "common/verbs_handle.h"
#include "cpc/connection_manager.h"
#include "cpc/cts_table.h"
#include "cpc/handshake_slab.h"
#include "test/unit/check_main.h"

namespace fabric::test {

class VerbsSide {
 public:
  explicit VerbsSide(std::uint32_t rank) : buffer_((kReceives + 1) * kMessage) {
    PortScan scan = scan_ports({});
    ck_assert_uint_ge(scan.ports.size(), 1);
    usable_ = std::move(scan.ports.front());
    queues_ = std::make_unique<ReceiveQueues>(*ReceiveQueues::parse("P,4096,8,4,4,2:S,4096,16,4,16"));
    if (usable_.address.link == Link::kIwarp) {
      *queues_ = queues_->without_shared();
    }
    ibv_pd* const domain = usable_.device->pd.get();
    handshakes_ = std::make_unique<cpc::HandshakeSlab>(domain);
    completion_queues_ = std::make_unique<CompletionQueueSet>(usable_.device->context.get(), 256, 32);
    region_.reset(ibv_reg_mr(domain, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE));
    ck_assert(region_ != nullptr);
    std::fill_n(buffer_.begin(), kMessage, static_cast<std::byte>(rank));
    settings_.self = {1, rank};
    settings_.token.fill(std::byte{9});
    fill_port(domain);
    auto started = cpc::ConnectionManager::start(settings_, cpc::make_rc_queue_pairs);
    ck_assert(started.has_value());
    manager_ = std::move(*started);
    manager_->add_port(port_);
  }

  [[nodiscard]] std::size_t queue_count() const { return queues_->count(); }
  [[nodiscard]] std::vector<CpcOffer> offers() const {
    const cpc::PortContext* const port = &port_;
    return manager_->offers(std::span(&port, 1));
  }

  void connect(const VerbsSide& peer, const CpcOffer& offer) {
    manager_->submit(cpc::Connect{key_to(peer), {offer.kind, offer.blob, peer.settings_.token, true}});
  }
  [[nodiscard]] bool connected() const { return connected_; }

  /// Sends our pattern.
  void send(std::size_t queue) {
    post_send(queue, {reinterpret_cast<std::uintptr_t>(buffer_.data()), kMessage, region_->lkey}, kSent);
  }
  /// How many completions there have to be from now on.
  void expect(int completions) {
    good_ = 0;
    expected_ = completions;
  }
  [[nodiscard]] bool has_all() const { return good_ == expected_; }
  /// True if every message so far was the peer's pattern.
  [[nodiscard]] bool heard(const VerbsSide& peer) const {
    return !heard_.empty() && std::all_of(heard_.begin(), heard_.end(), [&](std::byte one) {
      return one == static_cast<std::byte>(peer.settings_.self.rank);
    });
  }

  void close(const VerbsSide& peer) {
    closing_ = true;
    manager_->submit(cpc::Close{key_to(peer), "done"});
  }
  [[nodiscard]] bool is_flushed() const { return flushed_ && outstanding_ == 0; }
  /// Back to the beginning.
  void destroy() {
    manager_->submit(cpc::Destroy{key_});
    queue_pairs_.clear();
    heard_.clear();
    handshake_ = {};
    cts_ = cpc::CtsState::kUnlinked;
    cts_received_ = 0;
    connected_ = closing_ = flushed_ = false;
  }

  /// Does what there is to do.
  void pump() {
    for (cpc::Upcall& upcall : manager_->take_upcalls()) {
      std::visit([this](const auto& one) { on(one); }, upcall);
    }
    ibv_wc completion{};
    for (std::size_t i = 0; i < completion_queues_->count(); ++i) {
      while (ibv_poll_cq(completion_queues_->queue(i), 1, &completion) > 0) {
        on(completion);
      }
    }
  }

  [[nodiscard]] std::string describe() const {
    return "rank " + std::to_string(settings_.self.rank) + ": " + std::to_string(good_) + " of " +
           std::to_string(expected_) + " completions, " + std::to_string(outstanding_) + " receives, CTS " +
           std::string(cpc::to_string(cts_)) + (flushed_ ? ", flushed" : "");
  }

 private:
  static constexpr std::uint32_t kMessage = 64;
  static constexpr std::size_t kReceives = 10;  // posted to each queue
  // wr_ids, none of which looks like a handshake's; those of receives have the place above.
  static constexpr std::uint64_t kSent = 1;
  static constexpr std::uint64_t kCtsSent = 2;
  static constexpr std::uint64_t kReceived = 3;

  void fill_port(ibv_pd* domain) {
    port_.device = usable_.device->context.get();
    port_.pd = domain;
    port_.port_num = usable_.port_num;
    port_.gid_index = usable_.gid_index;
    port_.address = usable_.address;
    port_.ip = usable_.ip;
    port_.handshakes = handshakes_.get();
    port_.queues = queues_.get();
    port_.completion_queues = completion_queues_.get();
    port_.settings.pkey_index = usable_.pkey_index;
    port_.srqs = {nullptr, nullptr};
    if (has_shared()) {
      ibv_srq_init_attr attributes{};
      attributes.attr.max_wr = kReceives;
      attributes.attr.max_sge = 1;
      srq_.reset(ibv_create_srq(domain, &attributes));
      ck_assert(srq_ != nullptr);
      port_.srqs[1] = srq_.get();
      for (std::size_t i = 0; i < kReceives; ++i) {
        post_receive(nullptr, i);
      }
    }
  }
  [[nodiscard]] bool has_shared() const { return (*queues_)[1].kind == QueueKind::kShared; }

  [[nodiscard]] cpc::ConnectionKey key_to(const VerbsSide& peer) const { return {peer.settings_.self, 0, 0}; }

  /// To the shared queue if there is no queue pair.
  void post_receive(ibv_qp* queue_pair, std::size_t place) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&buffer_[(place + 1) * kMessage]), kMessage, region_->lkey};
    ibv_recv_wr request{};
    request.wr_id = place << cpc::kHandshakeTagBits | kReceived;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* rejected = nullptr;
    ck_assert_int_eq(queue_pair != nullptr ? ibv_post_recv(queue_pair, &request, &rejected)
                                           : ibv_post_srq_recv(srq_.get(), &request, &rejected),
                     0);
  }
  void post_receives(const std::vector<ibv_qp*>& queue_pairs) {
    queue_pairs_ = queue_pairs;
    for (std::size_t queue = 0; queue < queue_count(); ++queue) {
      if ((*queues_)[queue].kind == QueueKind::kPerPeer) {
        for (std::size_t i = 0; i < kReceives; ++i) {
          post_receive(queue_pairs[queue], i);
          ++outstanding_;
        }
      }
    }
  }
  void post_send(std::size_t queue, ibv_sge sge, std::uint64_t id) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* rejected = nullptr;
    ck_assert_int_eq(ibv_post_send(queue_pairs_[queue], &request, &rejected), 0);
  }

  void on(const cpc::PostReceives& upcall) {
    post_receives(upcall.queue_pairs);
    manager_->submit(cpc::ReceivesPosted{upcall.key});
  }
  void on(const cpc::Connected&) { connected_ = true; }
  void on(const cpc::Linked& upcall) {
    handshake_ = upcall.handshake;
    may_speak_first_ = upcall.may_speak_first;
    post_receives(upcall.queue_pairs);
    apply(cpc::CtsEvent::kLinked);
    if (cts_received_ == handshake_.queues) {
      apply(cpc::CtsEvent::kCtsArrived);
    }
  }
  void on(const cpc::PeerLeft&) { apply(cpc::CtsEvent::kPeerLeft); }
  void on(const cpc::Failed& upcall) {
    ck_assert_msg(closing_, "%s; %s", upcall.reason.c_str(), upcall.history.c_str());
  }
  void on(const cpc::Flushing& upcall) {
    flushed_ = true;
    key_ = upcall.key;
  }
  void on(const cpc::AsyncEvent&) {}

  void on(const ibv_wc& completion) {
    const bool good = completion.status == IBV_WC_SUCCESS;
    const std::uint64_t kind = completion.wr_id & ((1U << cpc::kHandshakeTagBits) - 1);
    ck_assert_msg(good || closing_ || completion.status == IBV_WC_WR_FLUSH_ERR, "%s",
                  ibv_wc_status_str(completion.status));
    if (kind == cpc::kHandshakeTag) {
      if (good && ++cts_received_ == handshake_.queues && cts_ != cpc::CtsState::kUnlinked) {
        apply(cpc::CtsEvent::kCtsArrived);
      }
      return;
    }
    const bool shared = has_shared() && kind == kReceived && !is_of_first(completion);
    if (kind == kReceived && !shared) {
      --outstanding_;
    }
    if (!good || kind == kCtsSent) {
      return;
    }
    ++good_;
    if (kind == kReceived) {
      const std::size_t place = completion.wr_id >> cpc::kHandshakeTagBits;
      const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>((place + 1) * kMessage);
      heard_.insert(heard_.end(), first, first + completion.byte_len);
      if (shared) {
        post_receive(nullptr, place);
      }
    }
  }
  [[nodiscard]] bool is_of_first(const ibv_wc& completion) const {
    return !queue_pairs_.empty() && completion.qp_num == queue_pairs_[0]->qp_num;
  }

  void apply(cpc::CtsEvent event) {
    const cpc::CtsStep step = cpc::cts_step(cts_, event, may_speak_first_);
    cts_ = step.next;
    for (const cpc::CtsAction action : step.actions) {
      ck_assert_msg(action != cpc::CtsAction::kFail, "%s", std::string(step.why).c_str());
      if (action == cpc::CtsAction::kSendCts) {
        for (std::size_t queue = 0; queue < handshake_.queues; ++queue) {
          post_send(queue, {reinterpret_cast<std::uintptr_t>(handshake_.send), cpc::kHandshakeBytes, handshake_.lkey},
                    kCtsSent);
        }
      } else if (action == cpc::CtsAction::kStartSending) {
        connected_ = true;
      }
    }
  }

  UsablePort usable_;
  std::unique_ptr<ReceiveQueues> queues_;
  cpc::ManagerSettings settings_;
  std::vector<std::byte> buffer_;  ///< what we send, then a place for every receive
  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  std::unique_ptr<CompletionQueueSet> completion_queues_;
  std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>> region_;
  SharedReceiveQueue srq_;
  cpc::PortContext port_;
  std::vector<ibv_qp*> queue_pairs_;  ///< the connection's
  std::vector<std::byte> heard_;
  cpc::HandshakeSlot handshake_;
  cpc::CtsState cts_ = cpc::CtsState::kUnlinked;
  int cts_received_ = 0;
  bool may_speak_first_ = true;
  bool connected_ = false;
  bool closing_ = false;
  bool flushed_ = false;
  cpc::ConnectionKey key_;
  int outstanding_ = 0;  ///< receives on P queues
  int good_ = 0;         ///< completions of messages
  int expected_ = 0;
  std::unique_ptr<cpc::ConnectionManager> manager_;  ///< first to go
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
