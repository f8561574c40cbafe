// SPDX-License-Identifier: BSD-3-Clause
//
// One peer, through one port and in one transmit context: what is to be sent to it, and the link that carries it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "btl_fabric/base/detour_header.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/peer_room.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/path_events.h"
#include "btl_fabric/peer/directions.h"
#include "btl_fabric/peer/endpoint_table.h"
#include "common/base/transition_history.h"
#include "common/ports/steering.h"
#include "cpc/core/cpc.h"

namespace fabric {

class Endpoint;
class Endpoints;
struct EndpointHealing;
struct Obstacle;
struct PeerCounts;
struct PeerTraffic;

/// The key of the endpoint that a connection belongs to: X queues have one for each direction.
[[nodiscard]] inline cpc::ConnectionKey endpoint_key(cpc::ConnectionKey key) noexcept {
  key.direction = cpc::Direction::kBoth;
  return key;
}

/// Why something happens to an endpoint, for the user and for the rows of the table that ask.
struct EndpointCause {
  std::string text{};                    ///< what has failed
  std::string history{};                 ///< how the connection came there
  const LinkFailure* failure = nullptr;  ///< of kLinkFailed; says more than `text`
  bool is_missed = false;                ///< somebody waits for what has failed
  bool is_reported = false;              ///< the user knows already
  bool is_final = false;                 ///< the connection is not made anew
  bool may_be_agreed = false;  ///< of kSuperseded and kLost: the peer's answer that the link may go may be unread
  bool was_wanted = true;      ///< of kSetUpFailed: we had asked for what has failed
  cpc::Direction direction = cpc::Direction::kBoth;   ///< of X queues: of the connection that it is about
  const std::vector<ibv_qp*>* queue_pairs = nullptr;  ///< of kReceivesWanted and kLinked
};

/// A link, and whose it is.
class EndpointLink final : public Link {
 public:
  EndpointLink(Endpoint& owner, PacketPath& path, const UpperHandles& upper, const QueueSubset& subset, bool is_xrc)
      : Link(path, upper, subset, is_xrc), endpoint(owner) {}
  Endpoint& endpoint;
  // Of one that is being taken down: which of the connections with the peer it is, and how far the progress thread is.
  cpc::ConnectionKey key{};
  cpc::LinkNumber number = 0;
  bool is_flushed = false;
  std::chrono::steady_clock::time_point flushed_at;  ///< or flushed again
  std::unique_ptr<EndpointLink> next;                ///< of EndingLinks
  EndpointLink* next_of_peer = nullptr;              ///< that its endpoint goes on without
};

/// Lives until Open MPI takes the peer away. Everything here belongs to whoever holds the lock of its context, except
/// where noted. What may happen to it, and what follows, is in endpoint_table.h.
class Endpoint final : public mca_btl_base_endpoint_t {
 public:
  /// An endpoint that Open MPI is to know, of the first context, for a peer that is reached in so many.
  Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
           unsigned contexts, std::unique_ptr<const SteeringTable> steering = nullptr);
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
  [[nodiscard]] Endpoint* in_context(unsigned number) noexcept {
    Endpoint* const known = if_in_context(number);
    return known != nullptr ? known : make_in_context(number);
  }
  /// The same if it is there already, else null. For all threads.
  [[nodiscard]] Endpoint* if_in_context(unsigned number) noexcept {
    return number == 0 ? this : others_[number].load(std::memory_order_acquire);
  }

  /// Of a first one: a message may have to go in another context than its thread's.
  [[nodiscard]] bool is_directed(std::uint8_t order, mca_btl_base_tag_t tag) const noexcept {
    return contexts_ > 1 && (steering_ != nullptr || is_named(order, tag));
  }
  /// What directs a message to a context.
  struct Direction {
    enum class By : std::uint8_t { kNothing, kIndex, kRule };
    By by = By::kNothing;
    std::uint8_t context = 0;
  };
  /// Of a first one: an index from the sending side counts before the peer's steering rules.
  [[nodiscard]] Direction direction(std::uint8_t order, mca_btl_base_tag_t tag) const noexcept {
    if (is_named(order, tag)) {
      return {Direction::By::kIndex, order};
    }
    const std::uint8_t steered = steering_ != nullptr ? (*steering_)[tag] : kNotSteered;
    return steered != kNotSteered ? Direction{Direction::By::kRule, steered} : Direction{};
  }

