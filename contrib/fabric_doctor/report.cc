// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/report.h"

#include <algorithm>

namespace fabric::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLevelWidth = 6;
constexpr std::size_t kCheckWidth = 12;

void add_column(std::string& text, const std::string& word, std::size_t width) {
  text += word;
  text.append(word.size() < width ? width - word.size() : 1, ' ');
}

void add_finding(std::string& text, const std::string& check, const Finding& finding) {
  add_column(text, word_of(finding.level), kLevelWidth);
  add_column(text, check, kCheckWidth);
  text += finding.what + "\n";
  if (!finding.remedy.empty()) {
    text.append(kLevelWidth + kCheckWidth, ' ');
    text += "-> " + finding.remedy + "\n";
  }
}

std::string conclusion(Level level) {
  switch (level) {
    case Level::kOk:
      return "MPI over the fabric BTL will work here.";
    case Level::kWarn:
      return "MPI over the fabric BTL will work here; look at the lines with WARN.";
    case Level::kFail:
      break;
  }
  return "MPI over the fabric BTL will not work here as it is: do what the lines with FAIL say.";
}

Level level_of(const std::string& word) {
  return word == "ok" ? Level::kOk : word == "WARN" ? Level::kWarn : Level::kFail;
}

}  // namespace

const char* word_of(Level level) noexcept {
  return level == Level::kOk ? "ok" : level == Level::kWarn ? "WARN" : "FAIL";
}

Level worst(const std::vector<Section>& report) noexcept {
  Level level = Level::kOk;
  for (const Section& section : report) {
    for (const CheckResult& result : section.results) {
      level = std::max(level, worst(result.findings));
    }
  }
  return level;
}

std::string as_text(const std::vector<Section>& report) {
  std::string text;
  for (const Section& section : report) {
    if (!section.title.empty()) {
      text += section.title + "\n";
    }
    for (const CheckResult& result : section.results) {
      for (const Finding& finding : result.findings) {
        add_finding(text, result.check, finding);
      }
    }
  }
  return text + conclusion(worst(report)) + "\n";
}

void to_json(Json& json, const Section& section) {
  Json findings = Json::array();
  for (const CheckResult& result : section.results) {
    for (const Finding& one : result.findings) {
      findings.push_back(
          {{"check", result.check}, {"status", word_of(one.level)}, {"what", one.what}, {"remedy", one.remedy}});
    }
  }
  json = {{"title", section.title}, {"findings", std::move(findings)}};
}

void from_json(const Json& json, Section& section) {
  section.title = json.at("title").get<std::string>();
  for (const Json& one : json.at("findings")) {
    const std::string check = one.at("check").get<std::string>();
    if (section.results.empty() || section.results.back().check != check) {
      section.results.push_back({check, {}});
    }
    section.results.back().findings.push_back({level_of(one.at("status").get<std::string>()),
                                               one.at("what").get<std::string>(), one.at("remedy").get<std::string>()});
  }
}

Json as_json(const std::vector<Section>& report) {
  return {{"verdict", word_of(worst(report))}, {"sections", report}};
}

}  // namespace fabric::doctor
