// SPDX-License-Identifier: BSD-3-Clause
//
// What the process has once: its modules, its connection set-up, and what it knows of its peers.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "btl_fabric/module.h"
#include "btl_fabric/opal.h"
#include "common/process_info.h"
#include "common/receive_queues.h"
#include "cpc/trace.h"

namespace fabric {

/// What we know of another process, from its modex.
struct Peer {
  ProcessInfo info;
  std::vector<std::optional<std::uint16_t>> pairs;  ///< for each port of ours, the peer's port that it talks to
  std::string refusal;                              ///< why it cannot be talked to at all, if so
};

[[nodiscard]] ProcessName name_of(const opal_proc_t& proc) noexcept;
[[nodiscard]] ProcessName name_of(const opal_process_name_t& name) noexcept;

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
  [[nodiscard]] static bool started() noexcept;
  [[nodiscard]] static Component& get() noexcept;

  ~Component();

  [[nodiscard]] const std::vector<std::unique_ptr<Module>>& modules() const noexcept { return modules_; }
  [[nodiscard]] const ProcessInfo& info() const noexcept { return info_; }

  int progress() noexcept;

  /// The timeline of connection set-up, or null.
  [[nodiscard]] cpc::Trace* trace() const noexcept { return trace_.get(); }

  /// The BTL lock: taken by every entry from Open MPI, and free of cost unless MPI runs with threads. Recursive, since
  /// the upper layer's callbacks send.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() {
    return opal_using_threads() ? std::unique_lock(mutex_) : std::unique_lock<std::recursive_mutex>();
  }

  /// What a process published; null, with nothing said, if it does not run this component.
  [[nodiscard]] const Peer* peer_of(const opal_proc_t& proc);

  /// An endpoint of any module through which one of the peer's ports `remote_ports` is reached, preferably of `first`.
  [[nodiscard]] Endpoint* endpoint_to(const ProcessName& peer, std::uint64_t remote_ports, const Module& first) noexcept;

  /// The endpoint for a process that connected to us before Open MPI told us of it.
  [[nodiscard]] Endpoint* endpoint_of_stranger(Module& module, const cpc::ConnectionKey& key, std::string& why_not);

  /// Open MPI is done with a module. With the last one everything is taken down.
  void finalize_module(Module* module) noexcept;

 private:
  explicit Component(const mca_btl_base_component_t& component) noexcept : component_(&component) {}
  [[nodiscard]] Result<PortChoice> read_params();
  [[nodiscard]] Status open_ports(PortChoice choice);
  [[nodiscard]] Status make_modules(const std::vector<UsablePort>& ports);
  [[nodiscard]] Status start_connections();
  [[nodiscard]] Status publish();
  [[nodiscard]] Peer look_up(const opal_proc_t& proc, std::vector<std::byte> blob);
  void handle_upcalls();
  void take_down() noexcept;

  const mca_btl_base_component_t* component_;
  std::recursive_mutex mutex_;
  ReceiveQueues queues_;
  cpc::CpcSet cpcs_ = cpc::kEveryCpc;
  mca_btl_base_module_t limits_{};  ///< of every module
  ProcessInfo info_;
  std::unordered_map<std::string, std::unique_ptr<RegistrationCache>> caches_;  ///< by device
  std::vector<std::unique_ptr<Module>> modules_;
  std::unique_ptr<cpc::Trace> trace_;
  std::unique_ptr<cpc::ConnectionManager> connections_;
  std::unordered_map<ProcessName, std::unique_ptr<Peer>> peers_;
  std::size_t active_modules_ = 0;
  bool queues_differ_reported_ = false;  ///< one peer is example enough
};

}  // namespace fabric
