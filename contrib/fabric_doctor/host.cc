// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/host.h"

#include <infiniband/verbs.h>

#include <memory>
#include <utility>

#include "common/base/verbs_handle.h"

namespace fabric::doctor {

std::vector<std::string> verbs_devices() {
  int count = 0;
  const std::unique_ptr<ibv_device*, VerbsDeleter<ibv_free_device_list>> list(ibv_get_device_list(&count));
  std::vector<std::string> names;
  for (int i = 0; list && i < count; ++i) {
    names.emplace_back(ibv_get_device_name(list.get()[i]));
  }
  return names;
}

Host look_at_host(const JobShape& job) {
  Host host;
  host.job = job;
  host.open_mpi = ask_open_mpi();
  host.parameters = Parameters::of(host.open_mpi);
  host.scan = scan_ports(host.parameters.port_choice());
  return host;
}

}  // namespace fabric::doctor
