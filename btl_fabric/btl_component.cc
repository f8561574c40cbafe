// SPDX-License-Identifier: BSD-3-Clause
//
// The one symbol that this library exports, and what Open MPI calls the component by.
#include "btl_fabric/component.h"
#include "btl_fabric/counters.h"
#include "btl_fabric/opal.h"
#include "btl_fabric/params.h"
#include "btl_fabric/report.h"

extern "C" {

[[gnu::visibility("default")]] extern mca_btl_base_component_t mca_btl_fabric_component;

static int fabric_register() noexcept {
  opal_show_help_add_dir(FABRIC_DATA_DIR);
  fabric::register_params(&mca_btl_fabric_component.btl_version);
  fabric::register_counters(&mca_btl_fabric_component.btl_version);
  return OPAL_SUCCESS;
}

static int fabric_open() noexcept {
  return OPAL_SUCCESS;
}

static int fabric_progress() noexcept {
  return fabric::Component::started() ? fabric::Component::get().progress() : 0;
}

static int fabric_close() noexcept {
  opal_progress_unregister(fabric_progress);
  fabric::Component::stop();
  return OPAL_SUCCESS;
}

/// Gives Open MPI the modules; null if this process cannot use the component. Open MPI frees the array.
static mca_btl_base_module_t** fabric_init(int* count, bool /*progress_threads*/, bool /*mpi_threads*/) noexcept {
  *count = 0;
  try {
    if (auto started = fabric::Component::start(mca_btl_fabric_component); !started) {
      fabric::report_start_failure(started.error());
      return nullptr;
    }
    const auto& modules = fabric::Component::get().modules();
    auto** list = static_cast<mca_btl_base_module_t**>(calloc(modules.size(), sizeof(mca_btl_base_module_t*)));
    if (list == nullptr) {
      fabric::Component::stop();
      return nullptr;
    }
    // Open MPI would do so when the first peer is reached; but a peer may connect to us before that.
    opal_progress_register(fabric_progress);
    for (const auto& module : modules) {
      list[(*count)++] = module.get();
    }
    return list;
  } catch (...) {
    fabric::report_start_failure({"there is not enough memory", false});
    fabric::Component::stop();
    return nullptr;
  }
}

mca_btl_base_component_t mca_btl_fabric_component = {
    .btl_version =
        {
            MCA_BTL_DEFAULT_VERSION("fabric"),
            .mca_open_component = fabric_open,
            .mca_close_component = fabric_close,
            .mca_query_component = nullptr,
            .mca_register_component_params = fabric_register,
            .mca_component_flags = 0,
            .reserved = {},
        },
    .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE, .reserved = {}},
    .btl_init = fabric_init,
    .btl_progress = fabric_progress,
};

}  // extern "C"
