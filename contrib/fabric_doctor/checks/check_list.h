// SPDX-License-Identifier: BSD-3-Clause
//
// The checks of one host, in the order of the report. What each looks at is what the help and the manual page say of it. Each
// function is in a file of the check's name, and decides by what it is given alone, but for those that ask the kernel.
#pragma once

#include <array>
#include <string_view>

#include "contrib/fabric_doctor/finding.h"
#include "contrib/fabric_doctor/host.h"

namespace fabric::doctor {

/// Those that are wrong, or do not exist.
[[nodiscard]] Findings check_parameters(const Host& host);
[[nodiscard]] Findings check_devices(const Host& host);
[[nodiscard]] Findings check_kernel(const Host& host);
[[nodiscard]] Findings check_ports(const Host& host);
[[nodiscard]] Findings check_memlock(const Host& host);
[[nodiscard]] Findings check_fit(const Host& host);
[[nodiscard]] Findings check_component(const Host& host);
[[nodiscard]] Findings check_selection(const Host& host);

struct Check {
  std::string_view name;
  std::string_view looks_at;
  Findings (*run)(const Host&);
};

inline constexpr std::array kChecks = {
    Check{"parameters", "parameters of btl_fabric in files, environment and --mca: names and values", check_parameters},
    Check{"devices", "RDMA devices: are there any, can they be opened, and which does a parameter leave out",
          check_devices},
    Check{"kernel", "device nodes of the kernel's drivers, /dev/infiniband/uverbs* and rdma_cm", check_kernel},
    Check{"ports", "each port: state, link, GID and version of RoCE, IP address, MTU", check_ports},
    Check{"memlock", "the limit of locked memory of this process, and whether 32 MiB can be registered", check_memlock},
    Check{"fit", "queue pairs, completion queues and memory that the job takes (as fabric_info --fit)", check_fit},
    Check{"component", "mca_btl_fabric.so: is it where Open MPI looks, and does it load", check_component},
    Check{"selection", "the PML and the BTLs that Open MPI chooses, by a call of MPI_Init", check_selection},
};

}  // namespace fabric::doctor
