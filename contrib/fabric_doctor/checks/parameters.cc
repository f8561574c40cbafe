// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {

Findings check_parameters(const Host& host) {
  const Parameters& parameters = host.parameters;
  Findings findings;
  for (const std::string& wrong : parameters.wrong()) {
    findings.push_back(fail(wrong, "correct it or leave it out; ompi_info --param btl fabric --level 9 lists all"));
  }
  if (findings.empty()) {
    std::string all;
    for (const std::string& one : parameters.set()) {
      all += (all.empty() ? "" : ", ") + one;
    }
    findings.push_back(ok(all.empty() ? "none of btl_fabric is set" : all));
  }
  return findings;
}

}  // namespace fabric::doctor
