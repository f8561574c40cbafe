// SPDX-License-Identifier: BSD-3-Clause
//
// Shows what the processes of running jobs send, to whom and how fast, and what they wait for: those that were started with
// btl_fabric_top.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/top_file.h"
#include "contrib/fabric_hang/processes.h"
#include "contrib/fabric_top/screen.h"
#include "contrib/fabric_top/text.h"
#include "contrib/fabric_top/view.h"
#include "contrib/options/finite_range.h"

namespace {

using Json = nlohmann::ordered_json;
using namespace fabric;

constexpr int kUsage = 2;
constexpr const char* kNobody =
    "no process on this host shows itself, of those that may be looked at: start the job with --mca btl_fabric_top 1";

int complain(const std::string& text) {
  std::cerr << "fabric_top: " << text << '\n';
  return kUsage;
}

struct Wishes {
  pid_t job = 0;  ///< 0: any
  bool once = false;
  bool json = false;
  double interval = 1;
};

/// The pages that are there now. Those of processes that have gone are removed.
std::vector<top::Shown> look(const Wishes& wishes) {
  std::vector<top::Shown> all;
  const std::vector<hang::Process> of_job =
      wishes.job != 0 ? hang::descendants(wishes.job) : std::vector<hang::Process>();
  for (top::FoundPage& page : top::find_pages(top::kFolder, geteuid() == 0)) {
    if (page.is_stale) {
      top::remove_stale(page);
      continue;
    }
    if (wishes.job != 0 &&
        std::none_of(of_job.begin(), of_job.end(), [&](const hang::Process& one) { return one.pid == page.pid; })) {
      continue;
    }
    const auto does = page.pid > 0 ? hang::activity(page.pid) : std::nullopt;
    all.push_back({std::move(page), does ? does->state : '?'});
  }
  return all;
}

/// Why nothing is shown.
std::string why_nobody(const Wishes& wishes) {
  return wishes.job != 0 && !hang::activity(wishes.job)
             ? "there is no process " + std::to_string(wishes.job) + " on this host"
             : kNobody;
}

bool has_any(const Json& view) {
  return !view["processes"].empty() || !view["not_shown"].empty();
}

/// CLOCK_MONOTONIC, as pages have it.
std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

int show_once(const Wishes& wishes) {
  const std::vector<top::Shown> processes = look(wishes);
  const Json view = top::view_of(processes, top::look_at_nics(processes), {}, now_ns());
  if (!has_any(view)) {
    return complain(why_nobody(wishes));
  }
  std::cout << (wishes.json ? view.dump(1, ' ', false, Json::error_handler_t::replace) + '\n' : top::as_text(view, {}))
            << std::flush;
  return std::cout ? 0 : complain("standard output cannot be written");
}

int watch(const Wishes& wishes) {
  const top::Screen screen;
  const std::chrono::milliseconds pause(static_cast<int>(wishes.interval * 1000));
  top::Nics before;
  do {
    const std::vector<top::Shown> processes = look(wishes);
    top::Nics nics = top::look_at_nics(processes);
    const Json view = top::view_of(processes, nics, before, now_ns());
    if (!screen.show(has_any(view) ? top::as_text(view, screen.place()) : why_nobody(wishes) + '\n')) {
      return complain("standard output cannot be written");
    }
    before = std::move(nics);
  } while (screen.pause(pause));
  return 0;
}

int run(int argc, char** argv) {
  Wishes wishes;
  CLI::App app(
      "Shows what the processes of this host's jobs send, to whom and how fast, and what they wait for: those that were "
      "started with --mca btl_fabric_top 1.",
      "fabric_top");
  app.set_version_flag("--version", "fabric_top " FABRIC_VERSION);
  CLI::Option* const once = app.add_flag("--once", wishes.once, "show it once, and end");
  app.add_flag("-j,--json", wishes.json, "JSON instead of tables; with --once")->needs(once);
  app.add_option("--job", wishes.job, "only what this process, an mpirun for example, has started on this host")
      ->type_name("PID")
      ->check(CLI::PositiveNumber);
  app.add_option("--interval", wishes.interval, "seconds between two looks; q ends")
      ->check(finite_range(0.1, 3600.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return wishes.once ? show_once(wishes) : watch(wishes);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fabric_top: %s\n", error.what());
    return kUsage;
  }
}
