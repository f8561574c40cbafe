// SPDX-License-Identifier: BSD-3-Clause
//
// What the checks of one host look at. Gathered once, by the process that runs them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ports/port_scan.h"
#include "contrib/fabric_doctor/open_mpi.h"
#include "contrib/fabric_doctor/parameters.h"

namespace fabric::doctor {

/// The job that the host is to take part in.
struct JobShape {
  std::int64_t hosts = 2;
  std::int64_t processes = 1;  ///< on each host
};

struct Host {
  OpenMpiView open_mpi;
  Parameters parameters;
  PortScan scan;  ///< as the component would make it with these parameters
  JobShape job;
};

/// The devices that verbs knows, whatever the parameters say.
[[nodiscard]] std::vector<std::string> verbs_devices();

/// Asks Open MPI, reads the parameters, and opens the devices.
[[nodiscard]] Host look_at_host(const JobShape& job);

}  // namespace fabric::doctor
