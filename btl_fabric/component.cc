// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/component.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "btl_fabric/params.h"
#include "btl_fabric/report.h"
#include "common/port_pairing.h"

namespace fabric {

namespace {

std::unique_ptr<Component> instance;

/// The processors that this process is bound to, or null.
hwloc_const_cpuset_t binding_of(hwloc_topology_t topology, hwloc_bitmap_t storage) {
  if (topology == nullptr || hwloc_get_cpubind(topology, storage, HWLOC_CPUBIND_PROCESS) != 0) {
    return nullptr;
  }
  const bool everywhere = hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(topology), storage) != 0;
  return everywhere ? nullptr : storage;
}

Result<PortFilter> port_filter() {
  const Params& values = params();
  const bool include = values.if_include != nullptr;
  const char* list = include ? values.if_include : values.if_exclude;
  if (list == nullptr) {
    return PortFilter{};
  }
  auto filter = PortFilter::parse(list, include);
  if (!filter) {
    return failure(std::string("btl_fabric_") + (include ? "if_include: " : "if_exclude: ") + filter.error().text);
  }
  return filter;
}

std::string list_refusals(const std::vector<PortRefusal>& refusals) {
  if (refusals.empty()) {
    return "it has no RDMA device (ibv_devices lists them)";
  }
  std::string text;
  for (const PortRefusal& refusal : refusals) {
    text += (text.empty() ? "" : "; ") + refusal.port + ": " + refusal.reason;
  }
  return text;
}

/// The connection methods that the user lets be used.
Result<cpc::CpcSet> chosen_cpcs() {
  const Params& values = params();
  const bool include = values.cpc_include != nullptr;
  const char* list = include ? values.cpc_include : values.cpc_exclude;
  if (list == nullptr) {
    return cpc::kEveryCpc;
  }
  const auto set = cpc::parse_cpc_list(list);
  if (!set) {
    return failure(std::string("btl_fabric_") + (include ? "cpc_include: " : "cpc_exclude: ") + set.error().text);
  }
  return include ? *set : cpc::kEveryCpc & ~*set;
}

std::string list_refusals(const std::vector<CpcOffer>& refusals) {
  std::string text = "no connection method serves its ports";
  for (const CpcOffer& offer : refusals) {
    text.append(&offer == &refusals.front() ? ": " : "; ").append(cpc::to_string(offer.kind)).append(": ");
    text.append(reinterpret_cast<const char*>(offer.blob.data()), offer.blob.size());
  }
  return text;
}

}  // namespace

ProcessName name_of(const opal_process_name_t& name) noexcept {
  return {name.jobid, name.vpid};
}
ProcessName name_of(const opal_proc_t& proc) noexcept {
  return name_of(proc.proc_name);
}

bool Component::started() noexcept {
  return instance != nullptr;
}
Component& Component::get() noexcept {
  return *instance;
}

tl::expected<void, StartFailure> Component::start(const mca_btl_base_component_t& component) {
  instance.reset(new Component(component));
  auto choice = instance->read_params();
  if (!choice) {
    stop();
    return tl::unexpected(StartFailure{choice.error().text, true});
  }
  Status status = instance->open_ports(*choice);
  if (status) {
    status = instance->start_connections();
  }
  if (status) {
    status = instance->publish();
  }
  if (!status) {
    stop();
    return tl::unexpected(StartFailure{status.error().text, false});
  }
  return {};
}

void Component::stop() noexcept {
  instance.reset();
}

Component::~Component() {
  take_down();
}

Result<PortChoice> Component::read_params() {
  if (auto checked = check_params(); !checked) {
    return tl::unexpected(checked.error());
  }
  const Params& values = params();
  auto queues = ReceiveQueues::parse(values.receive_queues == nullptr ? "" : values.receive_queues);
  if (!queues) {
    return tl::unexpected(queues.error());
  }
  queues_ = std::move(*queues);
  for (const QueueSpec& spec : queues_.queues()) {
    if (spec.kind == QueueKind::kXrc) {
      return failure("btl_fabric_receive_queues has X queues, which this version does not have: use P and S queues");
    }
  }
  limits_ = module_template();
  limits_.btl_component = const_cast<mca_btl_base_component_t*>(component_);
  if (auto fitted = fit_limits(&component_->btl_version, queues_, limits_); !fitted) {
    return tl::unexpected(fitted.error());
  }
  auto cpcs = chosen_cpcs();
  if (!cpcs) {
    return tl::unexpected(cpcs.error());
  }
  cpcs_ = *cpcs;
  if (values.trace != nullptr) {
    auto trace = cpc::Trace::open(values.trace, name_of(OPAL_PROC_MY_NAME));
    if (!trace) {
      return failure("btl_fabric_trace", trace.error());
    }
    trace_ = std::move(*trace);
  }
  auto filter = port_filter();
  if (!filter) {
    return tl::unexpected(filter.error());
  }
  PortChoice choice;
  choice.filter = std::move(*filter);
  choice.gid_index = values.gid_index;
  choice.mtu = values.mtu;
  choice.pkey = static_cast<std::uint16_t>(values.pkey);
  choice.max_inline = values.max_inline_data;
  choice.max_ports = values.max_ports;
  choice.ignore_locality = values.ignore_locality != 0;
  return choice;
}

