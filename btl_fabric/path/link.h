// SPDX-License-Identifier: BSD-3-Clause
//
// One incarnation of a connection, as the packet path sees it: its queues with their credits, the messages that wait for
// room, its RDMA. Who makes it, and what becomes of it when it fails, is decided by the floor above.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "btl_fabric/base/connection_memory.h"
#include "btl_fabric/base/immediate_message.h"
#include "btl_fabric/base/peer_room.h"
#include "btl_fabric/base/upper_layer.h"
#include "btl_fabric/path/eager_ring.h"
#include "btl_fabric/path/link_queue.h"
#include "btl_fabric/path/link_rdma.h"
#include "btl_fabric/path/packet_watch.h"
#include "common/accounting/queue_subset.h"
#include "common/base/fixed_array.h"
#include "common/base/result.h"
#include "cpc/core/cpc.h"

namespace fabric {

class PacketPath;
class SharedSendQueue;
struct Backlog;

/// Belongs to whoever holds the context's lock. It must be drained before it goes, or its queue pairs be gone.
class Link : public RoomSource {
 public:
  enum class State : std::uint8_t {
    kOpening,   ///< receives may be posted; nothing is sent yet
    kUp,        ///< messages go, reads, writes and atomics too
    kResting,   ///< the peer is asked whether the link may go: nothing is sent but that, and credits
    kResuming,  ///< the one before it has broken: only what that may not have delivered is sent (link_healing.h)
    kLeaving,   ///< goodbye is to be sent, and nothing else but credits
    kFailed,    ///< nothing is posted any more; whoever waits for something is told so
    kBroken,    ///< the same, but it is kept, for the next link
    kClosed,    ///< the same, and nobody waits
  };

  /// `upper`: whom the upper layer's callbacks are told of. `subset`: the queues that it has of the path's, which must stay.
  /// `is_xrc`: its queues are X queues, which have no queue pairs of their own.
  Link(PacketPath& path, const UpperHandles& upper, const QueueSubset& subset, bool is_xrc);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_up() const noexcept { return state_ == State::kUp; }
  /// Its owner may change what is awaited, and nobody anything else.
  [[nodiscard]] UpperHandles& upper() noexcept { return upper_; }
  /// Those that it has, in the order of the list.
  [[nodiscard]] std::span<LinkQueue> queues() noexcept { return {queues_.begin(), queues_.size()}; }
  [[nodiscard]] LinkRdma& rdma() noexcept { return rdma_; }
  /// It sends or receives through the queue pair with this number.
  [[nodiscard]] bool uses(std::uint32_t qpn) const noexcept;

  // ---- Sending; the link is up (link_send.cc)

  /// Sends a fragment, or queues it until it can go. Returns what btl_send() returns: 1 if the upper layer is done with
  /// it, OPAL_SUCCESS if its callback will be called, OPAL_ERR_UNREACH if the link has failed.
  [[nodiscard]] int send(Fragment& fragment) noexcept;

  /// Packs header and data into a packet that the device copies or that takes several messages, if that is possible right
  /// now. False, and nothing has happened, if it is not.
  [[nodiscard]] bool send_immediately(const ImmediateMessage& message) noexcept;  // immediate_sends.h

  /// Something waits: to be sent, or to end.
  [[nodiscard]] bool has_waiting() const noexcept;

  // ---- Set-up and teardown (link.cc)

