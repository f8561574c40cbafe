// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/cpc_traits.h"

#include <algorithm>
#include <string>

namespace fabric::cpc {

Result<CpcSet> parse_cpc_list(std::string_view list, std::span<const CpcTraits> known) {
  CpcSet set = 0;
  for (std::string_view rest = list;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const auto found = std::find_if(known.begin(), known.end(), [&](const CpcTraits& one) { return one.name == item; });
    if (found == known.end()) {
      std::string names;
      for (const CpcTraits& one : known) {
        names.append(names.empty() ? "" : &one == &known.back() ? " and " : ", ").append(one.name);
      }
      return failure("\"" + std::string(item) + "\" is no connection method: there are " + names);
    }
    set |= set_of(found->kind);
    if (comma == std::string_view::npos) {
      return set;
    }
    rest = rest.substr(comma + 1);
  }
}

}  // namespace fabric::cpc
