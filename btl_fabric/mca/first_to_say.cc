// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/first_to_say.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <unordered_set>

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

/// Hashes of what was said. 0: a free place, and those behind it are free too.
struct SaidList {
  static constexpr std::size_t kPlaces = 4096 / sizeof(std::uint64_t);
  std::array<std::atomic<std::uint64_t>, kPlaces> said;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(SaidList) == 4096);

std::atomic<SaidList*> shared_list = nullptr;

bool is_first_of_host(SaidList& list, std::uint64_t hash) noexcept {
  for (std::atomic<std::uint64_t>& place : list.said) {
    std::uint64_t said = 0;
    if (place.compare_exchange_strong(said, hash)) {
      return true;
    }
    if (said == hash) {
      return false;
    }
  }
  return true;  // full
}

}  // namespace

void share_said_list(const char* session_folder) noexcept {
  SaidList* list = nullptr;
  if (session_folder != nullptr) {
    char path[4096];
    std::snprintf(path, sizeof path, "%s/btl_fabric_said", session_folder);
    const int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    // The room first: a write to a page for which there is none ends the process.
    if (file >= 0 && posix_fallocate(file, 0, sizeof(SaidList)) == 0) {
      void* const mapped = mmap(nullptr, sizeof(SaidList), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      list = mapped == MAP_FAILED ? nullptr : static_cast<SaidList*>(mapped);
    }
    if (file >= 0) {
      close(file);
    }
  }
  if (SaidList* const before = shared_list.exchange(list); before != nullptr) {
    munmap(before, sizeof(SaidList));
  }
}

bool first_to_say(std::string_view text) noexcept try {
  const std::uint64_t hash = hash_of(text);
  SaidList* const list = shared_list.load();
  return is_first_of_process(hash) && (list == nullptr || is_first_of_host(*list, hash));
} catch (...) {
  return true;
}

}  // namespace fabric
