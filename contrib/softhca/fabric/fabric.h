// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// This process's place in the shared file: its slot, the slots of others, who is alive, and memory in its own slot.
//
// A process joins when it opens its first device and leaves when it ends, however it ends: to be alive is to hold a POSIX
// record lock on the byte `slot` of the file `locks`, which the kernel drops with the process (fcntl(2), "Advisory record
// locking"). So nothing has to be cleaned up. That it is about to end is seen without a system call (fabric/life_mark.h), by
// which no process that is written to by its number is mistaken for another.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "fabric/arena.h"
#include "fabric/config.h"
#include "fabric/layout.h"
#include "fabric/life_mark.h"

namespace softhca {

class Fabric {
 public:
  // Joins on the first call, in any thread. nullptr, with errno set, when there is no fabric ($SOFTHCA_DIR is unset), it
  // cannot be used (the reason goes to stderr, once), or all slots are taken. A child of a member becomes another member: what it
  // has inherited stays its parent's (fabric/of_member.h).
  static Fabric* join();
  // The same without joining: nullptr before the first join(), and in children until they join, which have this process's objects
  // and not its place in the fabric. Never fails once join() has succeeded.
  static Fabric* get() { return own_.instance.load(std::memory_order_acquire); }

  const Config& config() const { return config_; }
  unsigned node() const { return node_; }

  unsigned slot() const { return slot_; }
  uint32_t incarnation() const { return incarnation_; }
  RobustLock::Stamp stamp() const { return stamp_; }
  static constexpr RobustLock::Stamp stamp_of(unsigned slot, uint32_t incarnation) {
    return (incarnation & 0xffff) << 16 | (slot + 1);
  }

  Hub& hub() { return *reinterpret_cast<Hub*>(base_[kHubSlot].load(std::memory_order_relaxed)->arena); }
  Slot& self() { return *self_; }
  // Another process's slot, or this one's own, or the hub's; mapped on first use. nullptr if it cannot be mapped or nobody
  // has ever been there. The mapping stays for good.
  Slot* peer(unsigned slot) {
    Slot* mapped = slot < kSlots ? base_[slot].load(std::memory_order_acquire) : nullptr;
    return mapped != nullptr ? mapped : map(slot);
  }

  // Whether that owner of that slot still runs. Asks the kernel (a microsecond); what it finds is noted in the slot.
  bool alive(unsigned slot, uint32_t incarnation);
  bool alive(RobustLock::Stamp stamp) { return alive((stamp & 0xffff) - 1, stamp >> 16); }
  // The same from memory: false only if the kernel or someone else has noted it, or the slot has a new owner.
  bool believed_alive(unsigned slot, uint32_t incarnation) {
    const Slot* s = peer(slot);
    return s != nullptr && believed_alive(*s, incarnation);
  }
  static bool believed_alive(const Slot& slot, uint32_t incarnation) {
    // `life` first: a new owner clears it after `in_use`.
    return life_of(slot.header.life.load(std::memory_order_acquire)) != Life::Ended && owns(slot.header, incarnation);
  }
  // For who is about to use SlotHeader::pid, which was read before this call. A system call only if that process has no life
  // mark.
  bool known_alive(unsigned slot, uint32_t incarnation) {
    const Slot* s = peer(slot);
    if (s == nullptr) return false;
    const Life life = life_of(s->header.life.load(std::memory_order_acquire));
    return life == Life::Unknown ? alive(slot, incarnation) : life == Life::Runs && owns(s->header, incarnation);
  }

  // Memory at an offset in a slot, or nullptr when [offset, offset + length) is not inside it: offsets of other processes
  // are not trusted.
  static uint8_t* at(Slot& slot, uint64_t offset, uint64_t length) {
    if (offset > kSlotBytes || length > kSlotBytes - offset) return nullptr;
    return reinterpret_cast<uint8_t*>(&slot) + offset;
  }
  uint64_t offset_in_self(const void* p) const {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(p) - reinterpret_cast<const uint8_t*>(self_));
  }

  // Memory in this process's slot that others can reach. Zeroed, 64-byte aligned. 0: there is no more (ENOMEM).
  uint64_t allocate(size_t bytes) { return arena_.allocate(bytes); }
  void release(uint64_t offset, size_t bytes) { arena_.release(offset, bytes); }
  // Backs part of this process's slot (or of the hub) with memory, so that touching it cannot end in SIGBUS when the file
  // system is full. false: it is full.
  [[nodiscard]] bool commit(const void* from, size_t bytes);
  // Whether the file system has many times that: what only makes things faster must leave room for what is needed.
  [[nodiscard]] bool has_plenty(size_t bytes) const;

  // The file of all slots; offset of a slot's byte in it. For copies by the target (transport/remote_memory.cc).
  int file() const { return file_; }
  static uint64_t file_offset(unsigned slot, uint64_t offset) { return uint64_t{slot} * kSlotBytes + offset; }
  const std::string& directory() const { return directory_; }

  // Empty polls before the processor is yielded: few when more processes have joined than there are processors.
  unsigned polls_before_yield() const { return processors_ >= live() ? kIdlePolls : kCrowdedPolls; }

  // CLOCK_MONOTONIC, nanoseconds.
  static uint64_t now_ns();

 private:
  static constexpr unsigned kIdlePolls = 200;
  static constexpr unsigned kCrowdedPolls = 8;  // a round over a few queues

  Fabric() = default;
  static void prepare_once();
  void leave_nothing();
  bool open();
  bool open_files();
  bool claim_slot();
  bool empty_slot();
  void announce();
  void note_death(SlotHeader& header, uint32_t incarnation);
  void uncount(SlotHeader& header);
  static bool owns(const SlotHeader& header, uint32_t incarnation) {
    return header.in_use.load(std::memory_order_acquire) != 0 &&
           header.incarnation.load(std::memory_order_relaxed) == incarnation &&
           header.dead.load(std::memory_order_relaxed) != incarnation;
  }
  Slot* map(unsigned slot);
  unsigned live() const {
    return reinterpret_cast<const Hub*>(base_[kHubSlot].load(std::memory_order_relaxed)->arena)
        ->live.load(std::memory_order_relaxed);
  }

  // A page that the kernel clears in every child, whether fork(3) made it, _Fork(3) or a call of clone(2), which run no
  // handlers. (A child of vfork has nothing of its own, and may only call exec or _exit.)
  static constexpr size_t kPage = 4096;
  static_assert(sizeof(SlotHeader) < kPage);
  struct alignas(kPage) OwnPage {
    std::atomic<Fabric*> instance;
  };
  static OwnPage own_;

  std::string directory_;
  Config config_;
  int file_ = -1;
  int locks_ = -1;
  unsigned slot_ = 0;
  uint32_t incarnation_ = 0;
  RobustLock::Stamp stamp_ = 0;
  unsigned node_ = 0;
  unsigned processors_ = 1;
  Slot* self_ = nullptr;
  Arena arena_;
  std::mutex commit_mutex_;
  std::atomic<Slot*> base_[kSlots] = {};

  friend void leave_in_child();
};

}  // namespace softhca
