// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/parameter_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fabric::doctor {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::vector<FileLine>::iterator find(std::vector<FileLine>& lines, const std::string& name) {
  return std::find_if(lines.begin(), lines.end(), [&name](const FileLine& one) { return one.name == name; });
}

std::vector<FileLine> read_file(const std::string& file) {
  std::vector<FileLine> lines;
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) {
    return lines;  // others, like a FIFO, may keep us waiting
  }
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    const std::size_t equals = text.find('=');
    const std::string name = trimmed(text.substr(0, equals));
    if (equals == std::string::npos || name.empty() || name.front() == '#') {
      continue;
    }
    FileLine line{name, trimmed(text.substr(equals + 1)), file};
    if (const auto known = find(lines, name); known != lines.end()) {
      *known = std::move(line);
    } else {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace

std::vector<FileLine> read_parameter_files(const std::string& files) {
  std::vector<FileLine> all;
  std::istringstream names(files);
  for (std::string file; std::getline(names, file, ',');) {
    for (FileLine& line : read_file(file)) {
      if (find(all, line.name) == all.end()) {
        all.push_back(std::move(line));
      }
    }
  }
  return all;
}

}  // namespace fabric::doctor
