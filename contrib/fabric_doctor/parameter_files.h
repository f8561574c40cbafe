// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI's files of parameters. It tells nobody of lines whose names no component has registered.
#pragma once

#include <string>
#include <vector>

namespace fabric::doctor {

/// A line NAME = VALUE.
struct FileLine {
  std::string name;
  std::string value;
  std::string file;  ///< that has it
};

/// What these files set, whose names commas separate, as in mca_base_param_files: of each parameter the last line of the first
/// file that has one, as Open MPI does it. What is no file that can be read is passed over.
[[nodiscard]] std::vector<FileLine> read_parameter_files(const std::string& files);

}  // namespace fabric::doctor
