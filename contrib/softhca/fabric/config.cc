// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/config.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <variant>
#include <vector>

#include "fabric/layout.h"
#include "fabric/nearest.h"

namespace softhca {
namespace {

struct Number {
  std::variant<unsigned Config::*, uint64_t Config::*> member;
  uint64_t least;
  uint64_t most;
};
struct Quantity {
  PerPort Config::*member;
  Unit unit;
};
using Setting = std::variant<Number, Quantity, bool Config::*, std::string Config::*, Personality Config::*>;

struct Option {
  const char* name;
  const char* values;  // nullptr: the range of the number
  const char* help;
  Setting setting;
};

constexpr const char* kPersonalities[] = {"ib", "roce", "iwarp"};
constexpr uint64_t kAnySeed = UINT64_MAX;
constexpr uint64_t kMaxLmc = 3;
constexpr uint64_t kMaxServiceLevel = 15;
constexpr uint64_t kMaxGids = 256;
constexpr uint64_t kMinute = 60'000'000;

const Option kOptions[] = {
    {"personality", "ib|roce|iwarp", "what kind of device it is (roce)", &Config::personality},
    {"devices", nullptr, "devices of each node (1)", Number{&Config::devices, 1, kMaxDevices}},
    {"ports", nullptr, "ports of each device (1)", Number{&Config::ports, 1, kMaxPorts}},
    {"nodes", nullptr, "virtual nodes that processes are spread over (1)", Number{&Config::nodes, 1, kMaxNodes}},
    {"node_from", "NAME", "environment variable with a number that chooses the node (round robin)", &Config::node_from},
    {"seed", nullptr, "seed of everything that is random (1)", Number{&Config::seed, 0, kAnySeed}},
    {"async_us", nullptr, "work requests start up to N microseconds after they were posted (0)",
     Number{&Config::async_us, 0, kMinute}},
    {"cma", "yes|no", "use process_vm_readv and process_vm_writev where the kernel permits it (yes)", &Config::cma},
    {"chaos_order", "yes|no", "RDMA WRITE stores its last byte first (no)", &Config::chaos_order},
    {"landing", nullptr, "SENDs of up to so many bytes go by way of shared memory, without a system call (8448)",
     Number{&Config::landing, 0, kMostLanded}},
    {"bandwidth", nullptr, "bits per second that a port carries each way, of all processes together (0: no limit)",
     Quantity{&Config::bandwidth, Unit::BitsPerSecond}},
    {"latency", nullptr, "what a port sends arrives so much later (0)", Quantity{&Config::latency, Unit::Nanoseconds}},
    {"jitter", nullptr, "and up to so much more, by chance (0)", Quantity{&Config::jitter, Unit::Nanoseconds}},
    {"loss", nullptr, "of the messages that a port sends so many are lost (0)", Quantity{&Config::loss, Unit::Share}},
    {"max_qps", nullptr, "queue pairs of a process (0: what there is room for)",
     Number{&Config::max_qps, 0, kQpsPerSlot}},
    {"max_cqs", nullptr, "completion queues of a process (0)", Number{&Config::max_cqs, 0, kCqsPerSlot}},
    {"max_mrs", nullptr, "memory regions of a process (0)", Number{&Config::max_mrs, 0, kMrsPerSlot}},
    {"max_srqs", nullptr, "shared receive queues of a process (0)", Number{&Config::max_srqs, 0, kSrqsPerSlot}},
    {"xrc_devices", nullptr, "devices of each node that have XRC, the first ones (all; none of iwarp has it)",
     Number{&Config::xrc_devices, 0, kMaxDevices}},
    {"max_inline", nullptr, "bytes of inline data in a work request (220)", Number{&Config::max_inline, 0, 4096}},
    {"max_wr", nullptr, "work requests of a queue (16384)", Number{&Config::max_wr, 1, 32768}},
    {"max_cqe", nullptr, "entries of a completion queue (65536)", Number{&Config::max_cqe, 1, 262144}},
    {"lmc", nullptr, "InfiniBand ports have 2^lmc LIDs (0)", Number{&Config::lmc, 0, kMaxLmc}},
    {"gids", nullptr, "entries of the GID table of a port, of which the last are empty (0: none is)",
     Number{&Config::gids, 0, kMaxGids}},
    {"odp", "yes|no", "memory may be registered on demand, without being there yet (no)", &Config::odp},
    {"sm_lid", nullptr, "LID of the subnet manager that InfiniBand ports report, whoever reaches whom (1)",
     Quantity{&Config::sm_lid, Unit::Lid}},
    {"sm_sl", nullptr, "service level of the paths that the subnet manager of InfiniBand gives (0)",
     Number{&Config::sm_sl, 0, kMaxServiceLevel}},
    {"sm_path", nullptr, "which of the LIDs of both ports these paths have, of lmc (0)",
     Number{&Config::sm_path, 0, (1U << kMaxLmc) - 1}},
    {"sm_us", nullptr, "microseconds until it gives one (0); whoever does not wait for so long gets none",
     Number{&Config::sm_us, 0, kMinute}},
    {"fatal_us", nullptr,
     "microseconds from the failure of a device to the event that tells of it (0); calls fail at once",
     Number{&Config::fatal_us, 0, kMinute}},
    {"max_message", nullptr, "bytes of a message (1073741824)", Number{&Config::max_message, 4096, 1U << 30}},
};

std::string values_of(const Option& option) {
  if (option.values != nullptr) return option.values;
  if (const auto* quantity = std::get_if<Quantity>(&option.setting)) return form_of(quantity->unit);
  const auto& number = std::get<Number>(option.setting);
  return std::to_string(number.least) + ".." + std::to_string(number.most);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

struct Setter {
  Config& config;
  std::string_view value;

  bool operator()(const Number& number) const {
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc{} || end != value.data() + value.size() || n < number.least || n > number.most) return false;
    std::visit([&](auto member) { config.*member = static_cast<std::remove_reference_t<decltype(config.*member)>>(n); },
               number.member);
    return true;
  }
  bool operator()(const Quantity& quantity) const {
    return parse_per_port(value, quantity.unit, config.*quantity.member);
  }
  bool operator()(bool Config::*member) const {
    config.*member = value == "yes";
    return value == "yes" || value == "no";
  }
  bool operator()(std::string Config::*member) const {
    config.*member = value;
    return !value.empty() &&
           value.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
               std::string_view::npos;
  }
  bool operator()(Personality Config::*member) const {
    for (const Personality p : {Personality::Ib, Personality::Roce, Personality::Iwarp})
      if (value == kPersonalities[static_cast<int>(p)]) {
        config.*member = p;
        return true;
      }
    return false;
  }
};

// What is wrong with the line; empty: nothing.
std::string parse_line(std::string_view line, Config& config) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return quoted(line) + " is not NAME=VALUE";
  return set_option(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)), config);
}