  /// Without a direction: endpoint_key(). For all threads, as are the next three.
  [[nodiscard]] const cpc::ConnectionKey& key() const noexcept { return key_; }
  /// Looked up anew where Open MPI has taken the peer away since.
  [[nodiscard]] opal_proc_t* proc() const noexcept;
  /// Those of its port and context.
  [[nodiscard]] Endpoints& owner() const noexcept { return owner_; }
  /// It is to this process itself.
  [[nodiscard]] bool is_self() const noexcept { return is_self_; }

  // ---- Sending

  const QueueSubset& subset;  ///< the queues of its links. For all threads
  /// Sends a fragment, or queues it until it can go. Returns what btl_send() returns: 1 if the upper layer is done with
  /// it, OPAL_SUCCESS if its callback will be called, OPAL_ERR_UNREACH if the connection has failed,
  /// OPAL_ERR_OUT_OF_RESOURCE if there is no memory to connect.
  [[nodiscard]] int send(Fragment& fragment) noexcept {
    return carrier_ != nullptr ? carrier_->send(fragment) : send_later(fragment);
  }

  /// As Link::send_immediately().
  [[nodiscard]] bool send_immediately(const ImmediateMessage& message) noexcept;
  /// The link that carries what is sent; null if there is none now.
  [[nodiscard]] Link* carrier() const noexcept { return carrier_; }

  /// Starts a read, write or atomic, or queues it: see LinkRdma::submit().
  [[nodiscard]] int submit(RdmaRequest* request) noexcept;
  /// Those whose callbacks are to come.
  [[nodiscard]] std::uint32_t rdma_outstanding() noexcept;

  // ---- Reads and writes in pieces, over this endpoint and others of the same peer and context

  /// A piece can go at once, or soon: a link is up. Otherwise a connection is asked for.
  [[nodiscard]] bool takes_pieces() noexcept;
  /// `whole`, a request of this endpoint's device with the caller's callback, will go in so many pieces. This endpoint stays
  /// until they have ended, and its link tells the caller.
  void begin_pieces(RdmaRequest& whole, std::uint32_t count) noexcept;
  /// Makes a request, through any endpoint, a piece of `whole`.
  void adopt_piece(RdmaRequest& piece, RdmaRequest& whole) noexcept;
  /// A piece has ended, or (OPAL_ERR_*) could not be started. With the last one the caller is told, once, of the first error.
  void end_piece(RdmaRequest* whole, int status) noexcept;

  /// Queue pair numbers of one queue on either side, for messages to users: "QPN 0x000011 -> 0x000012".
  [[nodiscard]] std::string describe_queue(std::uint32_t qpn) const;

 private:
  /// Of a first one: a descriptor's field `order` names a context. Not ob1's, who gives its FIN messages a 0, and means nothing
  /// by it.
  [[nodiscard]] bool is_named(std::uint8_t order, mca_btl_base_tag_t tag) const noexcept {
    return order < contexts_ && (tag < MCA_BTL_TAG_PML || tag >= MCA_BTL_TAG_OSC_RDMA);
  }
  friend class DeviceLoss;
  friend class Endpoints;
  friend class EndpointsDescription;
  friend class EndpointsTop;
  friend class TrafficCounts;

  Endpoint(Endpoints& owner, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
           unsigned contexts, std::unique_ptr<const SteeringTable> steering, Endpoint* first);

  [[nodiscard]] Endpoint* make_in_context(unsigned number) noexcept;
  [[nodiscard]] EndpointState state() const noexcept { return state_; }

