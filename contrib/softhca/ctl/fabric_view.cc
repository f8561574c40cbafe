// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/fabric_view.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ctl/find_fabric.h"
#include "fabric/directory.h"
#include "transport/futex.h"

namespace softhca {

namespace {

// Who holds a lock on one of these bytes; l_type is F_UNLCK if nobody does.
struct flock holder_of(int locks, unsigned first, unsigned count) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  if (fcntl(locks, F_GETLK, &lock) != 0) lock.l_type = F_UNLCK;
  return lock;
}

}  // namespace

void give_up(const std::string& why) {
  // softhca-run calls this program by its own name.
  const std::string name = program_invocation_short_name;
  fputs(in_each_line(name + ": ", why).c_str(), stderr);
  exit(2);
}

std::string in_each_line(const std::string& before, const std::string& text) {
  std::string result;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    result += before + text.substr(from, end - from) + "\n";
    from = end + 1;
  }
  return result;
}

FabricView::FabricView() {
  const char* directory = getenv("SOFTHCA_DIR");
  directory_ = directory != nullptr && *directory != '\0' ? directory : find_fabric("");
  if (const std::string problem = problem_of_directory(directory_); !problem.empty()) give_up(problem);
  if (const std::string errors = load_config(directory_, config_); !errors.empty()) give_up(errors);
  file_ = open((directory_ + "/slots").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  locks_ = open((directory_ + "/locks").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0 || locks_ < 0 || ftruncate(file_, kSlots * kSlotBytes) != 0)
    give_up("the files in " + directory_ + " cannot be opened: " + strerror(errno));
  if (const std::string problem = problem_of_layout(directory_, map(kHubSlot).header); !problem.empty())
    give_up(problem);
}

Slot& FabricView::map(unsigned slot) {
  if (base_[slot] == nullptr) {
    void* mapped = mmap(nullptr, kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_,
                        static_cast<off_t>(slot * kSlotBytes));
    if (mapped == MAP_FAILED) give_up(std::string("a slot cannot be mapped: ") + strerror(errno));
    base_[slot] = static_cast<Slot*>(mapped);
  }
  return *base_[slot];
}

bool FabricView::has_members(const std::string& directory) {
  const int locks = open((directory + "/locks").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (locks < 0) return false;
  const bool any = holder_of(locks, kHubSlot + 1, kSlots - 1).l_type != F_UNLCK;
  close(locks);
  return any;
}

pid_t FabricView::owner_of(unsigned slot) const {
  const struct flock lock = holder_of(locks_, slot, 1);
  return lock.l_type != F_UNLCK && lock.l_pid > 0 ? lock.l_pid : 0;
}

Slot* FabricView::live_slot(unsigned slot) {
  if (slot == kHubSlot || slot >= kSlots) return nullptr;
  if (holder_of(locks_, slot, 1).l_type == F_UNLCK) return nullptr;
  Slot& mapped = map(slot);
  return mapped.header.in_use.load(std::memory_order_acquire) != 0 ? &mapped : nullptr;
}

void FabricView::for_each_live(const std::function<void(unsigned, Slot&)>& each) {
  for (unsigned number = 1; number < kSlots; ++number)
    if (Slot* slot = live_slot(number)) each(number, *slot);
}

// Read, not mapped: a table is large and all but empty, and what is looked at by way of a mapping takes memory.
void FabricView::for_each_entry(unsigned slot, size_t table, size_t entry_bytes, size_t count,
                                const std::function<void(size_t, const unsigned char*)>& each) const {
  constexpr size_t kAtOnce = 256;
  std::vector<unsigned char> entries(kAtOnce * entry_bytes);
  const size_t begin = slot * kSlotBytes + table, end = begin + count * entry_bytes;
  for (size_t at = begin; at < end;) {
    // Pages that nobody has written to are no data; ENXIO: nor is there any behind them.
    const off_t data = lseek(file_, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;
    if (data > static_cast<off_t>(at)) at += (static_cast<size_t>(data) - at) / entry_bytes * entry_bytes;
    if (at >= end) return;
    const size_t here = std::min(kAtOnce, (end - at) / entry_bytes);
    const ssize_t got = pread(file_, entries.data(), here * entry_bytes, static_cast<off_t>(at));
    if (got < static_cast<ssize_t>(entry_bytes))
      give_up(std::string("the fabric's memory cannot be read: ") + strerror(errno));
    for (size_t i = 0; i < static_cast<size_t>(got) / entry_bytes; ++i)
      each((at - begin) / entry_bytes + i, &entries[i * entry_bytes]);
    at += static_cast<size_t>(got) / entry_bytes * entry_bytes;
  }
}

size_t FabricView::memory_regions(unsigned slot) const {
  size_t found = 0;
  for_each_entry(slot, offsetof(Slot, mrs), sizeof(MrEntry), kMrsPerSlot, [&](size_t, const unsigned char* entry) {
    uint32_t key = 0;
    memcpy(&key, entry + offsetof(MrEntry, key), sizeof key);
    found += key != 0 ? 1 : 0;
  });
  return found;
}

void FabricView::ring(Slot& slot, uint32_t attention) {
  slot.header.attention.fetch_or(attention);
  slot.header.bell.fetch_add(1);
  futex_wake(slot.header.bell);
}

}  // namespace softhca
