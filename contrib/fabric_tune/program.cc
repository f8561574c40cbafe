// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/program.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "contrib/fabric_tune/children.h"

namespace fabric::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPrefix = "OMPI_MCA_";
constexpr const char* kReport = "btl_fabric_report";
constexpr std::size_t kLongestLine = 4096;  // std::regex needs stack for each character
constexpr std::size_t kTail = 2000;
constexpr const char* kFolder = ".fabric_tune.";
constexpr const char* kLock = "/lock";

std::string contents_of(const std::string& file) {
  std::ifstream opened(file);
  return {std::istreambuf_iterator<char>(opened), {}};
}

/// What the exit status says; nothing if that is 0.
std::string problem_of(const Ended& ended, const std::vector<std::string>& command,
                       std::optional<std::chrono::duration<double>> limit) {
  if (ended.how == End::kInterrupted) {
    return "it was interrupted";
  }
  if (ended.how == End::kTimeOver) {
    char text[64];
    std::snprintf(text, sizeof text, "it was ended after %.1f s", limit ? limit->count() : 0);
    return text;
  }
  if (WIFSIGNALED(ended.status)) {
    return std::string("it died of signal ") + std::to_string(WTERMSIG(ended.status));
  }
  const int status = WEXITSTATUS(ended.status);
  if (status == 126 || status == 127) {
    return command.front() + " cannot be run (exit status " + std::to_string(status) + ")";
  }
  return status == 0 ? "" : "its exit status is " + std::to_string(status);
}

/// A file in the folder that is locked while this process lives; it has its name only then, so that nobody finds it without its lock. -1
/// where the file system has no locks: then the folder stays if this process is killed.
int locked_file(const std::string& folder) {
  const std::string name = folder + kLock;
  const std::string before = name + ".new";
  const int file = open(before.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0 && (flock(file, LOCK_EX | LOCK_NB) != 0 || std::rename(before.c_str(), name.c_str()) != 0)) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

std::optional<double> figure_in(const std::string& output, const std::regex& pattern) {
  std::optional<double> figure;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kLongestLine) {
      continue;
    }
    for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) {
      const std::string text = at->size() > 1 ? at->str(1) : at->str();
      char* rest = nullptr;
      if (const double number = std::strtod(text.c_str(), &rest); rest != text.c_str() && std::isfinite(number)) {
        figure = number;
      }
    }
  }
  return figure;
}

void remove_folders_of_the_dead(const std::string& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    struct stat folder {};
    if (!at->path().filename().string().starts_with(kFolder) || lstat(path.c_str(), &folder) != 0 ||
        !S_ISDIR(folder.st_mode) || folder.st_uid != geteuid()) {
      continue;
    }
    const int lock = open((path + kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(at->path(), ignored);
    }
    if (lock >= 0) {
      close(lock);
    }
  }
}

Result<std::unique_ptr<Program>> Program::make(std::vector<std::string> command, Metric metric,
                                               const std::string& parent, bool shows_output) {
  std::unique_ptr<Program> program(new Program);
  program->command_ = std::move(command);
  program->metric_ = std::move(metric);
  program->shows_output_ = shows_output;
  std::error_code error;
  std::string name = std::filesystem::absolute(parent, error).string() + '/' + kFolder + "XXXXXX";
  if (error || mkdtemp(name.data()) == nullptr) {
    return failure("no folder can be made in " + parent + " (" + (error ? error.message() : std::strerror(errno)) +
                   "): name one by --dir that all hosts of the program see");
  }
  program->folder_ = name;
  program->lock_ = locked_file(name);
  remove_folders_of_the_dead(std::filesystem::path(name).parent_path());
  if (const int number = become_parent_of_all(); number != 0) {
    return failure(std::string("signals cannot be taken: ") + std::strerror(number));
  }
  return program;
}

Program::~Program() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  if (lock_ >= 0) {
    close(lock_);
  }
}

std::vector<std::string> Program::environment(const Settings& settings) const {
  std::vector<std::string> ours{std::string(kPrefix) + kReport + '=' + folder_ + "/report.%j.json"};
  for (const auto& [name, value] : settings) {
    ours.push_back(kPrefix + name + '=' + value);
  }
  std::vector<std::string> all;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::none_of(ours.begin(), ours.end(), [name](const std::string& one) { return one.starts_with(name); })) {
      all.emplace_back(text);
    }
  }
  all.insert(all.end(), ours.begin(), ours.end());
  return all;
}

/// Of the jobs that the program consists of, the one that has done most.
std::optional<Recorded> Program::take_report() const {
  std::optional<Recorded> most;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".json") {
      continue;
    }
    if (auto recorded = read_recorded(at->path().string());
        recorded && (!most || recorded->operations > most->operations)) {
      most = std::move(*recorded);
    }
  }
  return most;
}

Run Program::run(const Settings& settings, std::optional<std::chrono::duration<double>> limit) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(folder_, ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (at->path() != folder_ + kLock) {
      std::filesystem::remove(at->path(), ignored);
    }
  }
  Run result;
  const std::string output = folder_ + "/output";
  const int descriptor = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
  if (descriptor < 0) {
    result.problem = output + ": " + std::strerror(errno);
    return result;
  }
  const std::vector<std::string> variables = environment(settings);
  const auto begin = Clock::now();
  const pid_t child = start(command_, variables, descriptor);
  close(descriptor);
  if (child < 0) {
    result.problem = std::string("no process can be started: ") + std::strerror(-child);
    return result;
  }
  const Ended ended = wait_for(child, limit);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (ended.how == End::kEnded) {
    end_descendants(std::chrono::seconds(2));
  } else {
    end(child);
  }
  result.is_interrupted = ended.how == End::kInterrupted;
  result.problem = problem_of(ended, command_, limit);
  result.report = take_report();
  const std::string said = contents_of(output);
  if (shows_output_) {
    std::cerr << said << std::flush;
  }
  result.said = said.substr(said.size() - std::min(said.size(), kTail));
  result.figure = result.seconds;
  if (result.problem.empty() && metric_.pattern) {
    const std::optional<double> figure = figure_in(said, *metric_.pattern);
    result.figure = figure.value_or(0);
    if (!figure || *figure <= 0) {
      result.problem = figure ? "its figure is not above 0" : "nothing that it prints matches --metric";
    }
  }
  return result;
}

}  // namespace fabric::tune
