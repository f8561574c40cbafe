// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

#include "btl_fabric/base/connection_memory.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/first_to_say.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/spare_descriptor.h"
#include "btl_fabric/peer/endpoints_description.h"
#include "common/ports/gid_choice.h"
#include "common/ports/shared_prefix.h"

namespace fabric {

namespace {

constexpr const char* kHelpFile = "help-mpi-btl-fabric.txt";

/// The same as Open MPI is to be asked for it.
std::array<char, 4096> help_file;

// Topics of the help file; each function below shows one.
constexpr const char* kNotUsable = "not usable";
constexpr const char* kNamedPortsNotUsed = "named ports not used";
constexpr const char* kTooManyPorts = "too many ports";
constexpr const char* kSharedPrefix = "shared gid prefix";
constexpr const char* kIdleSetting = "idle setting";
constexpr const char* kBadParameter = "bad parameter";
constexpr const char* kBadModex = "bad modex";
constexpr const char* kQueuesTooLarge = "receive queues too large";
constexpr const char* kQueuesDiffer = "receive queues differ";
constexpr const char* kNoConnectionMethod = "no connection method";
constexpr const char* kNotReached = "not reached";
constexpr const char* kConnectionFailed = "connection failed";
constexpr const char* kConnectionBroken = "connection broken";
constexpr const char* kTransferFailed = "transfer failed";
constexpr const char* kDeviceGone = "device gone";
constexpr const char* kDeviceEvent = "device event";
constexpr const char* kAddressChanged = "address changed";
constexpr const char* kConnectionsWait = "connections wait";
constexpr const char* kConnectionsLost = "connections lost";

/// Shows a topic of the help file, rendered by Open MPI, on stderr. Not through opal_show_help(): mpirun 4.1 loses many
/// of the messages that processes relay to it ("Data unpack had inadequate space in file show_help.c"). What several
/// processes of a host have to say in the same words, one says. For all threads: Open MPI's reader of help files is not.
template <class... Arguments>
void show(const char* topic, Arguments... arguments) {
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  char* text = nullptr;
  const auto render = [&text, topic, arguments...] {
    text = opal_show_help_string(help_file.data(), topic, topic != kNotUsable, arguments...);  // the others get a frame
  };
  with_spare_descriptor(std::cref(render));  // for the help file; by reference, which takes no memory
  if (text != nullptr) {
    if (first_to_say(text)) {
      std::fputs(text, stderr);
    }
    free(text);
  }
}

const char* local_host() {
  return opal_process_info.nodename;
}

std::string host_of(const opal_proc_t& proc) {
  return host_name(proc) + ", rank " + std::to_string(proc.proc_name.vpid);
}

/// "rxe0:1, GID ::ffff:10.0.0.1"
std::string describe_port(const Module& module) {
  return module.name() + ", GID " + to_string(module.port().address.gid);
}

/// The peer's end, as far as its modex tells.
std::string describe_peer(const Endpoint& endpoint) {
  std::string text = host_of(*endpoint.proc());
  if (const Peer* peer = Component::get().peer_of(*endpoint.proc()); peer != nullptr) {
    const std::size_t port = endpoint.key().remote_port;
    if (port < peer->info.ports.size()) {
      text += ", GID " + to_string(peer->info.ports[port].gid);
    }
  }
  return text;
}

/// What a failed completion usually comes from.
const char* meaning_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "The peer's adapter did not answer. Its process may have ended, its host or link may be down, or\n"
             "packets may be dropped on the way (on RoCE: check flow control, the MTU and the GIDs of both ports).\n"
             "btl_fabric_timeout and btl_fabric_retry_count set how long it is waited for.";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "The peer had no receive buffer for too long. Raise rd_num in btl_fabric_receive_queues, or\n"
             "btl_fabric_rnr_retry (7 is for ever).";
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
      return "The peer's adapter refused the message. Do both sides run the same version of btl_fabric?";
    case IBV_WC_WR_FLUSH_ERR:
      return "The connection had failed before: an earlier message, or the device's own log (dmesg), says why.";
    default:
      return "The adapter reports an error of its own: look at dmesg and at the adapter's counters (rdma statistic).";
  }
}

bool host_has_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices != nullptr) {
    ibv_free_device_list(devices);
  }
  return count > 0;
}

std::string hex_dump(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 16); ++i) {
    char octet[4];
    std::snprintf(octet, sizeof octet, "%02x ", static_cast<unsigned>(bytes[i]));
    text += octet;
  }
  return text;
}

}  // namespace

