// SPDX-License-Identifier: BSD-3-Clause
//
// A folder for a test's files, which goes with them.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "test/unit/check_main.h"

namespace fabric::test {

class TestFolder {
 public:
  TestFolder() { ck_assert_ptr_nonnull(mkdtemp(name_)); }
  ~TestFolder() {
    (void)unlink(file("a").c_str());
    (void)unlink(file("b").c_str());
    (void)rmdir(name_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  /// The path of a file that is called `name`: a or b.
  [[nodiscard]] std::string file(const char* name) const { return std::string(name_) + "/" + name; }

 private:
  char name_[32] = "/tmp/btl_fabric.XXXXXX";
};

}  // namespace fabric::test
