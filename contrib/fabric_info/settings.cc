// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "btl_fabric/base/param_reader.h"
#include "btl_fabric/base/param_values.h"

namespace fabric::info {

namespace {

constexpr std::string_view kPrefix = "btl_fabric_";

/// Those that every BTL has, and that choose nothing here.
constexpr std::array<std::string_view, 7> kOfEveryBtl = {"exclusivity",   "flags",   "atomic_flags", "get_alignment",
                                                         "put_alignment", "latency", "bandwidth"};

/// A number that every BTL has. Open MPI reads it without a sign: what is negative, or more than we count to, is no limit.
std::optional<std::int64_t> read_of_every_btl(const std::string& text) {
  const bool is_plain = text.find_first_not_of("0123456789") == std::string::npos;
  if (is_plain && text.size() > std::to_string(INT64_MAX).size() - 1) {
    return INT64_MAX;
  }
  const auto number = read_number(text.c_str());
  return number && *number < 0 ? INT64_MAX : number;
}

}  // namespace

Settings Settings::in_environment(const char* const* environment) {
  const std::string begin = "OMPI_MCA_" + std::string(kPrefix);
  Settings found;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (entry.substr(0, begin.size()) == begin && equals != std::string_view::npos) {
      found.values_[std::string(entry.substr(begin.size(), equals - begin.size()))] = entry.substr(equals + 1);
    }
  }
  return found;
}

std::vector<std::string_view> Settings::names() {
  std::vector<std::string_view> all(kOfEveryBtl.begin(), kOfEveryBtl.end());
  for (const ParamSpec& spec : kParamTable) {
    all.emplace_back(spec.name);
  }
  for (std::size_t i = 0; i < kLimits; ++i) {
    all.emplace_back(parameter_of(static_cast<Limit>(i)));
  }
  return all;
}

Status Settings::add(const std::string& name, const std::string& value) {
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) {
    return {};
  }
  const std::string ours = name.substr(kPrefix.size());
  const std::vector<std::string_view> known = names();
  if (std::find(known.begin(), known.end(), ours) == known.end()) {
    return failure("--mca " + name + " " + value + ": btl_fabric has no such parameter");
  }
  values_[ours] = value;
  return {};
}

std::optional<std::string> Settings::text(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

Result<std::optional<std::int64_t>> Settings::number(const std::string& name) const {
  const auto written = text(name);
  if (!written) {
    return std::optional<std::int64_t>();
  }
  const std::string is = std::string(kPrefix) + name + " is ";
  const ParamSpec* const spec = ParamReader::find(name);
  if (spec == nullptr && written->empty()) {
    return std::optional<std::int64_t>();
  }
  const std::optional<std::int64_t> value =
      spec != nullptr ? read_value(*spec, written->c_str()) : read_of_every_btl(*written);
  if (!value) {
    return failure(is + '"' + *written + "\", but must be a number" +
                   (spec != nullptr ? " " + allowed_values(*spec) : ""));
  }
  if (const std::string rule = spec != nullptr ? broken_rule(*spec, *value) : ""; !rule.empty()) {
    return failure(is + *written + ", but " + rule);
  }
  return value;
}

Result<LimitWishes> Settings::limit_wishes() const {
  LimitWishes wishes;
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    const auto value = number(parameter_of(limit));
    if (!value) {
      return tl::unexpected(value.error());
    }
    if (*value && **value >= 0) {  // -1: to be chosen
      wishes[limit] = static_cast<std::uint64_t>(**value);
    }
  }
  return wishes;
}

}  // namespace fabric::info
