// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/base/error_text.h"
#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {
namespace {

namespace fs = std::filesystem;

/// The node below /dev/infiniband of a device of the kernel's; empty if the kernel does not know the device.
std::string node_of(const std::string& device) {
  std::error_code none;
  for (const fs::directory_entry& one :
       fs::directory_iterator("/sys/class/infiniband/" + device + "/device/infiniband_verbs", none)) {
    return one.path().filename();
  }
  // Devices of software hang off no bus: each names its device itself.
  for (const fs::directory_entry& one : fs::directory_iterator("/sys/class/infiniband_verbs", none)) {
    std::string name;
    if (FILE* const file = std::fopen((one.path() / "ibdev").c_str(), "re"); file != nullptr) {
      char text[128] = "";
      if (std::fgets(text, sizeof text, file) != nullptr) {
        name = text;
      }
      std::fclose(file);
    }
    if (name.substr(0, name.find('\n')) == device) {
      return one.path().filename();
    }
  }
  return {};
}

/// Those that verbs knows, and those of the kernel that it does not: without a node it passes a device over.
std::vector<std::string> all_devices() {
  std::vector<std::string> all = verbs_devices();
  std::error_code none;
  for (const fs::directory_entry& one : fs::directory_iterator("/sys/class/infiniband", none)) {
    if (const std::string name = one.path().filename(); std::find(all.begin(), all.end(), name) == all.end()) {
      all.push_back(name);
    }
  }
  return all;
}

/// Why a node cannot be opened; empty if it can.
std::string why_not(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return describe_errno(errno);
  }
  close(descriptor);
  return {};
}

}  // namespace

Findings check_kernel(const Host& host) {
  Findings findings;
  std::string good;
  bool has_kernels = false;
  for (const std::string& device : all_devices()) {
    const std::string node = node_of(device);
    std::error_code none;
    if (node.empty() && !fs::exists("/sys/class/infiniband/" + device, none)) {
      continue;
    }
    has_kernels = true;
    const std::string path = "/dev/infiniband/" + node;
    const std::string error = node.empty() ? "there is none" : why_not(path);
    if (error.empty()) {
      good += (good.empty() ? "" : ", ") + path;
    } else {
      findings.push_back(fail("the device node of " + device + ", " + path + ": " + error,
                              "modprobe ib_uverbs; in a container pass /dev/infiniband to it; as a user be in the "
                              "group that owns it"));
    }
  }
  if (!has_kernels) {
    return {ok("nothing to look at: no device of the kernel's")};
  }
  const std::string manager = "/dev/infiniband/rdma_cm";
  const std::string error = why_not(manager);
  if (error.empty()) {
    good += (good.empty() ? "" : ", ") + manager;
  } else {
    const bool needs_it = std::any_of(host.scan.ports.begin(), host.scan.ports.end(),
                                      [](const UsablePort& port) { return port.address.link == Transport::kIwarp; });
    findings.push_back((needs_it ? fail : warn)(manager + ": " + error + ", so rdmacm and ibcm cannot be used",
                                                "modprobe rdma_ucm; in a container pass /dev/infiniband to it"));
  }
  if (!good.empty()) {
    findings.insert(findings.begin(), ok(good));
  }
  return findings;
}

}  // namespace fabric::doctor
