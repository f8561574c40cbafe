// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_paths.h"

#include <algorithm>

#include "common/ports/process_info.h"

namespace fabric {

std::vector<UsablePort> with_paths(const std::vector<UsablePort>& ports, unsigned paths) {
  const auto most = static_cast<unsigned>(kMaxPorts / std::max<std::size_t>(1, ports.size()));
  const unsigned count = std::clamp(paths, 1U, std::max(1U, most));
  std::vector<UsablePort> all;
  for (const UsablePort& port : ports) {
    for (unsigned path = 0; path < count; ++path) {
      UsablePort one = port;
      one.paths = static_cast<std::uint8_t>(count);
      one.address.path = static_cast<std::uint8_t>(path);
      one.path_bits = static_cast<std::uint8_t>(path & ((1U << port.lmc) - 1));
      one.address.lid = static_cast<std::uint16_t>(port.address.lid + one.path_bits);
      one.bandwidth = std::max(1U, port.bandwidth / count);
      one.weight = std::max(1U, port.weight / count);
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::uint32_t flow_label(std::uint32_t process, unsigned paths, unsigned path) noexcept {
  constexpr std::uint32_t kLargest = 0xfffff;
  return paths > 1 ? (process * paths + path) % kLargest + 1 : 0;
}

}  // namespace fabric
