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

/// The kernel's rxe, or softhca, which has its number.
[[nodiscard]] constexpr bool is_soft_roce(std::uint32_t vendor_id) noexcept {
  constexpr std::uint32_t kRxe = 0xffffff;
  return vendor_id == kRxe;
}

/// By ibv_device_attr::vendor_id. Sources: Linux 6.1, drivers/infiniband/sw, rxe/rxe_param.h (RXE_VENDOR_ID) and siw/siw.h
/// (SIW_VENDOR_ID).
[[nodiscard]] constexpr bool is_software_device(std::uint32_t vendor_id) noexcept {
  return is_soft_roce(vendor_id) || is_soft_iwarp(vendor_id);
}

/// Times that the device sends a packet again before the connection fails, if `wanted` (0 to 7) are asked for. Soft RoCE takes 7 for
/// "for ever", and would never notice that a peer is gone. Source: Linux 6.1, rxe/rxe_comp.c, COMPST_ERROR_RETRY.
[[nodiscard]] constexpr std::uint8_t finite_retries(std::uint32_t vendor_id, std::uint8_t wanted) noexcept {
  constexpr std::uint8_t kForEver = 7;
  return is_soft_roce(vendor_id) && wanted >= kForEver ? kForEver - 1 : wanted;
}

/// What is posted on a queue pair that has failed never completes there, so nobody knows when all has. Source: Linux 6.1,
/// siw/siw_verbs.c, siw_post_send(): only requests of the kernel's own are flushed.
[[nodiscard]] constexpr bool loses_requests(std::uint32_t vendor_id) noexcept {
  return is_soft_iwarp(vendor_id);
}

}  // namespace fabric
