// SPDX-License-Identifier: BSD-3-Clause
//
// Devices that are made of software, where to send a message takes the processor that sends it a microsecond and more.
#pragma once

#include <cstdint>

namespace fabric {

/// The kernel's siw.
[[nodiscard]] constexpr bool is_soft_iwarp(std::uint32_t vendor_id) noexcept {
  constexpr std::uint32_t kSiw = 0x626d74;
  return vendor_id == kSiw;
}

/// By ibv_device_attr::vendor_id. Sources: Linux 6.1, drivers/infiniband/sw, rxe/rxe_param.h (RXE_VENDOR_ID, also softhca's) and
/// siw/siw.h (SIW_VENDOR_ID).
[[nodiscard]] constexpr bool is_software_device(std::uint32_t vendor_id) noexcept {
  constexpr std::uint32_t kRxe = 0xffffff;
  return vendor_id == kRxe || is_soft_iwarp(vendor_id);
}

}  // namespace fabric
