// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "ctl/fabric_view.h"

namespace softhca {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file << text << '\n';
  file.close();
}

void make_port(const fs::path& port, const Config& config) {
  const bool roce = config.personality == Personality::Roce;
  put(port / "link_layer", config.personality == Personality::Ib ? "InfiniBand" : "Ethernet");
  put(port / "state", "4: ACTIVE");
  put(port / "phys_state", "5: LinkUp");
  put(port / "rate", "100 Gb/sec (4X EDR)");
  for (unsigned gid = 0; gid < (roce ? 4 : 1); ++gid) {
    put(port / "gid_attrs/types" / std::to_string(gid), roce && gid % 2 != 0 ? "RoCE v2" : "IB/RoCE v1");
    put(port / "gid_attrs/ndevs" / std::to_string(gid), "lo");
  }
}

}  // namespace

std::string text_of(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  if (path != "-" && !file) give_up(path + " cannot be read: " + strerror(errno));
  try {
    return {std::istreambuf_iterator<char>(path == "-" ? std::cin : file), {}};
  } catch (const std::ios::failure& error) {  // a folder can be opened
    give_up(path + " cannot be read: " + error.code().message());
  }
}

// What depends on the node, addresses above all, is not there: it has to be asked of verbs.
std::string make_files(const std::string& directory, const Config& config) {
  try {
    const fs::path sys = fs::path(directory) / "sys/class", dev = fs::path(directory) / "dev/infiniband";
    put(sys / "infiniband_verbs/abi_version", "6");
    put(dev / "rdma_cm", "");
    for (unsigned i = 0; i < config.devices; ++i) {
      const std::string uverbs = "uverbs" + std::to_string(i), name = "softhca" + std::to_string(i);
      put(dev / uverbs, "");
      put(sys / "infiniband_verbs" / uverbs / "ibdev", name);
      put(sys / "infiniband_verbs" / uverbs / "abi_version", "1");
      put(sys / "infiniband" / name / "node_type", config.personality == Personality::Iwarp ? "4: RNIC" : "1: CA");
      put(sys / "infiniband" / name / "device/numa_node", "-1");
      put(sys / "infiniband" / name / "device/net/lo/type", "772");  // where its IP addresses are
      for (unsigned port = 1; port <= config.ports; ++port)
        make_port(sys / "infiniband" / name / "ports" / std::to_string(port), config);
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace softhca
