// SPDX-License-Identifier: BSD-3-Clause
//
// librdmacm's objects with owners, its events as values, and its addresses.
#pragma once

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/ports/gid_choice.h"
#include "common/ports/process_info.h"

namespace fabric::cpc {

struct CmIdDeleter {
  /// Waits for events of the id that are read but not acknowledged: there are none, since all are acknowledged as they
  /// are read.
  void operator()(rdma_cm_id* id) const noexcept { rdma_destroy_id(id); }
};
using CmId = std::unique_ptr<rdma_cm_id, CmIdDeleter>;

struct CmEventChannelDeleter {
  void operator()(rdma_event_channel* channel) const noexcept { rdma_destroy_event_channel(channel); }
};
using CmEventChannel = std::unique_ptr<rdma_event_channel, CmEventChannelDeleter>;

/// An event, already acknowledged.
struct CmEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;    ///< of CONNECT_REQUEST: a new one, the receiver's to own
  std::uint32_t peer_qpn = 0;  ///< InfiniBand and RoCE: of REQ and REP
  std::uint8_t private_size = 0;
  std::array<std::byte, 255> private_bytes{};  ///< no vector: nothing may throw before the event is acknowledged

  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return std::span(private_bytes).first(private_size);
  }
};

/// What the context of every id points to.
class CmEventHandler {
 public:
  /// May destroy the handler.
  virtual void on_event(const CmEvent& event) = 0;

 protected:
  ~CmEventHandler() = default;
};

/// "RDMA_CM_EVENT_ADDR_ERROR: No route to host (-113)"
[[nodiscard]] std::string describe(const CmEvent& event);

/// A socket address of either family.
struct CmSocketAddress {
  sockaddr_storage storage{};
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};

/// For rdmacm: an IP address (IPv4 ones IPv4-mapped) and a port number. `scope`: index of the interface that a
/// link-local address is used on.
[[nodiscard]] CmSocketAddress ip_address(const std::array<std::uint8_t, 16>& address, std::uint16_t port,
                                         std::uint32_t scope) noexcept;

/// For ibcm: a GID, a partition key and a service id (0: any).
[[nodiscard]] CmSocketAddress ib_address(const std::array<std::uint8_t, 16>& gid, std::uint16_t pkey,
                                         std::uint64_t service) noexcept;

}  // namespace fabric::cpc
