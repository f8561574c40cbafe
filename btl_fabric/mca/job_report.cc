// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/job_report.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "btl_fabric/mca/wait_advice.h"
#include "common/ports/gid_choice.h"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

/// Ranks that are named of those that have waited most.
constexpr std::size_t kWorst = 3;
/// Fewer waits than one in so many operations, or than so many, are not worth advice.
constexpr std::uint64_t kOneIn = 1000;
constexpr std::uint64_t kFewest = 5;

struct QueueField {
  const char* name;
  std::uint64_t QueueWaits::*value;
};
constexpr std::array kQueueFields{QueueField{"credit", &QueueWaits::for_credit},
                                  QueueField{"slot", &QueueWaits::for_slot},
                                  QueueField{"buffer", &QueueWaits::for_buffer},
                                  QueueField{"low", &QueueWaits::ran_low}, QueueField{"grown", &QueueWaits::grown}};

const char* name_of(Transport link) noexcept {
  switch (link) {
    case Transport::kInfiniBand:
      return "InfiniBand";
    case Transport::kRoce:
      return "RoCE";
    case Transport::kIwarp:
      return "iWARP";
  }
  return "unknown";
}

Json port_as_json(const ReportedPort& port) {
  const PortAddress& address = port.address;
  return {{"port", port.name},
          {"link", std::string(name_of(address.link)) + (address.roce == 2 ? " v2" : "")},
          {"mtu", 128U << std::min<unsigned>(address.mtu, 5)},
          {"mbit_per_second", port.mbit},
          {"gid", to_string(address.gid)}};
}

std::uint64_t counter(const ProcessReport& report, const std::string& name) {
  const auto found = report.counters.find(name);
  return found == report.counters.end() ? 0 : found->second;
}

std::uint64_t total(const JobReport& job, const std::string& name) {
  return std::accumulate(job.reports.begin(), job.reports.end(), std::uint64_t{0},
                         [&](std::uint64_t sum, const ProcessReport& one) { return sum + counter(one, name); });
}

/// The processes with the same `value`, in the order in which these come.
template <class Value>
Json grouped(const JobReport& job, Value value) {
  std::vector<std::pair<Json, std::vector<std::uint32_t>>> groups;
  for (const ProcessReport& one : job.reports) {
    for (Json& each : value(one)) {
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == each; });
      auto& ranks = same == groups.end() ? groups.emplace_back(std::move(each), std::vector<std::uint32_t>()).second
                                         : same->second;
      if (ranks.empty() || ranks.back() != one.rank) {
        ranks.push_back(one.rank);  // paths and contexts are modules of one port
      }
    }
  }
  Json list = Json::array();
  for (auto& [each, ranks] : groups) {
    each["ranks"] = ranks;
    list.push_back(std::move(each));
  }
  return list;
}

std::vector<Json> ports_of(const ProcessReport& report) {
  std::vector<Json> ports;
  for (const ReportedPort& port : report.ports) {
    Json one{{"host", report.host}};
    one.update(port_as_json(port));
    ports.push_back(std::move(one));
  }
  return ports;
}

/// All that messages, reads, writes and atomics are.
std::uint64_t operations(const JobReport& job) {
  std::uint64_t sum = 0;
  for (const auto value : {&Counters::messages_sent_inline, &Counters::messages_sent_copied,
                           &Counters::messages_sent_in_place, &Counters::messages_coalesced, &Counters::puts,
                           &Counters::gets, &Counters::atomics_by_device, &Counters::atomics_by_message}) {
    sum += total(job, counter_of(WaitAdvice{value, {}, {}}).name);
  }
  return sum;
}

/// The queue of which most have waited.
std::string worst_queue(const JobReport& job, std::uint64_t QueueWaits::*value) {
  std::map<std::string, std::uint64_t> sums;
  for (const ProcessReport& one : job.reports) {
    for (const ReportedQueue& queue : one.queues) {
      sums[queue.spec] += queue.waits.*value;
    }
  }
  const auto worst = std::max_element(sums.begin(), sums.end(),
                                      [](const auto& one, const auto& other) { return one.second < other.second; });
  return worst == sums.end() || worst->second == 0 ? std::string() : worst->first;
}

