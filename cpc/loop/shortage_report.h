// SPDX-License-Identifier: BSD-3-Clause
//
// Tells once that this process is short of something, however many connections wait for it.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "common/base/error_text.h"

namespace fabric::cpc {

/// Progress thread only.
class ShortageReport {
 public:
  /// `tell`: see Shortage in cpc.h. May be empty.
  explicit ShortageReport(std::function<void(std::string reason)> tell) : tell_(std::move(tell)) {}

  /// `while_doing` failed with that errno value.
  void tell(const std::string& while_doing, int error_number) {
    if (auto tell = std::exchange(tell_, nullptr)) {
      tell(while_doing + ": " + describe_errno(error_number));
    }
  }

 private:
  std::function<void(std::string reason)> tell_;
};

}  // namespace fabric::cpc
