// SPDX-License-Identifier: BSD-3-Clause
//
// The parameters, as connection methods ask for theirs.
#pragma once

#include <cassert>
#include <string_view>

#include "btl_fabric/base/param_table.h"
#include "cpc/core/cpc_interface.h"

namespace fabric {

/// Looks values up by name. A name that the table lacks is a programming error, which test_param_table finds.
class ParamReader final : public cpc::CpcParameters {
 public:
  /// `values` outlives this.
  explicit ParamReader(const Params& values) : values_(values) {}

  [[nodiscard]] int number(std::string_view name) const override {
    const ParamSpec* const spec = find(name);
    assert(spec != nullptr && spec->number != nullptr);
    return spec == nullptr ? 0 : values_.*spec->number;
  }
  [[nodiscard]] const char* text(std::string_view name) const override {
    const ParamSpec* const spec = find(name);
    assert(spec != nullptr && spec->text != nullptr);
    return spec == nullptr ? nullptr : values_.*spec->text;
  }

  /// Null if there is none.
  [[nodiscard]] static const ParamSpec* find(std::string_view name) noexcept {
    for (const ParamSpec& spec : kParamTable) {
      if (name == spec.name) {
        return &spec;
      }
    }
    return nullptr;
  }

 private:
  const Params& values_;
};

}  // namespace fabric