/// Open MPI would look for all help files in a folder that is added to its own, also for those that its package lacks, and
/// then name our folder as their place. So the file is asked for by a path from Open MPI's folder, if that is there.
void find_help_file(const char* folder) noexcept {
  std::snprintf(help_file.data(), help_file.size(), "../../../../../../../../../../../../../../..%s/%s", folder,
                kHelpFile);
  const int openmpis = open(opal_install_dirs.opaldatadir, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (faccessat(openmpis, help_file.data(), R_OK, 0) != 0) {
    std::snprintf(help_file.data(), help_file.size(), "%s", kHelpFile);
    opal_show_help_add_dir(folder);
  }
  if (openmpis >= 0) {
    close(openmpis);
  }
}

void report_start_failure(const char* reason, bool is_bad_parameter) noexcept {
  const bool shown = chosen_by_name() || (is_bad_parameter && host_has_device());
  if (!shown) {
    opal_output_verbose(5, opal_btl_base_framework.framework_output, "btl:fabric: not used on %s: %s", local_host(),
                        reason);
  } else {
    show(is_bad_parameter ? kBadParameter : kNotUsable, local_host(), reason);
  }
}

void report_unused_ports(const std::vector<PortRefusal>& all, const std::vector<PortRefusal>& named) {
  for (const PortRefusal& port : all) {
    opal_output_verbose(5, opal_btl_base_framework.framework_output, "btl:fabric: %s is not used: %s",
                        port.port.c_str(), port.reason.c_str());
  }
  std::string list;
  for (const PortRefusal& port : named) {
    list.append("\n  ").append(port.port).append(": ").append(port.reason);
  }
  if (!named.empty()) {
    show(kNamedPortsNotUsed, local_host(), list.c_str());
  }
}

void report_too_many_ports(std::size_t beyond) {
  show(kTooManyPorts, local_host(), std::to_string(kMaxPorts + beyond).c_str(), std::to_string(kMaxPorts).c_str());
}

void report_shared_prefix(const SharedPrefix& shared) {
  const std::string ports = shared.first + " and " + shared.second;
  const std::string prefix = to_string(shared.prefix);
  if (chosen_by_name() && OPAL_PROC_MY_NAME.vpid == 0) {
    show(kSharedPrefix, local_host(), ports.c_str(), prefix.c_str(), shared.proof.c_str());
  } else {
    opal_output_verbose(1, opal_btl_base_framework.framework_output,
                        "btl:fabric: %s: %s have GIDs of one prefix, %s, but are on different subnets: %s",
                        local_host(), ports.c_str(), prefix.c_str(), shared.proof.c_str());
  }
}

void report_idle_setting(const std::string& setting) {
  show(kIdleSetting, local_host(), setting.c_str());
}

void report_fork_init(int error_number) {
  if (error_number != 0) {
    opal_output_verbose(5, opal_btl_base_framework.framework_output,
                        "btl:fabric: ibv_fork_init: %s: messages under way while this process forks may be wrong",
                        std::strerror(error_number));
  }
}

void report_unreachable(const Module& module, const opal_proc_t& proc, const std::string& reason) {
  opal_output_verbose(5, opal_btl_base_framework.framework_output, "btl:fabric: %s does not reach %s: %s",
                      module.name().c_str(), host_of(proc).c_str(), reason.c_str());
}

void report_not_reached(const opal_proc_t& proc, const std::string& reason) {
  static bool shown = false;
  if (chosen_by_name() && !std::exchange(shown, true)) {
    show(kNotReached, local_host(), host_name(proc).c_str(), reason.c_str());
  }
}

void report_no_connection_method(const Module& module, const opal_proc_t& proc, const std::string& reason) {
  static bool shown = false;
  if (chosen_by_name() && !std::exchange(shown, true)) {
    show(kNoConnectionMethod, local_host(), describe_port(module).c_str(), host_of(proc).c_str(), reason.c_str());
  }
}

void report_resources(const Module& module, const std::string& explanation) {
  opal_output_verbose(10, opal_btl_base_framework.framework_output, "btl:fabric: %s: %s", module.name().c_str(),
                      explanation.c_str());
}

namespace {

/// In one piece: other processes write too.
void tell_state(const Module& module, std::string text) {
  text.insert(0, "btl_fabric on " + std::string(local_host()) + ", rank " + std::to_string(OPAL_PROC_MY_NAME.vpid) +
                     ", " + describe_port(module) + ":\n");
  std::fputs(text.c_str(), stderr);
}

}  // namespace

void report_state(Module& module) try {
  std::string text;
  EndpointsDescription(module.endpoints()).append_to(text);
  text +=
      "  all connections of this process have " + std::to_string(connection_memory_now.load()) + " bytes of memory\n";
  tell_state(module, std::move(text));
} catch (const std::bad_alloc&) {  // it can be asked again
}

void report_state(Module& module, const Endpoint& endpoint) try {
  std::string text;
  EndpointsDescription(module.endpoints()).append_one(text, endpoint);
  tell_state(module, std::move(text));
} catch (const std::bad_alloc&) {
}

void report_limits(const Module& module) {
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    const ChosenLimit& chosen = module.limits()[limit];
    opal_output_verbose(10, opal_btl_base_framework.framework_output, "btl:fabric: %s: %s %s: %s",
                        module.name().c_str(), parameter_of(limit), std::to_string(chosen.value).c_str(),
                        chosen.reason.c_str());
  }
}

