// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/start.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctl/fabric_view.h"
#include "ctl/files.h"
#include "fabric/config.h"
#include "fabric/nearest.h"
#include "faults/rules.h"

namespace softhca {
namespace {

struct Wish {
  std::string origin;  // as on the command line
  std::string name;
  std::string value;
};

std::vector<Wish> wishes_in(std::span<char* const> arguments) {
  std::vector<Wish> wishes;
  std::string errors;
  Config config;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string origin = arguments[i], setting = arguments[i + 1];
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      errors += origin + ": " + quoted(setting) + " is not NAME=VALUE\n";
      continue;
    }
    wishes.push_back({origin, setting.substr(0, equals), setting.substr(equals + 1)});
    const Wish& wish = wishes.back();
    if (const std::string error = set_option(wish.name, wish.value, config); !error.empty())
      errors += origin + ": " + error + "\n";
  }
  if (!errors.empty()) give_up(errors);
  return wishes;
}

std::string checked_rules(const std::string& path) {
  const std::string text = text_of(path);
  std::vector<faults::Rule> rules;
  if (const std::string errors = faults::parse_rules(text, rules); !errors.empty())
    give_up(in_each_line(path + ", ", errors) + "softhca-ctl options has the grammar of rules");
  return text;
}

void put(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) give_up(path + " cannot be written: " + strerror(errno));
}

// Everything that was asked for has to be as it is there.
void compare(const std::string& directory, const std::vector<Wish>& wishes, const std::string* rules) {
  Config there;
  if (const std::string errors = load_config(directory, there); !errors.empty()) give_up(errors);
  std::string errors;
  for (const Wish& wish : wishes) {
    Config mine = there;
    (void)set_option(wish.name, wish.value, mine);
    const std::string was = option_of(wish.name, there), is = option_of(wish.name, mine);
    if (was != is)
      errors += wish.origin + ": the fabric has " + wish.name + "=" + was + ", not " + wish.name + "=" + is + "\n";
  }
  if (rules != nullptr) {
    std::ifstream file(directory + "/faults");
    const std::string now{std::istreambuf_iterator<char>(file), {}};
    if (now != *rules)
      errors += "--faults: the fabric has other rules (softhca-ctl faults FILE changes them):\n" +
                in_each_line("  has:  ", now) + in_each_line("  asks: ", *rules);
  }
  if (!errors.empty()) give_up(errors + "leave these options out, or choose another name for a fabric of your own");
}

}  // namespace

void start(std::span<char* const> arguments) {
  const std::string directory = getenv("SOFTHCA_DIR");
  const std::string rules_file = arguments[0];
  const std::vector<Wish> wishes = wishes_in(arguments.subspan(1));
  const std::string rules = rules_file.empty() ? std::string() : checked_rules(rules_file);
  if (access((directory + "/config").c_str(), F_OK) == 0)
    return compare(directory, wishes, rules_file.empty() ? nullptr : &rules);

  Config config;
  std::string text;
  for (const Wish& wish : wishes) {
    text += wish.name + " = " + wish.value + "\n";
    (void)set_option(wish.name, wish.value, config);
  }
  if (!rules_file.empty()) put(directory + "/faults", rules);
  if (const std::string error = make_files(directory, config); !error.empty()) give_up(error);
  put(directory + "/config", text);  // last: with it the fabric is complete
}

}  // namespace softhca
