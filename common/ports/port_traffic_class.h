// SPDX-License-Identifier: BSD-3-Clause
//
// The traffic class that an administrator gave a port.
#pragma once

#include <cstdint>
#include <string_view>

namespace fabric {

/// Where the kernel's settings of modules are mounted.
inline constexpr const char* kConfigFolder = "/sys/kernel/config";

/// What the kernel's communication manager gives to RoCE packets of a port if nobody asks for another: the file
/// rdma_cm/DEVICE/ports/PORT/default_roce_tos below `folder` (Linux, Documentation/ABI/testing/configfs-rdma_cm). 0 where there is none,
/// which is what there is where nobody has made a folder for the device, or it cannot be read.
[[nodiscard]] std::uint8_t own_traffic_class(std::string_view folder, std::string_view device, std::uint8_t port);

}  // namespace fabric
