// SPDX-License-Identifier: BSD-3-Clause
//
// How the component starts: its parameters, the ports, their modules, connection set-up and what peers are told.
#include <sys/random.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "btl_fabric/base/device_memory.h"
#include "btl_fabric/base/gone_peer.h"
#include "btl_fabric/base/param_reader.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/dump_signal.h"
#include "btl_fabric/mca/port_share.h"
#include "btl_fabric/mca/rdma.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/mca/top_publisher.h"
#include "common/ports/port_paths.h"
#include "common/ports/shared_prefix.h"
#include "cpc/registry/registry.h"

namespace fabric {

namespace {

/// Seconds between two questions whether a silent peer is there, if connections are made anew.
constexpr int kKeepAlive = 20;

/// The processors that this process is bound to, or null.
hwloc_const_cpuset_t binding_of(hwloc_topology_t topology, hwloc_bitmap_t storage) {
  if (topology == nullptr || hwloc_get_cpubind(topology, storage, HWLOC_CPUBIND_PROCESS) != 0) {
    return nullptr;
  }
  const bool everywhere = hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(topology), storage) != 0;
  return everywhere ? nullptr : storage;
}

/// What a pair of parameters NAMEinclude and NAMEexclude chooses; `everything` if neither is set (check_params() has refused
/// both). `parse(list, include)` reads the list.
template <class T, class Parse>
Result<T> chosen(const std::string& name, const char* include, const char* exclude, T everything, Parse parse) {
  const char* list = include != nullptr ? include : exclude;
  if (list == nullptr) {
    return everything;
  }
  Result<T> read = parse(list, include != nullptr);
  if (!read) {
    return failure("btl_fabric_" + name + (include != nullptr ? "include: " : "exclude: ") + read.error().text);
  }
  return read;
}

Result<PortFilter> port_filter() {
  return chosen("if_", params().if_include, params().if_exclude, PortFilter(), &PortFilter::parse);
}

Result<SubnetList> chosen_subnets() {
  if (params().subnets == nullptr) {
    return SubnetList();
  }
  auto read = SubnetList::parse(params().subnets);
  return read ? read : failure("btl_fabric_subnets: " + read.error().text);
}

Result<PortRails> chosen_rails() {
  if (params().rails == nullptr) {
    return PortRails();
  }
  auto read = PortRails::parse(params().rails);
  return read ? read : failure("btl_fabric_rails: " + read.error().text);
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

std::string as_lines(const std::vector<std::string>& texts) {
  return std::accumulate(std::next(texts.begin()), texts.end(), texts.front(),
                         [](const std::string& all, const std::string& one) { return all + '\n' + one; });
}

/// The connection methods that the user lets be used.
Result<cpc::CpcSet> chosen_cpcs() {
  return chosen("cpc_", params().cpc_include, params().cpc_exclude, cpc::kEveryCpc,
                [](const char* list, bool include) -> Result<cpc::CpcSet> {
                  const auto set = cpc::parse_cpc_list(list, cpc::kCpcTraits);
                  return set && !include ? cpc::kEveryCpc & ~*set : set;
                });
}

/// Tells the user of what the device cannot do.
AccessWishes access_wishes(const OpenDevice& device) {
  AccessWishes wishes;
  wishes.relaxed_ordering = params().relaxed_ordering != 0;
  wishes.on_demand = params().odp != 0 && device.on_demand.transfers;
  wishes.on_demand_atomics = wishes.on_demand && device.on_demand.atomics;
  if (params().odp != 0 && !wishes.on_demand) {
    report_idle_setting("btl_fabric_odp: " + device.name +
                        " has no on-demand paging for sends, reads and writes of reliable connections (ibv_devinfo -v "
                        "shows rc_odp_caps): memory is pinned");
  }
  return wishes;
}

std::string list_refusals(const std::vector<CpcOffer>& refusals) {
  std::string text = "no connection method serves its ports";
  for (const CpcOffer& offer : refusals) {
    text.append(&offer == &refusals.front() ? ": " : "; ").append(cpc::cpc_name(offer.kind)).append(": ");
    text.append(reinterpret_cast<const char*>(offer.blob.data()), offer.blob.size());
  }
  return text;
}

}  // namespace

tl::expected<void, StartFailure> Component::start(const mca_btl_base_component_t& component) {
  Component* const instance = make(component);
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

/// All that is wrong is told at once.
Result<PortChoice> Component::read_params() {
  const Params& values = params();
  std::vector<std::string> wrong = check_params(&component_->btl_version);
  if (!wrong.empty()) {
    return failure(as_lines(wrong));
  }
  const auto take = [&wrong](auto result, auto& into) {
    if (result) {
      into = std::move(*result);
    } else {
      wrong.push_back(result.error().text);
    }
  };
  template_ = module_template();
  template_.btl_component = const_cast<mca_btl_base_component_t*>(component_);
  wishes_ = limit_wishes(&component_->btl_version);
  take(ChosenQueues::read(), queues_);
  if (values.rx_steering != nullptr) {
    take(parse_steering(values.rx_steering), steering_);
  }
  PortChoice choice;
  take(port_filter(), choice.filter);
  take(chosen_subnets(), choice.subnets);
  take(chosen_rails(), choice.rails);
  take(chosen_cpcs(), cpcs_);
  take(cpc::make_cpcs(ParamReader(params())), methods_);
  if (!wrong.empty()) {
    return failure(as_lines(wrong));
  }
  if (values.trace != nullptr) {
    if (auto trace = cpc::Trace::open(values.trace, name_of(OPAL_PROC_MY_NAME)); trace) {
      trace_ = std::move(*trace);
    } else {
      report_idle_setting("btl_fabric_trace: " + trace.error().text);  // the job does not need it
    }
  }
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
    // Without it, on an old kernel, a child takes registered pages away from its parent.
    report_fork_init(ibv_fork_init());
  }
  PortScan scan = scan_ports(choice);
  if (scan.ports.empty()) {
    return failure(list_refusals(scan.refusals));
  }
  const auto paths = static_cast<unsigned>(params().paths);
  const std::vector<UsablePort> ports = with_paths(scan.ports, paths);
  const auto xoob = cpc::set_of(cpc::kXoob.kind);
  queues_.choose(ports, wishes_,
                 cpcs_ == xoob         ? ChosenQueues::Xrc::kOnly
                 : (cpcs_ & xoob) != 0 ? ChosenQueues::Xrc::kToo
                                       : ChosenQueues::Xrc::kNever);
  if (ports.front().paths < paths) {
    report_fewer_paths(ports.front().paths);
  }
  if (Status made = make_modules(ports, scan.refusals); !made) {
    return made;
  }
  if (scan.beyond_maximum > 0) {
    report_too_many_ports(scan.beyond_maximum);
  }
  std::vector<std::string> used;
  for (const auto& module : modules_) {
    used.push_back(module->name());
  }
  report_unused_ports(scan.refusals, unused_items(choice.filter, used, scan.refusals));
  if (const auto shared = find_shared_prefix(scan.ports); shared && params().warn_default_gid_prefix != 0) {
    report_shared_prefix(*shared);
  }
  return {};
}

/// Adds to `refusals` those whose modules cannot be made: one bad port is no reason to give up the others.
Status Component::make_modules(const std::vector<UsablePort>& ports, std::vector<PortRefusal>& refusals) {
  const auto most = static_cast<unsigned>(kMaxPorts / ports.size());
  ContextRoles roles{most, most};
  for (const UsablePort& port : ports) {
    const ContextRoles granted = grant_contexts(port, queues_.on(port), params().tx_contexts, params().rx_contexts);
    roles = {std::min(roles.transmit, granted.transmit), std::min(roles.receive, granted.receive)};
  }
  if (params().tx_contexts > static_cast<int>(roles.transmit) ||
      params().rx_contexts > static_cast<int>(roles.receive)) {
    report_fewer_contexts(roles);
  }
  locks_.emplace(roles, opal_uses_threads);
  directed_sends_.emplace(*locks_);
  find_accelerator();
  const std::size_t contexts = roles.count();
  for (const UsablePort& port : ports) {
    if (Status made = add_modules(port); !made) {
      refusals.push_back({port.name(), made.error().text});
    }
  }
  if (modules_.empty()) {
    return failure(list_refusals(refusals));
  }
  const std::span all(modules_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->set_family(all.subspan(i - i % contexts, contexts));
  }
  ports_ = active_modules_ = modules_.size() / contexts;
  only_port_ = modules_.size() == 1 && staged_ == nullptr ? &modules_.front()->endpoints() : nullptr;
  return share_large_memory();
}

/// But for what Open MPI has ended by itself, since it goes on without the peer.
static bool is_awaited(const RdmaCall& call) noexcept {
  const auto* const endpoint = static_cast<const Endpoint*>(call.endpoint);
  const opal_proc_t* const proc = endpoint != nullptr ? endpoint->proc() : nullptr;
  return proc == nullptr || !fabric_goes_on_without(proc) || fabric_awaits_rdma(proc, call.context);
}

/// Open MPI has looked for one before it opens BTLs.
void Component::find_accelerator() {
  if (!has_accelerator()) {
    return;
  }
  mca_btl_base_module_t functions{};
  set_rdma_functions(functions);
  staged_ = std::make_unique<StagedTransfers>(functions, accelerator_copy, is_awaited);
  staged_transfers = staged_.get();
  may_be_on_device = true;
  report_accelerator();
}

/// For large reads and writes that go over several devices at once; each kMostDevices of them are by themselves.
/// Where connections are made anew all memory is large: what cannot go through one device goes through another. Not where
/// there are few memory regions.
Status Component::share_large_memory() {
  std::vector<RegistrationCache*> all;
  for (const auto& module : modules_) {
    if (all.empty() || all.back() != &module->cache()) {
      all.push_back(&module->cache());
    }
  }
  const bool for_healing = params().heal_timeout > 0 && std::all_of(all.begin(), all.end(), [](const auto* cache) {
                             return cache->has_many_regions();
                           });
  const std::size_t least = for_healing ? 1 : static_cast<std::size_t>(params().stripe_size);
  if (least == 0) {
    return {};
  }
  for (std::size_t i = 0; i < all.size(); i += kMostDevices) {
    const std::span<RegistrationCache*> rest(all.begin() + static_cast<std::ptrdiff_t>(i), all.end());
    const auto some = rest.first(std::min(kMostDevices, rest.size()));
    const std::vector<RegistrationCache*> together(some.begin(), some.end());
    if (together.size() < 2) {
      continue;
    }
    auto shared = RegistrationCache::share_large(together, least);
    if (!shared) {
      return tl::unexpected(shared.error());
    }
    shared_caches_.push_back(std::move(*shared));
  }
  return {};
}

/// Those of a port, one for each context: all, or none.
Status Component::add_modules(const UsablePort& port) {
  auto& cache = caches_[port.device->name];
  if (!cache) {
    auto made = RegistrationCache::make(port.device, port.address.link, grant_memory_regions(port, queues_.on(port)),
                                        access_wishes(*port.device));
    if (!made) {
      return tl::unexpected(made.error());
    }
    cache = std::move(*made);
  }
  const std::size_t before = modules_.size();
  for (unsigned context = 0; context < locks_->contexts(); ++context) {
    const auto index = static_cast<std::uint16_t>(modules_.size());
    auto module = Module::make(port, *cache, queues_, {index, context, locks_->roles()}, template_, wishes_);
    if (!module) {
      modules_.resize(before);
      return tl::unexpected(module.error());
    }
    modules_.push_back(std::move(*module));
  }
  for (std::size_t index = before; index < modules_.size(); ++index) {
    cache->add_port(index);
  }
  return {};
}

Status Component::start_connections() {
  const Params& values = params();
  cpc::ConnectionSettings settings;
  settings.self = name_of(OPAL_PROC_MY_NAME);
  if (getrandom(settings.token.data(), settings.token.size(), 0) != static_cast<ssize_t>(settings.token.size())) {
    return failure("the kernel gives no random numbers for the job token");
  }
  settings.retry_time_ms = static_cast<unsigned>(values.connect_retry_time);
  const int keepalive = values.keepalive >= 0 ? values.keepalive : values.heal_timeout > 0 ? kKeepAlive : 0;
  settings.keepalive_ms = static_cast<unsigned>(keepalive) * 1000;
  settings.connect_timeout_ms = static_cast<unsigned>(values.connect_timeout);
  settings.handshake_timeout_ms = static_cast<unsigned>(values.handshake_timeout);
  settings.connect_limit = static_cast<std::size_t>(values.connect_limit);
  settings.cpcs = cpcs_;
  settings.takes_questions = values.hang_socket != 0;
  settings.look_ms = values.top != 0 ? TopPublisher::kPeriodMs : 0;
  settings.trace = trace_.get();
  settings.tick = [this] { return packet_watch_.tick(); };
  auto connections = cpc::ConnectionManager::start(settings, std::move(methods_), cpc::make_rc_queue_pairs);
  if (!connections) {
    return tl::unexpected(connections.error());
  }
  connections_ = std::move(*connections);
  info_.token = settings.token;
  std::vector<const cpc::PortContext*> contexts;
  for (const auto& module : modules_) {
    module->endpoints().set_observers(trace_.get(), std::chrono::milliseconds(params().goodbye_timeout),
                                      module->heal_timeout());
    connections_->add_port(module->context());
    contexts.push_back(&module->context());
  }
  info_.offers = connections_->offers(contexts);
  const std::vector<CpcOffer> refusals = connections_->refusals();
  if (info_.offers.empty()) {
    return failure(list_refusals(refusals));
  }
  info_.offers.insert(info_.offers.end(), refusals.begin(), refusals.end());
  for (const std::string& remark : connections_->remarks()) {
    report_idle_setting(remark);
  }
  if (const int number = params().dump_signal; number > 0) {
    if (Status watched = dump_signal::watch(number, *connections_); !watched) {
      report_idle_setting(watched.error().text);
    }
  }
  for (const std::string& remark : unknown_params(&component_->btl_version)) {
    report_idle_setting(remark);
  }
  return {};
}

Status Component::publish() {
  set_level_count(job_size());
  info_.receive_queues = queues_.list().canonical();
  info_.queue_level = queues_.level();
  info_.contexts = static_cast<std::uint8_t>(locks_->contexts());
  info_.steering = steering_;
  for (const auto& module : modules_) {
    info_.ports.push_back(module->context().address);
  }
  std::vector<std::byte> blob = encode(info_);
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_SEND(rc, kModexScope, &component_->btl_version, blob.data(), static_cast<int>(blob.size()));
  if (rc != OPAL_SUCCESS) {
    return failure("Open MPI did not take the modex (error " + std::to_string(rc) + ")");
  }
  job_reporter_ = JobReporter::begin(modules_, queues_, &component_->btl_version);
  if (params().top != 0) {
    if (auto top = TopPublisher::begin(modules_); top) {
      top_ = std::move(*top);
    } else {
      report_idle_setting("btl_fabric_top: " + top.error().text);  // the job does not need it
    }
  }
  return {};
}

}  // namespace fabric
