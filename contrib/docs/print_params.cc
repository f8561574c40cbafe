// SPDX-License-Identifier: BSD-3-Clause
//
// Prints the parameter table of the README from the table that declares the parameters. contrib/docs/update-readme puts
// it there.
#include <cstdio>

#include "btl_fabric/param_table.h"

namespace {

using fabric::ParamSpec;

std::string range_of(const ParamSpec& spec) {
  if (spec.number == nullptr) {
    return "text";
  }
  if (spec.max == fabric::kNoLimit) {
    return std::to_string(spec.min) + " or more";
  }
  return std::to_string(spec.min) + " to " + std::to_string(spec.max);
}

std::string default_of(const ParamSpec& spec) {
  if (spec.number != nullptr) {
    return std::to_string(spec.default_number);
  }
  return spec.default_text == nullptr ? "" : "`" + std::string(spec.default_text) + "`";
}

}  // namespace

int main() {
  std::puts("| parameter `btl_fabric_...` | default | values | level | what it does |");
  std::puts("|---|---|---|---|---|");
  for (const ParamSpec& spec : fabric::kParamTable) {
    std::printf("| `%s` | %s | %s | %d | %s |\n", spec.name, default_of(spec).c_str(), range_of(spec).c_str(),
                spec.level, spec.help);
  }
}
