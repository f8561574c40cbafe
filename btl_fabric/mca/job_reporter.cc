// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/job_reporter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/job_notes.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/mca/size_counts.h"
#include "common/base/private_file.h"
#include "cpc/registry/registry.h"

namespace fabric {
namespace {

using Clock = std::chrono::steady_clock;

/// For what the other processes have to tell, in all.
constexpr std::chrono::seconds kPatience{2};
constexpr std::uint32_t kLocalJobMask = 0xffff;  // Open MPI numbers the jobs of one mpirun in the lower half

std::string file_name(std::string path) {
  const std::string job = std::to_string(OPAL_PROC_MY_NAME.jobid & kLocalJobMask);
  for (std::size_t at = path.find("%j"); at != std::string::npos; at = path.find("%j", at + job.size())) {
    path.replace(at, 2, job);
  }
  return path;
}

void add(QueueWaits& sum, const QueueWaits& one) noexcept {
  sum.for_credit += one.for_credit;
  sum.for_slot += one.for_slot;
  sum.for_buffer += one.for_buffer;
  sum.ran_low += one.ran_low;
  sum.grown += one.grown;
}

const char* word_of(mca_base_var_source_t source) noexcept {
  switch (source) {
    case MCA_BASE_VAR_SOURCE_FILE:
      return "file";
    case MCA_BASE_VAR_SOURCE_OVERRIDE:
      return "override";
    default:
      return "environment";
  }
}

std::map<std::string, std::uint64_t> limits_of(const Module& module) {
  std::map<std::string, std::uint64_t> limits;
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    limits[std::string("btl_fabric_") + parameter_of(limit)] = module.limits()[limit].value;
  }
  return limits;
}

/// The error: why it cannot be written.
Status write_file(const std::string& path, const std::string& text) {
  const Result<int> opened = open_private_file(path);
  if (!opened) {
    return tl::unexpected(opened.error());
  }
  std::FILE* const file = fdopen(*opened, "w");
  if (file == nullptr) {
    ::close(*opened);
    return failure(path + ": " + std::strerror(ENOMEM));
  }
  const bool is_written = ftruncate(*opened, 0) == 0 && std::fputs(text.c_str(), file) >= 0;
  const int error = errno;
  if (std::fclose(file) != 0 || !is_written) {
    return failure(path + ": " + std::strerror(is_written ? errno : error));
  }
  return {};
}

}  // namespace

std::unique_ptr<JobReporter> JobReporter::begin(std::span<const std::unique_ptr<Module>> modules,
                                                const ChosenQueues& queues, const mca_base_component_t* component) {
  const std::string_view wanted = params().report == nullptr ? "" : params().report;
  if (wanted.empty() || wanted == "0") {
    return nullptr;
  }
  std::unique_ptr<JobReporter> reporter(new JobReporter);
  reporter->wanted_ = wanted;
  ProcessReport& own = reporter->own_;
  own.rank = OPAL_PROC_MY_NAME.vpid;
  own.host = opal_process_info.nodename;
  own.version = FABRIC_VERSION;
  own.open_mpi = opal_version_string;
  own.receive_queues = queues.subsets(queues.list()).front().queues().canonical();
  own.why = queues.why();
  for (const auto& module : modules) {
    const UsablePort& port = module->port();
    ReportedPort one{module->name(), port.address, port.bandwidth};
    if (std::find(own.ports.begin(), own.ports.end(), one) == own.ports.end()) {
      own.ports.push_back(std::move(one));
    }
  }
  const ReceiveQueues& run = modules.front()->path().receive_queues();
  for (std::size_t i = 0; i < run.count(); ++i) {
    const std::array<std::uint8_t, 1> alone{static_cast<std::uint8_t>(i)};
    own.queues.push_back({run.only(alone).canonical(), {}});
  }
  own.limits = limits_of(*modules.front());
  for (const SetParam& one : set_params(component)) {
    own.settings.push_back({one.name, one.value, word_of(one.source), one.file});
  }
  count_sizes(modules);
  static unsigned rounds = 0;
  reporter->round_ = rounds++;
  if (job_size() > 1) {
    reporter->is_open_ = job_notes::open();
    reporter->has_notes_ = reporter->is_open_ && job_notes::leave(reporter->here(own.rank), "1");
  }
  current_ = reporter.get();
  return reporter;
}

