// SPDX-License-Identifier: BSD-3-Clause
//
// The reads, writes and atomics of a link: those under way, and those that wait for room or for memory regions, in order.
//
// The end of a read or write is told when a message can follow it at once. ob1 sends one from the callback, to tell the peer that
// its memory is free, and takes the request for complete at once: should that message have to wait for a credit, the application
// may wait for something else in the meantime without making progress (MPI_Comm_disconnect does, in PMIx), and the peer for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/path/link_queue.h"

namespace fabric {

class PacketPath;
struct AtomicMessage;
struct AtomicReply;

/// What a queue pair bounds: of a link's own, or of the one that X queues share.
struct RdmaChannel {
  /// `credits`: of the queue pair.
  RdmaChannel(const PacketPath& path, TxCredits& credits) noexcept;
  /// The queue pair is up: a communication manager may have agreed on fewer reads than we would have.
  void learn_reads(ibv_qp* queue_pair) noexcept;

  RdmaPlanner planner;
  std::uint32_t in_flight = 0;  ///< requests posted
};

/// Belongs to whoever holds the context's lock.
class LinkRdma {
 public:
  LinkRdma(Link& link, PacketPath& path, LinkQueue& queue);
  ~LinkRdma();
  LinkRdma(const LinkRdma&) = delete;
  LinkRdma& operator=(const LinkRdma&) = delete;

  /// Starts a request, or queues it until it can go; the link is up. OPAL_SUCCESS: its callback will be called. Otherwise
  /// the request is the caller's still: OPAL_ERR_OUT_OF_RESOURCE if too many wait, OPAL_ERR_UNREACH if the link has
  /// failed, OPAL_ERR_NOT_AVAILABLE if it can never go.
  [[nodiscard]] int submit(RdmaRequest* request) noexcept;

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  /// Requests whose callbacks are to come.
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return in_flight_ + waiting_.count() + held_.count() + unfinished_.count() +
           static_cast<std::uint32_t>(atomics_->under_way);
  }

  /// The link is up: starts `requests`, which have waited for it, as far as there is room.
  void start(RdmaRequestQueue& requests) noexcept;
  /// Starts what waits, as far as there is room.
  void send_waiting() noexcept;
  /// The device is done with a request.
  void completed(RdmaRequest* request, bool good) noexcept;
  /// One that is not of this link has ended well, and its callback sends over this link: tells it as the link's own.
  void tell(RdmaRequest* request) noexcept;
  /// Another request may wait.
  [[nodiscard]] bool takes_more() const noexcept { return waiting_.count() < RdmaRequestQueue::kMost; }
  /// The peer has executed an atomic that went as a message. False if no such atomic was sent.
  [[nodiscard]] bool replied(const AtomicReply& reply) noexcept;
  /// Ends everything that waits, and whatever waits for messages of the peer, with an error.
  void abort() noexcept;

  [[nodiscard]] bool has_held() const noexcept { return !held_.empty(); }
  /// Tells the ends that were held back, as far as messages can follow them: before those that wait.
  void tell_held() noexcept;

  /// Nobody is called back any more for what waits, waits for an answer, or has ended.
  void forget_callers() noexcept;

  /// Gives what has not been started.
  void take_waiting(RdmaRequestQueue& requests) noexcept;

  /// Posted, and not completed.
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_; }

  /// Atomics that went as messages, and that the peer has not answered.
  [[nodiscard]] std::size_t replies_to_come() const noexcept { return atomics_->under_way; }

  /// Atomics that went as messages. Their replies come by whatever link there is.
  struct Atomics {
    std::vector<RdmaRequest*> places;  ///< by the place that their replies name
    std::size_t under_way = 0;
    std::uint32_t next_serial = 1;
  };

  /// What a request says to the peer that goes as a message, and takes a place for its answer; false if there is none. Either
  /// await_reply() follows, or nothing has happened.
  [[nodiscard]] bool describe(RdmaRequest& request, AtomicMessage& message) noexcept;
  void await_reply(RdmaRequest* request, std::uint32_t place) noexcept;

  enum class Started {
    kYes,
    kNoRoom,  ///< a completion of the queue pair will bring it
    kLater,   ///< waits for something else, and is tried again when that is there
    kNever,   ///< has ended with an error
    kFailed,  ///< so has everything of the link
  };
  /// Starts the first of those that wait.
  [[nodiscard]] Started start_first() noexcept;

  // Its place in the wait list of a shared send queue
  bool is_enqueued = false;
  LinkRdma* next_enqueued = nullptr;

 private:
  friend class LinkHealing;

  [[nodiscard]] bool must_wait() const noexcept;
  [[nodiscard]] Started start(RdmaRequest* request) noexcept;
  [[nodiscard]] Started post(RdmaRequest* request) noexcept;
  [[nodiscard]] Started borrow_for(RdmaRequest* request) noexcept;
  [[nodiscard]] Started send_message(RdmaRequest* request) noexcept;
  [[nodiscard]] RdmaNext proceed(RdmaRequest* request) noexcept;
  void finish(RdmaRequest* request, int status) noexcept;
  [[nodiscard]] bool may_tell() const noexcept;
  void hold(RdmaRequest* request) noexcept;

  Link& link_;
  PacketPath& path_;
  LinkQueue& queue_;
  const LinkQueue& answers_;  ///< that the upper layer's short messages take
  RdmaChannel own_channel_;
  RdmaChannel* channel_ = &own_channel_;  ///< that of the shared queue pair, of X queues
  RdmaRequestQueue waiting_;
  RdmaRequestQueue stranded_;  ///< ended for the upper layer, but not for the device
  RdmaRequestQueue held_;      ///< ended well for the device, but not told to the upper layer
  std::chrono::steady_clock::time_point held_since_;
  std::uint32_t in_flight_ = 0;  ///< posted to the device
  // Of a link that has broken, and of the next (link_healing.h)
  std::shared_ptr<Atomics> atomics_;
  RdmaRequestQueue unfinished_;    ///< under way when it broke, in order
  bool has_lost_atomics_ = false;  ///< one of the device has not ended: nobody can tell whether it was executed
};

}  // namespace fabric