  /// The queue pairs are there: posts every receive. The error says what could not be posted.
  [[nodiscard]] Status post_receives(const std::vector<ibv_qp*>& queue_pairs);
  /// With X queues: what comes through the queue pair with this number is the peer's. 0: the peer sends no more, which
  /// always succeeds. `incarnation`: of the connection by which the peer sends; a goodbye of another one is none.
  [[nodiscard]] Status receive_from(std::uint32_t target_qpn, std::uint32_t incarnation);
  /// With X queues: messages go through `sends`. Before start(). `incarnation`: of the connection by which we send.
  void share(SharedSendQueue& sends, const std::vector<std::uint32_t>& remote_srqs, std::uint32_t incarnation);
  /// The only queue pair of a link to this process itself, which carries RDMA and no messages. Before start().
  void set_loopback(ibv_qp* queue_pair) noexcept;
  /// The link is up: sends what has waited for it, in order.
  void start(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept;

  /// Drops all that waits, and says goodbye over every queue as soon as there is a buffer and room: what is under way on one
  /// does not wait for what is on another. PathEvents::goodbye_done() says when all have arrived. The link is up.
  void say_goodbye() noexcept;
  /// Nothing more is posted from now on. `how`: kFailed or kClosed.
  void stop(State how) noexcept;
  /// After that: ends all that waits, with an error for whoever waits for it. The messages of a closed link are dropped.
  void end_waiting() noexcept;
  /// The same of a link whose place another one takes: gives what has not been posted, for that one.
  void take_waiting(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept;
  /// The queue pairs are in the error state: asks for completions that come after all others.
  void post_drain_markers() noexcept;
  /// True when no completion of this link can come any more.
  [[nodiscard]] bool is_drained() const noexcept;

 private:
  // RoomSource, while messages go over the link
  [[nodiscard]] std::uint64_t tx_size_left() const noexcept final;
  [[nodiscard]] std::uint64_t rx_size_left() const noexcept final;

  /// What is queued may be posted.
  [[nodiscard]] bool may_post() const noexcept { return state_ >= State::kUp && state_ <= State::kLeaving; }

  friend class PacketPath;
  friend class LinkRdma;
  friend class LinkRest;
  friend class LinkHealing;
  friend class LinkOneWay;
  friend class LinkProbe;
  friend class LinkDescription;
  friend class LostDevice;
  friend class SharedSendQueue;

  /// The one for messages of queue `index` of the list.
  [[nodiscard]] LinkQueue& queue(std::size_t index) noexcept { return queues_[subset_.place(index)]; }
  /// Sends what the component itself has to say, as soon as the link is up: a packet of `kind`, whose `size` bytes after
  /// the header are written. The fragment is ours no more. False if the link has failed.
  [[nodiscard]] bool send_internal(Fragment& fragment, PacketKind kind, std::size_t size) noexcept;
  [[nodiscard]] LinkQueue& make_queues();
  [[nodiscard]] QueueSpace send_space(std::size_t place) const noexcept;
  /// A goodbye has come over a queue. True if it is the last one.
  [[nodiscard]] bool hear_goodbye(LinkQueue& queue, const std::byte* packet, std::size_t length) noexcept;
  /// Says goodbye over the queues where that is to be done, or asks to rest, as far as there are buffers.
  void say_last_ones() noexcept;
  /// One of ours that is the last on its queue; null if there is no buffer now.
  [[nodiscard]] Fragment* last_message(PacketKind kind) noexcept;
  /// One of ours has arrived, or its transfer has failed.
  void goodbye_ended() noexcept;
  void leave_wait_lists() noexcept;
  /// The opposite of share() and start(), when nothing is under way: what waits goes on to wait, for the next start().
  void stop_sending() noexcept;
  /// No completion and no reply is to come, but for messages that are copied inline: those only the send queue counts.
  [[nodiscard]] bool is_quiet() const noexcept;
  [[nodiscard]] bool has_no_fragments_out() const noexcept;
  /// Goodbyes of ours that are posted and have no completion yet.
  [[nodiscard]] std::size_t goodbyes_under_way() const noexcept;
  /// The same as is_quiet(), but for goodbyes.
  [[nodiscard]] bool carries_only_goodbyes() const noexcept;
  static void last_one_sent(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t* fragment,
                            int status);
  [[nodiscard]] LinkQueue& rdma_queue() noexcept { return *rdma_queue_; }
  /// By the device, which copies it. Not where send_inline_shared() is to.
  [[nodiscard]] bool send_inline(const ImmediateMessage& message) noexcept;
  /// The same through a queue pair that links share which are made anew if it fails.
  [[nodiscard]] bool send_inline_shared(ImmediateMessage message) noexcept;
  [[nodiscard]] int send_over(LinkQueue& queue, Fragment& fragment) noexcept;
  [[nodiscard]] int send_first(LinkQueue& queue, Fragment& fragment) noexcept;
  [[nodiscard]] bool make_room(LinkQueue& queue) noexcept;
  [[nodiscard]] int send_later(LinkQueue& queue, Fragment& fragment) noexcept;
  // Packets of several messages (coalescing.cc)
  /// Messages that leave at once. More where packets leave with next to nothing in them: by who waits for each message
  /// before the next.
  static constexpr unsigned kFewestAlone = 4;
  static constexpr unsigned kMostAlone = 16;
  /// Counts a message. True if as many as may leave at once have been sent since the last call of progress().
  [[nodiscard]] bool is_burst() noexcept;
  /// The same question, without counting one; false in a callback.
  [[nodiscard]] bool in_burst() const noexcept;
  /// Appends a small message to the open packet, with which it ends. False, and nothing has happened, for others.
  [[nodiscard]] bool join_packet(Fragment& fragment) noexcept;
  /// The same of a message that is complete then. False, and nothing has happened, if it cannot be promised that it leaves.
  [[nodiscard]] bool join_promised(ImmediateMessage message) noexcept;
  [[nodiscard]] bool append(const ImmediateMessage& message) noexcept;
  [[nodiscard]] bool open_packet() noexcept;
  /// One with room and a credit, which nobody else knows of yet.
  [[nodiscard]] bool open_promised() noexcept;
  void post_promised() noexcept;
  /// The open packet, which is promised, has been posted, or `error` is why not.
  void promised_is_posted(int error) noexcept;
  /// Nothing more is posted: what is open waits as other messages do.
  void take_promise_back() noexcept;
  /// The place of a message of `size` bytes at the end of the open packet, which is `needed` bytes longer then.
  [[nodiscard]] std::byte* add_record(std::size_t size, std::size_t needed, mca_btl_base_tag_t tag) noexcept;
  /// Posts the open packet, if there is room; otherwise it waits for it, and still takes messages.
  void post_packet() noexcept;
  /// The same, and it takes no more.
  void close_packet() noexcept;
  /// progress() posts the open packet, and learns how many messages go together.
  void end_burst() noexcept;
  // Eager RDMA (eager_rdma.cc)
  /// The queue whose queue pair rings are written through.
  [[nodiscard]] LinkQueue& ring_queue() noexcept;
  [[nodiscard]] bool send_by_ring(ImmediateMessage message) noexcept;
  [[nodiscard]] bool take_offer(const std::byte* packet, std::size_t length) noexcept;
  void leave_ring() noexcept;
  void think_of_ring() noexcept;
  [[nodiscard]] bool offer_ring(const RingOffer& offer) noexcept;
  /// Takes what has come, at most once around. Gives the number of messages.
  int take_from_ring() noexcept;
  [[nodiscard]] bool ring_left() noexcept;
  void give_ring_back() noexcept;
  [[nodiscard]] int post_fragment(LinkQueue& queue, Fragment& fragment) noexcept;
  /// Posts the first that waits on a queue. There must be one, and room.
  void send_one(LinkQueue& queue) noexcept;
  /// Posts what waits on this queue as far as credits and slots allow, then the credits that the peer needs.
  void send_waiting(LinkQueue& queue) noexcept;
  void send_credits(LinkQueue& queue) noexcept;
  [[nodiscard]] bool post_credits(LinkQueue& queue) noexcept;
  /// One of the component's own, of up to kMostOwn bytes, that nobody waits for; there is room. False if there is no buffer now.
  static constexpr std::size_t kMostOwn = counts_size(kMaxQueues + 1) + CountsOfOneWay::kSize;
  [[nodiscard]] bool post_own(LinkQueue& queue, PacketKind kind, std::span<const std::byte> body) noexcept;
  /// Verbs did not take a request of a queue.
  void post_refused(LinkQueue& queue, int error_number) noexcept;

  void receive_done(LinkQueue& queue, Fragment* fragment) noexcept {
    queue.receives.give_back(fragment);
    if (queue.credits.receives_to_post() > 0) [[unlikely]] {
      refill(queue);
    }
    if (!queue.waiting.empty() || queue.credits.explicit_due()) {
      send_waiting(queue);
    }
  }
  void refill(LinkQueue& queue) noexcept;
  /// What a header says beside the message. False if it cannot be true.
  [[nodiscard]] bool take_notes(LinkQueue& queue, const PacketHeader& header) noexcept;
  /// The peer has run out of credits: the queue has more receives from now on, if there is room for their completions.
  void grow(LinkQueue& queue) noexcept;
  /// Answers to the peer's atomics, or keeps the answer until there is a buffer.
  void reply(const AtomicReply& reply) noexcept;
  [[nodiscard]] bool send_reply(const AtomicReply& reply) noexcept;
  /// Tries again what has found no buffer or no memory region.
  void retry() noexcept;

  // What every small message touches comes first.
  PacketPath& path_;
  UpperHandles upper_;
  const QueueSubset& subset_;
  State state_ = State::kOpening;
  const bool is_xrc_;
  bool is_silent_ = true;          ///< no message has come from the peer
  bool answers_first_ = false;     ///< messages that are sent now go before what waits
  bool is_promised_ = false;       ///< open_packet_ leaves, whatever this thread does: messages in it are complete
  bool is_to_post_ = false;        ///< it is in the list of PacketPath
  unsigned alone_ = kFewestAlone;  ///< messages that leave alone between two calls of progress()
  std::uint64_t burst_epoch_ = 0;  ///< PacketPath::epoch() of
  unsigned burst_ = 0;             ///< messages that have left alone since
  std::uint32_t early_ = 0;        ///< messages with which the next packet leaves
  unsigned parts_ = 0;             ///< messages in
  /// A packet that takes more messages: the last one of the waiting ones of PacketPath::coalescing_queue(), or null.
  Fragment* open_packet_ = nullptr;
  Fragment* last_part_ = nullptr;                  ///< of it, that ends with it
  LinkQueue* smallest_ = nullptr;                  ///< the one for the smallest messages
  LinkQueue* coalescing_ = nullptr;                ///< the one for packets of several messages
  FixedArray<LinkQueue> queues_;                   ///< by place in subset_; work requests point at them
  LinkQueue* rdma_queue_ = nullptr;                ///< reads, writes and atomics go through its queue pair
  RingSender ring_out_;                            ///< to the peer's ring for us
  RingReceiver ring_in_;                           ///< ours for the peer
  PacketCounts* ring_counts_ = &own_ring_counts_;  ///< of messages in rings; the endpoint's, for all its links
  OpenPacket watched_;                             ///< open_packet_, if it is promised
  LinkRdma rdma_;

  CreditGrant promised_grant_;
  bool is_watched_ = false;
  std::uint64_t thought_of_ring_ = 0;  ///< when as many messages had come from all peers
  bool owes_ring_left_ = false;        ///< there was no buffer to say so
  PacketCounts own_ring_counts_;       ///< of a link without an endpoint
  bool is_to_ourselves_ = false;       ///< it carries no messages
  std::size_t goodbyes_to_say_ = 0;    ///< over so many queues, the last ones
  std::size_t goodbyes_out_ = 0;       ///< ours that have not arrived
  std::size_t rests_to_say_ = 0;       ///< over so many queues, the last ones
  bool owes_stay_ = false;             ///< there was no buffer to say so
  bool owes_counts_ = false;           ///< there was no buffer to say so
  std::uint32_t counts_number_ = 0;    ///< LinkHealing::tell_counts()
  bool has_told_counts_ = false;       ///< or owes them
  Backlog* backlog_ = nullptr;         ///< what is to be sent again
  std::uint32_t target_qpn_ = 0;
  // Of X queues, whose goodbye may still be under way when the next connection uses the same queue pair.
  std::uint32_t incoming_incarnation_ = 0;
  std::uint32_t outgoing_incarnation_ = 0;
  std::uint32_t asked_incarnation_ = 0;  ///< CountsOfOneWay::answers
  std::vector<AtomicReply> replies_;     ///< there was no buffer for them
  Link* next_to_post_ = nullptr;         ///< in the list of PacketPath
  CountedMemory memory_;

  // Its place among those that PacketPath tries again
  bool is_to_retry_ = false;
  Link* before_ = nullptr;
  Link* after_ = nullptr;
};

}  // namespace fabric
