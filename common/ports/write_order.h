// SPDX-License-Identifier: BSD-3-Clause
//
// Devices that are known to store the last byte of an RDMA write after all its others, so that a program may poll memory for
// it. No specification promises that: InfiniBand leaves the order within a message open (volume 1, section 9.5), and so does
// iWARP (RFC 5040, section 5.5). Drivers that know it of their adapters say so by ibv_query_qp_data_in_order(3); those of
// devices in software do not, and are listed here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace fabric {

struct WriteOrder {
  std::uint32_t vendor_id;  ///< ibv_device_attr's
  std::uint32_t vendor_part_id;
  bool is_fast;  ///< a message that is written and polled for takes no longer than one that is sent and received
  const char* source;
};

inline constexpr std::array kWriteOrders = {
    WriteOrder{
        0xffffff, 0, true,
        "soft RoCE, Linux 6.1, drivers/infiniband/sw/rxe: check_psn() takes the packets of a write in order, and "
        "rxe_mr_copy() copies each by memcpy(), which goes upwards. Processors may store the bytes of long copies in another "
        "order; of one of up to 256 bytes none was ever seen to be"},
    WriteOrder{
        0xffffff, 1, false,
        "softhca, contrib/softhca/transport/remote_memory.cc: the last byte is a copy of its own. A message goes through shared "
        "memory there, but a write takes a system call. Told to store the last byte first it has another part number"},
};

/// What is known of a device, or null.
[[nodiscard]] constexpr const WriteOrder* write_order(std::uint32_t vendor_id, std::uint32_t vendor_part_id) noexcept {
  const auto* const found = std::find_if(kWriteOrders.begin(), kWriteOrders.end(), [&](const WriteOrder& one) {
    return one.vendor_id == vendor_id && one.vendor_part_id == vendor_part_id;
  });
  return found != kWriteOrders.end() ? found : nullptr;
}

}  // namespace fabric
