// SPDX-License-Identifier: BSD-3-Clause
//
// A process of a job with a real port and X queues: XRC shared receive queues in a domain that the sides of a node share, and
// a main thread that answers upcalls and tells senders by their targets, like the component.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "test/unit/verbs_port.h"

namespace fabric::test {

/// The file that names an XRC domain, as long as this lives.
class DomainFile {
 public:
  DomainFile() : fd_(mkstemp(path_)) { ck_assert_int_ge(fd_, 0); }
  ~DomainFile() {
    close(fd_);
    unlink(path_);
  }
  DomainFile(const DomainFile&) = delete;
  DomainFile& operator=(const DomainFile&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  char path_[32] = "/tmp/xrc_verbs.XXXXXX";
  int fd_;
};

/// ibv_close_xrcd() is an inline function, which VerbsDeleter cannot name in a header.
struct DomainCloser {
  void operator()(ibv_xrcd* domain) const noexcept { ibv_close_xrcd(domain); }
};

class XrcSide : private VerbsPort {
 public:
  static constexpr std::size_t kQueues = 2;
  using VerbsPort::name;

  XrcSide(std::uint32_t rank, const DomainFile& file, std::uint64_t domain)
      : VerbsPort(rank, {}, "X,1024,32,16,16:X,4096,32,16,16", kReceives, 512, 2 * kReceives) {
    ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file.fd(), O_CREAT};
    xrcd_.reset(ibv_open_xrcd(port_.device, &attributes));
    ck_assert_msg(xrcd_ != nullptr, "%s", strerror(errno));
    port_.xrcd = xrcd_.get();
    port_.xrc_domain = domain;
    std::memcpy(own_message().data(), &rank, sizeof rank);
    make_shared_queues();
    start();
  }
  /// The progress thread goes before what it uses.
  ~XrcSide() { manager_.reset(); }

  [[nodiscard]] CpcOffer offer() const {
    const std::vector<CpcOffer> all = offers();
    ck_assert_uint_eq(all.size(), 1);
    ck_assert(all[0].kind == cpc::kXoob.kind);
    return all[0];
  }

  void connect(const XrcSide& peer) { VerbsPort::connect(outgoing_to(peer), peer.offer()); }
  [[nodiscard]] bool is_connected_to(const XrcSide& peer) const { return paths_.contains(peer.name()); }
  [[nodiscard]] bool is_reached_by(const XrcSide& peer) const { return reached_by_.contains(peer.name()); }
  [[nodiscard]] const cpc::XrcPath& path_to(const XrcSide& peer) const { return paths_.at(peer.name()); }
  [[nodiscard]] std::uint32_t target_of(const XrcSide& peer) const {
    for (const auto& [target, sender] : targets_) {
      if (sender == peer.name()) {
        return target;
      }
    }
    return 0;
  }
  [[nodiscard]] std::string failure() const { return failure_; }

  /// Sends the peer a message that says who we are.
  void send(const XrcSide& peer, std::size_t queue) {
    const cpc::XrcPath& path = path_to(peer);
    post_send(path.queue_pair, sge_of(own_message()), kSent, path.srq_numbers.at(queue));
    ++under_way_;
  }
  [[nodiscard]] int under_way() const { return under_way_; }
  /// Messages of the peer so far. All of them came over the target that is the peer's.
  [[nodiscard]] int heard(const XrcSide& peer) const {
    const auto found = heard_.find(peer.name());
    return found == heard_.end() ? 0 : found->second;
  }

  void close_outgoing(const XrcSide& peer) { close(outgoing_to(peer)); }
  void close_incoming(const XrcSide& peer) { close(incoming_from(peer)); }
  /// Somebody still has a handle for the target: progress threads destroy theirs after they have told of the end.
  [[nodiscard]] bool is_there(std::uint32_t target) const {
    ibv_qp_open_attr attributes{};
    attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attributes.qp_num = target;
    attributes.xrcd = xrcd_.get();
    attributes.qp_type = IBV_QPT_XRC_RECV;
    return QueuePair(ibv_open_qp(port_.device, &attributes)) != nullptr;
  }
  [[nodiscard]] bool has_closed_all() const { return closing_.empty(); }

  void pump() {
    VerbsPort::pump([this](const auto& one) { on(one); });
  }

 private:
  static constexpr std::size_t kReceives = 32;  // posted to each queue
  static constexpr std::uint64_t kSent = 1U << 20;

