// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric_top: what Open MPI sends to each peer is counted where it comes in, by functions in front of the others. Without the
// parameter they are not there, and nothing costs anything.
#pragma once

#include "btl_fabric/base/opal.h"

namespace fabric {

struct PeerTraffic;

class CountedCalls {
 public:
  /// Puts them in front of the functions of a module, which all modules have alike. Once for each, before Open MPI knows it.
  static void put_before(mca_btl_base_module_t& module) noexcept;

 private:
  struct Send;
  struct Rdma;
  [[nodiscard]] static PeerTraffic* traffic_to(mca_btl_base_endpoint_t* endpoint) noexcept;
};

}  // namespace fabric
