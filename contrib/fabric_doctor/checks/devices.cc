// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <filesystem>

#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {
namespace {

/// What the kernel has, if verbs has none.
Finding no_device() {
  std::error_code none;
  const std::filesystem::directory_iterator kernels("/sys/class/infiniband", none);
  if (!none && kernels != std::filesystem::directory_iterator()) {
    return fail("verbs knows no device, but the kernel has " + kernels->path().filename().string(),
                "load the module that verbs needs: modprobe ib_uverbs; and install its provider: ibverbs-providers");
  }
  return fail("this host has no RDMA device",
              "load the adapter's driver, or make a device of software: modprobe rdma_rxe && rdma link add rxe0 type "
              "rxe netdev eth0; or run below softhca-run");
}

}  // namespace

Findings check_devices(const Host& host) {
  const std::vector<std::string> all = verbs_devices();
  if (all.empty()) {
    return {no_device()};
  }
  Findings findings;
  std::vector<std::string> used;
  for (const UsablePort& port : host.scan.ports) {
    if (std::find(used.begin(), used.end(), port.device->name) == used.end()) {
      used.push_back(port.device->name);
    }
  }
  std::string names;
  for (const std::string& name : used) {
    names += (names.empty() ? "" : ", ") + name;
  }
  if (!used.empty()) {
    findings.push_back(
        ok(names + (used.size() == all.size() ? "" : ", of " + std::to_string(all.size()) + " devices")));
  }
  const bool is_one_looked_at =
      std::any_of(host.scan.refusals.begin(), host.scan.refusals.end(),
                  [](const PortRefusal& one) { return one.port.find(':') != std::string::npos; });
  for (const PortRefusal& refusal : host.scan.refusals) {
    if (refusal.port.find(':') != std::string::npos) {
      continue;  // a port's, which check_ports() tells
    }
    const bool is_known = std::find(all.begin(), all.end(), refusal.port) != all.end();
    const std::string what = refusal.port + ": " + refusal.reason;
    if (!is_known) {
      findings.push_back((used.empty() ? fail : warn)(what, "give btl_fabric_if_include names that ibv_devices lists"));
    } else if (refusal.reason.find("leaves it out") == std::string::npos) {
      findings.push_back((used.empty() ? fail : warn)(what, "look at what the kernel says of it: dmesg"));
    } else if (used.empty() && !is_one_looked_at) {
      findings.push_back(fail(what, "take it out of btl_fabric_if_exclude, or add it to btl_fabric_if_include"));
    } else {
      findings.push_back(ok(what));
    }
  }
  return findings.empty() ? Findings{ok(std::to_string(all.size()) + " found")} : findings;  // ports are told of
}

}  // namespace fabric::doctor
