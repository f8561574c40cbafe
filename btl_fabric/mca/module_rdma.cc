// SPDX-License-Identifier: BSD-3-Clause
//
// What a module can do with RDMA, by which protocols messages go, and the way to ourselves.
#include <algorithm>
#include <cstring>

#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"
#include "common/ports/device_probe.h"
#include "common/ports/software_device.h"

namespace fabric {

namespace {

/// True if Open MPI has another way for messages to ourselves.
bool has_btl_self() noexcept {
  for (opal_list_item_t* item = opal_list_get_first(&mca_btl_base_modules_initialized);
       item != opal_list_get_end(&mca_btl_base_modules_initialized); item = opal_list_get_next(item)) {
    const auto* selected = reinterpret_cast<const mca_btl_base_selected_module_t*>(item);
    if (std::strcmp(selected->btl_component->btl_version.mca_component_name, "self") == 0) {
      return true;
    }
  }
  return false;
}

/// True if all processes of the job are on this host.
bool is_on_one_host() noexcept {
  const std::uint32_t processes = job_size();
  return processes > 0 && std::int64_t{opal_process_info.num_local_peers} + 1 >= std::int64_t{processes};
}

/// True if requests can bind and invalidate windows, and the device makes one.
bool has_windows(const OpenDevice& device) noexcept {
  constexpr unsigned kType2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  const unsigned flags = device.attributes.device_cap_flags;
  if ((flags & kType2) == 0 || (flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) == 0) {
    return false;
  }
  ibv_mw* window = ibv_alloc_mw(device.pd.get(), IBV_MW_TYPE_2);
  return window != nullptr && ibv_dealloc_mw(window) == 0;
}

}  // namespace

std::uint32_t job_size() noexcept {
  opal_process_name_t whole_job = OPAL_PROC_MY_NAME;
  whole_job.vpid = OPAL_VPID_WILDCARD;
  std::uint32_t processes = 0;
  std::uint32_t* place = &processes;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, kJobSizeKey, &whole_job, &place, kJobSizeType);
  return rc == OPAL_SUCCESS ? processes : 0;
}

void Module::learn_rdma_limits() noexcept {
  ibv_port_attr attributes{};
  (void)ibv_query_port(port_.device->context.get(), port_.port_num, &attributes);
  max_message_ = longest_message(attributes);
  // Open MPI 4.1's osc/rdma, when all processes of a window are on one host, mixes our atomics with the processor's: a
  // compare and swap of a process on its own memory is then its own.
  const int wanted = params().device_atomics;
  atomics_by_device_ = has_atomics() && (wanted == 1 || (wanted < 0 && !is_on_one_host()));
  cache_.set_atomics_by_device(atomics_by_device_);
  reads_by_windows_ =
      port_.address.link == Transport::kIwarp && params().read_windows != 0 && has_windows(*port_.device);
  cache_.set_reads_by_windows(reads_by_windows_);
}

/// As many operations as a peer may have under way, each as large as there is one. What a process really registers at a time is
/// bounded by its part of the device's memory regions.
MrPoolHints Module::pool_hints() const noexcept {
  const auto processes = static_cast<std::uint32_t>(opal_process_info.num_local_peers) + 1;
  const auto windows = static_cast<std::uint32_t>(std::max(0, port_.device->attributes.max_mw));
  return {fit_.rdma_depth, max_message_, std::max(1U, windows / processes)};
}

void Module::choose_protocols(const LimitWishes& wishes) {
  const OpenDevice& device = *port_.device;
  const PortFacts facts{.link = port_.address.link,
                        .is_soft_iwarp = is_soft_iwarp(device.attributes.vendor_id),
                        .in_software = is_software_device(device.attributes.vendor_id),
                        .mtu = mtu_bytes(port_.address.mtu),
                        .mbit_per_second = port_.bandwidth,
                        .max_inline = device.max_inline,
                        .wanted_inline = kAutoInline,
                        .max_message = max_message_,
                        .largest_queue = fit_.queues.largest(),
                        .packet_header = PacketHeader::kSize,
                        .registration = cache_.cost()};
  limits_ = choose_limits(facts, wishes);
  set_limits(*this, limits_);
  const std::uint64_t in_place = limits_[Limit::kInPlace].value;
  in_place_size_ = in_place == 0 ? SIZE_MAX : in_place;
}

Endpoint* Module::self_endpoint(opal_proc_t* self) {
  return has_btl_self() ? endpoints_.self_endpoint(self) : nullptr;
}

}  // namespace fabric
