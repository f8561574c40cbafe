// SPDX-License-Identifier: BSD-3-Clause
//
// The endpoints of a port in one transmit context: which there are, what the progress thread says about their
// connections, and what becomes of them when their links fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"
#include "btl_fabric/peer/closing_endpoints.h"
#include "btl_fabric/peer/ending_links.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoint_services.h"
#include "cpc/core/trace.h"
#include "cpc/queue_pairs/loopback.h"

namespace fabric {

/// Everything here belongs to whoever holds the lock of the context, except where noted. Which endpoints there are may also
/// change without that lock: Open MPI asks for endpoints while it holds a lock of its own, for which another thread may wait
/// in a callback, with the context's lock.
class Endpoints final : private PathEvents {
 public:
  /// `port` and `services` outlive it. `number`: of the context.
  Endpoints(const cpc::PortContext& port, EndpointServices& services, unsigned number) noexcept
      : port_(port), services_(services), number_(number) {}
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

  // ---- Set-up, in this order. What is set never changes, and belongs to all threads.

  void make_path(const PathSettings& settings, PathQueues queues, DeviceRdma& rdma, const AtomicTargets& targets,
                 Counters& sums, PacketWatch* watch = nullptr);
  /// The endpoints of the same port in all contexts, by number; all are there before the first is used. `upper_module`:
  /// Open MPI's name of the port.
  void set_contexts(std::vector<Endpoints*> contexts, mca_btl_base_module_t* upper_module);
  /// `trace`: hears of every transition; null: nobody does. `goodbye_timeout`: the longest wait for a goodbye to arrive.
  /// `heal_timeout`: for so long a link that has broken is tried to be made anew; 0: not at all.
  /// `heal_pause`: between the first two attempts at that; twice as long, up to two seconds, before each further one.
  void set_observers(cpc::Trace* trace, std::chrono::milliseconds goodbye_timeout,
                     std::chrono::milliseconds heal_timeout = {},
                     std::chrono::milliseconds heal_pause = std::chrono::milliseconds(100)) noexcept {
    trace_ = trace;
    heal_pause_ = heal_pause;
    goodbye_timeout_ = goodbye_timeout;
    heal_timeout_ = heal_timeout;
  }

  [[nodiscard]] PacketPath& path() noexcept { return *path_; }
  [[nodiscard]] const cpc::PortContext& port() const noexcept { return port_; }
  [[nodiscard]] unsigned number_of_context() const noexcept { return number_; }
  [[nodiscard]] mca_btl_base_module_t* upper_module() const noexcept { return upper_module_; }

  // ---- Which there are

  /// The endpoint for a peer that Open MPI is to know, made if need be; null, and `why_not` set, if this port does not
  /// reach the peer. In the first context only. For all threads.
  [[nodiscard]] Endpoint* endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not);
  /// One through which one of the peer's ports `remote_ports` (a bit each) is reached, or null.
  [[nodiscard]] Endpoint* endpoint_to(const ProcessName& peer, std::uint64_t remote_ports) const noexcept;
  /// The endpoint to this process itself, made if need be, for one-sided operations. For all threads.
  [[nodiscard]] Endpoint* self_endpoint(opal_proc_t* self);
  /// Connects the endpoint of a peer, if there is one and nothing has been sent yet. If that fails nobody misses it.
  void connect(const ProcessName& peer) noexcept;
  /// Takes away one of the first context, and those of the others: says goodbye, and gives their connections up. For
  /// whoever holds all locks.
  void remove(Endpoint* first);
  /// The very end begins: the upper layer is gone. What waits is missed by nobody, and nobody is called back.
  void begin_to_end() noexcept;
  /// After that: takes away those that can say goodbye at once.
  void say_goodbye_to_all();
  /// Some that have been taken away have said goodbye, and it has not arrived.
  [[nodiscard]] bool are_leaving() const noexcept;
  /// Some that Open MPI has taken away go on to receive: their peers' goodbyes are on their way.
  [[nodiscard]] bool await_goodbyes() const noexcept;

  /// Reads, writes and atomics whose callbacks are to come: of the endpoint to a peer, or (null) of all.
  [[nodiscard]] std::uint32_t rdma_outstanding(const ProcessName* peer) const noexcept;

  // ---- What happens

