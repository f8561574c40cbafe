// SPDX-License-Identifier: BSD-3-Clause
// Small things of an id: options, port numbers, ECE, events that users write themselves; and multicast, which there is
// none of.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "cm/address.h"
#include "cm/identifier.h"
#include "cm/listeners.h"

namespace softhca::cm {
namespace {

template <typename T>
bool option(const void* value, size_t length, T* out) {
  if (value == nullptr || length != sizeof(T)) return false;
  std::memcpy(out, value, sizeof(T));
  return true;
}

void set_flag(Id& id, uint16_t flag, bool on) {
  id.listen_flags = static_cast<uint16_t>(on ? id.listen_flags | flag : id.listen_flags & ~flag);
}

int set_id_option(Id& id, int name, const void* value, size_t length) {
  int number = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      return option(value, length, &id.tos) ? 0 : EINVAL;
    case RDMA_OPTION_ID_REUSEADDR:
      if (!option(value, length, &number) || id.state != State::Idle) return EINVAL;
      set_flag(id, kListenReuse, number != 0);
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (!option(value, length, &number) || id.state != State::Idle) return EINVAL;
      set_flag(id, kListenAfOnly, number != 0);
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      uint8_t timeout = 0;
      if (!option(value, length, &timeout) || timeout > 31) return EINVAL;
      if (id.qp_type != IBV_QPT_RC && id.qp_type != IBV_QPT_XRC_SEND) return EINVAL;
      id.ack_timeout = timeout;
      return 0;
    }
    default:
      return ENOSYS;
  }
}

// A path of the user's instead of rdma_resolve_route. There is only one, so only its form is looked at.
int set_ib_path(Id& id, const void* value, size_t length) {
  if (value == nullptr || length == 0 || length % sizeof(ibv_path_data) != 0) return EINVAL;
  return resolve_route(id, 0);
}

}  // namespace
}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  return api("rdma_set_option", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    Id& self = *Id::of(id);
    if (level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH) {
      const int error = set_ib_path(self, optval, optlen);
      return error != 0 ? error : complete(self);
    }
    if (level != RDMA_OPTION_ID) return ENOSYS;
    Lock lock(manager().mutex);
    return set_id_option(self, optname, optval, optlen);
  });
}

SOFTHCA_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) {
  return htons(port_number(&id->route.addr.src_addr));
}
SOFTHCA_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) {
  return htons(port_number(&id->route.addr.dst_addr));
}

// Inline functions of rdma_cma.h that were symbols of librdmacm before.
extern "C" __attribute__((visibility("default"))) sockaddr* softhca_local_addr(rdma_cm_id* id) __asm__(
    "rdma_get_local_addr");
extern "C" __attribute__((visibility("default"))) sockaddr* softhca_peer_addr(rdma_cm_id* id) __asm__(
    "rdma_get_peer_addr");
sockaddr* softhca_local_addr(rdma_cm_id* id) {
  return &id->route.addr.src_addr;
}
sockaddr* softhca_peer_addr(rdma_cm_id* id) {
  return &id->route.addr.dst_addr;
}

SOFTHCA_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  return api("rdma_set_local_ece", id, [&]() -> int {
    if (id == nullptr || id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0)
      return EINVAL;
    Id::of(id)->local_ece = *ece;
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  return api("rdma_get_remote_ece", id, [&]() -> int {
    if (id == nullptr || id->qp != nullptr || ece == nullptr) return EINVAL;
    *ece = {};
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg) {
  return api("rdma_write_cm_event", id, [&]() -> int {
    if (id == nullptr || event != kUserEvent) return EINVAL;
    Lock lock(manager().mutex);
    auto written = make_event(*Id::of(id), event, status);
    std::memcpy(&written->param, &arg, sizeof arg);  // rdma_cm_event::param.arg
    push(std::move(written));
    return 0;
  });
}
