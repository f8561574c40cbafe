// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/first_to_say.h"

#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <unordered_set>

#include "btl_fabric/base/opal.h"

namespace fabric {
namespace {

/// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: the same in all processes, which std::hash need not be.
std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

bool is_first_of_process(std::uint64_t hash) {
  static auto& mutex = *new std::mutex;
  static auto& said =
      *new std::unordered_set<std::uint64_t>;  // never destroyed: threads may report while a process ends
  const std::lock_guard guard(mutex);
  return said.insert(hash).second;
}

/// A folder and not a file: every process of Open MPI 4.1 that ends deletes the files of the session folder. mpirun deletes all.
bool is_first_of_host(std::uint64_t hash) noexcept {
  const char* const folder = opal_process_info.job_session_dir;
  if (folder == nullptr) {
    return true;
  }
  char path[4096];
  std::snprintf(path, sizeof path, "%s/btl_fabric_said_%016" PRIx64, folder, hash);
  return mkdir(path, 0700) == 0 || errno != EEXIST;
}

}  // namespace

bool first_to_say(std::string_view text) noexcept try {
  const std::uint64_t hash = hash_of(text);
  return is_first_of_process(hash) && is_first_of_host(hash);
} catch (...) {
  return true;
}

}  // namespace fabric
