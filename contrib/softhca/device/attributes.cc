// SPDX-License-Identifier: BSD-3-Clause
#include "device/attributes.h"

#include <endian.h>

#include <cstring>

#include "device/port.h"

namespace softhca {
namespace {

// Memory regions and windows have keys from one table, of which each process leaves out the beginning (verbs/memory_region.cc).
constexpr unsigned kKeys = kMrsPerSlot - 64 * 64;

int limit(unsigned configured, unsigned built_in) {
  return static_cast<int>(configured != 0 && configured < built_in ? configured : built_in);
}

// Every copy looks for its pages when it is made: whatever a QP can do, it can do with memory on demand.
void add_on_demand(ibv_device_attr_ex& a, const Config& config, unsigned device) {
  constexpr uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kReliable = kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  auto& transports = a.odp_caps.per_transport_caps;
  a.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  transports.rc_odp_caps = kReliable;
  if (config.personality == Personality::Iwarp) return;
  transports.rc_odp_caps |= IBV_ODP_SUPPORT_ATOMIC;
  transports.uc_odp_caps = kMessages | IBV_ODP_SUPPORT_WRITE;
  transports.ud_odp_caps = kMessages;
  if (has_xrc(config, device)) a.xrc_odp_caps = transports.rc_odp_caps;
}

}  // namespace

bool has_xrc(const Config& config, unsigned device) {
  return config.personality != Personality::Iwarp && device < config.xrc_devices;
}

ibv_device_attr device_attributes(const Config& config, unsigned node, unsigned device) {
  const bool iwarp = config.personality == Personality::Iwarp;
  ibv_device_attr a{};
  std::strcpy(a.fw_ver, "1.0");
  a.node_guid = a.sys_image_guid = htobe64(node_guid_of(node, device));
  a.max_mr_size = UINT64_MAX;
  a.page_size_cap = 0xfffff000;
  a.vendor_id = 0xffffff;                         // no vendor
  a.vendor_part_id = config.chaos_order ? 2 : 1;  // who polls memory must not take one for the other
  a.max_qp = limit(config.max_qps, kQpsPerSlot - 2);
  a.max_qp_wr = static_cast<int>(config.max_wr);
  a.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                       IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  if (!iwarp) a.device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
  if (has_xrc(config, device)) a.device_cap_flags |= IBV_DEVICE_XRC;
  a.max_sge = kMaxSge;
  a.max_sge_rd = iwarp ? 1 : kMaxSge;
  a.max_cq = limit(config.max_cqs, kCqsPerSlot - 1);
  a.max_cqe = static_cast<int>(config.max_cqe);
  a.max_mr = limit(config.max_mrs, kKeys);
  a.max_pd = 1 << 20;
  a.max_qp_rd_atom = a.max_qp_init_rd_atom = kMaxRdAtomic;
  a.max_res_rd_atom = static_cast<int>(kMaxRdAtomic) * a.max_qp;
  a.atomic_cap = iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA;
  a.max_mw = kKeys;
  a.max_ah = iwarp ? 0 : 1 << 20;
  a.max_srq = limit(config.max_srqs, kSrqsPerSlot - 1);
  a.max_srq_wr = static_cast<int>(config.max_wr);
  a.max_srq_sge = kMaxSge;
  a.max_mcast_grp = iwarp ? 0 : kMaxGroupMembers;
  a.max_mcast_qp_attach = a.max_total_mcast_qp_attach = a.max_mcast_grp;
  a.max_pkeys = static_cast<uint16_t>(pkey_count(config));
  a.local_ca_ack_delay = 15;
  a.phys_port_cnt = static_cast<uint8_t>(config.ports);
  return a;
}

ibv_device_attr_ex device_attributes_ex(const Config& config, unsigned node, unsigned device) {
  ibv_device_attr_ex a{};
  a.orig_attr = device_attributes(config, node, device);
  a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
  a.completion_timestamp_mask = UINT64_MAX;
  a.hca_core_clock = 1'000'000;  // kHz: the clock counts nanoseconds
  a.phys_port_cnt_ex = config.ports;
  a.max_dm_size = kDeviceMemoryBytes;
  if (config.odp) add_on_demand(a, config, device);
  return a;
}

ibv_port_attr port_attributes(Fabric& fabric, uint32_t port_id) {
  constexpr uint8_t kLinkUp = 5, kDisabled = 3, kWidth4x = 2, kSpeedEdr = 32;
  const Config& config = fabric.config();
  const bool ib = config.personality == Personality::Ib;
  const bool up = port_up(fabric, port_id);
  ibv_port_attr a{};
  a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  a.phys_state = up ? kLinkUp : kDisabled;
  a.max_mtu = a.active_mtu = IBV_MTU_4096;
  a.gid_tbl_len = static_cast<int>(gid_table_length(config));
  a.pkey_tbl_len = static_cast<uint16_t>(pkey_count(config));
  a.max_msg_sz = config.max_message;
  a.lid = lid_of(fabric, port_id);
  a.max_vl_num = 1;
  a.active_width = kWidth4x;
  a.active_speed = kSpeedEdr;
  a.link_layer = ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  if (ib) {
    a.lmc = static_cast<uint8_t>(config.lmc);
    const uint64_t sm_lid = config.sm_lid.at(port_id);
    a.sm_lid = static_cast<uint16_t>(sm_lid != 0 ? sm_lid : 1);
    a.subnet_timeout = 18;
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP;
  }
  if (config.personality == Personality::Roce) {
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.flags = IBV_QPF_GRH_REQUIRED;
  }
  return a;
}

ibv_node_type node_type_of(Personality personality) {
  return personality == Personality::Iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
}
ibv_transport_type transport_type_of(Personality personality) {
  return personality == Personality::Iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
}

}  // namespace softhca
