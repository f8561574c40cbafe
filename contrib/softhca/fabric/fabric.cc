// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/fabric.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <sstream>

#include "fabric/directory.h"
#include "fabric/layout_magic.h"
#include "fabric/of_member.h"
#include "transport/remote_memory.h"

namespace softhca {

Fabric::OwnPage Fabric::own_{};

namespace {

std::mutex join_mutex;
bool join_failed = false;  // it was tried, and said why
Fabric* member =
    nullptr;  // this process's membership, or that of the one that it is a child of, which makes it no second member

void complain(const std::string& what) {
  fprintf(stderr, "softhca: %s\n", what.c_str());
}
std::string with_errno(const std::string& what) {
  return what + ": " + strerror(errno);
}

// A file of the fabric's directory; nobody else's, and no link to elsewhere.
int open_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat status {};
  if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_uid != geteuid() || !S_ISREG(status.st_mode))) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

struct flock lock_of(unsigned slot, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return lock;
}

unsigned processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  const int own = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  // A process that is bound to one processor still has neighbours on the others.
  return static_cast<unsigned>(std::max(all, long{own}));
}

}  // namespace

void leave_in_child() {
  Fabric::own_.instance.store(nullptr);
}

Fabric* Fabric::join() {
  if (Fabric* there = get()) return there;
  std::lock_guard guard(join_mutex);
  if (Fabric* there = get()) return there;
  if (member != nullptr) {
    member->leave_nothing();
    member = nullptr;
    membership.fetch_add(1);
  }
  const char* directory = getenv("SOFTHCA_DIR");
  if (join_failed || directory == nullptr || *directory == '\0') {
    errno = ENODEV;
    return nullptr;
  }
  // Never freed: threads may still use it while the process ends.
  auto* fabric = new (std::nothrow) Fabric;
  if (fabric == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  fabric->directory_ = directory;
  if (!fabric->open()) {
    const int error = errno;
    join_failed = true;
    delete fabric;
    errno = error;
    return nullptr;
  }
  prepare_once();
  member = fabric;
  own_.instance.store(fabric, std::memory_order_release);
  allow_copies(*fabric);
  return fabric;
}

// A child inherits this.
void Fabric::prepare_once() {
  static bool prepared = false;
  if (prepared) return;
  prepared = true;
  if (madvise(&own_, sizeof own_, MADV_WIPEONFORK) != 0) pthread_atfork(nullptr, nullptr, leave_in_child);
  // The kernel notices how we end. Until then other threads and other handlers may go on, and what they hold is theirs: here it
  // only is no longer counted.
  atexit([] {
    if (Fabric* own = get()) own->uncount(own->self().header);
  });
}

// The objects that a child has inherited point to where its parent's slots are, and the child has none there. With empty memory
// in their place they are queues that hold nothing and queue pairs in RESET, whoever uses them; and no slot of the child's own
// comes to lie there. Where the child has put something else meanwhile, that stays.
void Fabric::leave_nothing() {
  for (const std::atomic<Slot*>& base : base_)
    if (Slot* slot = base.load(std::memory_order_relaxed); slot != nullptr)
      mmap(slot, kSlotBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
           -1, 0);
}

bool Fabric::open() {
  if (const std::string problem = problem_of_directory(directory_); !problem.empty()) {
    complain(problem);
    errno = EACCES;
    return false;
  }
  processors_ = processors();
  std::ifstream stream(directory_ + "/config");
  std::stringstream text;
  text << stream.rdbuf();
  if (const std::string errors = parse_config(text.str(), config_); !errors.empty()) {
    complain(directory_ + "/config: " + errors);
    errno = EINVAL;
    return false;
  }
  if (!open_files()) return false;
  if (!claim_slot()) return false;
  arena_.reset(offsetof(Slot, arena), kSlotBytes, [this](uint64_t offset, size_t bytes) {
    uint8_t* from = at(*self_, offset, bytes);
    if (from == nullptr || !commit(from, bytes)) return false;
    memset(from, 0, bytes);
    return true;
  });
  return true;
}

bool Fabric::open_files() {
  struct stat status {};
  file_ = open_file(directory_ + "/slots");
  locks_ = open_file(directory_ + "/locks");
  if (file_ < 0 || locks_ < 0) {
    complain(with_errno("a file in " + directory_ + " cannot be opened"));
    return false;
  }
  // The size is an address range, not memory: the file is sparse.
  if (fstat(file_, &status) != 0 ||
      (static_cast<uint64_t>(status.st_size) < kSlots * kSlotBytes && ftruncate(file_, kSlots * kSlotBytes) != 0)) {
    complain(with_errno("the file " + directory_ + "/slots cannot be made"));
    return false;
  }
  Slot* shared = map(kHubSlot);
  if (shared == nullptr || !commit(shared, sizeof(SlotHeader)) || !commit(&hub(), sizeof(Hub))) {
    complain(with_errno("the file " + directory_ + "/slots cannot be mapped, or its file system is full"));
    return false;
  }
  if (const std::string problem = problem_of_member(directory_, shared->header); !problem.empty()) {
    complain(problem);
    errno = EPROTO;
    return false;
  }
  return true;
}

bool Fabric::claim_slot() {
  // Slots are used in turn, so that the number of a process that has died is not soon another's.
  const unsigned first = hub().next_slot.fetch_add(1, std::memory_order_relaxed);
  for (unsigned i = 0; i < kSlots - 1; ++i) {
    const unsigned slot = 1 + (first + i) % (kSlots - 1);
    struct flock lock = lock_of(slot, F_WRLCK);
    if (fcntl(locks_, F_SETLK, &lock) != 0) continue;

    slot_ = slot;
    self_ = map(slot);
    if (self_ != nullptr && commit(self_, sizeof(SlotHeader)) && empty_slot() && commit(self_, offsetof(Slot, cqs))) {
      announce();
      return true;
    }
    complain(with_errno("memory of " + directory_ + " cannot be had"));
    return false;
  }
  complain("all " + std::to_string(kSlots - 1) + " places of this fabric are taken");
  errno = EAGAIN;
  return false;
}

// Nobody may find what a dead owner left under the new number: all of its memory goes back but for the page of the header, where
// peers compare the incarnation, and the rest of that page is cleared.
bool Fabric::empty_slot() {
  SlotHeader& header = self_->header;
  note_death(header, header.incarnation.load());
  header.in_use.store(0);
  memset(reinterpret_cast<uint8_t*>(self_) + sizeof header, 0, kPage - sizeof header);
  return fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(file_offset(slot_, kPage)),
                   static_cast<off_t>(kSlotBytes - kPage)) == 0;
}

