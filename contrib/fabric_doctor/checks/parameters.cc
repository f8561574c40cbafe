// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {

Findings check_parameters(const Host& host) {
  const Parameters& parameters = host.parameters;
  Findings findings;
  constexpr const char* kRemedy = "correct it or leave it out; ompi_info --param btl fabric --level 9 lists all";
  for (const std::string& unknown : parameters.unknown()) {
    findings.push_back(warn("btl_fabric has no parameter " + unknown, kRemedy));
  }
  for (const std::string& wrong : parameters.wrong()) {
    findings.push_back(fail(wrong, kRemedy));
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
