// SPDX-License-Identifier: BSD-3-Clause
//
// Asks the processes of a job that hangs what they wait for, and says who waits for whom.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "common/base/host_name.h"
#include "common/base/whole_file.h"
#include "contrib/fabric_hang/analysis.h"
#include "contrib/fabric_hang/answer.h"
#include "contrib/fabric_hang/gather.h"
#include "contrib/fabric_hang/jobs.h"
#include "contrib/fabric_hang/processes.h"
#include "contrib/fabric_hang/text.h"
#include "contrib/options/finite_range.h"

namespace {

using Json = nlohmann::ordered_json;
using namespace fabric;

constexpr int kUsage = 2;

int complain(const std::string& text) {
  std::cerr << "fabric_hang: " << text << '\n';
  return kUsage;
}

/// All that --json or --collect have written into a file, one after the other.
Status read_file(const std::string& path, Json& processes) {
  std::ifstream opened;
  if (path != "-") {
    opened.open(path);
  }
  std::istream& file = path == "-" ? std::cin : opened;
  if (!file) {
    return failure(path + " cannot be read");
  }
  while (file >> std::ws && !file.eof()) {
    try {
      Json document;
      file >> document;
      for (Json& one : document.at("processes")) {
        hang::make_printable(one);
        processes.push_back(std::move(one));
      }
    } catch (const Json::exception&) {
      return failure(path + " is none of --json or --collect");
    }
  }
  return {};
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// Those that were named by number. What cannot be asked is said, and passed over.
std::vector<hang::Process> named(const std::vector<std::string>& numbers) {
  std::vector<hang::Process> found;
  for (const std::string& text : numbers) {
    auto one = text.size() > 9 ? failure("process " + text + ": there is none") : hang::process(std::stoi(text));
    if (one) {
      found.push_back(std::move(*one));
    } else {
      (void)complain(one.error().text);
    }
  }
  return found;
}

/// Names of files, in stacks, may be of any bytes.
std::string as_text(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// The exit status: 1 if anything is wrong, with any of the jobs.
int tell(const Json& processes, bool json) {
  bool is_wrong = false;
  Json all = Json::array();
  std::string text;
  for (const Json& job : hang::by_job(processes)) {
    const Json findings = hang::analyse(job);
    is_wrong = is_wrong || hang::is_something_wrong(findings);
    text += (text.empty() ? "" : "\n") + hang::as_text(job, findings);
    all.push_back(findings);
  }
  std::cout << (json ? as_text({{"processes", processes}, {"jobs", all}}) : text) << std::flush;
  if (!std::cout) {
    return complain("standard output cannot be written");
  }
  return is_wrong ? 1 : 0;
}

/// Each process that is asked takes one.
void take_all_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);  // gather() tells whom it could not ask
  }
}

int run(int argc, char** argv) {
  std::vector<std::string> what;
  std::string folder;
  pid_t job = 0;
  double answer = 2;
  double apart = 1;
  bool json = false;

  CLI::App app("Asks the processes of a job that hangs what they wait for, and says who waits for whom.",
               "fabric_hang");
  app.set_version_flag("--version", "fabric_hang " FABRIC_VERSION);
  app.add_option("what", what,
                 "PIDs of processes, or files that --json or --collect have written (- is standard input); "
                 "nothing: all processes of this user on this host")
      ->type_name("PID|FILE");
  const CLI::Option* const job_option =
      app.add_option("--job", job, "only what this process, an mpirun for example, has started on this host")
          ->type_name("PID")
          ->check(CLI::PositiveNumber);
  app.add_option("--collect", folder, "write what the processes tell to DIR/HOST.json, and analyse nothing")
      ->type_name("DIR");
  app.add_flag("-j,--json", json, "JSON instead of text");
  app.add_option("--timeout", answer, "seconds for a process to answer")
      ->check(finite_range(0.1, 600.0))
      ->capture_default_str();
  app.add_option("--apart", apart, "seconds between the two looks")
      ->check(finite_range(0.1, 600.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  std::vector<std::string> numbers;
  std::vector<std::string> files;
  for (const std::string& one : what) {
    (is_number(one) ? numbers : files).push_back(one);
  }
  if ((!files.empty() && (!numbers.empty() || job_option->count() > 0 || !folder.empty())) ||
      (!numbers.empty() && job_option->count() > 0)) {
    return complain("give PIDs, files or --job, and not several of these");
  }
  Json processes = Json::array();
  for (const std::string& path : files) {
    if (const Status read = read_file(path, processes); !read) {
      return complain(read.error().text);
    }
  }
  if (files.empty()) {
    take_all_descriptors();
    const auto milliseconds = [](double seconds) {
      return std::chrono::milliseconds(static_cast<int>(seconds * 1000));
    };
    const std::vector<hang::Process> found = !numbers.empty()          ? named(numbers)
                                             : job_option->count() > 0 ? hang::descendants(job)
                                                                       : hang::own_processes();
    processes = hang::gather(found, {milliseconds(answer), milliseconds(apart)});
  }
  if (processes.empty()) {
    return complain(!files.empty() ? "nobody tells anything there"
                    : job_option->count() > 0
                        ? "process " + std::to_string(job) + " has started none on this host that runs btl_fabric"
                        : "no process on this host runs btl_fabric, of those that may be asked");
  }
  if (!folder.empty()) {
    const Status written = write_whole_file(folder + '/' + host_name() + ".json", as_text({{"processes", processes}}));
    return written ? 0 : complain(written.error().text);
  }
  try {
    return tell(processes, json);
  } catch (const Json::exception& error) {  // of files
    return complain(std::string("that is not what --json or --collect write: ") + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fabric_hang: %s\n", error.what());
    return kUsage;
  }
}
