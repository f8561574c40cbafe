// SPDX-License-Identifier: BSD-3-Clause
//
// One port, in one transmit context: what Open MPI calls a BTL module. Owns completion queues, shared receive queues,
// message buffers and endpoints of its own. Open MPI knows the modules of the first context only, the faces of the
// others.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/path/shared_queue.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoint.h"
#include "common/accounting/completion_queue_set.h"
#include "common/accounting/qpn_table.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/port_scan.h"
#include "common/ports/xrc_domain.h"
#include "cpc/manager/connection_manager.h"
#include "cpc/queue_pairs/loopback.h"
#include "cpc/queue_pairs/queue_fit.h"

namespace fabric {

struct Peer;

/// Derives from Open MPI's table of functions and limits; btl_functions.cc fills in the functions.
/// Where a module stands among those of the process.
struct ModulePlace {
  std::uint16_t index = 0;  ///< in the modex
  unsigned context = 0;
  unsigned contexts = 1;  ///< of the port: the modules next to each other
};

/// Everything here belongs to whoever holds the lock of the module's context, except where noted.
class Module final : public mca_btl_base_module_t {
 public:
  /// Makes a module of `port`. `cache` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<Module>> make(const UsablePort& port, RegistrationCache& cache,
                                                            const ReceiveQueues& queues, const ModulePlace& place,
                                                            const mca_btl_base_module_t& limits);
  /// The connections must be gone: ConnectionManager destroyed, so that no queue pair is left.
  ~Module();

  [[nodiscard]] const cpc::PortContext& context() const noexcept { return context_; }
  [[nodiscard]] const UsablePort& port() const noexcept { return port_; }
  [[nodiscard]] const ReceiveQueues& receive_queues() const noexcept { return queues_; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return port_.device->max_inline; }
  /// The send queue of a queue pair for receive queue `queue`.
  [[nodiscard]] QueueSpace send_space(std::size_t queue) const noexcept {
    return cpc::send_space(queues_, queue, context_.settings.costs, max_inline(), context_.settings.rdma_depth);
  }
  /// The send queue of a sender of X queues.
  [[nodiscard]] QueueSpace sender_space() const noexcept {
    return cpc::sender_space(queues_, context_.settings.costs, max_inline(), context_.settings.rdma_depth);
  }
  [[nodiscard]] std::string name() const { return port_.name(); }

  // ---- Transmit contexts. What is said here never changes, and belongs to all threads.

  /// The modules of the port, one for each context: all are there before the first is used.
  void set_family(std::span<const std::unique_ptr<Module>> family) noexcept {
    family_ = family;
    face_ = family[0].get();
  }
  [[nodiscard]] unsigned number_of_context() const noexcept { return place_.context; }
  [[nodiscard]] Module& in_context(unsigned number) const noexcept { return *family_[number]; }
  /// The module that Open MPI knows.
  [[nodiscard]] Module& face() const noexcept { return *face_; }
  [[nodiscard]] Counters& counters() const noexcept { return fabric::counters[place_.context]; }

  // ---- Buffers (packet path)