  /// Takes what has completed. Gives the number of completions.
  int progress() noexcept {
    const int completions = path_->progress();
    // Not from a callback: whoever called that may be at work on a link.
    if (has_chores_ && !path_->is_in_progress()) [[unlikely]] {
      do_chores();
    }
    return completions;
  }
  /// What the progress thread has to say about connections of this port.
  void handle(const cpc::Upcall& upcall) noexcept;
  /// The device says by an event that a queue pair has failed.
  void queue_pair_failed(std::uint32_t qpn, ibv_event_type event) noexcept;

 private:
  friend class DeviceLoss;
  friend class Endpoint;
  friend class EndpointsDescription;
  friend class EndpointsTop;

  /// So many of those that are ending or have broken are looked at in one call of progress(): it takes no longer when they are thousands.
  static constexpr std::size_t kMostLooks = 64;

  // For endpoints
  [[nodiscard]] bool counts_traffic() const noexcept { return counts_traffic_; }
  /// The device is gone: there are no new connections.
  [[nodiscard]] bool is_lost() const noexcept { return loss_ != Loss::kNone; }
  [[nodiscard]] bool leads_elsewhere(const Endpoint& endpoint) const noexcept {
    return !endpoint.is_xrc_ && services_.leads_elsewhere(endpoint);
  }
  [[nodiscard]] Endpoints& in_context(unsigned number) const noexcept { return *contexts_[number]; }
  [[nodiscard]] bool is_ending() const noexcept { return is_ending_; }
  void submit(cpc::Command command) { services_.submit(std::move(command)); }
  [[nodiscard]] cpc::Trace* trace() const noexcept { return trace_; }
  /// The endpoint of this context for one of the first, made. The peer must have this context too.
  [[nodiscard]] Endpoint* add_to(Endpoint& first);
  /// For a Connect.
  [[nodiscard]] cpc::LinkNumber next_link(const cpc::ConnectionKey& key) { return ++newest_links_[key]; }
  /// A link that its endpoint goes on without: it goes when it is drained.
  void take_down(std::unique_ptr<EndpointLink> link) noexcept;
  // Of links that have broken (endpoints_healing.cc)
  [[nodiscard]] std::chrono::milliseconds heal_timeout() const noexcept { return heal_timeout_; }
  [[nodiscard]] std::chrono::milliseconds heal_pause() const noexcept { return heal_pause_; }
  /// Of what is sent to a peer and taken from it: `count` counts.
  [[nodiscard]] PeerCounts& counts_with(const ProcessName& peer, std::size_t count);
  /// An endpoint for the same peer, or this one, which Open MPI has taken away, and which has a link still.
  [[nodiscard]] bool is_being_closed(const cpc::ConnectionKey& key) const noexcept;
  void begin_healing(Endpoint& endpoint);
  void end_healing(Endpoint& endpoint) noexcept;
  void report_healed(const Endpoint& endpoint, const std::string& why, std::chrono::milliseconds took,
                     std::uint64_t resent) noexcept;
  void watch_healing();
  void give_up_if_late(Endpoint& endpoint);
  [[nodiscard]] Endpoint* way_beside(const Endpoint& endpoint) const noexcept {
    return endpoint.is_xrc_ || awaited_of(endpoint) != nullptr ? nullptr : services_.way_beside(endpoint);
  }
  void report_connected(const Endpoint& endpoint, std::chrono::microseconds took) noexcept {
    services_.report_connected(endpoint, endpoint.target_.cpc.name, took);
  }
  void report_detour(const Endpoint& endpoint, const std::string& why, const Endpoint& way) noexcept {
    services_.report_detour(endpoint, why, way);
  }
  [[nodiscard]] Status connect_self();
  /// Its links, those that are being taken down too, hear what the upper layer awaits.
  void tell_links(Endpoint& endpoint) noexcept;
  /// As EndpointServices.
  [[nodiscard]] const Awaited* awaited_of(const Endpoint& endpoint) const noexcept;
  /// Reads, writes and atomics of its links that are being taken down, whose callbacks are to come.
  [[nodiscard]] std::uint32_t rdma_of_ending_links(const Endpoint& endpoint) const noexcept;
  void connect_other_ports(const Endpoint& endpoint) noexcept {
    services_.connect_other_ports(endpoint.key().peer, number_);
  }
  void report(const Endpoint& endpoint, const EndpointCause& cause);
  void note(const Endpoint& endpoint, const std::string& reason) { services_.report_not_missed(endpoint, reason); }
  /// Its link has failed: tells the PML.
  void failed(const Endpoint& endpoint) noexcept;