Status Component::open_ports(PortChoice choice) {
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> storage(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  opal_hwloc_base_get_topology();
  choice.topology = opal_hwloc_topology;
  choice.binding = binding_of(opal_hwloc_topology, storage.get());
  if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) {
    ibv_fork_init();  // without it, on an old kernel, a child takes registered pages away from its parent
  }
  PortScan scan = scan_ports(choice);
  if (scan.ports.empty()) {
    return failure(list_refusals(scan.refusals));
  }
  return make_modules(scan.ports);
}

Status Component::make_modules(const std::vector<UsablePort>& ports) {
  std::vector<PortRefusal> refusals;
  for (const UsablePort& port : ports) {
    auto& cache = caches_[port.device->name];
    if (!cache) {
      auto made = RegistrationCache::make(port.device);
      if (!made) {
        return tl::unexpected(made.error());
      }
      cache = std::move(*made);
    }
    const auto index = static_cast<std::uint16_t>(modules_.size());
    cache->add_port(index, port.address.link);
    auto module = Module::make(port, *cache, queues_, index, limits_);
    if (!module) {
      refusals.push_back({port.name(), module.error().text});  // one bad port is no reason to give up the others
      continue;
    }
    modules_.push_back(std::move(*module));
  }
  if (modules_.empty()) {
    return failure(list_refusals(refusals));
  }
  active_modules_ = modules_.size();
  return {};
}

Status Component::start_connections() {
  const Params& values = params();
  cpc::ManagerSettings settings;
  settings.self = name_of(OPAL_PROC_MY_NAME);
  if (getrandom(settings.token.data(), settings.token.size(), 0) != static_cast<ssize_t>(settings.token.size())) {
    return failure("the kernel gives no random numbers for the job token");
  }
  settings.connect_retries = static_cast<unsigned>(values.connect_retries);
  settings.connect_timeout_ms = static_cast<unsigned>(values.connect_timeout);
  settings.handshake_timeout_ms = static_cast<unsigned>(values.handshake_timeout);
  settings.oob_priority = static_cast<std::uint8_t>(values.oob_priority);
  settings.rdmacm_priority = static_cast<std::uint8_t>(values.rdmacm_priority);
  settings.ibcm_priority = static_cast<std::uint8_t>(values.ibcm_priority);
  settings.cpcs = cpcs_;
  settings.resolve_timeout_ms = static_cast<unsigned>(values.rdmacm_resolve_timeout);
  settings.rdmacm_port = static_cast<std::uint16_t>(values.rdmacm_port);
  settings.trace = trace_.get();
  auto connections = cpc::ConnectionManager::start(settings, cpc::make_rc_queue_pairs);
  if (!connections) {
    return tl::unexpected(connections.error());
  }
  connections_ = std::move(*connections);
  info_.token = settings.token;
  std::vector<const cpc::PortContext*> contexts;
  for (const auto& module : modules_) {
    module->set_connections(connections_.get());
    connections_->add_port(module->context());
    contexts.push_back(&module->context());
  }
  info_.offers = connections_->offers(contexts);
  const std::vector<CpcOffer> refusals = connections_->refusals();
  if (info_.offers.empty()) {
    return failure(list_refusals(refusals));
  }
  info_.offers.insert(info_.offers.end(), refusals.begin(), refusals.end());
  return {};
}

Status Component::publish() {
  info_.receive_queues = queues_.canonical();
  for (const auto& module : modules_) {
    info_.ports.push_back(module->context().address);
  }
  std::vector<std::byte> blob = encode(info_);
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &component_->btl_version, blob.data(), static_cast<int>(blob.size()));
  if (rc != OPAL_SUCCESS) {
    return failure("Open MPI did not take the modex (error " + std::to_string(rc) + ")");
  }
  return {};
}

