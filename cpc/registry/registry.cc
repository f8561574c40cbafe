// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/registry/registry.h"

#include <utility>

namespace fabric::cpc {

Result<std::vector<std::unique_ptr<Cpc>>> make_cpcs(const CpcParameters& parameters) {
  std::vector<std::unique_ptr<Cpc>> made;
  for (const CpcRegistration& one : kCpcs) {
    Result<std::unique_ptr<Cpc>> cpc = one.make(parameters);
    if (!cpc) {
      return tl::unexpected(std::move(cpc).error());
    }
    made.push_back(std::move(*cpc));
  }
  return made;
}

}  // namespace fabric::cpc
