// SPDX-License-Identifier: BSD-3-Clause
//
// One peer, through one port: the connection as the main thread sees it, and the messages that wait for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/path/endpoint_queue.h"
#include "btl_fabric/peer/endpoint_rdma.h"
#include "cpc/core/cpc.h"
#include "cpc/core/cts_table.h"

namespace fabric {

class Module;
class SharedSendQueue;

/// The key of the endpoint that a connection belongs to: X queues have one for each direction.
[[nodiscard]] inline cpc::ConnectionKey endpoint_key(cpc::ConnectionKey key) noexcept {
  key.direction = cpc::Direction::kBoth;
  return key;
}

/// Everything here belongs to whoever holds the lock of the module's context, except where noted. What a connection goes through on the progress thread is in
/// cpc/core/connection_table.h; this is only what sending needs to know of it.
class Endpoint final : public mca_btl_base_endpoint_t {
 public:
  enum class State {
    kIdle,        ///< nobody has sent anything yet
    kConnecting,  ///< messages wait
    kConnected,
    kSelf,      ///< the peer is this process: RDMA only, through a connection of the port with itself
    kPeerLeft,  ///< the peer has closed the connection: all right, as long as nobody has a message for it
    kFailed,    ///< reported; messages are refused
    kClosing,   ///< being taken down
  };

  /// An endpoint that Open MPI is to know, for a peer that is reached in so many contexts.
  Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target, unsigned contexts);
  /// One of the module's context behind it.
  Endpoint(Module& module, const cpc::ConnectionKey& key, cpc::PeerTarget target, Endpoint& face);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // ---- Transmit contexts

  /// The endpoint that Open MPI knows. It outlives those behind it.
  [[nodiscard]] Endpoint& face() noexcept { return *face_; }
  /// Of a face: contexts in which the peer is reached, at least one; the lower of ours and its.
  [[nodiscard]] unsigned contexts() const noexcept { return contexts_; }
  /// Of a face: the endpoint of a context below contexts(), made if need be; null if there is no memory. For whoever
  /// holds the context's lock.
  [[nodiscard]] Endpoint* in_context(unsigned number) noexcept;
  /// The same if it is there already, else null. For all threads.
  [[nodiscard]] Endpoint* if_in_context(unsigned number) noexcept {
    return number == 0 ? this : behind_[number].load(std::memory_order_acquire);
  }

