// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/device_probe.h"
#include "common/ports/shared_prefix.h"
#include "contrib/fabric_doctor/checks/check_list.h"
#include "contrib/fabric_doctor/port_text.h"

namespace fabric::doctor {
namespace {

/// What to do about a port that the component would not use, by the reason that it gives.
std::string remedy_of(const std::string& reason) {
  const auto says = [&reason](const char* part) { return reason.find(part) != std::string::npos; };
  if (says("not active")) {
    return "plug in the cable; on Ethernet ip link set NETDEV up (rdma link shows which); on InfiniBand a subnet "
           "manager must run (opensm)";
  }
  if (says("GID table")) {
    return "give the port's network interface an address: ip addr add ADDRESS/BITS dev NETDEV, and set it up; or "
           "another btl_fabric_gid_index (fabric_info lists them)";
  }
  if (says("does not answer")) {
    return "see what the kernel says of the device (dmesg); reset it, or leave it out by btl_fabric_if_exclude";
  }
  if (says("no such port")) {
    return "correct btl_fabric_if_include";
  }
  return "see README.md, \"Common errors\"";
}

void add_doubts(const UsablePort& port, Findings& findings) {
  if (port.address.link == Transport::kRoce && port.address.roce == 1) {
    findings.push_back(warn(port.name() + ": RoCE v1, which no router passes on, and which not every peer has",
                            "give the interface an IP address, whose GID is of version 2; or set "
                            "btl_fabric_gid_index to one that is"));
  }
  if (port.address.link != Transport::kInfiniBand && port.address.link == Transport::kIwarp && !port.ip) {
    findings.push_back(fail(port.name() + ": its network interface has no IP address, which iWARP needs",
                            "ip addr add ADDRESS/BITS dev NETDEV"));
  }
  if (mtu_bytes(port.address.mtu) < 1024) {
    findings.push_back(warn(port.name() + ": packets of " + std::to_string(mtu_bytes(port.address.mtu)) + " bytes only",
                            "raise the MTU of the network interface (ip link set NETDEV mtu 4200) and of the switches; "
                            "or btl_fabric_mtu, if that is set"));
  }
}

}  // namespace

Findings check_ports(const Host& host) {
  Findings findings;
  for (const UsablePort& port : host.scan.ports) {
    findings.push_back(ok(describe(port)));
    add_doubts(port, findings);
  }
  if (const auto shared = find_shared_prefix(host.scan.ports)) {
    findings.push_back(warn(shared->first + " and " + shared->second + " have GIDs of one prefix, " +
                                to_string(shared->prefix) + ", but are on different subnets: " + shared->proof,
                            "give each subnet a prefix of its own (OpenSM: subnet_prefix), say which ports belong "
                            "together (btl_fabric_rails), or use the ports of one subnet (btl_fabric_if_include)"));
  }
  for (const PortRefusal& refusal : host.scan.refusals) {
    if (refusal.port.find(':') == std::string::npos) {
      continue;  // a device's, which check_devices() tells
    }
    const std::string what = refusal.port + ": " + refusal.reason;
    const bool is_meant = refusal.reason.find("leaves it out") != std::string::npos ||
                          refusal.reason.find("btl_fabric_max_ports") != std::string::npos ||
                          refusal.reason.find("nearer") != std::string::npos;
    if (is_meant && !host.scan.ports.empty()) {
      findings.push_back(ok(what));
    } else {
      findings.push_back((host.scan.ports.empty() ? fail : warn)(what, remedy_of(refusal.reason)));
    }
  }
  return findings;
}

}  // namespace fabric::doctor
