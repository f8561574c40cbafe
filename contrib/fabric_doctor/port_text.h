// SPDX-License-Identifier: BSD-3-Clause
//
// A port in words.
#pragma once

#include <string>

#include "common/ports/device_probe.h"
#include "common/ports/port_scan.h"

namespace fabric::doctor {

[[nodiscard]] inline std::string link_text(const PortAddress& address) {
  switch (address.link) {
    case Transport::kInfiniBand:
      return "InfiniBand";
    case Transport::kIwarp:
      return "iWARP";
    case Transport::kRoce:
      break;
  }
  return address.roce == 1 ? "RoCE v1" : "RoCE v2";
}

/// "rxe0:1: active, RoCE v2, GID 1 ::ffff:10.0.0.1, MTU 1024, 10.0 Gbit/s"
[[nodiscard]] inline std::string describe(const UsablePort& port) {
  std::string text = port.name() + ": active, " + link_text(port.address);
  if (port.address.link == Transport::kInfiniBand) {
    text += ", LID " + std::to_string(port.address.lid);
  }
  text += ", GID " + std::to_string(port.gid_index) + " " + to_string(port.address.gid) + ", on " +
          to_string(port.address.subnet) + ", MTU " + std::to_string(mtu_bytes(port.address.mtu)) + ", " +
          std::to_string(port.bandwidth) + " Mbit/s";
  return text;
}

}  // namespace fabric::doctor
