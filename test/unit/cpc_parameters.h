// SPDX-License-Identifier: BSD-3-Clause
//
// The parameters of connection methods, as the component has them by default or as a test sets them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "btl_fabric/base/param_reader.h"
#include "cpc/registry/registry.h"
#include "test/unit/check_main.h"

namespace fabric::test {

class CpcOptions final : public cpc::CpcParameters {
 public:
  void set(std::string_view name, int value) { numbers_[name_of(name)] = value; }
  void set(std::string_view name, std::string value) { texts_[name_of(name)] = std::move(value); }

  [[nodiscard]] int number(std::string_view name) const override {
    const auto set = numbers_.find(name_of(name));
    return set != numbers_.end() ? set->second : ParamReader::find(name)->default_number;
  }
  [[nodiscard]] const char* text(std::string_view name) const override {
    const auto set = texts_.find(name_of(name));
    return set != texts_.end() ? set->second.c_str() : ParamReader::find(name)->default_text;
  }

  /// Every registered method, with these parameters.
  [[nodiscard]] std::vector<std::unique_ptr<cpc::Cpc>> make() const {
    auto made = cpc::make_cpcs(*this);
    ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().text.c_str());
    return std::move(*made);
  }

 private:
  static std::string name_of(std::string_view name) {
    ck_assert_msg(ParamReader::find(name) != nullptr, "there is no parameter %s", std::string(name).c_str());
    return std::string(name);
  }

  std::map<std::string, int> numbers_;
  std::map<std::string, std::string> texts_;
};

}  // namespace fabric::test