/// Null if nobody has waited so.
Json wait_as_json(const JobReport& job, const WaitAdvice& advice, std::uint64_t of_operations) {
  const CounterSpec& spec = counter_of(advice);
  std::vector<const ProcessReport*> worst;
  for (const ProcessReport& one : job.reports) {
    if (counter(one, spec.name) > 0) {
      worst.push_back(&one);
    }
  }
  if (worst.empty()) {
    return {};
  }
  std::stable_sort(worst.begin(), worst.end(), [&](const ProcessReport* one, const ProcessReport* other) {
    return counter(*one, spec.name) > counter(*other, spec.name);
  });
  const std::uint64_t sum = total(job, spec.name);
  Json wait{{"counter", spec.name},
            {"what", spec.help},
            {"total", sum},
            {"matters", sum >= std::max(kFewest, of_operations / kOneIn)}};
  if (advice.of_queue != nullptr) {
    if (const std::string queue = worst_queue(job, advice.of_queue); !queue.empty()) {
      wait["queue"] = queue;
    }
  }
  wait["processes"] = worst.size();
  worst.resize(std::min(worst.size(), kWorst));
  Json& named = wait["worst"] = Json::array();
  for (const ProcessReport* one : worst) {
    named.push_back({{"rank", one->rank}, {"host", one->host}, {"count", counter(*one, spec.name)}});
  }
  wait["parameter"] = advice.parameter;
  wait["advice"] = advice.advice;
  return wait;
}

/// The worst first.
Json waits_as_json(const JobReport& job) {
  const std::uint64_t of_operations = operations(job);
  std::vector<Json> waits;
  for (const WaitAdvice& advice : kWaitAdvice) {
    if (Json wait = wait_as_json(job, advice, of_operations); !wait.is_null()) {
      waits.push_back(std::move(wait));
    }
  }
  std::stable_sort(waits.begin(), waits.end(), [](const Json& one, const Json& other) {
    return one["total"].get<std::uint64_t>() > other["total"].get<std::uint64_t>();
  });
  return waits;
}

Json slowest_as_json(const JobReport& job) {
  const ProcessReport* found = nullptr;
  for (const ProcessReport& one : job.reports) {
    if (one.slowest && (found == nullptr || one.slowest->took > found->slowest->took)) {
      found = &one;
    }
  }
  if (found == nullptr) {
    return {};
  }
  return {{"rank", found->rank},
          {"host", found->host},
          {"peer", found->slowest->peer.rank},
          {"peer_is_of_another_job", found->slowest->peer.job != 0},
          {"milliseconds", static_cast<double>(found->slowest->took.count()) / 1000}};
}

struct SizesField {
  const char* name;
  SizeClasses SizeHistogram::*classes;
};
constexpr std::array kSizesFields{
    SizesField{"messages", &SizeHistogram::messages}, SizesField{"writes", &SizeHistogram::writes},
    SizesField{"reads", &SizeHistogram::reads}, SizesField{"peers", &SizeHistogram::peers}};

/// Of all processes: [{"up_to": 64, "count": 17}]; what nobody has counted is left out.
Json classes_as_json(const JobReport& job, SizeClasses SizeHistogram::*which) {
  Json list = Json::array();
  for (std::size_t i = 0; i < kSizeClasses; ++i) {
    std::uint64_t sum = 0;
    for (const ProcessReport& one : job.reports) {
      sum += (one.sizes.*which)[i];
    }
    if (sum > 0) {
      list.push_back({{"up_to", largest_of_class(i)}, {"count", sum}});
    }
  }
  return list;
}

Json sizes_as_json(const JobReport& job) {
  Json sizes;
  for (const SizesField& field : kSizesFields) {
    sizes[field.name] = classes_as_json(job, field.classes);
  }
  std::uint64_t most = 0;
  for (const ProcessReport& one : job.reports) {
    most = std::max(most, std::accumulate(one.sizes.peers.begin(), one.sizes.peers.end(), std::uint64_t{0}));
  }
  sizes["most_peers"] = most;
  return sizes;
}

std::vector<Json> settings_of(const ProcessReport& report) {
  std::vector<Json> settings;
  for (const ReportedSetting& one : report.settings) {
    settings.push_back({{"name", one.name}, {"value", one.value}, {"source", one.source}, {"file", one.file}});
  }
  return settings;
}

Json totals_as_json(const JobReport& job) {
  Json totals = Json::object();
  for (const CounterSpec& spec : kCounterTable) {
    totals[spec.name] = total(job, spec.name);
  }
  return totals;
}

}  // namespace

