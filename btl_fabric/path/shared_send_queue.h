// SPDX-License-Identifier: BSD-3-Clause
//
// The send queue of X queues: one queue pair to a port of a node, for everything that this process sends to any process
// there. Whoever finds no room is put on a wait list, and room that comes free goes to those on it, one message to each
// in turn: a link all of whose own sends are done is still woken, by the completions of others.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "btl_fabric/base/connection_memory.h"
#include "btl_fabric/path/kept_packets.h"
#include "btl_fabric/path/link_rdma.h"
#include "btl_fabric/path/send_queue.h"

namespace fabric {

class Link;
class PacketPath;
class SharedSendQueue;

/// A link's part in a shared send queue. Requests that complete without a fragment point here; so it stays when the link
/// goes, until another link takes it.
struct SendShare {
  SharedSendQueue& sends;
  Link* link;                ///< null when it is gone
  std::uint32_t number = 0;  ///< of the link: no other one of the send queue has it

  /// Names a queue of the link, by its place, among all that ever send here.
  [[nodiscard]] std::uint64_t keeper(std::size_t place) const noexcept { return std::uint64_t{number} << 32U | place; }
  static constexpr std::size_t kKeeperBytes = sizeof(std::uint64_t);
};

/// Lives as long as its queue pair, whose last completions may come after everyone has left. Belongs to whoever holds the
/// context's lock.
class SharedSendQueue : public SendQueue {
 public:
  SharedSendQueue(ibv_qp* queue_pair, const QueueSpace& space, PacketPath& path);
  ~SharedSendQueue();
  SharedSendQueue(const SharedSendQueue&) = delete;
  SharedSendQueue& operator=(const SharedSendQueue&) = delete;

  /// A share for `link`, valid as long as this.
  [[nodiscard]] SendShare& add(Link& link);
  /// Takes it back from a link that is up and has nothing under way: that waits for another one.
  void release(Link& link) noexcept;
  [[nodiscard]] const std::deque<SendShare>& shares() const noexcept { return shares_; }

  /// Where links are made anew: copies of what they have had copied by the device. Each is followed by SendShare::keeper().
  [[nodiscard]] KeptPackets* kept() noexcept { return kept_.get(); }

  /// What posts RDMA; the bounds are those of the queue pair, whoever the peer.
  [[nodiscard]] RdmaChannel& rdma() noexcept { return rdma_; }

  // Messages: `queue` waits, or waits no more (its link is stopped)
  void enqueue(LinkQueue& queue) noexcept;
  void leave(LinkQueue& queue) noexcept;
  // The same for RDMA
  void enqueue(LinkRdma& rdma) noexcept;
  void leave(LinkRdma& rdma) noexcept;

  /// Somebody waits: newcomers go to the end.
  [[nodiscard]] bool has_waiting() const noexcept { return first_waiting != nullptr || first_rdma_ != nullptr; }
  /// Gives room to those that wait, messages and RDMA in turn.
  void serve() noexcept;

  /// A request of `failed`, which may be null, is the first to fail, and what was posted before it has arrived. True if nobody
  /// misses what was posted after it: it is of the same link, or, after a goodbye, a goodbye too. `goodbye_carried`: see
  /// LinkFailure. Where that is not known for sure, false.
  [[nodiscard]] bool loses_nothing_with(const Link* failed, std::uint64_t goodbye_carried) const noexcept;

  /// The queue pair has failed: nothing is sent any more.
  void fail() noexcept { failed_ = true; }
  [[nodiscard]] bool has_failed() const noexcept { return failed_; }
  /// The same, and it is in the error state: whoever connects anew gets another one.
  void break_down() noexcept;
  [[nodiscard]] bool has_broken_down() const noexcept { return has_broken_down_; }

  /// Its queue pair is destroyed. True if that was not known.
  bool set_gone() noexcept { return !std::exchange(gone_, true); }
  [[nodiscard]] bool is_gone() const noexcept { return gone_; }
  /// Some link has a share.
  [[nodiscard]] bool is_used() const noexcept;

 private:
  bool serve_message() noexcept;
  bool serve_rdma() noexcept;

  PacketPath& path_;
  RdmaChannel rdma_;
  std::unique_ptr<KeptPackets> kept_;
  std::deque<SendShare> shares_;  ///< a deque, because requests point at them
  std::uint32_t last_number_ = 0;
  LinkQueue* last_waiting_ = nullptr;
  LinkRdma* first_rdma_ = nullptr;
  LinkRdma* last_rdma_ = nullptr;
  bool failed_ = false;
  bool has_broken_down_ = false;
  bool gone_ = false;
  CountedMemory memory_;
};

}  // namespace fabric
