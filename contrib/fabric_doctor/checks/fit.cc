// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/fit.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "contrib/fabric_doctor/checks/check_list.h"
#include "contrib/fabric_info/apply_settings.h"
#include "contrib/fabric_info/report.h"

namespace fabric::doctor {
namespace {

info::Question question_of(const Host& host) {
  const Params& values = host.parameters.values();
  info::Question question;
  question.node.cores = sysconf(_SC_NPROCESSORS_ONLN);
  question.node.processes = host.job.processes;
  question.hosts = host.job.hosts;
  question.is_fit_asked = true;
  const auto limits = host.parameters.settings().limit_wishes().value_or(LimitWishes());
  const auto memory = static_cast<std::uint64_t>(std::max(0, values.memory_budget));
  // What cannot be read has been told of, and is the default here.
  [[maybe_unused]] const Status applied = info::apply_params(values, memory, limits, question);
  assert(applied);
  return question;
}

std::string job_text(const JobShape& job) {
  return std::to_string(job.hosts) + (job.hosts == 1 ? " host" : " hosts") + " with " + std::to_string(job.processes) +
         (job.processes == 1 ? " process" : " processes");
}

void judge(const nlohmann::ordered_json& device, const JobShape& job, Findings& findings) {
  const std::string name = device["device"].get<std::string>();
  if (device.contains("error")) {
    return;  // check_devices() tells
  }
  if (device.contains("does_not_fit")) {
    findings.push_back(
        fail(name + ": " + device["does_not_fit"].get<std::string>(),
             "shorten btl_fabric_receive_queues, or leave it out; fabric_info shows what the device has"));
    return;
  }
  const auto& fit = device["fit"];
  if (fit["fits"].get<bool>()) {
    findings.push_back(
        ok(name + ": " + job_text(job) + " take " + std::to_string(fit["queue_pairs_per_host"].get<std::uint64_t>()) +
           " queue pairs on each host and " + std::to_string(fit["bytes_per_process"].get<std::uint64_t>() / 1024) +
           " KiB in each process"));
    return;
  }
  std::string what = name + ": " + job_text(job) + " take ";
  for (const auto& one : fit["shortfalls"]) {
    what += (what.ends_with("take ") ? "" : "; ") + one.get<std::string>();
  }
  const auto instead = fit["instead"].get<std::string>();
  const std::string remedy = instead.empty() ? "fewer processes; none of the usual lists of receive queues fits"
                                             : "it fits with --mca btl_fabric_receive_queues " + instead;
  if (fit["is_cached"].get<bool>()) {
    findings.push_back(warn(what + "; it runs, and idle connections make room for others", remedy));
  } else {
    findings.push_back(fail(what, remedy));
  }
}

}  // namespace

Findings check_fit(const Host& host) {
  Findings findings;
  if (host.scan.ports.empty()) {
    return findings;  // others tell
  }
  const nlohmann::ordered_json report = info::report(question_of(host));
  for (const auto& device : report["devices"]) {
    const bool is_used = std::any_of(host.scan.ports.begin(), host.scan.ports.end(), [&device](const UsablePort& port) {
      return port.device->name == device["device"].get<std::string>();
    });
    if (is_used) {
      judge(device, host.job, findings);
    }
  }
  return findings;
}

}  // namespace fabric::doctor