std::string encode(const ProcessReport& report) {
  Json json{{"rank", report.rank},
            {"host", report.host},
            {"version", report.version},
            {"open_mpi", report.open_mpi},
            {"receive_queues", report.receive_queues},
            {"why", report.why},
            {"ports", Json::array()},
            {"methods", report.methods},
            {"counters", report.counters},
            {"queues", Json::array()},
            {"limits", report.limits},
            {"settings", Json::array()},
            {"paths", encode_paths(report.paths)}};
  for (const ReportedSetting& one : report.settings) {
    json["settings"].push_back({one.name, one.value, one.source, one.file});
  }
  for (const SizesField& field : kSizesFields) {
    json["sizes"][field.name] = report.sizes.*field.classes;
  }
  for (const ReportedPort& port : report.ports) {
    json["ports"].push_back(
        {port.name, port.address.link, port.address.gid.raw, port.address.mtu, port.address.roce, port.mbit});
  }
  for (const ReportedQueue& queue : report.queues) {
    Json one{{"spec", queue.spec}};
    for (const QueueField& field : kQueueFields) {
      one[field.name] = queue.waits.*field.value;
    }
    json["queues"].push_back(std::move(one));
  }
  if (report.slowest) {
    json["slowest"] = {report.slowest->peer.job, report.slowest->peer.rank, report.slowest->took.count()};
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<ProcessReport> decode_process_report(std::string_view text) try {
  const Json json = Json::parse(text);
  ProcessReport report{.rank = json.at("rank"),
                       .host = json.at("host"),
                       .version = json.at("version"),
                       .open_mpi = json.at("open_mpi"),
                       .receive_queues = json.at("receive_queues"),
                       .why = json.at("why"),
                       .ports = {},
                       .methods = json.at("methods"),
                       .counters = json.at("counters"),
                       .queues = {},
                       .limits = json.at("limits"),
                       .settings = {},
                       .sizes = {},
                       .paths = decode_paths(json.at("paths")),
                       .slowest = {}};
  for (const Json& one : json.at("settings")) {
    report.settings.push_back({one.at(0), one.at(1), one.at(2), one.at(3)});
  }
  for (const SizesField& field : kSizesFields) {
    json.at("sizes").at(field.name).get_to(report.sizes.*field.classes);
  }
  for (const Json& one : json.at("ports")) {
    ReportedPort& port = report.ports.emplace_back();
    one.at(0).get_to(port.name);
    port.address.link = one.at(1).get<Transport>();
    one.at(2).get_to(port.address.gid.raw);
    one.at(3).get_to(port.address.mtu);
    one.at(4).get_to(port.address.roce);
    one.at(5).get_to(port.mbit);
  }
  for (const Json& one : json.at("queues")) {
    ReportedQueue& queue = report.queues.emplace_back();
    one.at("spec").get_to(queue.spec);
    for (const QueueField& field : kQueueFields) {
      one.at(field.name).get_to(queue.waits.*field.value);
    }
  }
  if (const auto slowest = json.find("slowest"); slowest != json.end()) {
    report.slowest = {{.job = slowest->at(0), .rank = slowest->at(1)},
                      std::chrono::microseconds(slowest->at(2).get<std::int64_t>())};
  }
  return report;
} catch (const Json::exception& error) {
  return failure(error.what());
}

Json as_json(const JobReport& job) {
  Json json;
  std::map<std::string, std::uint64_t> methods;
  for (const ProcessReport& one : job.reports) {
    for (const auto& [name, count] : one.methods) {
      methods[name] += count;
    }
  }
  json["versions"] = grouped(job, [](const ProcessReport& one) {
    return std::vector{Json{{"version", one.version}, {"open_mpi", one.open_mpi}}};
  });
  json["processes"] = job.processes;
  json["reporter"] = job.reporter;
  json["of_reporter_alone"] = job.is_of_one;
  json["silent"] = job.silent;
  json["without_btl_fabric"] = job.without;
  json["hosts"] = grouped(job, [](const ProcessReport& one) { return std::vector{Json{{"host", one.host}}}; });
  json["ports"] = grouped(job, ports_of);
  json["methods"] = methods;
  json["receive_queues"] = grouped(job, [](const ProcessReport& one) {
    return std::vector{Json{{"list", one.receive_queues}, {"why", one.why}}};
  });
  json["limits"] = grouped(job, [](const ProcessReport& one) { return std::vector{Json{{"limits", one.limits}}}; });
  json["settings"] = grouped(job, settings_of);
  json["operations"] = operations(job);
  json["sizes"] = sizes_as_json(job);
  json["totals"] = totals_as_json(job);
  json["slowest_connection"] = slowest_as_json(job);
  json["waits"] = waits_as_json(job);
  json["paths"] = paths_as_json(job);
  Json& ranks = json["ranks"] = Json::array();
  for (const ProcessReport& one : job.reports) {
    ranks.push_back({{"rank", one.rank}, {"host", one.host}, {"counters", one.counters}});
  }
  return json;
}

}  // namespace fabric