  /// Does what the table says follows from `event`. The only function that writes the state.
  void apply(EndpointEvent event, const EndpointCause& cause = {});
  [[nodiscard]] EndpointGuards guards(const EndpointCause& cause) const noexcept;
  [[nodiscard]] Status perform(EndpointAction action, const EndpointCause& cause);
  [[nodiscard]] Status send_cts();
  void say_goodbye();
  void set_carrier(Link* link) noexcept;
  [[nodiscard]] Status connect();
  void start();
  void note_connected() noexcept;
  void fail_all();
  void drop_all() noexcept;
  void close_all(const std::string& reason);
  void retire();
  void take_down_link(std::unique_ptr<EndpointLink> next) noexcept;
  void forget_connections() noexcept;
  // What becomes of a link that has broken (endpoint_healing.cc)
  void prepare_to_heal(EndpointLink& link);
  void begin_healing();
  void agree_on_counts();
  [[nodiscard]] std::span<PacketCounts> counts() const noexcept;
  [[nodiscard]] bool drop_arrived(std::span<const std::uint32_t> taken) noexcept;
  [[nodiscard]] EndpointCause cause_of_end(std::string text) const;
  void break_off(const EndpointCause& cause);
  [[nodiscard]] Status connect_again();
  [[nodiscard]] Status connect_elsewhere(const char* why);
  [[nodiscard]] bool makes_progress(std::chrono::milliseconds time);
  [[nodiscard]] bool has_posted_all() const noexcept;
  [[nodiscard]] bool has_carried_all() const noexcept;
  /// The peer, which has nothing more to get from us.
  [[nodiscard]] bool has_left(const EndpointCause& cause) const noexcept;
  /// With X queues, to a peer that asks for our counts: we connect for that alone.
  [[nodiscard]] bool owes_answer() const noexcept;
  void take_from_link(FragmentQueue messages, RdmaRequestQueue requests) noexcept;
  void exchange_counts();
  [[nodiscard]] bool may_heal(const EndpointCause& cause) const noexcept;
  [[nodiscard]] RdmaRequestQueue end_healing();
  // The same by another way (endpoint_detour.cc, endpoint_carry.cc)
  [[nodiscard]] bool may_settle() const noexcept;
  [[nodiscard]] bool has_nothing_in_doubt() const noexcept;
  [[nodiscard]] bool say_aside(Endpoint& way, DetourHeader::What what, std::span<const std::byte> body) noexcept;
  void tell_counts_aside(Endpoint& way);
  void answer_aside();
  void settle();
  enum class Carried {
    kYes,
    kLater,  ///< there is no room or no buffer now
    kNever,  ///< it has to wait for a link of this endpoint
  };
  void carry_aside(Endpoint& way);
  void carry_at_once();
  void carry_first();
  [[nodiscard]] Carried carry_copy(Endpoint& way, std::span<const std::byte> packet) noexcept;
  [[nodiscard]] Carried carry_message(Endpoint& way, const Fragment& fragment) noexcept;
  [[nodiscard]] Carried carry(Endpoint& way, PacketKind kind, mca_btl_base_tag_t tag, std::span<const std::byte> first,
                              std::span<const std::byte> second, unsigned detours) noexcept;
  [[nodiscard]] Carried carry_request(Endpoint& way, RdmaRequest& request);
  void give_up_healing(const std::string& why);
  /// Ends what was to be sent again, with an error, or so that nobody hears of it.
  void stop_healing(std::optional<int> status) noexcept;
  /// Nobody is called back any more for what waits.
  void forget_callers() noexcept;
  // endpoints_description.cc
  /// It does or waits for something.
  [[nodiscard]] bool is_busy() const noexcept;
  /// What it does and waits for.
  [[nodiscard]] nlohmann::ordered_json describe() const;
  /// Notes since when nothing has moved, as far as looks from time to time tell.
  void look(std::chrono::steady_clock::time_point now) noexcept;

  [[nodiscard]] cpc::ConnectionKey key(cpc::Direction direction) const noexcept;
  friend void end_unsent(const Endpoint& endpoint, Fragment& message, int status) noexcept;
  [[nodiscard]] UpperHandles upper() const noexcept;
  [[nodiscard]] int submit_later(RdmaRequest* request) noexcept;
  [[nodiscard]] int send_later(Fragment& fragment) noexcept;

  // ---- Set-up and teardown, for Endpoints

