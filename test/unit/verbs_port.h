// SPDX-License-Identifier: BSD-3-Clause
//
// What a process of a job with a real port has, whatever its queues are: memory to send from and receive into, completion
// queues, and a ConnectionManager.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/verbs_handle.h"
#include "common/ports/port_scan.h"
#include "cpc/manager/connection_manager.h"
#include "cpc/queue_pairs/port_context.h"
#include "test/unit/check_main.h"
#include "test/unit/cpc_parameters.h"

namespace fabric::test {

class VerbsPort {
 public:
  static constexpr std::uint32_t kMessage = 64;  ///< bytes

  [[nodiscard]] ProcessName name() const { return settings_.self; }
  [[nodiscard]] const JobToken& token() const { return settings_.token; }
  [[nodiscard]] std::vector<CpcOffer> offers() const {
    const cpc::PortContext* const port = &port_;
    return manager_->offers(std::span(&port, 1));
  }

 protected:
  /// On the first usable port of this host. Receives have `places` places. `entries` completions fit into a completion
  /// queue, and `receives` of them are kept for shared queues.
  VerbsPort(std::uint32_t rank, const cpc::ConnectionSettings& settings, const char* queues, std::size_t places,
            int entries, int receives)
      : settings_(settings), queues_(*ReceiveQueues::parse(queues)), buffer_((places + 1) * kMessage) {
    PortScan scan = scan_ports({});
    ck_assert_uint_ge(scan.ports.size(), 1);
    usable_ = std::move(scan.ports.front());
    if (usable_.address.link == Transport::kIwarp) {
      queues_ = queues_.without_shared();
    }
    completion_queues_ = std::make_unique<CompletionQueueSet>(usable_.device->context.get(), entries, receives);
    region_.reset(ibv_reg_mr(usable_.device->pd.get(), buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE));
    ck_assert(region_ != nullptr);
    settings_.self = {1, rank};
    settings_.token.fill(kToken);
    token_of_peers_ = settings_.token;
    port_ = cpc::context_of(usable_, 0);
    port_.queues = &queues_;
    port_.subsets = {QueueSubset::all(queues_)};
    port_.completion_queues = completion_queues_.get();
  }

  /// When the rest of the port is filled in.
  void start() {
    CpcOptions parameters;
    parameters.set("rdmacm_resolve_timeout", static_cast<int>(std::min(settings_.connect_timeout_ms, 2000U)));
    auto started = cpc::ConnectionManager::start(settings_, parameters.make(), cpc::make_rc_queue_pairs);
    ck_assert(started.has_value());
    manager_ = std::move(*started);
    manager_->add_port(port_);
  }
  /// All processes of these programs have one token, unless one is a stranger.
  void make_stranger() { token_of_peers_[0] ^= std::byte{1}; }
  void connect(const cpc::ConnectionKey& key, const CpcOffer& offer) {
    manager_->submit(
        cpc::Connect{key, ++newest_[key], {*cpc::find_cpc(offer.kind), offer.blob, token_of_peers_, true}});
  }

  /// Tells `on` of every upcall and every completion that there is.
  template <class On>
  void pump(On on) {
    take_upcalls(on);
    poll(on);
  }
  template <class On>
  void take_upcalls(On on) {
    for (cpc::Upcall& upcall : manager_->take_upcalls()) {
      std::visit(
          [&](const auto& one) {
            if constexpr (requires { one.link; }) {
              cpc::LinkNumber& newest = newest_[one.key];
              newest = std::max(newest, one.link);
            }
            on(one);
          },
          upcall);
    }
  }
  template <class On>
  void poll(On on) {
    ibv_wc completion{};
    for (std::size_t i = 0; i < completion_queues_->count(); ++i) {
      while (ibv_poll_cq(completion_queues_->queue(i), 1, &completion) > 0) {
        on(completion);
      }
    }
  }

  /// The message that we send, and the place of a receive.
  [[nodiscard]] std::span<std::byte> own_message() { return {buffer_.data(), kMessage}; }
  [[nodiscard]] std::span<std::byte> place(std::size_t number) { return {&buffer_[(number + 1) * kMessage], kMessage}; }
  [[nodiscard]] ibv_sge sge_of(std::span<std::byte> message) const {
    return {reinterpret_cast<std::uintptr_t>(message.data()), kMessage, region_->lkey};
  }
  /// By ibv_post_recv or ibv_post_srq_recv on `queue`.
  template <class Queue>
  void post_receive(int (*post)(Queue*, ibv_recv_wr*, ibv_recv_wr**), Queue* queue, std::size_t number,
                    std::uint64_t id) {
    ibv_sge sge = sge_of(place(number));
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* rejected = nullptr;
    ck_assert_int_eq(post(queue, &request, &rejected), 0);
  }
  /// `srq_number`: with X queues, of the queue at the peer.
  static void post_send(ibv_qp* queue_pair, ibv_sge sge, std::uint64_t id, std::uint32_t srq_number = 0) {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.qp_type.xrc.remote_srqn = srq_number;
    ibv_send_wr* rejected = nullptr;
    ck_assert_int_eq(ibv_post_send(queue_pair, &request, &rejected), 0);
  }

  static constexpr std::byte kToken{9};

  JobToken token_of_peers_{};
  cpc::ConnectionSettings settings_;
  UsablePort usable_;
  ReceiveQueues queues_;
  std::vector<std::byte> buffer_;  ///< what we send, then a place for every receive
  std::unique_ptr<CompletionQueueSet> completion_queues_;
  std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>> region_;
  cpc::PortContext port_;
  std::map<cpc::ConnectionKey, cpc::LinkNumber> newest_;  ///< numbers used and heard of
  std::unique_ptr<cpc::ConnectionManager> manager_;       ///< to be reset by who adds things that it uses
};

}  // namespace fabric::test
