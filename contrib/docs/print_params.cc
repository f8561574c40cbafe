// SPDX-License-Identifier: BSD-3-Clause
//
// Prints the parameter table of the README from the table that declares the parameters, or, given "counters", the table of
// counters from theirs. contrib/docs/update-readme puts
// it there.
#include <cstdio>
#include <string_view>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/param_table.h"
#include "contrib/docs/param_text.h"

namespace {

std::string default_of(const fabric::ParamSpec& spec) {
  const std::string text = fabric::docs::default_of(spec);
  return spec.number != nullptr || text.empty() ? text : "`" + text + "`";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "counters") {
    std::puts("| counter `btl_fabric_...` | what it counts |");
    std::puts("|---|---|");
    for (const fabric::CounterSpec& spec : fabric::kCounterTable) {
      std::printf("| `%s` | %s |\n", spec.name, spec.help);
    }
    std::puts("");
    std::puts("| level `btl_fabric_...` | what it tells |");
    std::puts("|---|---|");
    for (const fabric::LevelSpec& spec : fabric::kLevelTable) {
      std::printf("| `%s` | %s |\n", spec.name, spec.help);
    }
    return 0;
  }
  std::puts("| parameter `btl_fabric_...` | default | values | level | what it does |");
  std::puts("|---|---|---|---|---|");
  for (const fabric::ParamSpec& spec : fabric::kParamTable) {
    std::printf("| `%s` | %s | %s | %d | %s |\n", spec.name, default_of(spec).c_str(),
                fabric::docs::range_of(spec).c_str(), spec.level, spec.help);
  }
}
