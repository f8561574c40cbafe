// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include "contrib/fabric_info/report.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;

template <class... Arguments>
void add(std::string& text, const char* format, Arguments... arguments) {
  char line[512];
  std::snprintf(line, sizeof line, format, arguments...);
  text += line;
}

unsigned long long number(const Json& value) {
  return value.get<unsigned long long>();
}

void add_queues(std::string& text, const Json& queues) {
  add(text, "  queues %s\n", queues["receive_queues"].get<std::string>().c_str());
  add(text, "    %-5s%10s%14s%14s%18s%18s%10s%10s\n", "kind", "size", "bytes/peer", "grows to", "bytes/process",
      "grows to", "sends", "receives");
  for (const Json& queue : queues["queues"]) {
    add(text, "    %-5s%10llu%14llu%14llu%18llu%18llu%10llu%10llu%s\n", queue["kind"].get<std::string>().c_str(),
        number(queue["size"]), number(queue["bytes_per_peer_at_first"]), number(queue["bytes_per_peer"]),
        number(queue["bytes_per_process_at_first"]), number(queue["bytes_per_process"]), number(queue["send_entries"]),
        number(queue["receive_entries"]), queue["carries_rdma"].get<bool>() ? "  and RDMA" : "");
  }
  add(text, "    %-5s%10s%14llu%14llu%18llu%18llu   %llu completions per peer, and more that all share\n", "sum", "",
      number(queues["bytes_per_peer_at_first"]), number(queues["bytes_per_peer"]),
      number(queues["bytes_per_process_at_first"]), number(queues["bytes_per_process"]),
      number(queues["completions_per_peer"]));
  add(text, "    queue pairs of a port, %llu hosts with %llu processes: %llu per process, %llu per host",
      number(queues["hosts"]), number(queues["processes_per_host"]), number(queues["queue_pairs_per_process"]),
      number(queues["queue_pairs_per_host"]));
  if (number(queues["targets_per_host"]) > 0) {
    add(text, " (%llu of them shared by its processes)", number(queues["targets_per_host"]));
  }
  text += "\n";
}

/// A line of the table of memory, unless there is nothing to tell.
void add_memory(std::string& text, const char* of, const Json& parts) {
  if (number(parts["sum"]) > 0) {
    add(text, "    %-16s%10llu%10llu%10llu%10llu%12llu%9llu%14llu%12llu\n", of, number(parts["receive_buffers"]),
        number(parts["fragments"]), number(parts["send_entries"]), number(parts["receive_entries"]),
        number(parts["completion_entries"]), number(parts["objects"]), number(parts["registrations"]),
        number(parts["sum"]));
  }
}

/// Ends with what there is to do.
void add_fit(std::string& text, const Json& report) {
  if (!report.contains("fit")) {
    return;
  }
  const Json& fit = report["fit"];
  add(text, "  %-18s%10s%10s%10s%10s%12s%9s%14s%12s\n", "memory, bytes", "buffers", "fragments", "sends", "receives",
      "completions", "objects", "registrations", "sum");
  add_memory(text, "each connection", fit["per_connection"]);
  add_memory(text, "each host", fit["per_host"]);
  add_memory(text, "shared by all", fit["shared"]);
  add(text, "  the job takes %llu queue pairs on each host, and up to %llu bytes in each process: it %s\n",
      number(fit["queue_pairs_per_host"]), number(fit["bytes_per_process"]),
      fit["fits"].get<bool>() ? "fits" : "does not fit");
  for (const Json& shortfall : fit["shortfalls"]) {
    add(text, "    %s\n", shortfall.get<std::string>().c_str());
  }
  if (fit["is_cached"].get<bool>()) {
    text += "    it runs all the same: idle connections make room for others\n";
  }
  if (const auto instead = fit["instead"].get<std::string>(); !instead.empty()) {
    add(text, "    it would fit with btl_fabric_receive_queues %s\n", instead.c_str());
  }
}

void add_port(std::string& text, const Json& port) {
  add(text, "  port %llu: %s", number(port["port"]), port["state"].get<std::string>().c_str());
  if (!port.contains("link")) {
    text += "\n";
    return;
  }
  add(text, ", %s, MTU %llu, %llu Mbit/s, LID %llu, messages up to %llu bytes\n",
      port["link"].get<std::string>().c_str(), number(port["mtu"]), number(port["mbit_per_second"]),
      number(port["lid"]), number(port["max_message"]));
  for (const Json& gid : port["gids"]) {
    add(text, "    GID %-3llu %-40s %s%s\n", number(gid["index"]), gid["gid"].get<std::string>().c_str(),
        gid["type"].get<std::string>().c_str(), gid["chosen"].get<bool>() ? "  <- chosen" : "");
  }
  if (port.contains("limits")) {
    for (const Json& limit : port["limits"]) {
      add(text, "    %-26s%12llu  %s\n", limit["limit"].get<std::string>().c_str(), number(limit["value"]),
          limit["reason"].get<std::string>().c_str());
    }
  }
  if (port.contains("plans")) {
    for (const Json& plan : port["plans"]) {
      text += "    " + plan.get<std::string>() + "\n";
    }
  }
}

void add_device(std::string& text, const Json& device) {
  add(text, "%s\n", device["device"].get<std::string>().c_str());
  if (device.contains("error")) {
    add(text, "  %s\n", device["error"].get<std::string>().c_str());
    return;
  }
  for (const Json& port : device["ports"]) {
    add_port(text, port);
  }
  add(text, "  inline up to %llu bytes, %llu reads under way, atomics %s\n", number(device["max_inline"]),
      number(device["max_reads"]), device["atomics"].get<std::string>().c_str());
  add(text, "  eager RDMA: %s (%s)\n", device["eager_rdma"].get<std::string>().c_str(),
      device["eager_rdma_source"].get<std::string>().c_str());
  const Json& costs = device["queue_costs"];
  if (costs["fixed_entries"].get<bool>()) {
    add(text, "  queues have entries of one size (%llu)\n", number(costs["alignment"]));
  } else {
    add(text, "  an operation takes %llu bytes and %llu for each piece of memory, in multiples of %llu\n",
        number(costs["op_size"]), number(costs["iov_size"]), number(costs["alignment"]));
  }
  add(text, "  %-16s%12s%12s\n", "per process", "total", "optimal");
  for (const auto& [name, value] : device["domain"].items()) {
    add(text, "    %-14s%12llu%12llu\n", name.c_str(), number(value["total"]), number(value["optimal"]));
  }
  for (const Json& grant : device["grants"]) {
    add(text, "    %s: %llu (%s)\n", grant["what"].get<std::string>().c_str(), number(grant["count"]),
        grant["why"].get<std::string>().c_str());
  }
  if (device.contains("does_not_fit")) {
    text += "    this device cannot be used: " + device["does_not_fit"].get<std::string>() + "\n";
  }
  add_queues(text, device["queues"]);
  add_fit(text, device);
}

}  // namespace

std::string as_text(const Json& report) {
  std::string text;
  for (const Json& device : report["devices"]) {
    add_device(text, device);
  }
  if (report["devices"].empty()) {
    text += "This host has no RDMA device. On any:\n";
    add_queues(text, report["queues"]);
    add_fit(text, report);
  }
  return text;
}

}  // namespace fabric::info