struct Writer {
  const Config& config;

  std::string operator()(const Number& number) const {
    return std::visit([&](auto member) { return std::to_string(config.*member); }, number.member);
  }
  std::string operator()(const Quantity& quantity) const { return (config.*quantity.member).text; }
  std::string operator()(bool Config::*member) const { return config.*member ? "yes" : "no"; }
  std::string operator()(std::string Config::*member) const { return config.*member; }
  std::string operator()(Personality Config::*member) const { return kPersonalities[static_cast<int>(config.*member)]; }
};

}  // namespace

std::string set_option(std::string_view name, std::string_view value, Config& config) {
  std::vector<std::string_view> names;
  for (const Option& option : kOptions) {
    names.emplace_back(option.name);
    if (name != option.name) continue;
    if (std::visit(Setter{config, value}, option.setting)) return {};
    std::string error = std::string(name) + " is " + values_of(option) + ", not " + quoted(value);
    if (const auto* quantity = std::get_if<Quantity>(&option.setting))
      error += std::string(" (") + example_of(quantity->unit) + ")";
    if (std::holds_alternative<Personality Config::*>(option.setting))
      if (const std::string_view meant = nearest(value, {std::begin(kPersonalities), std::end(kPersonalities)});
          !meant.empty())
        error += "; did you mean " + quoted(meant) + "?";
    return error;
  }
  return "there is no option " + quoted(name) + suggestion(name, names);
}

std::string option_of(std::string_view name, const Config& config) {
  for (const Option& option : kOptions)
    if (name == option.name) return std::visit(Writer{config}, option.setting);
  return {};
}

std::string parse_config(const std::string& text, Config& config) {
  std::string errors;
  std::string_view rest = text;
  for (unsigned n = 1; !rest.empty(); ++n) {
    const size_t end = rest.find('\n');
    const std::string_view line = trimmed(rest.substr(0, std::min(end, rest.find('#'))));
    const std::string error = line.empty() ? std::string() : parse_line(line, config);
    if (!error.empty()) errors += "line " + std::to_string(n) + ", " + quoted(line) + ": " + error + "\n";
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return errors;
}

std::string load_config(const std::string& directory, Config& config) {
  const std::string path = directory + "/config";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return path + " cannot be read\n";
  const std::string errors = parse_config(text, config);
  return errors.empty() ? errors : path + ": " + errors;
}

std::string config_help() {
  std::string help;
  for (const Option& option : kOptions) {
    std::string line = std::string("  ") + option.name + "=" + values_of(option);
    line.resize(line.size() < 28 ? 28 : line.size() + 1, ' ');
    help += line + option.help + "\n";
  }
  return help;
}

}  // namespace softhca
