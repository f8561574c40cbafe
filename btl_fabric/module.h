// SPDX-License-Identifier: BSD-3-Clause
//
// One port: what Open MPI calls a BTL module. Owns the port's completion queues, shared receive queues, message buffers
// and endpoints.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "btl_fabric/endpoint.h"
#include "btl_fabric/fragment_pool.h"
#include "btl_fabric/opal.h"
#include "btl_fabric/shared_queue.h"
#include "common/completion_queue_set.h"
#include "common/port_scan.h"
#include "common/qpn_table.h"
#include "common/receive_queues.h"
#include "cpc/connection_manager.h"

namespace fabric {

struct Peer;

/// Derives from Open MPI's table of functions and limits; btl_functions.cc fills in the functions.
/// Everything here belongs to whoever holds the BTL lock, except where noted.
class Module final : public mca_btl_base_module_t {
 public:
  /// Makes the module of `port`. `cache` and `queues` outlive it; `index` is its place in the modex.
  [[nodiscard]] static Result<std::unique_ptr<Module>> make(const UsablePort& port, const RegistrationCache& cache,
                                                            const ReceiveQueues& queues, std::uint16_t index,
                                                            const mca_btl_base_module_t& limits);
  /// The connections must be gone: ConnectionManager destroyed, so that no queue pair is left.
  ~Module();

  [[nodiscard]] const cpc::PortContext& context() const noexcept { return context_; }
  [[nodiscard]] const UsablePort& port() const noexcept { return port_; }
  [[nodiscard]] const ReceiveQueues& receive_queues() const noexcept { return queues_; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return port_.device->max_inline; }
  [[nodiscard]] std::string name() const { return port_.name(); }

  // ---- Buffers (packet path)

  /// The queue for messages of `size` bytes; receive_queues().count() if none takes them.
  [[nodiscard]] std::size_t queue_for(std::size_t size) const noexcept { return queues_.smallest_fitting(size); }
  /// A send buffer of a queue, or null.
  [[nodiscard]] Fragment* get_send(std::size_t queue) noexcept { return send_pools_[queue]->get(); }
  void put_back(Fragment* fragment) noexcept {
    if (fragment->user_memory != nullptr) {
      cache_.let_go(fragment->user_memory);
      fragment->user_memory = nullptr;
      fragment->des_segment_count = 1;
    }
    send_pools_[fragment->queue]->put(fragment);
  }
  [[nodiscard]] const RegistrationCache& cache() const noexcept { return cache_; }
  [[nodiscard]] FragmentPool& receive_pool(std::size_t queue) noexcept { return *receive_pools_[queue]; }
  /// Buffers ran out: every call of progress() tries again until all receives are posted.
  void note_short_of_buffers() noexcept { short_of_buffers_ = true; }
  [[nodiscard]] SharedQueue& shared_queue(std::size_t queue) noexcept { return *shared_queues_[queue]; }

  // ---- Progress (progress.cc)

  /// Takes what has completed. Gives the number of completions.
  int progress() noexcept;
  /// A send was refused by verbs: reports it and fails the endpoint.
  void post_failed(Endpoint& endpoint, EndpointQueue& queue) noexcept;

  // ---- Endpoints (module_endpoints.cc)

  [[nodiscard]] cpc::ConnectionManager& connections() const noexcept { return *connections_; }
  void set_connections(cpc::ConnectionManager* connections) noexcept { connections_ = connections; }

  /// The endpoint for a peer, made if need be; null, and `why_not` set, if this port does not reach the peer.
  [[nodiscard]] Endpoint* endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not);
  void remove_endpoint(Endpoint* endpoint);
  [[nodiscard]] bool is_closing(const cpc::ConnectionKey& key) const noexcept;
  void add_queue_pair(EndpointQueue& queue) { queue_pairs_.insert(queue.qp->qp_num, &queue); }

  void handle(const cpc::PostReceives& upcall);
  void handle(const cpc::Connected& upcall);
  void handle(const cpc::Failed& upcall);
  void handle(const cpc::Flushing& upcall);
  void handle(const cpc::AsyncEvent& event);

  /// Where errors go; set by the PML.
  mca_btl_base_module_error_cb_fn_t error_callback = nullptr;

 private:
  Module(const UsablePort& port, const RegistrationCache& cache, const ReceiveQueues& queues,
         const mca_btl_base_module_t& limits);
  [[nodiscard]] Status make_queues();
  void fill_context(std::uint16_t index);

  int poll(ibv_cq* cq) noexcept;
  void receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept;
  void deliver(EndpointQueue& queue, Fragment* fragment, std::uint32_t length) noexcept;
  void send_completed(const ibv_wc& completion) noexcept;
  void completion_failed(const ibv_wc& completion) noexcept;
  void fail(Endpoint& endpoint) noexcept;

  [[nodiscard]] Endpoint* find(const cpc::ConnectionKey& key) const noexcept;
  void reap_drained();
  void refill_receives() noexcept;

  UsablePort port_;
  const RegistrationCache& cache_;
  const ReceiveQueues& queues_;
  cpc::ConnectionManager* connections_ = nullptr;
  // In the order of creation: receive buffers outlive the queues that they are posted on, endpoints (whose spare
  // buffers go back to the pools) go first.
  std::vector<std::unique_ptr<FragmentPool>> send_pools_;
  std::vector<std::unique_ptr<FragmentPool>> receive_pools_;
  std::vector<std::unique_ptr<SharedQueue>> shared_queues_;  ///< one per queue, null for P
  std::unique_ptr<CompletionQueueSet> completion_queues_;
  cpc::PortContext context_;
  bool short_of_buffers_ = false;
  QpnTable<EndpointQueue> queue_pairs_;
  std::unordered_map<cpc::ConnectionKey, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_;
};

/// Puts the functions into a module's table.
void set_btl_functions(mca_btl_base_module_t& module) noexcept;

}  // namespace fabric
