// SPDX-License-Identifier: BSD-3-Clause
//
// The one symbol that this library exports, and what Open MPI calls the component by.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/base/pmix_waits.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/first_to_say.h"
#include "btl_fabric/mca/rdma.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/mca/spare_descriptor.h"

extern "C" {

[[gnu::visibility("default")]] extern mca_btl_base_component_t mca_btl_fabric_component;

/// "4.1" of "4.1.4": what must be the same for Open MPI and a component to fit together.
static constexpr std::string_view series_of(std::string_view version) noexcept {
  return version.substr(0, version.find('.', version.find('.') + 1));
}
static_assert(series_of("4.1.4") == "4.1" && series_of("5.0.7rc1") == "5.0" && series_of("6.0") == "6.0");
static_assert(series_of("somebody's own") == "somebody's own");  // Open MPI can be configured to say anything

/// A number of our own version, "0.1.0", for ompi_info.
static constexpr int part_of_version(int index) noexcept {
  int number = 0;
  for (const char c : std::string_view(FABRIC_VERSION)) {
    if (c == '.') {
      --index;
    } else if (index == 0) {
      number = 10 * number + (c - '0');
    }
  }
  return number;
}

/// Open MPI loads any component that it finds, whatever it was built for, and would crash with this one: the layouts of
/// nearly all structures differ between series. So nothing of Open MPI is used before this but the text of its version.
static bool fits_this_open_mpi() noexcept {
  if (series_of(opal_version_string) == series_of(OPAL_IDENT_STRING)) {
    return true;
  }
  const char* local_rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  if (local_rank == nullptr || std::string_view(local_rank) == "0") {  // one process of a host says it for all
    Dl_info self{};
    const bool known = dladdr(&mca_btl_fabric_component, &self) != 0;
    std::fprintf(stderr, "btl_fabric: %s was built for Open MPI %s, but this is Open MPI %s: not used\n",
                 known ? self.dli_fname : "this component", OPAL_IDENT_STRING, opal_version_string);
  }
  return false;
}

static int fabric_register() noexcept {
  if (!fits_this_open_mpi()) {
    return OPAL_ERR_NOT_AVAILABLE;
  }
  fabric::find_help_file(FABRIC_DATA_DIR);
  mca_btl_base_module_t offered{};
  fabric::offer_rdma(offered);
  fabric::register_params(&mca_btl_fabric_component.btl_version, offered);
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
  fabric::leave_pmix_waits();
  opal_progress_unregister(fabric_progress);
  fabric::Component::stop();
  fabric::drop_spare_descriptor();
  return OPAL_SUCCESS;
}

/// What fabric_init() returns then.
static mca_btl_base_module_t** no_modules() noexcept {
  fabric::Component::stop();
  fabric::drop_spare_descriptor();
  return nullptr;
}

/// Gives Open MPI the modules; null if this process cannot use the component. Open MPI frees the array.
static mca_btl_base_module_t** fabric_init(int* count, bool /*progress_threads*/, bool /*mpi_threads*/) noexcept {
  *count = 0;
  fabric::share_said_list(opal_process_info.job_session_dir);
  fabric::keep_spare_descriptor();
  try {
    if (auto started = fabric::Component::start(mca_btl_fabric_component); !started) {
      fabric::report_start_failure(started.error().reason.c_str(), started.error().is_bad_parameter);
      return no_modules();
    }
    const fabric::Component& component = fabric::Component::get();
    auto** list = static_cast<mca_btl_base_module_t**>(calloc(component.ports(), sizeof(mca_btl_base_module_t*)));
    if (list == nullptr) {
      return no_modules();
    }
    // Open MPI would do so when the first peer is reached; but a peer may connect to us before that.
    opal_progress_register(fabric_progress);
    fabric::progress_while_pmix_waits();
    for (std::size_t i = 0; i < component.ports(); ++i) {
      list[(*count)++] = &component.port(i);
    }
    return list;
  } catch (...) {
    fabric::report_start_failure("there is not enough memory", false);
    return no_modules();
  }
}

mca_btl_base_component_t mca_btl_fabric_component = {
    .btl_version =
        {
            FABRIC_BTL_INTERFACE,
            .mca_component_name = "fabric",
            MCA_BASE_MAKE_VERSION(component, part_of_version(0), part_of_version(1), part_of_version(2)),
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
