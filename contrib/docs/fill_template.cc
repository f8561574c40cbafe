// SPDX-License-Identifier: BSD-3-Clause
//
// Copies a template from standard input to standard output, with lists from the tables of parameters, counters and levels in the place
// of lines like @PARAMETERS@. make makes the manual page btl_fabric(7) and fabric_info's completion with it:
//   fill_template < contrib/docs/man/btl_fabric.7.in > btl_fabric.7
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/param_table.h"
#include "contrib/docs/param_text.h"

namespace {

/// Text as roff wants it: no backslash of its own, a minus that is no hyphen, and no line that looks like a request.
std::string roff(std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_in_word = i > 0 && std::isalpha(static_cast<unsigned char>(text[i - 1])) != 0;
    if (text[i] == '\\') {
      all.append("\\e");
    } else if (text[i] == '-' && !is_in_word) {
      all.append("\\-");
    } else {
      all.push_back(text[i]);
    }
  }
  if (!all.empty() && (all.front() == '.' || all.front() == '\'')) {
    all.insert(0, "\\&");
  }
  return all;
}

/// An entry of a list: a name in bold, and what is said of it.
void print_entry(const std::string& name, const std::string& note, std::string_view help) {
  std::cout << ".TP\n.B btl_fabric_" << name << "\n" << roff(help) << ".\n";
  if (!note.empty()) {
    std::cout << ".br\n" << note << "\n";
  }
}

void print_parameters() {
  for (const fabric::ParamSpec& spec : fabric::kParamTable) {
    std::string note = "Values: " + roff(fabric::docs::range_of(spec));
    for (const fabric::ParamWord& word : spec.words) {
      note.append(&word == spec.words.data() ? ", or " : ", ").append(roff(word.word));
    }
    if (const std::string initial = fabric::docs::default_of(spec); !initial.empty()) {
      note.append("; default: ").append(roff(initial));
    }
    print_entry(spec.name, note + "; level " + std::to_string(spec.level) + ".", spec.help);
  }
}

void print_counters() {
  for (const fabric::CounterSpec& spec : fabric::kCounterTable) {
    print_entry(spec.name, "", spec.help);
  }
}

void print_levels() {
  for (const fabric::LevelSpec& spec : fabric::kLevelTable) {
    print_entry(spec.name, "", spec.help);
  }
}

/// For a program: a name a line.
void print_parameter_names() {
  for (const fabric::ParamSpec& spec : fabric::kParamTable) {
    std::cout << "btl_fabric_" << spec.name << "\n";
  }
}

/// A line of the template that a list takes the place of.
struct Place {
  std::string_view line;
  void (*print)();
};
constexpr std::array kPlaces{Place{"@PARAMETERS@", print_parameters}, Place{"@COUNTERS@", print_counters},
                             Place{"@LEVELS@", print_levels}, Place{"@PARAMETER_NAMES@", print_parameter_names}};

}  // namespace

int main() {
  bool is_filled = false;
  for (std::string line; std::getline(std::cin, line);) {
    const auto* const place =
        std::find_if(kPlaces.begin(), kPlaces.end(), [&](const Place& one) { return one.line == line; });
    if (place == kPlaces.end()) {
      std::cout << line << "\n";
      continue;
    }
    place->print();
    is_filled = true;
  }
  if (!is_filled) {
    std::cerr << "fill_template: the template has none of the lines that lists take the place of:";
    for (const Place& place : kPlaces) {
      std::cerr << " " << place.line;
    }
    std::cerr << "\n";
    return 1;
  }
  return std::cout.flush() ? 0 : 1;
}