  [[nodiscard]] Endpoint* find(const cpc::ConnectionKey& key) const noexcept;
  [[nodiscard]] Endpoint* find(const ProcessName& peer) const noexcept;
  [[nodiscard]] Endpoint* find_user(std::uint32_t qpn) const noexcept;
  [[nodiscard]] Endpoint* take_back(const cpc::ConnectionKey& key, opal_proc_t* proc) noexcept;
  /// An endpoint that is being closed has this connection.
  [[nodiscard]] Endpoint* find_closing(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept;
  /// A link that its endpoint goes on without, by its queue pairs' connection; or null.
  [[nodiscard]] EndpointLink* find_ending(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept;
  /// The one that is being closed, if the link is its, or the one that is not.
  [[nodiscard]] Endpoint* find_any(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept;
  /// The endpoint that is to have a connection which the progress thread names, made if need be; null if there is none or
  /// it has failed: then the connection is refused, or our Close of it is on its way.
  [[nodiscard]] Endpoint* open(const cpc::ConnectionKey& key, cpc::LinkNumber link);
  [[nodiscard]] unsigned contexts_with(const Peer& peer) const;
  [[nodiscard]] Endpoint* add(opal_proc_t* proc, const cpc::ConnectionKey& key, const Peer& peer, const CpcOffer& offer,
                              Endpoint* first);
  /// The endpoint for a process that connected to us before Open MPI told us of it.
  [[nodiscard]] Endpoint* endpoint_of_unknown(const cpc::ConnectionKey& key, std::string& why_not);
  void close(Endpoint* endpoint);
  void close_if_over(Endpoint& endpoint);
  [[nodiscard]] bool set_aside(Endpoint& endpoint);
  /// What guards endpoints_ and self_; nothing, if MPI runs without threads. Nobody is called with it but Endpoint's functions
  /// that only look.
  [[nodiscard]] std::unique_lock<std::mutex> known_guard() const noexcept {
    return opal_uses_threads ? std::unique_lock(known_mutex_) : std::unique_lock<std::mutex>();
  }
  void do_chores() noexcept;
  void reap_drained();
  void reap_links();

  /// Notes for each endpoint since when nothing has moved, as far as looks from time to time tell. The clock is read here only.
  void look_at_all() noexcept;
  void on(const cpc::RoomWanted& upcall) noexcept;
  void on(const cpc::KeepAliveDue& upcall) noexcept;
  /// Asks the peers of idle links whether those may go, as many as are wanted.
  void make_room();
  /// What a look at all endpoints tells of which links may go.
  struct Resting {
    std::size_t endpoints = 0;
    std::size_t parting = 0;
    std::vector<std::uint64_t> asked;  ///< rounds since then, of those whose peers have not answered
    std::vector<Endpoint*> idle;
  };
  [[nodiscard]] Resting look_who_rests();
  /// Links that are going, or whose peers have just been asked.
  [[nodiscard]] std::size_t links_going(const Resting& seen) const noexcept;
  void let_rest(std::vector<Endpoint*>& idle, std::size_t most);
  void on(const cpc::PostReceives& upcall);
  void on(const cpc::Connected& upcall);
  void on(const cpc::Linked& upcall);
  void on(const cpc::PeerLeft& upcall);
  void on(const cpc::Failed& upcall);
  void on(const cpc::Flushing& upcall);
  void on(const cpc::QueuePairsGone& upcall) noexcept;
  void post_receives(Endpoint& endpoint, const cpc::PostReceives& upcall);
  void take_what_is_here() noexcept;
  void give_up_target(const cpc::ConnectionKey& key) noexcept;
  void take_handshake(Endpoint& endpoint, std::uint32_t length) noexcept;
  void check_early_cts(Endpoint& endpoint) noexcept;

  // What the packet path says (endpoints_cts.cc, endpoints_failures.cc)
  void connection_wanted(Link& link) noexcept override;
  void link_failed(Link& link, const LinkFailure& failure) noexcept override;
  void sender_failed(SharedSendQueue& sends, Link* link, const LinkFailure& failure) noexcept override;
  void device_is_gone() noexcept override { services_.device_is_gone(); }
  void peer_spoke(Link& link) noexcept override;
  void goodbye_arrived(Link& link) noexcept override;
  void goodbye_done(Link& link) noexcept override;
  void rest_asked(Link& link) noexcept override;
  void rest_declined(Link& link) noexcept override;
  void counts_arrived(Link& link, std::span<const std::byte> counts) noexcept override;
  bool detour_arrived(Link& link, std::span<std::byte> body) noexcept override;
  void resent(Link& link) noexcept override;
  void cts_received(LinkQueue& queue, std::span<const std::byte> packet) noexcept override;
  void handshake_completed(const ibv_wc& completion) noexcept override;
  void unknown_queue_pair_spoke(std::uint32_t qpn, std::span<const std::byte> packet) noexcept override;

  void completion_failed(Link& link, const LinkFailure& failure) noexcept;
  void leave_sender(SharedSendQueue& sends) noexcept;
  void break_sharers(SharedSendQueue& sends, const Link* first, const LinkFailure& failure) noexcept;
  void fail_sharers(SharedSendQueue& sends, Endpoint& first) noexcept;

  /// Runs what may find no memory. Then the endpoint fails; without one (null), all do.
  template <class Function>
  void guarded(Endpoint* endpoint, Function function) noexcept {
    try {
      function();
    } catch (const std::bad_alloc&) {
      no_memory(endpoint);
    }
  }
  void no_memory(Endpoint* endpoint) noexcept;

  const cpc::PortContext& port_;
  EndpointServices& services_;
  const unsigned number_;
  std::vector<Endpoints*> contexts_;
  mca_btl_base_module_t* upper_module_ = nullptr;
  cpc::Trace* trace_ = nullptr;
  std::chrono::milliseconds goodbye_timeout_{0};
  std::chrono::milliseconds heal_timeout_{0};
  std::chrono::milliseconds heal_pause_{0};
  std::vector<Endpoint*> healing_;  ///< those with a link that has broken
  std::size_t next_to_watch_ = 0;   ///< of those
  bool counts_traffic_ = false;     ///< EndpointsTop::watch()
  bool is_ending_ = false;          ///< the upper layer is gone
  enum class Loss : std::uint8_t { kNone, kHeardOf, kUnderWay, kDone };
  Loss loss_ = Loss::kNone;  ///< of the device
  bool has_chores_ = false;  ///< something is ending (one of the next two, or a send queue of X queues), or is to rest
  std::size_t links_wanted_ = 0;        ///< by connections that wait until others have gone
  std::uint64_t idle_round_ = 0;        ///< of looking at which are idle
  std::uint64_t keep_alive_round_ = 0;  ///< the one in which silent peers were last asked whether they are there
  std::chrono::steady_clock::time_point next_round_;
  // In the order of creation: links go before the path that they are of, and the loopback's queue pairs before anything.
  std::optional<PacketPath> path_;
  mutable std::mutex known_mutex_;
  std::unordered_map<ProcessName, std::unique_ptr<Endpoint>> endpoints_;  ///< a peer's port is paired with one of ours
  ClosingEndpoints closing_;
  std::size_t next_to_reap_ = 0;                                          ///< of those
  EndingLinks ending_;                                                    ///< they go before their endpoints
  std::unordered_map<cpc::ConnectionKey, cpc::LinkNumber> newest_links_;  ///< numbers used and heard of
  std::unordered_map<ProcessName, PeerCounts> counts_;                    ///< where links are made anew
  std::unique_ptr<Endpoint> self_;
  std::optional<cpc::Loopback> loopback_;

  // A peer's CTS can be here before the progress thread has told us of its connection, of which it may never tell us. They
  // stay until it does, or says that the queue pairs are gone.
  struct EarlyHandshake {
    std::uint64_t serial;
    std::uint32_t length;
  };
  /// Where the first queue is a shared one. A device gives the number of a queue pair that is gone to another one, whose
  /// CTS has another number.
  struct EarlyCts {
    std::uint32_t qpn;
    std::uint32_t number;
    bool operator==(const EarlyCts&) const = default;
  };
  std::unordered_map<std::uint64_t, Endpoint*> handshakes_;  ///< by HandshakeSlot::serial
  std::vector<EarlyHandshake> early_handshakes_;
  std::vector<EarlyCts> early_cts_;
};

}  // namespace fabric