void Fabric::announce() {
  SlotHeader& header = self_->header;
  incarnation_ = (header.incarnation.load() + 1) & 0xffff;
  if (incarnation_ == 0) incarnation_ = 1;
  stamp_ = stamp_of(slot_, incarnation_);
  const char* rank = config_.node_from.empty() ? nullptr : getenv(config_.node_from.c_str());
  node_ = (rank != nullptr ? static_cast<unsigned>(strtoul(rank, nullptr, 10)) : slot_ - 1) % config_.nodes;

  header.magic.store(kLayoutMagic);
  header.life.store(0);
  header.pid.store(getpid(), std::memory_order_release);
  header.node = node_;
  header.can_copy.store(0);
  header.asleep.store(0);
  header.attention.store(0);
  header.dead.store(0);
  header.past.clear();
  header.incarnation.store(incarnation_);
  header.in_use.store(1, std::memory_order_release);
  // In this order: whoever finds this process dead subtracts what has been added. Killed in between it counts for good, which makes
  // others yield sooner; the number never becomes less than none.
  hub().live.fetch_add(1);
  header.counted.store(1);
}

Slot* Fabric::map(unsigned slot) {
  if (slot >= kSlots) return nullptr;
  // Not in core dumps, and not in children: their writes would be ours.
  void* mapped = mmap(nullptr, kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_,
                      static_cast<off_t>(file_offset(slot, 0)));
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, kSlotBytes, MADV_DONTDUMP);
  madvise(mapped, kSlotBytes, MADV_DONTFORK);
  Slot* expected = nullptr;
  if (!base_[slot].compare_exchange_strong(expected, static_cast<Slot*>(mapped), std::memory_order_acq_rel)) {
    munmap(mapped, kSlotBytes);
    return expected;
  }
  return static_cast<Slot*>(mapped);
}

bool Fabric::alive(unsigned slot, uint32_t incarnation) {
  if (slot == slot_ && incarnation == incarnation_) return true;
  const Slot* owner = slot != kHubSlot ? peer(slot) : nullptr;
  if (owner == nullptr || !owns(owner->header, incarnation)) return false;
  struct flock lock = lock_of(slot, F_WRLCK);
  if (fcntl(locks_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return true;
  // Unless a new owner has come since.
  SlotHeader& header = peer(slot)->header;
  if (header.incarnation.load() == incarnation) note_death(header, incarnation);
  return false;
}

void Fabric::note_death(SlotHeader& header, uint32_t incarnation) {
  if (header.in_use.load() == 0) return;
  header.dead.store(incarnation);
  uncount(header);
}

// Many may find out that it is gone; one of them counts it.
void Fabric::uncount(SlotHeader& header) {
  if (header.counted.exchange(0) != 0) hub().live.fetch_sub(1);
}

bool Fabric::commit(const void* from, size_t bytes) {
  for (const unsigned slot : {slot_, kHubSlot}) {
    const auto* base = reinterpret_cast<const uint8_t*>(base_[slot].load(std::memory_order_acquire));
    const auto* begin = static_cast<const uint8_t*>(from);
    if (base == nullptr || begin < base || begin + bytes > base + kSlotBytes) continue;
    const auto offset = static_cast<uint64_t>(begin - base);
    return fallocate(file_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(file_offset(slot, offset)),
                     static_cast<off_t>(bytes)) == 0 ||
           errno == EOPNOTSUPP;
  }
  errno = EFAULT;
  return false;
}

bool Fabric::has_plenty(size_t bytes) const {
  constexpr uint64_t kTimes = 64;
  struct statvfs status {};
  return fstatvfs(file_, &status) == 0 && uint64_t{status.f_bavail} * status.f_frsize / kTimes >= bytes;
}

uint64_t Fabric::now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace softhca