  /// The link, made if there is none.
  [[nodiscard]] EndpointLink& link();
  [[nodiscard]] std::unique_ptr<EndpointLink> make_link();
  /// Connects if something waits and nothing is connected or connecting.
  void connect_if_wanted();
  /// With X queues, before kMade: messages go through `sends`.
  void share(const cpc::XrcPath& path, SharedSendQueue& sends) {
    link().share(sends, path.srq_numbers, path.incarnation);
  }
  /// With CPCs that exchange CTS, before kLinked.
  void take(const cpc::Linked& linked);
  /// The peer's CTS has arrived on one of the queues that it goes over.
  void cts_arrived();
  [[nodiscard]] bool has_waiting() const noexcept;
  /// Looks whether the link has been used since the last time, if it is one that carries. Gives the round in which it was used last.
  std::uint64_t idle_since(std::uint64_t round) noexcept;
  [[nodiscard]] std::uint64_t last_used() const noexcept { return last_used_; }
  /// It can be asked of the peer that the link go.
  [[nodiscard]] bool may_rest() const noexcept {
    return !is_xrc_ && (state_ == EndpointState::kClear || (state_ == EndpointState::kConnected && is_idle()));
  }
  /// The link may go, as far as we are concerned.
  [[nodiscard]] bool is_idle() const noexcept;
  [[nodiscard]] bool is_current(const Link& link) const noexcept { return &link == link_.get(); }
  /// By which the peer sends.
  [[nodiscard]] cpc::Direction incoming() const noexcept {
    return is_xrc_ ? cpc::Direction::kIncoming : cpc::Direction::kBoth;
  }
  /// By which we send.
  [[nodiscard]] cpc::Direction outgoing() const noexcept {
    return is_xrc_ ? cpc::Direction::kOutgoing : cpc::Direction::kBoth;
  }
  /// Flushing: the connection is over, and this endpoint will be with it.
  void flushed(cpc::Direction direction);
  /// It stays when Open MPI takes the peer away.
  [[nodiscard]] bool goes_on_to_receive() const noexcept {
    return endpoint_step(state_, EndpointEvent::kRemoved, guards({})).next == EndpointState::kIdle;
  }
  /// Open MPI has taken the peer away, and the peer has not said goodbye.
  [[nodiscard]] bool only_receives() const noexcept { return !is_known_ && goes_on_to_receive(); }
  /// Open MPI's object for the peer may be no more.
  [[nodiscard]] bool is_taken_away() const noexcept {
    return !is_known_ || is_leaving() || state_ == EndpointState::kClosing;
  }
  /// Open MPI takes the peer away, and may have gone on without it before.
  void forget_gone() noexcept;
  /// Open MPI has taken the peer away, which still sends.
  void lose_proc() noexcept {
    is_known_ = false;
    proc_.store(nullptr, std::memory_order_relaxed);
  }
  void take_back(opal_proc_t* proc) noexcept {
    is_known_ = true;
    awaited_ = nullptr;
    proc_.store(proc, std::memory_order_relaxed);
  }
  /// Open MPI has taken the peer away, and the peer sends no more.
  [[nodiscard]] bool is_over() const noexcept {
    return !is_known_ && state_ == EndpointState::kIdle && !directions_.has(cpc::Direction::kIncoming);
  }
  /// Says Close, if it has not been said.
  void close(cpc::Direction direction, const std::string& reason);
  /// Open MPI has taken the peer away, and our goodbye is to be said or under way.
  [[nodiscard]] bool is_leaving() const noexcept {
    return state_ == EndpointState::kLeaving || state_ == EndpointState::kAboutToLeave;
  }
  /// That has gone on for long enough.
  [[nodiscard]] bool has_left_for(std::chrono::milliseconds time) const noexcept;
  /// True when no completion of this endpoint can come any more.
  [[nodiscard]] bool is_drained() const noexcept;
  /// Nothing has been heard of the peer for a while.
  void ask_whether_there() noexcept;
  // Healing, for Endpoints (endpoint_healing.cc)
  [[nodiscard]] bool is_healing() const noexcept { return healing_ != nullptr; }
  /// One of its links that had broken is drained.
  void take_what_is_left(Link& broken);
  /// Connects again, if a pause is over.
  void go_on_connecting(std::chrono::steady_clock::time_point now);
  /// All of them, and whatever else was ending.
  void go_on_healing();
  /// The peer says what it has taken.
  void hear_counts(Link& link, std::span<const std::byte> body);
  /// The queue pairs of both sides are up, and the peer's main thread has not said what it must: it computes. If the peer dies meanwhile
  /// the connection breaks.
  [[nodiscard]] bool waits_for_a_peer_that_is_there() const noexcept;
  /// There is no time left for it.
  [[nodiscard]] bool has_healed_for(std::chrono::milliseconds time) const noexcept;