const Peer* Component::peer_of(const opal_proc_t& proc) {
  if (const auto known = peers_.find(name_of(proc)); known != peers_.end()) {
    return known->second.get();
  }
  std::uint8_t* data = nullptr;
  size_t size = 0;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV(rc, &component_->btl_version, &proc.proc_name, &data, &size);
  const std::unique_ptr<std::uint8_t, decltype(&free)> owner(data, free);
  if (rc != OPAL_SUCCESS || data == nullptr) {
    return nullptr;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  auto peer = std::make_unique<Peer>(look_up(proc, {bytes, bytes + size}));
  return peers_.emplace(name_of(proc), std::move(peer)).first->second.get();
}

Peer Component::look_up(const opal_proc_t& proc, std::vector<std::byte> blob) {
  Peer peer;
  auto info = decode_process_info(blob);
  if (!info) {
    peer.refusal = info.error().text;
    report_bad_modex(proc, info.error().text);
    return peer;
  }
  peer.info = std::move(*info);
  if (peer.info.receive_queues != info_.receive_queues) {
    peer.refusal = "its receive queues differ";
    if (!std::exchange(queues_differ_reported_, true)) {
      report_queues_differ(proc, info_.receive_queues, peer.info.receive_queues);
    }
    return peer;
  }
  peer.pairs = pair_ports(info_.ports, peer.info.ports, params().allow_different_subnets != 0);
  return peer;
}

Endpoint* Component::endpoint_of_stranger(Module& module, const cpc::ConnectionKey& key, std::string& why_not) {
  const opal_process_name_t name{key.peer.job, key.peer.rank};
  opal_proc_t* proc = opal_proc_for_name(name);
  const Peer* peer = proc != nullptr ? peer_of(*proc) : nullptr;
  if (peer == nullptr) {
    why_not = "the process is not known to Open MPI";
    return nullptr;
  }
  Endpoint* endpoint = module.endpoint_for(proc, *peer, why_not);
  if (endpoint != nullptr && endpoint->key() != key) {
    why_not = "port " + std::to_string(key.local_port) + " does not pair up with port " +
              std::to_string(key.remote_port) + " of the peer";
    return nullptr;
  }
  return endpoint;
}

Endpoint* Component::endpoint_to(const ProcessName& peer, std::uint64_t remote_ports, const Module& first) noexcept {
  Endpoint* found = first.endpoint_to(peer, remote_ports);
  for (auto module = modules_.begin(); found == nullptr && module != modules_.end(); ++module) {
    found = (*module)->endpoint_to(peer, remote_ports);
  }
  return found;
}

int Component::progress() noexcept {
  std::unique_lock<std::recursive_mutex> guard;
  if (opal_using_threads()) {
    guard = std::unique_lock(mutex_, std::try_to_lock);
    if (!guard.owns_lock()) {
      return 0;  // another thread is at it
    }
  }
  if (connections_ == nullptr) {
    return 0;
  }
  if (connections_->has_upcalls()) [[unlikely]] {
    handle_upcalls();
  }
  int total = 0;
  for (const auto& module : modules_) {
    total += module->progress();
  }
  return total;
}

[[gnu::cold]] void Component::handle_upcalls() {
  for (const cpc::Upcall& upcall : connections_->take_upcalls()) {
    if (const auto* event = std::get_if<cpc::AsyncEvent>(&upcall)) {
      for (const auto& module : modules_) {
        if (module->context().device == event->device) {
          module->handle(*event);
        }
      }
      continue;
    }
    std::visit(
        [this](const auto& about_connection) {
          if constexpr (requires { about_connection.key; }) {
            modules_[about_connection.key.local_port]->handle(about_connection);
          }
        },
        upcall);
  }
}

void Component::finalize_module(Module* module) noexcept {
  module->error_callback = nullptr;
  if (--active_modules_ == 0) {
    take_down();
  }
}

/// Queue pairs first (they go with the progress thread), then what they use.
void Component::take_down() noexcept {
  connections_.reset();
  modules_.clear();
  caches_.clear();
  peers_.clear();
  if (const std::unique_ptr<cpc::Trace> trace = std::move(trace_); trace != nullptr) {
    if (Status written = trace->write(); !written) {
      report_trace_not_written(written.error().text);
    }
  }
}

}  // namespace fabric
