// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/steering.h"

#include <charconv>
#include <string>
#include <utility>

namespace fabric {
namespace {

struct Range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

struct NamedTags {
  std::string_view name;
  Range tags;
};

// Of Open MPI's opal/mca/btl/btl.h, where each part has 32 tags or more, and pml_ob1_hdr.h, which counts from MCA_BTL_TAG_PML.
constexpr std::uint32_t kPml = 0x40;
constexpr NamedTags kNamedTags[] = {
    {"pml", {kPml, 0x5f}},           {"osc", {0x60, 0x7f}},          {"usr", {0x80, 0xff}},
    {"match", {kPml + 1, kPml + 1}}, {"rndv", {kPml + 2, kPml + 2}}, {"rget", {kPml + 3, kPml + 3}},
    {"ack", {kPml + 4, kPml + 4}},   {"nack", {kPml + 5, kPml + 5}}, {"frag", {kPml + 6, kPml + 6}},
    {"get", {kPml + 7, kPml + 7}},   {"put", {kPml + 8, kPml + 8}},  {"fin", {kPml + 9, kPml + 9}},
    {"cid", {kPml + 10, kPml + 10}},
};

std::string quoted(std::string_view text) {
  return '"' + std::string(text) + '"';
}

/// All of it, as a number up to `most`.
bool read_number(std::string_view text, std::uint32_t most, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most;
}

/// A number, a range or *.
bool read_range(std::string_view text, std::uint32_t most, Range& range) {
  if (text == "*") {
    range = {0, most};
    return true;
  }
  const std::size_t dash = text.find('-');
  if (!read_number(text.substr(0, dash), most, range.first)) {
    return false;
  }
  range.last = range.first;
  return dash == std::string_view::npos ||
         (read_number(text.substr(dash + 1), most, range.last) && range.first <= range.last);
}

bool read_tags(std::string_view text, Range& range) {
  for (const NamedTags& known : kNamedTags) {
    if (text == known.name) {
      range = known.tags;
      return true;
    }
  }
  return read_range(text, UINT8_MAX, range);
}

/// Takes what comes before `separator` off the front of `rest`; all of it, if there is none.
std::string_view take_up_to(char separator, std::string_view& rest) {
  const std::size_t at = rest.find(separator);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return part;
}

Status read_condition(std::string_view text, SteeringRule& rule, bool& has_source, bool& has_tag) {
  std::string_view value = text;
  const std::string_view name = take_up_to('=', value);
  bool* const is_there = name == "source" ? &has_source : name == "tag" ? &has_tag : nullptr;
  if (is_there == nullptr || text.find('=') == std::string_view::npos) {
    return failure(quoted(text) + " is none of source=RANKS and tag=TAGS");
  }
  if (std::exchange(*is_there, true)) {
    return failure(quoted(name) + " is there twice");
  }
  Range range;
  if (is_there == &has_source) {
    if (!read_range(value, UINT32_MAX, range)) {
      return failure("source " + quoted(value) + " is not a rank, a range of ranks as in 0-3, or *");
    }
    rule.first_source = range.first;
    rule.last_source = range.last;
    return {};
  }
  if (!read_tags(value, range)) {
    std::string names;
    for (const NamedTags& known : kNamedTags) {
      names.append(names.empty() ? "" : ", ").append(known.name);
    }
    return failure("tag " + quoted(value) + " is not a number of 0 to 255, a range of such, * or one of " + names);
  }
  rule.first_tag = static_cast<std::uint8_t>(range.first);
  rule.last_tag = static_cast<std::uint8_t>(range.last);
  return {};
}

Result<SteeringRule> parse_rule(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return failure("no :CONTEXT follows");
  }
  SteeringRule rule;
  std::string_view conditions = text.substr(0, colon);
  if (conditions != "*") {
    bool has_source = false;
    bool has_tag = false;
    do {
      if (Status read = read_condition(take_up_to(',', conditions), rule, has_source, has_tag); !read) {
        return tl::unexpected(std::move(read).error());
      }
    } while (!conditions.empty());
  }
  const std::string_view context = text.substr(colon + 1);
  std::uint32_t number = 0;
  if (!read_number(context, kMostSteeredContext, number)) {
    return failure("context " + quoted(context) + " is not a number of 0 to " + std::to_string(kMostSteeredContext));
  }
  rule.context = static_cast<std::uint8_t>(number);
  return rule;
}

}  // namespace

Result<std::vector<SteeringRule>> parse_steering(std::string_view text) {
  std::vector<SteeringRule> rules;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = take_up_to(';', rest);
    Result<SteeringRule> rule = parse_rule(one);
    if (!rule) {
      return failure("rule " + quoted(one) + ": " + rule.error().text);
    }
    if (rules.size() == kMostSteeringRules) {
      return failure("rule " + quoted(one) + " is one too many: at most " + std::to_string(kMostSteeringRules));
    }
    rules.push_back(*rule);
  }
  return rules;
}

std::unique_ptr<const SteeringTable> steering_table(std::span<const SteeringRule> rules, std::uint32_t source,
                                                    unsigned contexts) {
  std::unique_ptr<SteeringTable> table;
  for (const SteeringRule& rule : rules) {
    if (source < rule.first_source || source > rule.last_source) {
      continue;
    }
    if (table == nullptr) {
      table = std::make_unique<SteeringTable>();
      table->fill(kNotSteered);
    }
    for (unsigned tag = rule.first_tag; tag <= rule.last_tag; ++tag) {
      if ((*table)[tag] == kNotSteered) {
        (*table)[tag] = static_cast<std::uint8_t>(rule.context % contexts);
      }
    }
  }
  return table;
}

}  // namespace fabric