void report_fewer_contexts(const ContextRoles& contexts) {
  opal_output_verbose(
      5, opal_btl_base_framework.framework_output,
      "btl:fabric: %u transmit contexts instead of btl_fabric_tx_contexts, and %u receive contexts instead of "
      "btl_fabric_rx_contexts: more queue pairs are not this process's, or its ports would be more than %zu with them",
      contexts.transmit, contexts.receive, kMaxPorts);
}

void report_accelerator() {
  opal_output_verbose(
      5, opal_btl_base_framework.framework_output,
      "btl:fabric: Open MPI has found an accelerator (%s): data go from and to its memory through buffers",
      accelerator_name());
}

void report_fewer_paths(unsigned paths) {
  opal_output_verbose(5, opal_btl_base_framework.framework_output,
                      "btl:fabric: %u paths of each port instead of btl_fabric_paths: the ports would be more than %zu",
                      paths, kMaxPorts);
}

void report_resources_changed(const Module& module, const std::string& explanation) {
  opal_output_verbose(5, opal_btl_base_framework.framework_output, "btl:fabric: %s: fitted to the device: %s",
                      module.name().c_str(), explanation.c_str());
}

void report_trace_not_written(const std::string& reason) {
  opal_output(0, "btl_fabric_trace: %s", reason.c_str());
}

void report_bad_modex(const opal_proc_t& proc, const std::string& reason) {
  show(kBadModex, local_host(), host_of(proc).c_str(), reason.c_str());
}

void report_queues_chosen(const ReceiveQueues& queues, const std::string& why) {
  opal_output_verbose(1, opal_btl_base_framework.framework_output, "btl:fabric: receive queues %s: %s",
                      queues.canonical().c_str(), why.c_str());
}

void report_queue_pairs_short(const Module& module) {
  opal_output_verbose(1, opal_btl_base_framework.framework_output,
                      "btl:fabric: %s: connections wait for queue pairs, and idle ones make room for them",
                      module.name().c_str());
}

void report_queues_too_large(const ReceiveQueues& queues, const std::string& shortfall) {
  if (params().memory_budget > 0) {
    show(kQueuesTooLarge, local_host(), queues.canonical().c_str(), shortfall.c_str());
  } else {
    opal_output_verbose(1, opal_btl_base_framework.framework_output, "btl:fabric: too little room: %s",
                        shortfall.c_str());
  }
}

void report_queues_differ(const opal_proc_t& proc, const std::string& ours, const std::string& theirs) {
  show(kQueuesDiffer, local_host(), ours.c_str(), host_of(proc).c_str(), theirs.c_str());
}

void report_not_missed(const Module& module, const Endpoint& endpoint, const std::string& reason) {
  opal_output_verbose(5, opal_btl_base_framework.framework_output,
                      "btl:fabric: %s: %s wanted a connection, which failed: %s", module.name().c_str(),
                      describe_peer(endpoint).c_str(), reason.c_str());
}

void report_connected(const Module& module, const Endpoint& endpoint, std::string_view method,
                      std::chrono::microseconds took) {
  constexpr int kLevel = 5;
  const bool is_asked_for = params().report != nullptr && std::string_view(params().report) == "2";
  if (!is_asked_for && opal_output_get_verbosity(opal_btl_base_framework.framework_output) < kLevel) {
    return;
  }
  opal_output(is_asked_for ? 0 : opal_btl_base_framework.framework_output,
              "btl:fabric: rank %u: %s is connected with %s by %.*s, after %.1f ms", OPAL_PROC_MY_NAME.vpid,
              module.name().c_str(), describe_peer(endpoint).c_str(), static_cast<int>(method.size()), method.data(),
              static_cast<double>(took.count()) / 1000);
}

