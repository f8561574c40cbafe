// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_traffic_class.h"

#include <fstream>
#include <string>

namespace fabric {

std::uint8_t own_traffic_class(std::string_view folder, std::string_view device, std::uint8_t port) {
  std::string path(folder);
  path.append("/rdma_cm/").append(device).append("/ports/").append(std::to_string(port)).append("/default_roce_tos");
  std::ifstream file(path);
  unsigned value = 0;
  constexpr unsigned kMost = 255;
  return file >> value && value <= kMost ? static_cast<std::uint8_t>(value) : std::uint8_t{0};
}

}  // namespace fabric
