// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/answer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/printable.h"

namespace fabric::hang {
namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kDeepest = 32;

enum class Kind { kNumber, kText, kObject, kObjects };

/// Wherever a name occurs, it is of the same kind. Others are those of newer versions, which nobody looks at.
constexpr std::array<std::pair<std::string_view, Kind>, 35> kKinds = {{
    {"pid", Kind::kNumber},          {"job", Kind::kNumber},          {"rank", Kind::kNumber},
    {"local_port", Kind::kNumber},   {"remote_port", Kind::kNumber},  {"still_ms", Kind::kNumber},
    {"for_ms", Kind::kNumber},       {"attempts", Kind::kNumber},     {"waiting", Kind::kNumber},
    {"waiting_rdma", Kind::kNumber}, {"size", Kind::kNumber},         {"sent", Kind::kNumber},
    {"taken", Kind::kNumber},        {"under_way", Kind::kNumber},    {"unanswered", Kind::kNumber},
    {"depth", Kind::kNumber},        {"credits", Kind::kNumber},      {"missing", Kind::kNumber},
    {"owed", Kind::kNumber},         {"host", Kind::kText},           {"call", Kind::kText},
    {"caller", Kind::kText},         {"port", Kind::kText},           {"state", Kind::kText},
    {"waits", Kind::kText},          {"transitions", Kind::kText},    {"why", Kind::kText},
    {"kind", Kind::kText},           {"waits_for", Kind::kText},      {"broken", Kind::kObject},
    {"rdma", Kind::kObject},         {"connections", Kind::kObjects}, {"ports", Kind::kObjects},
    {"peers", Kind::kObjects},       {"queues", Kind::kObjects},
}};

bool is_of(Kind kind, const Json& value) {
  switch (kind) {
    case Kind::kNumber:
      return value.is_number_integer();
    case Kind::kText:
      return value.is_string();
    case Kind::kObject:
      return value.is_object();
    case Kind::kObjects:
      break;
  }
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_object(); });
}

/// As deep as make_printable() leaves it.
bool is_sound(const Json& json) {
  if (json.is_array()) {
    return std::all_of(json.begin(), json.end(), is_sound);
  }
  if (!json.is_object()) {
    return true;
  }
  for (const auto& [name, value] : json.items()) {
    const auto known =
        std::find_if(kKinds.begin(), kKinds.end(), [&key = name](const auto& one) { return one.first == key; });
    if ((known != kKinds.end() && !is_of(known->second, value)) || !is_sound(value)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Json read_answer(const std::string& line) {
  Json answer = Json::parse(line, nullptr, false);
  if (!answer.is_object()) {
    return {};
  }
  make_printable(answer);
  return is_sound(answer) ? answer : Json();
}

void make_printable(Json& json, unsigned depth) {
  if (depth > kDeepest) {
    json = nullptr;
  } else if (json.is_string()) {
    json = printable(json.get<std::string>());
  } else if (json.is_array()) {
    for (Json& one : json) {
      make_printable(one, depth + 1);
    }
  } else if (json.is_object()) {
    Json safe = Json::object();
    for (auto& [name, value] : json.items()) {
      make_printable(value, depth + 1);
      safe[printable(name)] = std::move(value);
    }
    json = std::move(safe);
  }
}

}  // namespace fabric::hang
