// SPDX-License-Identifier: BSD-3-Clause
//
// Lets a model checker explore, and judges what it says: for the tests of the models.
#pragma once

#include <check.h>

#include <cstdio>
#include <string>

namespace fabric::test {

/// Explores what `options` allow. It must find a fault if `has_fault`, and none otherwise.
template <class Explorer, class Options>
void check_model(const std::string& what, const Options& options, bool has_fault) {
  Explorer explorer(options);
  const auto fault = explorer.explore();
  std::printf("%s: %zu states, %s\n", what.c_str(), explorer.states(), fault ? fault->c_str() : "no fault");
  ck_assert_msg(fault.has_value() == has_fault, "%s: %s", what.c_str(), fault ? fault->c_str() : "was not found");
}

}  // namespace fabric::test