JobReporter::~JobReporter() {
  current_ = nullptr;
  if (is_open_) {
    job_notes::close();
  }
}

/// The note of a process that has started, and that of one that ends.
std::string JobReporter::here(std::uint32_t rank) const {
  return "here." + std::to_string(round_) + "." + std::to_string(rank);
}
std::string JobReporter::told(std::uint32_t rank) const {
  return "told." + std::to_string(round_) + "." + std::to_string(rank);
}

void JobReporter::take_numbers() {
  own_.paths = paths_.take();
  own_.sizes = take_counted_sizes();
  for (const CounterSpec& spec : kCounterTable) {
    std::uint64_t sum = spec.shared != nullptr ? spec.shared->load() : 0;
    for (const Counters& context : counters) {
      sum += spec.value != nullptr ? context.*spec.value : 0;
    }
    if (sum > 0) {
      own_.counters[spec.name] = sum;
    }
  }
  for (const Counters& context : counters) {
    const JobTally& tally = context.tally;
    for (std::size_t i = 0; i < own_.queues.size(); ++i) {
      add(own_.queues[i].waits, tally.queues[i]);
    }
    for (const cpc::CpcTraits& method : cpc::kCpcTraits) {
      if (const std::uint64_t made = tally.connections_by_method[static_cast<std::size_t>(method.kind)]; made > 0) {
        own_.methods[std::string(method.name)] += made;
      }
    }
    if (tally.slowest.took.count() >= 0 && (!own_.slowest || tally.slowest.took > own_.slowest->took)) {
      own_.slowest = tally.slowest;
      own_.slowest->peer.job = tally.slowest.peer.job == OPAL_PROC_MY_NAME.jobid ? 0 : 1;
    }
  }
}

void JobReporter::finish() noexcept try {
  take_numbers();
  if (has_notes_ ? is_mine_to_write() : own_.rank == 0) {
    write(gather());
  } else if (has_notes_) {
    (void)job_notes::leave(told(own_.rank), encode(own_));
  }
} catch (const std::exception&) {  // no memory: the job is none the worse for it
}

bool JobReporter::is_mine_to_write() const {
  for (std::uint32_t rank = 0; rank < own_.rank; ++rank) {
    if (job_notes::read(here(rank))) {
      return false;
    }
  }
  return true;
}

JobReport JobReporter::gather() const {
  JobReport job;
  job.processes = std::max(1U, job_size());
  job.reporter = own_.rank;
  job.is_of_one = job.processes > 1 && !has_notes_;
  job.reports.push_back(own_);
  if (has_notes_) {
    collect(job);
  }
  return job;
}

/// Goes round, asking each that is missing, until nobody is or the time is over.
void JobReporter::collect(JobReport& job) const {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < job.processes; ++rank) {
    if (rank != own_.rank) {
      missing.push_back(rank);
    }
  }
  const auto until = Clock::now() + kPatience;
  const auto is_settled = [&](std::uint32_t rank, bool is_first_round) {
    if (Clock::now() >= until) {
      return false;
    }
    if (const auto text = job_notes::read(told(rank)); text) {
      auto report = decode_process_report(*text);
      const bool is_good = report && report->rank == rank;
      if (is_good) {
        job.reports.push_back(std::move(*report));
      }
      return is_good;
    }
    if (is_first_round && (rank < own_.rank || !job_notes::read(here(rank)))) {
      job.without.push_back(rank);
      return true;
    }
    return false;
  };
  for (bool is_first = true; !missing.empty() && Clock::now() < until; is_first = false) {
    if (std::erase_if(missing, [&](std::uint32_t rank) { return is_settled(rank, is_first); }) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  job.silent = std::move(missing);
  std::sort(job.reports.begin(), job.reports.end(),
            [](const ProcessReport& one, const ProcessReport& other) { return one.rank < other.rank; });
}

/// In one piece, so that what other processes say does not come in between.
void JobReporter::write(const JobReport& job) const {
  const nlohmann::ordered_json summary = as_json(job);
  if (!wanted_.ends_with(".json")) {
    std::fputs(as_text(summary).c_str(), stderr);
    return;
  }
  const std::string text = summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  if (Status written = write_file(file_name(wanted_), text); !written) {
    std::fputs(("btl_fabric_report: " + written.error().text + '\n').c_str(), stderr);
  }
}

}  // namespace fabric
