// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/recorded.h"

#include <algorithm>
#include <fstream>

namespace fabric::tune {
namespace {

using Json = nlohmann::ordered_json;

std::vector<SizeCount> sizes_of(const Json& classes) {
  std::vector<SizeCount> sizes;
  for (const Json& one : classes) {
    sizes.push_back({one.at("up_to"), one.at("count")});
  }
  return sizes;
}

std::uint64_t found_in(const std::map<std::string, std::uint64_t>& numbers, const std::string& name) noexcept {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

}  // namespace

const Setting* Recorded::setting(const std::string& name) const noexcept {
  const auto found =
      std::find_if(settings.begin(), settings.end(), [&name](const Setting& one) { return one.name == name; });
  return found == settings.end() ? nullptr : &*found;
}
std::uint64_t Recorded::total(const std::string& counter) const noexcept {
  return found_in(totals, counter);
}
std::uint64_t Recorded::limit(const std::string& name) const noexcept {
  return found_in(limits, name);
}

Result<Recorded> read_recorded(const Json& report) try {
  Recorded recorded;
  report.at("processes").get_to(recorded.processes);
  report.at("operations").get_to(recorded.operations);
  recorded.hosts = report.at("hosts").size();
  recorded.ports = report.at("ports").size();
  for (const Json& port : report.at("ports")) {
    recorded.is_iwarp = recorded.is_iwarp || port.at("link") == "iWARP";
  }
  auto queues = ReceiveQueues::parse(report.at("receive_queues").at(0).at("list").get<std::string>());
  if (!queues) {
    return failure("its receive queues make no sense", queues.error());
  }
  recorded.queues = std::move(*queues);
  report.at("limits").at(0).at("limits").get_to(recorded.limits);
  for (const Json& one : report.at("settings")) {
    recorded.settings.push_back({one.at("name"), one.at("value"), one.at("source"), one.at("file")});
  }
  for (const Json& one : report.at("waits")) {
    recorded.waits.push_back({one.at("counter"), one.value("queue", ""), one.at("total"), one.at("matters")});
  }
  report.at("totals").get_to(recorded.totals);
  const Json& sizes = report.at("sizes");
  recorded.messages = sizes_of(sizes.at("messages"));
  recorded.writes = sizes_of(sizes.at("writes"));
  recorded.reads = sizes_of(sizes.at("reads"));
  sizes.at("most_peers").get_to(recorded.most_peers);
  return recorded;
} catch (const Json::exception& error) {
  return failure(error.what());
}

Result<Recorded> read_recorded(const std::string& file) try {
  std::ifstream opened(file);
  if (!opened) {
    return failure(file + " cannot be read");
  }
  auto recorded = read_recorded(Json::parse(opened, nullptr, false));
  if (!recorded) {
    return failure(file + " is no report of btl_fabric_report=FILE.json, or one of an older version", recorded.error());
  }
  return recorded;
} catch (const std::ios_base::failure& error) {  // libstdc++ throws what read(2) says, of a folder for instance
  return failure(file + " cannot be read: " + error.code().message());
}

std::string grouped_digits(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) {
    text.insert(at - 3, 1, ',');
  }
  return text;
}

}  // namespace fabric::tune
