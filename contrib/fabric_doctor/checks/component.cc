// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {

Findings check_component(const Host& host) {
  const OpenMpiView& view = host.open_mpi;
  const std::string open_mpi = view.version.empty() ? "" : ", Open MPI " + view.version;
  if (!view.load_error.empty()) {
    return {fail((view.component.empty() ? "mca_btl_fabric.so" : view.component) +
                     " cannot be loaded: " + view.load_error + open_mpi,
                 "build btl_fabric again where the ompi_info in PATH is that of this Open MPI; a component is for one "
                 "series, 4.1 or 5.0")};
  }
  if (view.failure.empty() && view.component.empty()) {
    std::string folders;
    for (const std::string& folder : view.folders) {
      folders += (folders.empty() ? "" : ", ") + folder;
    }
    return {
        fail("mca_btl_fabric.so is in none of the folders where Open MPI looks: " + folders,
             "make install; or put its folder into the parameter mca_base_component_path; on Debian 13 put a link to "
             "it into PMIx's folder (README.md, \"Install it\")")};
  }
  if (view.component.empty()) {
    return {warn("not known: " + view.failure, "see selection")};
  }
  if (view.component_version != FABRIC_VERSION) {
    return {warn(view.component + ", version " + view.component_version + ", but fabric_doctor is " + FABRIC_VERSION,
                 "install both from one source")};
  }
  return {ok(view.component + ", version " + view.component_version + open_mpi)};
}

}  // namespace fabric::doctor