void report_healed(const Module& module, const Endpoint& endpoint, const std::string& how) {
  opal_output_verbose(1, opal_btl_base_framework.framework_output,
                      "btl:fabric: %s: the connection with %s had broken: %s", module.name().c_str(),
                      describe_peer(endpoint).c_str(), how.c_str());
}

void report_detour(const Module& module, const Endpoint& endpoint, const std::string& why, const Endpoint& way) {
  opal_output_verbose(1, opal_btl_base_framework.framework_output,
                      "btl:fabric: %s: the connection with %s had broken: %s: what is sent goes by %s%s",
                      module.name().c_str(), describe_peer(endpoint).c_str(), why.c_str(),
                      static_cast<const Module*>(way.owner().upper_module())->name().c_str(),
                      module.cache().is_lost() ? "" : " until it is made anew");
}

void report_connection_failed(const Module& module, const Endpoint& endpoint, const std::string& reason,
                              const std::string& history) {
  show(endpoint.carrier() != nullptr ? kConnectionBroken : kConnectionFailed, local_host(),
       describe_port(module).c_str(), describe_peer(endpoint).c_str(), reason.c_str(),
       history.empty() ? "-" : history.c_str());
}

void report_transfer_failed(const Module& module, const Endpoint& endpoint, const ibv_wc& completion) {
  char error[96];
  std::snprintf(error, sizeof error, "%s (%d), vendor error 0x%x", ibv_wc_status_str(completion.status),
                static_cast<int>(completion.status), completion.vendor_err);
  show(kTransferFailed, local_host(), describe_port(module).c_str(), describe_peer(endpoint).c_str(),
       endpoint.describe_queue(completion.qp_num).c_str(), error, meaning_of(completion.status));
}

void report_post_failed(const Module& module, const Endpoint& endpoint, std::uint32_t qpn, int error_number) {
  show(kTransferFailed, local_host(), describe_port(module).c_str(), describe_peer(endpoint).c_str(),
       endpoint.describe_queue(qpn).c_str(), (std::string("posting a send: ") + std::strerror(error_number)).c_str(),
       "The queue pair takes no more requests: its device may be gone. Look at dmesg.");
}

void report_bad_packet(const Module& module, const Endpoint& endpoint, std::uint32_t qpn,
                       std::span<const std::byte> packet) {
  const std::string error =
      "a packet of " + std::to_string(packet.size()) + " bytes that breaks the protocol: " + hex_dump(packet);
  show(kTransferFailed, local_host(), describe_port(module).c_str(), describe_peer(endpoint).c_str(),
       endpoint.describe_queue(qpn).c_str(), error.c_str(), "Do both sides run the same version of btl_fabric?");
}

void report_shortage(const std::string& reason) {
  show(kConnectionsWait, local_host(), reason.c_str());
}

void report_connections_lost(const std::string& reason) {
  show(kConnectionsLost, local_host(), reason.c_str());
}

void report_device_gone(const Module& module, bool goes_on) {
  show(kDeviceGone, local_host(), describe_port(module).c_str(),
       goes_on ? "What went through it goes through other devices from now on."
               : "There is no other device to go on with: the job ends.");
}

void report_device_event(const Module& module, ibv_event_type type) {
  show(kDeviceEvent, local_host(), describe_port(module).c_str(), ibv_event_type_str(type));
}

void report_queue_pair_event(const Module& module, const Endpoint& endpoint, std::uint32_t qpn, ibv_event_type type) {
  const std::string error = std::string("the device reports: ") + ibv_event_type_str(type);
  show(kTransferFailed, local_host(), describe_port(module).c_str(), describe_peer(endpoint).c_str(),
       endpoint.describe_queue(qpn).c_str(), error.c_str(),
       type == IBV_EVENT_QP_FATAL ? "The adapter has taken the queue pair out of service: look at dmesg."
                                  : "The adapter has refused what the peer asked it for. Do both sides run the same "
                                    "version of btl_fabric?");
}

void report_address_changed(const Module& module, const PortAddress& before, const PortAddress& now) {
  const auto describe = [](const PortAddress& address) {
    return (address.link == Transport::kInfiniBand ? "LID " + std::to_string(address.lid) + ", " : std::string()) +
           "GID " + to_string(address.gid);
  };
  show(kAddressChanged, local_host(), module.name().c_str(), describe(before).c_str(), describe(now).c_str());
}

}  // namespace fabric
