// SPDX-License-Identifier: BSD-3-Clause
//
// What users are told, each by a topic of help-mpi-btl-fabric.txt: what happened, what it means, what to do, and who
// was concerned on either side. Whoever decides that something is an error reports it, once.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "common/accounting/context_locks.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/port_address.h"

namespace fabric {

class Endpoint;
class Module;
struct PortRefusal;
struct SharedPrefix;

/// The folder that has the help file. Before anything is reported.
void find_help_file(const char* folder) noexcept;

/// The component cannot be used in this process. Silent unless the user chose it by name, or set a parameter of it
/// wrong on a host that has a device. Throws nothing: out of memory may be the reason.
void report_start_failure(const char* reason, bool is_bad_parameter) noexcept;
/// Of the ports that are not used, while others are: those that the user named, and all of them in verbose output.
void report_unused_ports(const std::vector<PortRefusal>& all, const std::vector<PortRefusal>& named);
/// The host has so many more usable ports than a process can have.
void report_too_many_ports(std::size_t beyond);
/// Ports of this host may be paired with such as they do not reach. Shown once for a job, by its rank 0, if the user chose this BTL by
/// name; otherwise, and of other hosts, verbosely.
void report_shared_prefix(const SharedPrefix& shared);
/// A part of the user's settings does nothing on this host.
void report_idle_setting(const std::string& setting);
/// Verbosely, if ibv_fork_init() has failed: forked children may disturb what is under way.
void report_fork_init(int error_number);
/// A peer is not reached through a port. Only in verbose output: another port or BTL may reach it.
void report_unreachable(const Module& module, const opal_proc_t& proc, const std::string& reason);

/// A peer is reached through no port. Shown once, if the user chose this BTL by name: another BTL, which is slower, may take its
/// place unnoticed.
void report_not_reached(const opal_proc_t& proc, const std::string& reason);

/// Our port and the peer's are on one network, but no connection method serves both. Shown once, if the user chose this
/// BTL by name.
void report_no_connection_method(const Module& module, const opal_proc_t& proc, const std::string& reason);

/// What the process may take of a port's device, and why. Only in verbose output.
void report_resources(const Module& module, const std::string& explanation);
/// What the module's endpoints do and wait for. For whoever holds all locks.
void report_state(Module& module);
/// The same of one endpoint.
void report_state(Module& module, const Endpoint& endpoint);
/// The limits of the module's protocols, a line for each. Only in verbose output.
void report_limits(const Module& module);
/// Open MPI has found an accelerator, and what becomes of its memory, at btl_base_verbose 5.
void report_accelerator();
/// There are fewer transmit contexts than the user asked for, at btl_base_verbose 5.
void report_fewer_contexts(const ContextRoles& contexts);
/// Of those that btl_fabric_paths asks for, at btl_base_verbose 5.
void report_fewer_paths(unsigned paths);
/// What the device made us change, at btl_base_verbose 5.
void report_resources_changed(const Module& module, const std::string& explanation);

/// The timeline that the user asked for cannot be had. The job is none the worse for it.
void report_trace_not_written(const std::string& reason);

void report_bad_modex(const opal_proc_t& proc, const std::string& reason);
/// `why`: what the choice of receive queues has followed.
void report_queues_chosen(const ReceiveQueues& queues, const std::string& why);
/// `shortfall`: of what there is too little.
void report_queues_too_large(const ReceiveQueues& queues, const std::string& shortfall);
/// Verbosely.
void report_queue_pairs_short(const Module& module);
void report_queues_differ(const opal_proc_t& proc, const std::string& ours, const std::string& theirs);
/// Verbosely: a connection that only the peer wanted.
void report_not_missed(const Module& module, const Endpoint& endpoint, const std::string& reason);
/// If btl_fabric_report is 2, or verbosely: a connection has come about.
void report_connected(const Module& module, const Endpoint& endpoint, std::string_view method,
                      std::chrono::microseconds took);
void report_healed(const Module& module, const Endpoint& endpoint, const std::string& how);
void report_detour(const Module& module, const Endpoint& endpoint, const std::string& why, const Endpoint& way);
void report_connection_failed(const Module& module, const Endpoint& endpoint, const std::string& reason,
                              const std::string& history);
void report_transfer_failed(const Module& module, const Endpoint& endpoint, const ibv_wc& completion);
void report_post_failed(const Module& module, const Endpoint& endpoint, std::uint32_t qpn, int error_number);
void report_bad_packet(const Module& module, const Endpoint& endpoint, std::uint32_t qpn,
                       std::span<const std::byte> packet);
/// Connections wait until the process is no longer short of file descriptors or memory.
void report_shortage(const std::string& reason);
/// The progress thread could not do something, and connections may hang: the job ends.
void report_connections_lost(const std::string& reason);
/// `goes_on`: by other devices; else the job ends.
void report_device_gone(const Module& module, bool goes_on);
void report_device_event(const Module& module, ibv_event_type type);
/// A queue pair of the endpoint has failed, as the device says by an event.
void report_queue_pair_event(const Module& module, const Endpoint& endpoint, std::uint32_t qpn, ibv_event_type type);
/// The LID or GID by which peers know the port has changed.
void report_address_changed(const Module& module, const PortAddress& before, const PortAddress& now);

}  // namespace fabric
