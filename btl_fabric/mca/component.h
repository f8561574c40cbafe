// SPDX-License-Identifier: BSD-3-Clause
//
// What the process has once: its modules, its connection set-up, and what it knows of its peers.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/mca/chosen_queues.h"
#include "btl_fabric/mca/directed_sends.h"
#include "btl_fabric/mca/job_reporter.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/staged_transfers.h"
#include "btl_fabric/mca/top_publisher.h"
#include "btl_fabric/peer/peer.h"
#include "common/accounting/context_locks.h"
#include "common/ports/process_info.h"
#include "common/ports/protocol_limits.h"
#include "cpc/core/trace.h"
#include "cpc/manager/connection_manager.h"

namespace fabric {

/// Why the component cannot be used in this process.
struct StartFailure {
  std::string reason;
  bool is_bad_parameter = false;  ///< the user set something wrong, as opposed to: there is no usable port
};

class Component {
 public:
  /// Finds the ports, makes the modules and publishes the modex.
  [[nodiscard]] static tl::expected<void, StartFailure> start(const mca_btl_base_component_t& component);
  static void stop() noexcept;
  /// False before start() and after stop(), and in a child that was forked in between: it has no component, and
  /// stop() does nothing there.
  [[nodiscard]] static bool started() noexcept { return instance_ != nullptr; }
  /// Only if it is started.
  [[nodiscard]] static Component& get() noexcept { return *instance_; }

  ~Component();

  /// How many modules Open MPI is to know, those of the first context, and one of them.
  [[nodiscard]] std::size_t ports() const noexcept { return ports_; }
  [[nodiscard]] Module& port(std::size_t number) const noexcept { return *modules_[number * locks_->contexts()]; }
  [[nodiscard]] const ProcessInfo& info() const noexcept { return info_; }

  int progress() noexcept;

  /// Connection set-up, while there are modules.
  [[nodiscard]] cpc::ConnectionManager& connections() const noexcept { return *connections_; }

  /// Of the packets of all links.
  [[nodiscard]] PacketWatch& packet_watch() noexcept { return packet_watch_; }

  /// The timeline of connection set-up, or null.
  [[nodiscard]] cpc::Trace* trace() const noexcept { return trace_.get(); }

  /// Every entry from Open MPI but btl_add_procs takes one of these locks, or all, unless MPI runs without threads. They are
  /// recursive, since the upper layer's callbacks send.
  [[nodiscard]] ContextLocks& locks() noexcept { return *locks_; }

  /// Where an operation goes: an endpoint, and the lock of its context.
  struct Entered {
    ContextLocks::Guard guard;
    Endpoint* endpoint = nullptr;  ///< null if there is none now
  };
  /// From an endpoint that Open MPI knows to that of the thread's context, or of the context that `order` names (anything
  /// that is no context of the peer's names none).
  [[nodiscard]] Entered enter(Endpoint& first, std::uint8_t order) noexcept {
    const unsigned contexts = first.contexts();
    if (order >= contexts) [[likely]] {
      if (const unsigned own = locks_->free_to_use(); own < contexts) [[likely]] {
        Entered entered{locks_->lock_free(own)};
        entered.endpoint = first.in_context(own);
        return entered;
      }
    }
    return enter_another(first, order);
  }

  /// Messages that go to a certain context of the peer.
  [[nodiscard]] DirectedSends& directed_sends() noexcept { return *directed_sends_; }

  /// What a process published; null, with nothing said, if it does not run this component. For all threads.
  [[nodiscard]] const Peer* peer_of(const opal_proc_t& proc);

  /// An endpoint that Open MPI knows, of any module, through which one of the peer's ports `remote_ports` is reached,
  /// preferably of `first`. For whoever holds the first context's lock.
  [[nodiscard]] Endpoint* endpoint_to(const ProcessName& peer, std::uint64_t remote_ports, Module& first) noexcept;

  /// Connects every port that is not connected with a peer, in a context. For whoever holds the context's lock.
  void connect_ports(const ProcessName& peer, unsigned context) noexcept;

