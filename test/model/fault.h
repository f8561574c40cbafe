// SPDX-License-Identifier: BSD-3-Clause
//
// What is found to be wrong in a world: the first thing, for the rest may follow from it.
#pragma once

#include <string>
#include <utility>

namespace fabric::model {

class Fault {
 public:
  void add(std::string text) {
    if (text_.empty()) {
      text_ = std::move(text);
    }
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

}  // namespace fabric::model