  void make_shared_queues() {
    receive_room_ = std::make_unique<CompletionQueueRoom>(*completion_queues_->reserve(1));
    for (std::size_t queue = 0; queue < kQueues; ++queue) {
      ibv_srq_init_attr_ex attributes{};
      attributes.attr = {kReceives, 1, 0};
      attributes.comp_mask =
          IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
      attributes.srq_type = IBV_SRQT_XRC;
      attributes.pd = port_.pd;
      attributes.xrcd = port_.xrcd;
      attributes.cq = receive_room_->cq();
      srqs_[queue].reset(ibv_create_srq_ex(port_.device, &attributes));
      ck_assert(srqs_[queue] != nullptr);
      port_.srqs.push_back(srqs_[queue].get());
      for (std::size_t i = 0; i < kReceives / kQueues; ++i) {
        post_receive(queue * kReceives / kQueues + i);
      }
    }
  }
  /// Places of the first half are the first queue's.
  void post_receive(std::size_t place) {
    VerbsPort::post_receive(ibv_post_srq_recv, srqs_[place / (kReceives / kQueues)].get(), place, place);
  }

  [[nodiscard]] static cpc::ConnectionKey outgoing_to(const XrcSide& peer) {
    return {peer.name(), 0, 0, cpc::Direction::kOutgoing};
  }
  [[nodiscard]] static cpc::ConnectionKey incoming_from(const XrcSide& peer) {
    return {peer.name(), 0, 0, cpc::Direction::kIncoming};
  }
  void close(const cpc::ConnectionKey& key) {
    closing_.insert(key);
    manager_->submit(cpc::Close{key, newest_[key], "done"});
  }

  void on(const cpc::PostReceives& upcall) {
    ck_assert(upcall.queue_pairs.empty());
    if (upcall.key.direction == cpc::Direction::kIncoming) {
      ck_assert_uint_ne(upcall.target_qpn, 0);
      targets_[upcall.target_qpn] = upcall.key.peer;
    }
    manager_->submit(cpc::ReceivesPosted{upcall.key, upcall.link});
  }
  void on(const cpc::Connected& upcall) {
    if (upcall.key.direction == cpc::Direction::kIncoming) {
      reached_by_.insert(upcall.key.peer);
    } else {
      ck_assert_uint_eq(upcall.xrc.srq_numbers.size(), kQueues);
      paths_[upcall.key.peer] = upcall.xrc;
    }
  }
  void on(const cpc::Linked&) { ck_abort_msg("xoob does not exchange CTS"); }
  void on(const cpc::QueuePairsGone& upcall) { ck_assert_uint_ne(upcall.sender, 0); }
  void on(const cpc::PeerLeft&) { ck_abort_msg("xoob does not exchange CTS"); }
  void on(const cpc::Failed& upcall) { failure_ = upcall.reason + "; " + upcall.history; }
  void on(const cpc::Flushing& upcall) {
    closing_.erase(upcall.key);
    if (upcall.key.direction == cpc::Direction::kIncoming) {
      std::erase_if(targets_, [&](const auto& one) { return one.second == upcall.key.peer; });
      reached_by_.erase(upcall.key.peer);
    } else {
      paths_.erase(upcall.key.peer);
    }
    manager_->submit(cpc::Destroy{upcall.key, upcall.link});
  }
  void on(const cpc::AsyncEvent&) {}
  void on(const cpc::Shortage&) {}
  void on(const cpc::Remark&) {}
  void on(const cpc::RoomWanted&) {}
  void on(const cpc::KeepAliveDue&) {}

  void on(const ibv_wc& completion) {
    ck_assert_msg(completion.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(completion.status));
    if (completion.wr_id == kSent) {
      --under_way_;
      return;
    }
    std::uint32_t rank = 0;
    std::memcpy(&rank, place(completion.wr_id).data(), sizeof rank);
    const auto sender = targets_.find(completion.qp_num);
    ck_assert_msg(sender != targets_.end(), "a message of rank %u over target %u, which is nobody's", rank,
                  completion.qp_num);
    ck_assert_uint_eq(sender->second.rank, rank);
    ++heard_[sender->second];
    post_receive(completion.wr_id);
  }

  std::unique_ptr<ibv_xrcd, DomainCloser> xrcd_;
  std::unique_ptr<CompletionQueueRoom> receive_room_;
  SharedReceiveQueue srqs_[kQueues];
  std::map<ProcessName, cpc::XrcPath> paths_;
  std::map<std::uint32_t, ProcessName> targets_;
  std::set<ProcessName> reached_by_;
  std::map<ProcessName, int> heard_;
  std::set<cpc::ConnectionKey> closing_;
  std::string failure_;
  int under_way_ = 0;
};

/// Pumps all sides until `done`.
template <class Done>
void run_until(std::span<const std::unique_ptr<XrcSide>> sides, const char* what, Done done) {
  for (int i = 0; i < 20000 && !done(); ++i) {
    for (const std::unique_ptr<XrcSide>& side : sides) {
      side->pump();
      ck_assert_msg(side->failure().empty(), "%s: %s", what, side->failure().c_str());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  ck_assert_msg(done(), "%s did not happen", what);
}

}  // namespace fabric::test
