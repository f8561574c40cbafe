// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/config.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <variant>

#include "fabric/layout.h"

namespace softhca {
namespace {

struct Number {
  std::variant<unsigned Config::*, uint64_t Config::*> member;
  uint64_t least;
  uint64_t most;
};
using Setting = std::variant<Number, bool Config::*, std::string Config::*, Personality Config::*>;

struct Option {
  const char* name;
  const char* values;
  const char* help;
  Setting setting;
};

constexpr uint64_t kAnySeed = UINT64_MAX;
constexpr uint64_t kMaxLmc = 3;
constexpr uint64_t kMinute = 60'000'000;

const Option kOptions[] = {
    {"personality", "ib|roce|iwarp", "what kind of device it is (roce)", &Config::personality},
    {"devices", "1..4", "devices of each node (1)", Number{&Config::devices, 1, kMaxDevices}},
    {"ports", "1..2", "ports of each device (1)", Number{&Config::ports, 1, kMaxPorts}},
    {"nodes", "1..64", "virtual nodes that processes are spread over (1)", Number{&Config::nodes, 1, kMaxNodes}},
    {"node_from", "NAME", "environment variable with a number that chooses the node (round robin)", &Config::node_from},
    {"seed", "N", "seed of everything that is random (1)", Number{&Config::seed, 0, kAnySeed}},
    {"async_us", "N", "work requests start up to N microseconds after they were posted (0)",
     Number{&Config::async_us, 0, kMinute}},
    {"cma", "yes|no", "use process_vm_readv and process_vm_writev where the kernel permits it (yes)", &Config::cma},
    {"chaos_order", "yes|no", "RDMA WRITE stores its last byte first (no)", &Config::chaos_order},
    {"landing", "0..8448", "SENDs of up to so many bytes go by way of shared memory, without a system call (8448)",
     Number{&Config::landing, 0, kMostLanded}},
    {"max_qps", "N", "queue pairs of a process (0: what there is room for)", Number{&Config::max_qps, 0, kQpsPerSlot}},
    {"max_cqs", "N", "completion queues of a process (0)", Number{&Config::max_cqs, 0, kCqsPerSlot}},
    {"max_mrs", "N", "memory regions of a process (0)", Number{&Config::max_mrs, 0, kMrsPerSlot}},
    {"max_srqs", "N", "shared receive queues of a process (0)", Number{&Config::max_srqs, 0, kSrqsPerSlot}},
    {"max_inline", "N", "bytes of inline data in a work request (220)", Number{&Config::max_inline, 0, 4096}},
    {"max_wr", "N", "work requests of a queue (16384)", Number{&Config::max_wr, 1, 32768}},
    {"max_cqe", "N", "entries of a completion queue (65536)", Number{&Config::max_cqe, 1, 262144}},
    {"lmc", "0..3", "InfiniBand ports have 2^lmc LIDs (0)", Number{&Config::lmc, 0, kMaxLmc}},
    {"max_message", "N", "bytes of a message (1073741824)", Number{&Config::max_message, 4096, 1U << 30}},
};

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
  bool operator()(bool Config::*member) const {
    config.*member = value == "yes";
    return value == "yes" || value == "no";
  }
  bool operator()(std::string Config::*member) const {
    config.*member = value;
    return !value.empty();
  }
  bool operator()(Personality Config::*member) const {
    constexpr std::string_view kNames[] = {"ib", "roce", "iwarp"};
    for (const Personality p : {Personality::Ib, Personality::Roce, Personality::Iwarp})
      if (value == kNames[static_cast<int>(p)]) {
        config.*member = p;
        return true;
      }
    return false;
  }
};

// What is wrong with the line; empty: nothing.
std::string parse_line(std::string_view line, Config& config) {
  line = trimmed(line.substr(0, line.find('#')));
  if (line.empty()) return {};
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return "\"" + std::string(line) + "\" is not \"name = value\"";
  const std::string name(trimmed(line.substr(0, equals)));
  const std::string_view value = trimmed(line.substr(equals + 1));
  for (const Option& option : kOptions) {
    if (name != option.name) continue;
    if (std::visit(Setter{config, value}, option.setting)) return {};
    return name + " is " + option.values + ", not \"" + std::string(value) + "\"";
  }
  return "there is no option \"" + name + "\"";
}

}  // namespace

std::string parse_config(const std::string& text, Config& config) {
  std::string errors;
  std::string_view rest = text;
  for (unsigned line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    const std::string error = parse_line(rest.substr(0, end), config);
    if (!error.empty()) errors += "line " + std::to_string(line) + ": " + error + "\n";
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return errors;
}

std::string load_config(const std::string& directory, Config& config) {
  const std::string path = directory + "/config";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return path + " cannot be read\n";
  return parse_config(text, config);
}

std::string config_help() {
  std::string help;
  for (const Option& option : kOptions) {
    std::string line = std::string("  ") + option.name + "=" + option.values;
    line.resize(line.size() < 28 ? 28 : line.size() + 1, ' ');
    help += line + option.help + "\n";
  }
  return help;
}

}  // namespace softhca