  /// Reads, writes and atomics in a context whose callbacks are to come, through any port: to a peer, or (null) all. For
  /// whoever holds the context's lock.
  [[nodiscard]] std::uint32_t rdma_outstanding(unsigned context, const ProcessName* peer) const noexcept;
  /// Waits until the goodbyes to peers that Open MPI has taken away have arrived. Their adapters take them, so this is
  /// short; for peers that are dead it goes on for btl_fabric_goodbye_timeout in all.
  void wait_for_goodbyes() noexcept;

  /// Open MPI is done with a module. With the last one everything is taken down.
  void finalize_module(Module* module) noexcept;

 private:
  explicit Component(const mca_btl_base_component_t& component) noexcept : component_(&component) {}
  /// The one instance, in the place of any before it.
  static Component* make(const mca_btl_base_component_t& component);
  static void forget_in_child() noexcept;

  // component_start.cc
  [[nodiscard]] Result<PortChoice> read_params();
  [[nodiscard]] Status open_ports(PortChoice choice);
  [[nodiscard]] Status make_modules(const std::vector<UsablePort>& ports, std::vector<PortRefusal>& refusals);
  [[nodiscard]] Status add_modules(const UsablePort& port);
  void find_accelerator();
  [[nodiscard]] Status share_large_memory();
  [[nodiscard]] Status start_connections();
  [[nodiscard]] Status publish();

  [[nodiscard]] Peer look_up(const opal_proc_t& proc, std::vector<std::byte> blob);
  [[nodiscard]] Entered enter_another(Endpoint& first, std::uint8_t order) noexcept;
  void handle_upcalls();
  void take_upcalls();
  void handle(const cpc::Shortage& shortage);
  void take_losses() noexcept;
  int progress(unsigned context) noexcept;
  int progress_ports(unsigned context) noexcept;
  int progress_all() noexcept;
  int progress_everything() noexcept;
  void say_goodbye() noexcept;
  template <class Poll>
  void wait_for_goodbyes(Poll poll, bool of_peers_too) noexcept;
  void take_down() noexcept;

  /// Deleted when Open MPI closes the component, in the process that made it, and at no other time. Where it never closes it
  /// (exit() without MPI_Finalize, an open tools interface), the kernel takes everything back: exit handlers run when
  /// Open MPI's classes have gone, and while the progress thread still runs.
  static inline Component* instance_ = nullptr;

  const mca_btl_base_component_t* component_;
  std::optional<ContextLocks> locks_;
  std::optional<DirectedSends> directed_sends_;
  std::unique_ptr<StagedTransfers> staged_;  ///< what staged_transfers points to
  std::atomic<bool> upcalls_are_handled_ = false;
  ChosenQueues queues_;
  std::vector<SteeringRule> steering_;
  cpc::CpcSet cpcs_ = cpc::kEveryCpc;
  std::vector<std::unique_ptr<cpc::Cpc>> methods_;  ///< until they are started
  mca_btl_base_module_t template_{};                ///< of every module
  LimitWishes wishes_;
  ProcessInfo info_;
  std::unordered_map<std::string, std::unique_ptr<RegistrationCache>> caches_;  ///< by device
  std::vector<std::unique_ptr<RegionCache>> shared_caches_;  ///< of devices that register large memory together
  std::unique_ptr<cpc::Trace> trace_;
  std::unique_ptr<JobReporter> job_reporter_;  ///< null: nobody has asked for it
  std::unique_ptr<TopPublisher> top_;          ///< null: it shows nothing
  // In this order: both the progress thread and the links know the watch.
  PacketWatch packet_watch_{[this] { connections_->start_ticks(); }};
  std::unique_ptr<cpc::ConnectionManager> connections_;
  std::vector<std::unique_ptr<Module>> modules_;  ///< of all contexts; those of a port are next to each other
  std::mutex peers_mutex_;
  std::unordered_map<ProcessName, std::unique_ptr<Peer>> peers_;
  bool room_wanted_is_told_ = false;
  std::chrono::steady_clock::duration goodbyes_took_{0};
  std::size_t ports_ = 0;  ///< that are used; each has a module for every context
  std::size_t active_modules_ = 0;
  Endpoints* only_port_ = nullptr;                    ///< null if there are several, or contexts, or an accelerator
  std::atomic<bool> queues_differ_reported_ = false;  ///< one peer is example enough
};

}  // namespace fabric
