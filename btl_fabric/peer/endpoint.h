// SPDX-License-Identifier: BSD-3-Clause
//
// One peer, through one port and in one transmit context: what is to be sent to it, and the link that carries it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/peer/directions.h"
#include "cpc/core/cpc.h"
#include "cpc/core/cts_table.h"

namespace fabric {

class Endpoint;
class Endpoints;

/// The key of the endpoint that a connection belongs to: X queues have one for each direction.
[[nodiscard]] inline cpc::ConnectionKey endpoint_key(cpc::ConnectionKey key) noexcept {
  key.direction = cpc::Direction::kBoth;
  return key;
}

/// A link, and whose it is.
class EndpointLink final : public Link {
 public:
  EndpointLink(Endpoint& owner, PacketPath& path, const UpperHandles& upper, bool is_xrc)
      : Link(path, upper, is_xrc), endpoint(owner) {}
  Endpoint& endpoint;
};

/// Lives until Open MPI takes the peer away. Everything here belongs to whoever holds the lock of its context, except
/// where noted. What a connection goes through on the progress thread is in cpc/core/connection_table.h; this is only what
/// sending needs to know of it.
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

  /// An endpoint that Open MPI is to know, of the first context, for a peer that is reached in so many.
  Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
           unsigned contexts);
  /// Of another context.
  Endpoint(Endpoints& owner, const cpc::ConnectionKey& key, cpc::PeerTarget target, Endpoint& first);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // ---- Transmit contexts

  /// The one that Open MPI knows. It outlives those of other contexts.
  [[nodiscard]] Endpoint& first_context() noexcept { return *first_; }
  /// Of a first one: contexts in which the peer is reached, at least one; the lower of ours and its.
  [[nodiscard]] unsigned contexts() const noexcept { return contexts_; }
  /// Of a first one: the endpoint of a context below contexts(), made if need be; null if there is no memory. For whoever
  /// holds the context's lock.
  [[nodiscard]] Endpoint* in_context(unsigned number) noexcept;
  /// The same if it is there already, else null. For all threads.
  [[nodiscard]] Endpoint* if_in_context(unsigned number) noexcept {
    return number == 0 ? this : others_[number].load(std::memory_order_acquire);
  }

  /// Without a direction: endpoint_key(). For all threads, as are the next two.
  [[nodiscard]] const cpc::ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] opal_proc_t* proc() const noexcept { return proc_; }
  /// Those of its port and context.
  [[nodiscard]] Endpoints& owner() const noexcept { return owner_; }

  // ---- Sending

  /// Sends a fragment, or queues it until it can go. Returns what btl_send() returns: 1 if the upper layer is done with
  /// it, OPAL_SUCCESS if its callback will be called, OPAL_ERR_UNREACH if the connection has failed,
  /// OPAL_ERR_OUT_OF_RESOURCE if there is no memory to connect.
  [[nodiscard]] int send(Fragment& fragment) noexcept {
    return carrier_ != nullptr ? carrier_->send(fragment) : send_later(fragment);
  }

  /// Packs header and data into a packet that the device copies, if that is possible right now.
  /// False, and nothing has happened, if it is not.
  [[nodiscard]] bool send_immediately(opal_convertor_t* convertor, const void* header, std::size_t header_size,
                                      std::size_t payload_size, mca_btl_base_tag_t tag) noexcept {
    return carrier_ != nullptr && carrier_->send_immediately(convertor, header, header_size, payload_size, tag);
  }

  /// Starts a read, write or atomic, or queues it: see LinkRdma::submit().
  [[nodiscard]] int submit(RdmaRequest* request) noexcept;
  /// Those whose callbacks are to come.
  [[nodiscard]] std::uint32_t rdma_outstanding() noexcept;

  /// Queue pair numbers of one queue on either side, for messages to users: "QPN 0x000011 -> 0x000012".
  [[nodiscard]] std::string describe_queue(std::uint32_t qpn) const;

 private:
  friend class Endpoints;

  Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
           unsigned contexts, Endpoint* first);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] cpc::ConnectionKey key(cpc::Direction direction) const noexcept;
  [[nodiscard]] UpperHandles upper() const noexcept;
  [[nodiscard]] int send_later(Fragment& fragment) noexcept;

  // ---- Set-up and teardown, for Endpoints

  /// The link, made if there is none.
  [[nodiscard]] EndpointLink& link();
  void want_connection();
  /// Connects if messages wait for it; for when the last connection with this peer is gone at last.
  void connect_if_wanted();
  /// The queue pairs are there: posts every receive. The error says what could not be posted.
  [[nodiscard]] Status post_receives(const std::vector<ibv_qp*>& queue_pairs);
  void connected(std::vector<cpc::QueuePairEnd> remote_ends);
  /// The same with X queues, as far as sending is concerned: through `sends`.
  void connected(const cpc::XrcPath& path, SharedSendQueue& sends, std::vector<cpc::QueuePairEnd> remote_ends);
  /// The peer is this process, and `queue_pair` is connected to another of ours.
  void connected_to_self(ibv_qp* queue_pair);
  /// Tells the progress thread that the peer is there, since its message is, if that is news.
  void peer_spoke();

  // The same for CPCs that exchange CTS (endpoint_cts.cc). An error: the connection has failed.
  /// The queue pairs are up: posts every receive, and CTS if it is our turn.
  [[nodiscard]] Status linked(const cpc::Linked& linked);
  /// The peer's CTS has arrived on one of the queues that it goes over.
  [[nodiscard]] Status cts_arrived();
  [[nodiscard]] Status peer_left();
  [[nodiscard]] Status apply(cpc::CtsEvent event);

  /// The connection that is being made is the peer's wish alone: nothing waits for it here.
  [[nodiscard]] bool is_peers_wish() const noexcept;
  [[nodiscard]] bool has_waiting() const noexcept;
  /// It comes to nothing, and is not missed. With X queues we can still make ours.
  void forget_peers_wish() noexcept;
  /// Says Close, if it has not been said.
  void give_up(cpc::Direction direction, const std::string& reason);
  void give_up(const std::string& reason);
  /// Close is answered.
  void flushed(cpc::Direction direction);
  /// Gives the connection up. Messages that wait are dropped; none is accepted any more.
  void close(const std::string& reason);
  /// Nothing more is sent or accepted.
  void fail() noexcept;
  /// After that: ends all that waits, with an error for whoever waits for it.
  void fail_waiting() noexcept;
  /// True when no completion of this endpoint can come any more.
  [[nodiscard]] bool is_drained() const noexcept;
  /// Once drained: the link goes, and the progress thread hears Destroy.
  void destroy();
  void end_waiting_rdma() noexcept;

  Endpoints& owner_;
  Endpoint* const first_;
  const unsigned contexts_;
  std::unique_ptr<std::atomic<Endpoint*>[]> others_;  ///< of a first one, by context; the first is not used
  std::atomic<unsigned> alive_others_ = 0;            ///< of a first one
  opal_proc_t* proc_;
  cpc::ConnectionKey key_;
  cpc::PeerTarget target_;
  Link* carrier_ = nullptr;  ///< what messages go over: the link, while the state is kConnected
  State state_ = State::kIdle;
  bool spoke_ = false;  ///< PeerSpoke is sent, or makes no difference
  const bool exchanges_cts_;
  const bool is_xrc_;
  bool may_speak_first_ = true;
  cpc::CtsState cts_ = cpc::CtsState::kUnlinked;
  unsigned cts_received_ = 0;  ///< of handshake_.queues
  cpc::HandshakeSlot handshake_;
  Directions directions_;
  std::vector<cpc::QueuePairEnd> remote_ends_;
  // Sent before the connection was up, in order
  FragmentQueue waiting_;
  RdmaRequestQueue waiting_rdma_;
  std::unique_ptr<EndpointLink> link_;
};

}  // namespace fabric
