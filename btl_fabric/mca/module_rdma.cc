// SPDX-License-Identifier: BSD-3-Clause
//
// What a module can do with RDMA, and the way to ourselves.
#include <algorithm>
#include <cstring>

#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"

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
  constexpr std::uint64_t kMost = 1U << 30;  // what fits a work request's length, and pins no more than that at once
  ibv_port_attr attributes{};
  max_message_ = kMost;
  if (ibv_query_port(port_.device->context.get(), port_.port_num, &attributes) == 0 && attributes.max_msg_sz > 0) {
    max_message_ = std::min<std::uint64_t>(kMost, attributes.max_msg_sz);
  }
  // Open MPI 4.1's osc/rdma, when all processes of a window are on one host, mixes our atomics with the processor's: a
  // compare and swap of a process on its own memory is then its own.
  const int wanted = params().device_atomics;
  atomics_by_device_ = has_atomics() && (wanted == 1 || (wanted < 0 && !is_on_one_host()));
  cache_.set_atomics_by_device(atomics_by_device_);
}

Endpoint* Module::self_endpoint(opal_proc_t* self) {
  return has_btl_self() ? endpoints_.self_endpoint(self) : nullptr;
}

}  // namespace fabric