  // Another way, while no link can be made, for Endpoints (endpoint_detour.cc)
  /// Goes on with it.
  void go_on_detour(std::chrono::steady_clock::time_point now);
  /// The peer says by another way what it has taken. False if it cannot be.
  [[nodiscard]] bool hear_counts_aside(std::span<const std::byte> body, bool wants_ours);
  [[nodiscard]] bool hear_atomic_aside(Endpoint& way, std::span<const std::byte> body);
  [[nodiscard]] bool hear_reply_aside(std::span<const std::byte> body);

  /// Once drained: the link goes, and the progress thread hears Destroy.
  void destroy();

  Endpoints& owner_;
  Endpoint* const first_;
  const unsigned contexts_;
  const std::unique_ptr<const SteeringTable> steering_;  ///< of a first one; null: the peer has no rules for us
  std::unique_ptr<std::atomic<Endpoint*>[]> others_;     ///< of a first one, by context; the first is not used
  std::atomic<unsigned> alive_others_ = 0;               ///< of a first one
  mutable std::atomic<opal_proc_t*> proc_;               ///< null: it may be gone
  std::atomic<bool> is_known_ = true;                    ///< Open MPI has not taken it away
  bool is_self_ = false;                                 ///< set before anybody else knows it
  cpc::ConnectionKey key_;
  cpc::PeerTarget target_;
  Link* carrier_ = nullptr;  ///< what messages go over: the link, while the state is kConnected
  EndpointState state_ = EndpointState::kIdle;
  TransitionHistory<EndpointState, EndpointEvent> history_;
  std::chrono::steady_clock::time_point in_state_since_;
  std::chrono::steady_clock::time_point still_since_;  ///< at every look since, it was busy and nothing had moved
  std::uint64_t position_ = 0;                         ///< at the last look
  bool has_asked_ = false;                      ///< our Connect is on its way, or joined to what the peer has begun
  const std::unique_ptr<PeerTraffic> traffic_;  ///< null: nobody counts what goes to the peer
  const bool exchanges_cts_;
  const bool is_xrc_;
  bool may_speak_first_ = true;
  unsigned cts_received_ = 0;     ///< of handshake_.queues
  std::uint64_t last_used_ = 0;   ///< Endpoints::idle_round_ of
  bool rest_is_put_off_ = false;  ///< the peer has asked for it, and our end does not carry yet
  bool has_heard_ = false;        ///< a message has come over the link, which is not of X queues, before it could start
  cpc::HandshakeSlot handshake_;
  std::uint32_t cts_number_ = 0;  ///< ours and the peer's
  Directions directions_;
  const Awaited* awaited_ = nullptr;   ///< as UpperHandles
  const opal_proc_t* gone_ = nullptr;  ///< the same
  EndpointLink* ending_ = nullptr;     ///< the newest of those that it goes on without (ending_links.h)
  std::chrono::steady_clock::time_point leaving_since_;
  std::chrono::steady_clock::time_point connecting_since_;
  std::vector<cpc::QueuePairEnd> remote_ends_;
  // Sent before the connection was up, in order
  FragmentQueue waiting_;
  RdmaRequestQueue waiting_rdma_;
  std::uint32_t in_pieces_ = 0;     ///< requests of ours whose pieces are under way
  PeerCounts* counts_ = nullptr;    ///< of all its links; null where none is made anew
  bool owes_counts_ = false;        ///< the peer wants to know them
  bool owes_counts_aside_ = false;  ///< the same, by another port
  std::unique_ptr<EndpointHealing>
      healing_;                         ///< from the break of a link until what it has not delivered is sent again
  std::unique_ptr<Obstacle> obstacle_;  ///< of the last time that one was
  std::chrono::steady_clock::time_point healed_at_;  ///< the last time
  unsigned short_lives_ = 0;                         ///< of links that were made anew, one after the other
  std::unique_ptr<EndpointLink> link_;
  RoomListing room_;  ///< of the carrier; goes before it
};

/// What was handed over for the endpoint cannot be sent: the upper layer hears that, if it still waits for it. For whoever holds the
/// context's lock.
void end_unsent(const Endpoint& endpoint, Fragment& message, int status) noexcept;

}  // namespace fabric