  /// The queue for messages of `size` bytes; receive_queues().count() if none takes them.
  [[nodiscard]] std::size_t queue_for(std::size_t size) const noexcept { return queues_.smallest_fitting(size); }
  /// A send buffer of a queue, or null.
  [[nodiscard]] Fragment* get_send(std::size_t queue) noexcept { return send_pools_[queue]->get(); }
  /// Of any module of the device; for all threads.
  void put_back(Fragment* fragment) noexcept {
    if (fragment->user_memory != nullptr) {
      cache_.let_go(fragment->user_memory);
      fragment->user_memory = nullptr;
      fragment->des_segment_count = 1;
    }
    fragment->kind = PacketKind::kMessage;
    fragment->pool->put(fragment);
  }
  /// A message that the upper layer has handed over is sent, or never will be: `status` goes to its callback, if it waits for
  /// one, and the fragment back to whose it is.
  void send_ended(Fragment* fragment, int status) noexcept {
    const bool owned = (fragment->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
    if (fragment->callback_due && fragment->des_cbfunc != nullptr) {
      fragment->des_cbfunc(&face(), &fragment->endpoint->face(), fragment, status);
    }
    if (owned) {
      put_back(fragment);
    }
  }
  [[nodiscard]] const RegistrationCache& cache() const noexcept { return cache_; }
  [[nodiscard]] FragmentPool& receive_pool(std::size_t queue) noexcept { return *receive_pools_[queue]; }
  /// Buffers ran out: every call of progress() tries again until all receives are posted.
  void note_short_of_buffers() noexcept { short_of_buffers_ = true; }
  [[nodiscard]] SharedQueue& shared_queue(std::size_t queue) noexcept { return *shared_queues_[queue]; }

  // ---- RDMA (module_rdma.cc)

  /// What the RDMA operations of the device share, in this context.
  [[nodiscard]] DeviceRdma& rdma() const noexcept { return rdma_; }
  /// Bytes of the longest message of the port, at most 1 GiB.
  [[nodiscard]] std::uint64_t max_message() const noexcept { return max_message_; }
  /// True if the device can execute atomics.
  [[nodiscard]] bool has_atomics() const noexcept {
    return port_.address.link != Transport::kIwarp && port_.device->attributes.atomic_cap != IBV_ATOMIC_NONE;
  }
  /// True if the device executes atomics on this process's memory; otherwise peers send messages, and its processor does.
  [[nodiscard]] bool atomics_by_device() const noexcept { return atomics_by_device_; }
  /// True if this process's own memory must be reached through the device too: its atomics and the processor's do not
  /// know of each other.
  [[nodiscard]] bool needs_loopback() const noexcept {
    return atomics_by_device_ && port_.device->attributes.atomic_cap != IBV_ATOMIC_GLOB;
  }
  /// Requests of all endpoints whose callbacks are to come.
  [[nodiscard]] std::uint32_t rdma_outstanding() const noexcept;
  /// A request waits for something that completions of other endpoints bring: progress() tries again.
  void note_rdma_waits() noexcept { rdma_waits_ = true; }

  /// Has this process's processor execute an atomic on its own memory, for a peer or for itself.
  [[nodiscard]] AtomicReply execute(const AtomicMessage& message) const noexcept;

  /// The endpoint to this process itself, for one-sided operations: osc/rdma of 5.0 uses a BTL only if it reaches the
  /// process itself too, that of 4.1 does so as soon as a job has several hosts, and crashes where it cannot. Null if
  /// btl/self does not run: messages would come here then.
  [[nodiscard]] Endpoint* self_endpoint(opal_proc_t* self);
  [[nodiscard]] bool is_self(const Endpoint& endpoint) const noexcept { return &endpoint == self_.get(); }
  void connect_self();
  [[nodiscard]] Endpoint* endpoint_to(const ProcessName& peer, std::uint64_t remote_ports) const noexcept;

  // ---- Progress (progress.cc)

  /// Takes what has completed. Gives the number of completions.
  int progress() noexcept;
  /// A send was refused by verbs: reports it and fails the endpoint.
  void post_failed(Endpoint& endpoint, EndpointQueue& queue) noexcept;

  // ---- Endpoints (module_endpoints.cc)

  [[nodiscard]] cpc::ConnectionManager& connections() const noexcept { return *connections_; }
  void set_connections(cpc::ConnectionManager* connections) noexcept { connections_ = connections; }

  /// The endpoint for a peer that Open MPI is to know, made if need be; null, and `why_not` set, if this port does not
  /// reach the peer. On faces only.
  [[nodiscard]] Endpoint* endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not);
  /// The endpoint of this context behind one that Open MPI knows, made if need be. The peer must have this context too.
  [[nodiscard]] Endpoint* endpoint_behind(Endpoint& face);
  /// That of the first context and all that it is the face of. For whoever holds all locks.
  void remove_endpoint(Endpoint* endpoint);
  /// The progress thread still knows that direction of an endpoint that is gone.
  [[nodiscard]] bool is_closing(const cpc::ConnectionKey& key) const noexcept;
  void add_queue_pair(EndpointQueue& queue) { queue_pairs_.insert(queue.qp->qp_num, &queue); }

  void handle(const cpc::PostReceives& upcall);
  void handle(const cpc::Connected& upcall);
  void handle(const cpc::Linked& upcall);
  void handle(const cpc::PeerLeft& upcall);
  void handle(const cpc::Failed& upcall);
  void handle(const cpc::Flushing& upcall);
  void handle(const cpc::AsyncEvent& event);

  /// Reports that an endpoint's connection is of no use, and gives it up.
  void connection_failed(Endpoint& endpoint, const std::string& reason) noexcept;
  void forget_peers_wish(Endpoint& endpoint, const std::string& reason) noexcept;

  /// Where errors go, in all contexts; set by the PML on the face.
  mca_btl_base_module_error_cb_fn_t error_callback = nullptr;

 private:
  Module(const UsablePort& port, RegistrationCache& cache, const ModulePlace& place, cpc::QueueFit fit,
         const mca_btl_base_module_t& limits);
  [[nodiscard]] Status make_queues();
  [[nodiscard]] Status open_xrc_domain();
  [[nodiscard]] Result<std::unique_ptr<SharedQueue>> make_shared_queue(const QueueSpec& spec, FragmentPool& pool);
  void learn_rdma_limits() noexcept;
  void start_waiting_rdma() noexcept;
  void take_atomic(EndpointQueue& queue, const Fragment& fragment, std::uint32_t length) noexcept;
  void take_atomic_reply(EndpointQueue& queue, const Fragment& fragment, std::uint32_t length) noexcept;
  [[nodiscard]] bool send_reply(Endpoint& endpoint, const AtomicReply& reply) noexcept;
  void rdma_completed(std::uint64_t id, bool good) noexcept;
  void fill_context();

