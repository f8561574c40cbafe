// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/address_handle.h"

#include <arpa/inet.h>

#include <cstring>

#include "device/port.h"
#include "verbs/call.h"

namespace softhca {
namespace {

// Where RoCE v2 over IPv4 has its IP header: the global header's last 20 bytes.
constexpr size_t kIpv4InGrh = 20;

// The addresses in the header that came with a datagram, as GIDs.
void addresses_in(const ibv_grh& grh, ibv_gid* from, ibv_gid* to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&grh);
  if (bytes[0] >> 4 == 6) {
    *from = grh.sgid;
    *to = grh.dgid;
    return;
  }
  const uint8_t* ip = bytes + kIpv4InGrh;
  for (ibv_gid* gid : {from, to}) {
    std::memset(gid, 0, sizeof *gid);
    gid->raw[10] = gid->raw[11] = 0xff;
    std::memcpy(gid->raw + 12, ip + (gid == from ? 12 : 16), 4);
  }
}

}  // namespace

int check_address(Fabric& fabric, const ibv_ah_attr& ah) {
  const bool needs_grh = fabric.config().personality != Personality::Ib;
  if (!valid_port(ah.port_num) || ah.sl > 15) return EINVAL;
  if (!needs_grh && ah.src_path_bits >> fabric.config().lmc != 0) return EINVAL;
  if (needs_grh && ah.is_global == 0) return EINVAL;
  if (ah.is_global != 0 && ah.grh.sgid_index >= gid_count(fabric.config())) return EINVAL;
  return 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Context& context = *Context::of(pd->context);
  if (const int error = cannot_use(context)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_create_ah")) return fail(error);
  if (is_iwarp()) return fail(EOPNOTSUPP);
  Fabric& fabric = *Fabric::get();
  if (const int error = check_address(fabric, *attr)) return fail(error);
  auto ah = make<Ah>();
  if (ah == nullptr) return fail(ENOMEM);
  ah->context = pd->context;
  ah->pd = pd;
  ah->attr = *attr;
  ah->port_id = port_id_on(context, attr->port_num);
  ah->dest_port_id = resolve(fabric, ah->port_id, *attr);
  static_cast<Pd*>(pd)->users.fetch_add(1);
  return ah.release();
}

SOFTHCA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  if (const int error = in_child(ah->context)) return error;
  static_cast<Pd*>(ah->pd)->users.fetch_sub(1);
  delete static_cast<Ah*>(ah);
  return 0;
}

SOFTHCA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attr) {
  const auto refuse = [](int error) {
    errno = error;
    return -1;
  };
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return refuse(error);
  if (!valid_port(port_num)) return refuse(EINVAL);
  Fabric& fabric = *Fabric::get();
  *attr = ibv_ah_attr{};
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port_num;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;

  attr->is_global = 1;
  ibv_gid to{};
  addresses_in(*grh, &attr->grh.dgid, &to);
  const uint32_t version_tclass_flow = ntohl(grh->version_tclass_flow);
  attr->grh.flow_label = version_tclass_flow & 0xfffff;
  attr->grh.traffic_class = static_cast<uint8_t>(version_tclass_flow >> 20);
  attr->grh.hop_limit = 0xff;
  // The last match: of two GIDs with the same address the later is RoCE v2.
  int found = -1;
  for (unsigned i = 0; i < gid_count(fabric.config()); ++i) {
    ibv_gid gid{};
    if (gid_at(fabric, port_id_on(owner, port_num), i, &gid) && std::memcmp(&gid, &to, sizeof to) == 0)
      found = static_cast<int>(i);
  }
  if (found < 0) return refuse(EINVAL);
  attr->grh.sgid_index = static_cast<uint8_t>(found);
  return 0;
}

SOFTHCA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  ibv_ah_attr attr{};
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}
