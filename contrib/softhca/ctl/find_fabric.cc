// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/find_fabric.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "ctl/fabric_view.h"

namespace softhca {
namespace {

namespace fs = std::filesystem;

// As /proc/locks names a file; empty: it is not there.
std::string name_in_proc_locks(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  char text[64];
  snprintf(text, sizeof text, " %02x:%02x:%llu ", major(status.st_dev), minor(status.st_dev),
           static_cast<unsigned long long>(status.st_ino));
  return text;
}

// A softhca-run holds a lock on the file `running`. Looked up, not tried: a lock that is taken for a moment may be what another
// softhca-run finds.
bool runs(const fs::path& directory) {
  const std::string wanted = name_in_proc_locks(directory / "running");
  std::ifstream locks("/proc/locks");
  for (std::string line; !wanted.empty() && std::getline(locks, line);)
    if (line.find(" FLOCK ") != std::string::npos && line.find(wanted) != std::string::npos) return true;
  return false;
}

// As softhca-run has them, in its order.
std::vector<fs::path> running_fabrics() {
  std::vector<fs::path> found;
  std::set<std::string> seen;
  const std::string prefix = "softhca." + std::to_string(geteuid()) + ".";
  for (const char* place : {static_cast<const char*>("/dev/shm"), static_cast<const char*>(getenv("XDG_RUNTIME_DIR")),
                            static_cast<const char*>(getenv("TMPDIR")), "/tmp"}) {
    if (place == nullptr || !seen.insert(place).second) continue;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(place, ignored))
      if (entry.path().filename().string().compare(0, prefix.size(), prefix) == 0 && runs(entry.path()))
        found.push_back(entry.path());
  }
  return found;
}

}  // namespace

std::string find_fabric(const std::string& name) {
  const std::string wanted = "softhca." + std::to_string(geteuid()) + ".named." + name;
  const std::vector<fs::path> fabrics = running_fabrics();
  std::string all;
  for (const fs::path& fabric : fabrics) {
    if (!name.empty() && fabric.filename() == wanted) return fabric;
    all += "\n  SOFTHCA_DIR=" + fabric.string();
  }
  if (name.empty() && fabrics.size() == 1) return fabrics[0];
  if (!name.empty()) give_up("no fabric \"" + name + "\" runs" + (all.empty() ? all : "; there are" + all));
  if (fabrics.empty()) give_up("$SOFTHCA_DIR is not set, and you have no fabric that runs: start one with softhca-run");
  give_up("$SOFTHCA_DIR is not set, and you have several fabrics; set it to one of them, or give --join NAME:" + all);
}

}  // namespace softhca
