// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/quantity.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace softhca {
namespace {

struct Suffix {
  Unit unit;
  std::string_view text;
  double factor;
};
constexpr Suffix kSuffixes[] = {
    {Unit::BitsPerSecond, "", 1},    {Unit::BitsPerSecond, "K", 1e3},  {Unit::BitsPerSecond, "M", 1e6},
    {Unit::BitsPerSecond, "G", 1e9}, {Unit::BitsPerSecond, "T", 1e12}, {Unit::Nanoseconds, "ns", 1},
    {Unit::Nanoseconds, "us", 1e3},  {Unit::Nanoseconds, "ms", 1e6},   {Unit::Nanoseconds, "s", 1e9},
    {Unit::Share, "", kWhole},       {Unit::Share, "%", kWhole / 100}, {Unit::Lid, "", 1}};

constexpr double kMost[] = {10e12, 10e9, kWhole, 0xbfff};  // by Unit

bool set_all(uint64_t value, PerPort& quantities) {
  for (auto& ports : quantities.values) std::ranges::fill(ports, value);
  return true;
}

// "D:P" of "D:P=QUANTITY".
bool set_one(std::string_view port, uint64_t value, PerPort& quantities) {
  constexpr size_t kLength = 3;
  if (port.size() != kLength || port[1] != ':') return false;
  const auto device = static_cast<unsigned>(port[0] - '0');
  const auto number = static_cast<unsigned>(port[2] - '1');
  if (device >= kMaxDevices || number >= kMaxPorts) return false;
  quantities.values[device][number] = value;
  return true;
}

}  // namespace

bool PerPort::is_set() const {
  return std::ranges::any_of(
      values, [](const auto& ports) { return std::ranges::any_of(ports, [](auto v) { return v != 0; }); });
}

std::optional<uint64_t> parse_quantity(std::string_view text, Unit unit) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  const double most = kMost[static_cast<size_t>(unit)];
  if (suffix.empty() && number == 0) return 0;
  if (unit == Unit::Lid && number != std::floor(number)) return std::nullopt;
  for (const Suffix& s : kSuffixes)
    if (s.unit == unit && s.text == suffix && number * s.factor <= most)
      return static_cast<uint64_t>(std::llround(number * s.factor));
  return std::nullopt;
}

bool parse_per_port(std::string_view text, Unit unit, PerPort& quantities) {
  PerPort all;
  all.text = text;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t equals = item.find('=');
    const auto value = parse_quantity(equals == std::string_view::npos ? item : item.substr(equals + 1), unit);
    if (!value) return false;
    if (equals == std::string_view::npos ? !set_all(*value, all) : !set_one(item.substr(0, equals), *value, all))
      return false;
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  quantities = all;
  return true;
}

const char* form_of(Unit unit) {
  constexpr const char* kForms[] = {"N[K|M|G|T]", "N(ns|us|ms|s)", "N[%]", "N"};
  return kForms[static_cast<size_t>(unit)];
}

const char* example_of(Unit unit) {
  constexpr const char* kExamples[] = {"100G is 100 Gbit/s; 100G,1:2=25G, and 25 Gbit/s at port 2 of device 1",
                                       "2us is two microseconds; 2us,1:2=1ms, and a millisecond at port 2 of device 1",
                                       "0.1% is one of a thousand; 0,1:2=0.1%, at port 2 of device 1 only",
                                       "1 to 49151; 1,1:2=9, and LID 9 at port 2 of device 1"};
  return kExamples[static_cast<size_t>(unit)];
}

}  // namespace softhca