  int poll(ibv_cq* cq) noexcept;
  void receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept;
  void stranger_spoke(const ibv_wc& completion, const Fragment& fragment) noexcept;
  void handshake_completed(const ibv_wc& completion) noexcept;
  void take_handshake(Endpoint& endpoint, std::uint32_t length) noexcept;
  void take_cts(EndpointQueue& queue, Fragment* fragment, std::uint32_t length) noexcept;
  [[nodiscard]] bool is_peers_farewell(const ibv_wc& completion) const noexcept;
  void peer_left(Endpoint& endpoint) noexcept;
  void check_early_cts(Endpoint& endpoint) noexcept;
  void deliver(EndpointQueue& queue, Fragment* fragment, std::uint32_t length) noexcept;
  void send_completed(const ibv_wc& completion) noexcept;
  void completion_failed(const ibv_wc& completion) noexcept;
  [[nodiscard]] Endpoint* receive_failed(const ibv_wc& completion) noexcept;
  void endpoint_failed(Endpoint& endpoint, const ibv_wc& completion, bool is_missed) noexcept;
  void fail(Endpoint& endpoint) noexcept;
  void tell_upper_layer(opal_proc_t* proc) const noexcept;
  [[nodiscard]] bool is_of_port(const cpc::AsyncEvent& event) const noexcept;
  [[nodiscard]] bool owns(const void* object) const noexcept;
  void queue_pair_failed(const cpc::AsyncEvent& event);
  void check_address();

  void post_receives(Endpoint& endpoint, const cpc::PostReceives& upcall);
  [[nodiscard]] Status receive_from(Endpoint& endpoint, std::uint32_t target_qpn);
  [[nodiscard]] Status start_shared_queues();
  [[nodiscard]] SharedSendQueue& sender(const cpc::XrcPath& path);
  void sender_failed(SharedSendQueue& sends, Endpoint* endpoint, const ibv_wc& completion) noexcept;
  void fail_sharers(SharedSendQueue& sends, Endpoint& first) noexcept;
  void forget_queue_pairs(Endpoint& endpoint) noexcept;
  [[nodiscard]] EndpointQueue* queue_of(std::uint32_t qpn, const Fragment& fragment) const noexcept;

  [[nodiscard]] Endpoint* find(const cpc::ConnectionKey& key) const noexcept;
  [[nodiscard]] unsigned contexts_with(const Peer& peer) const;
  [[nodiscard]] Endpoint* add_endpoint(opal_proc_t* proc, const cpc::ConnectionKey& key, const Peer& peer,
                                       const CpcOffer& offer, Endpoint* face);
  void close_endpoint(Endpoint* endpoint);
  void reap_drained();
  void refill_receives() noexcept;

  const UsablePort port_;
  PortAddress address_ = port_.address;  ///< as it is now
  RegistrationCache& cache_;
  const ModulePlace place_;
  std::span<const std::unique_ptr<Module>> family_;
  Module* face_ = this;
  DeviceRdma& rdma_;
  const cpc::QueueFit fit_;
  const ReceiveQueues& queues_ = fit_.queues;  ///< as they are run on this port
  cpc::ConnectionManager* connections_ = nullptr;
  // In the order of creation: receive buffers outlive the queues that they are posted on, endpoints (whose spare
  // buffers go back to the pools) go first.
  std::vector<std::unique_ptr<FragmentPool>> send_pools_;
  std::vector<std::unique_ptr<FragmentPool>> receive_pools_;
  std::unique_ptr<CompletionQueueSet> completion_queues_;
  std::optional<XrcDomain> xrc_domain_;                      ///< of X queues
  std::vector<std::unique_ptr<SharedQueue>> shared_queues_;  ///< one per queue, null for P
  cpc::PortContext context_;
  bool short_of_buffers_ = false;
  std::uint64_t max_message_ = 0;
  bool atomics_by_device_ = false;
  bool rdma_waits_ = false;
  struct PendingReply {
    Endpoint* endpoint;
    AtomicReply reply;
  };
  std::vector<PendingReply> pending_replies_;  ///< there was no buffer for them
  QpnTable<EndpointQueue> queue_pairs_;        ///< by the number that receive completions have; of X queues the first
  std::unordered_map<std::uint64_t, std::unique_ptr<SharedSendQueue>> senders_;  ///< by XrcPath::sender
  std::unordered_map<cpc::ConnectionKey, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_;
  std::unique_ptr<Endpoint> self_;
  std::optional<cpc::Loopback> loopback_;  ///< goes before anything its queue pairs use

  // A peer's CTS can be here before the progress thread has told us of its connection.
  struct EarlyHandshake {
    std::uint64_t serial;
    std::uint32_t length;
  };
  std::unordered_map<std::uint64_t, Endpoint*> handshakes_;  ///< by HandshakeSlot::serial
  std::vector<EarlyHandshake> early_handshakes_;
  std::vector<std::uint32_t> early_cts_;  ///< numbers of the queue pairs, where the first queue is a shared one
};

/// Transmit contexts that every endpoint can have through a port, of those that are asked for (-1: as many as this process
/// has processors).
[[nodiscard]] unsigned grant_contexts(const UsablePort& port, const ReceiveQueues& queues, int wanted);

/// Processes of the job that this one was started with; 0 if that is not known.
[[nodiscard]] std::uint32_t job_size() noexcept;

/// Puts the functions into a module's table.
void set_btl_functions(mca_btl_base_module_t& module) noexcept;

}  // namespace fabric