  [[nodiscard]] State state() const noexcept { return state_; }
  /// Without a direction: endpoint_key().
  [[nodiscard]] const cpc::ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] cpc::ConnectionKey key(cpc::Direction direction) const noexcept {
    cpc::ConnectionKey key = key_;
    key.direction = direction;
    return key;
  }
  [[nodiscard]] opal_proc_t* proc() const noexcept { return proc_; }
  [[nodiscard]] EndpointQueue& queue(std::size_t index) noexcept { return queues_[index]; }
  [[nodiscard]] Module& module() noexcept { return module_; }
  [[nodiscard]] EndpointRdma& rdma() noexcept { return rdma_; }
  /// Reads, writes and atomics can be posted.
  [[nodiscard]] bool is_up() const noexcept { return state_ == State::kConnected || state_ == State::kSelf; }
  /// The queue whose queue pair carries them.
  [[nodiscard]] EndpointQueue& rdma_queue() noexcept;

  // ---- Packet path (endpoint_send.cc)

  /// Sends a fragment, or queues it until it can go. Returns what btl_send() returns: 1 if the upper layer is done with
  /// it, OPAL_SUCCESS if its callback will be called, OPAL_ERR_UNREACH if the connection has failed.
  int send(Fragment& fragment) noexcept;

  /// Packs header and data into a packet that the device copies, if that is possible right now.
  /// False, and nothing has happened, if it is not.
  [[nodiscard]] bool send_immediately(opal_convertor_t* convertor, const void* header, std::size_t header_size,
                                      std::size_t payload_size, mca_btl_base_tag_t tag) noexcept;

  /// Sends what the component itself has to say: a packet of `kind`, whose `size` bytes after the header are written.
  /// The fragment is ours no more. False if the connection has failed.
  [[nodiscard]] bool send_internal(Fragment& fragment, PacketKind kind, std::size_t size) noexcept;

  /// Posts what waits on this queue as far as credits and slots allow, then the credits that the peer needs.
  void send_waiting(EndpointQueue& queue) noexcept;
  /// Posts the first that waits on a queue. There must be one, and room.
  void send_one(EndpointQueue& queue) noexcept;

  /// A message or credits arrived on a P queue: `header` is checked and accounted for, receives are posted again.
  [[nodiscard]] bool accept_grant(EndpointQueue& queue, const PacketHeader& header) noexcept;
  void receive_done(EndpointQueue& queue, Fragment* fragment) noexcept;
  /// Posts the receives for which there were no buffers before.
  void refill_all() noexcept;

  // ---- Set-up and teardown (endpoint.cc)

  /// The queue pairs are there: posts every receive. The error says what could not be posted.
  [[nodiscard]] Status post_receives(const std::vector<ibv_qp*>& queue_pairs);
  void connected(std::vector<cpc::QueuePairEnd> remote_ends);
  /// The same with X queues, as far as sending is concerned: through `sends`.
  void connected(const cpc::XrcPath& path, SharedSendQueue& sends, std::vector<cpc::QueuePairEnd> remote_ends);
  /// With X queues: messages of the peer come in through this queue pair. 0 before.
  void set_target(std::uint32_t qpn) noexcept { target_qpn_ = qpn; }
  [[nodiscard]] std::uint32_t target() const noexcept { return target_qpn_; }

  // The same for CPCs that exchange CTS (endpoint_cts.cc). An error: the connection has failed.

  /// The queue pairs are up: posts every receive, and CTS if it is our turn.
  [[nodiscard]] Status linked(const cpc::Linked& linked);
  /// The peer's CTS has arrived on one of the queues that it goes over.
  [[nodiscard]] Status cts_arrived();
  [[nodiscard]] Status peer_left();
  /// The connection that is being made is the peer's wish alone: nothing waits for it here.
  [[nodiscard]] bool is_peers_wish() const noexcept {
    return (state_ == State::kIdle || state_ == State::kConnecting) && !has_waiting();
  }
  /// It comes to nothing, and is not missed. With X queues we can still make ours.
  void forget_peers_wish() noexcept { state_ = is_xrc_ ? state_ : State::kPeerLeft; }
  [[nodiscard]] bool exchanges_cts() const noexcept { return exchanges_cts_; }
  [[nodiscard]] cpc::CtsState cts_state() const noexcept { return cts_; }
  [[nodiscard]] const cpc::HandshakeSlot& handshake() const noexcept { return handshake_; }

  /// Connects if messages wait for it; for when the last connection with this peer is gone at last.
  void connect_if_wanted() {
    if (state_ == State::kIdle && (!waiting_.empty() || rdma_.has_waiting())) {
      want_connection();
    }
  }

  /// Tells the progress thread that the peer is there, since its message is, if that is news.
  void peer_spoke();

  // What the progress thread knows of a direction (kBoth, or with X queues one or both of the others)
  [[nodiscard]] bool has(cpc::Direction direction) const noexcept { return way(direction) != Way::kNone; }
  /// The peer has asked for it.
  void opened(cpc::Direction direction) noexcept;
  /// Says Close, if it has not been said.
  void give_up(cpc::Direction direction, const std::string& reason);
  void give_up(const std::string& reason);
  /// Close is answered.
  void flushed(cpc::Direction direction);
  /// Says Destroy for all; once drained.
  void destroy();

  /// Gives the connection up. Messages that wait are dropped; none is accepted any more.
  void close(const std::string& reason);
  /// True when no completion of this endpoint can come any more.
  [[nodiscard]] bool is_drained() const noexcept;
  /// Nothing more is sent or accepted.
  void fail() noexcept;
  /// After that: ends all that waits, with an error for whoever waits for it.
  void fail_waiting() noexcept;
  /// The peer is this process, and `queue_pair` is connected to another of ours.
  void connected_to_self(ibv_qp* queue_pair) noexcept;

  /// Queue pair numbers of one queue on either side, for messages to users: "QPN 0x000011 -> 0x000012".
  [[nodiscard]] std::string describe_queue(std::uint32_t qpn) const;

 private:
  int send_later(Fragment& fragment) noexcept;
  int post_fragment(EndpointQueue& queue, Fragment& fragment) noexcept;
  void send_credits(EndpointQueue& queue) noexcept;
  bool post_credits(EndpointQueue& queue) noexcept;
  void refill(EndpointQueue& queue) noexcept;
  void want_connection();
  [[nodiscard]] Status apply(cpc::CtsEvent event);
  [[nodiscard]] bool has_waiting() const noexcept;
  EndpointQueue& make_queues();
  void send_all_waiting();
  void leave_lines() noexcept;
  void post_drain_markers();

  /// How far the progress thread is with a direction, as it was told and has answered.
  enum class Way : std::uint8_t { kNone, kOpen, kClosing, kFlushed };
  static constexpr std::array kDirections{cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming};
  [[nodiscard]] Way way(cpc::Direction direction) const noexcept { return ways_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] Way& way(cpc::Direction direction) noexcept { return ways_[static_cast<std::size_t>(direction)]; }

  Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target, unsigned contexts,
           Endpoint* face);

  Module& module_;
  Endpoint* const face_;
  const unsigned contexts_;
  std::unique_ptr<std::atomic<Endpoint*>[]> behind_;  ///< of a face, by context; the first is not used
  std::atomic<unsigned> alive_behind_ = 0;            ///< of a face
  opal_proc_t* proc_;
  cpc::ConnectionKey key_;
  cpc::PeerTarget target_;
  State state_ = State::kIdle;
  bool spoke_ = false;  ///< PeerSpoke is sent, or makes no difference
  const bool exchanges_cts_;
  const bool is_xrc_;
  cpc::CtsState cts_ = cpc::CtsState::kUnlinked;
  bool may_speak_first_ = true;
  unsigned cts_received_ = 0;  ///< of handshake_.queues
  cpc::HandshakeSlot handshake_;
  std::array<Way, kDirections.size()> ways_{};
  std::uint32_t target_qpn_ = 0;
  FragmentQueue waiting_;             ///< sent before the connection was up, in order
  std::deque<EndpointQueue> queues_;  ///< one per receive queue; a deque, because work requests point at them
  EndpointRdma rdma_;
  std::vector<cpc::QueuePairEnd> remote_ends_;
};

}  // namespace fabric
