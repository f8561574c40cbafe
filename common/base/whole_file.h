// SPDX-License-Identifier: BSD-3-Clause
//
// Files that readers find whole, or as they were before.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "common/base/result.h"

namespace fabric {

/// Replaces `path` by a file with this text. If that fails, what was there stays.
[[nodiscard]] inline Status write_whole_file(const std::string& path, const std::string& text) {
  const std::string draft = path + '.' + std::to_string(getpid());
  std::ofstream file(draft);
  file << text;
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    (void)std::remove(draft.c_str());
    return failure(path + " cannot be written");
  }
  return {};
}

}  // namespace fabric
