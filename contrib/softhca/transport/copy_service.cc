// SPDX-License-Identifier: BSD-3-Clause
#include "transport/copy_service.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "fabric/of_member.h"
#include "transport/engine.h"
#include "transport/futex.h"
#include "transport/gather.h"

namespace softhca {
namespace {

constexpr uint64_t kBounceBytes = 256 << 10;

// Bounce buffers of this process: how many there are, and those that nobody uses at the moment.
struct Bounces {
  std::mutex mutex;
  std::vector<uint64_t> free;
  unsigned made = 0;
  bool complained = false;
};
Bounces& bounces() {
  return of_member<Bounces>();
}

struct Copier {
  std::once_flag once;
};

class Bounce {
 public:
  // Waits for another thread's if there is no memory for one more. Without any, offset() is 0.
  explicit Bounce(Fabric& fabric) {
    while (!find(fabric)) sched_yield();
  }
  ~Bounce() {
    if (offset_ == 0) return;
    std::lock_guard guard(bounces().mutex);
    bounces().free.push_back(offset_);
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  uint64_t offset() const { return offset_; }

 private:
  // False: to be tried again.
  bool find(Fabric& fabric) {
    Bounces& all = bounces();
    std::lock_guard guard(all.mutex);
    if (!all.free.empty()) {
      offset_ = all.free.back();
      all.free.pop_back();
      return true;
    }
    if ((offset_ = fabric.allocate(kBounceBytes)) != 0) {
      ++all.made;
      return true;
    }
    if (all.made != 0) return false;
    if (!std::exchange(all.complained, true))
      fprintf(
          stderr,
          "softhca: there is no room in %s for the %u KiB that a copy without process_vm_writev needs: requests fail "
          "with IBV_WC_LOC_QP_OP_ERR (make its file system larger, or have fewer queues)\n",
          fabric.directory().c_str(), static_cast<unsigned>(kBounceBytes >> 10));
    return true;
  }

  uint64_t offset_ = 0;
};

// pread(2) or pwrite(2) of the whole range; false: a bad address.
bool file_to_memory(int file, uint64_t addr, uint64_t length, uint64_t offset) {
  while (length != 0) {
    const ssize_t n = pread(file, reinterpret_cast<void*>(addr), length, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    addr += static_cast<uint64_t>(n), offset += static_cast<uint64_t>(n), length -= static_cast<uint64_t>(n);
  }
  return true;
}
bool memory_to_file(int file, uint64_t addr, uint64_t length, uint64_t offset) {
  while (length != 0) {
    const ssize_t n = pwrite(file, reinterpret_cast<const void*>(addr), length, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    addr += static_cast<uint64_t>(n), offset += static_cast<uint64_t>(n), length -= static_cast<uint64_t>(n);
  }
  return true;
}

bool serve(Fabric& fabric, const CopyRequest& request) {
  const uint32_t length = std::min<uint32_t>(request.length, kBounceBytes);
  if (request.to_target == 0) return memory_to_file(fabric.file(), request.addr, length, request.file_offset);
  // The last byte after all others.
  return length != 0 && file_to_memory(fabric.file(), request.addr, length - 1, request.file_offset) &&
         file_to_memory(fabric.file(), request.addr + length - 1, 1, request.file_offset + length - 1);
}

// Waits a while: first by yielding, then by sleeping. true: it is time to ask whether the other lives.
bool wait_a_bit(Fabric& fabric, unsigned& rounds) {
  constexpr unsigned kYields = 2000;
  if (copies_wanted(fabric)) serve_copies(fabric);
  if (++rounds < kYields)
    sched_yield();
  else
    usleep(50);
  return rounds % 256 == 0;
}

// A slot for one request to that process; its lock is held.
CopyRequest& claim(Fabric& fabric, Slot& peer) {
  const unsigned first = fabric.slot();
  for (unsigned i = 0; i < kCopyRequests; ++i) {
    CopyRequest& request = peer.copies[(first + i) % kCopyRequests];
    if (request.lock.try_lock(fabric.stamp())) return request;
  }
  CopyRequest& request = peer.copies[first % kCopyRequests];
  request.lock.lock(fabric.stamp());
  return request;
}

void wake_copier(Slot& peer) {
  peer.header.copies_asked.fetch_add(1, std::memory_order_seq_cst);
  switch (peer.header.copier.load(std::memory_order_seq_cst)) {
    case kNoCopier:
      engine::ring(peer, kLookCopies);
      break;
    case kCopierAsleep:
      futex_wake(peer.header.copies_asked);
  }
}

// One request, from the bounce buffer or to it.
Copy ask(Fabric& fabric, Slot& peer, unsigned slot, uint32_t incarnation, bool writes, uint64_t addr, uint64_t length,
         uint64_t bounce) {
  CopyRequest& request = claim(fabric, peer);
  unsigned rounds = 0;
  // Who had it before may have died: its copy is withdrawn, or runs to its end.
  for (uint32_t state = request.state.load(std::memory_order_acquire);;) {
    if (state != kCopyRunning && request.state.compare_exchange_strong(state, kCopyFilling)) break;
    if (state == kCopyRunning && wait_a_bit(fabric, rounds) && !fabric.alive(slot, incarnation)) break;
    state = request.state.load(std::memory_order_acquire);
  }
  request.asker = fabric.stamp();
  request.to_target = writes ? 1 : 0;
  request.length = static_cast<uint32_t>(length);
  request.file_offset = Fabric::file_offset(fabric.slot(), bounce);
  request.addr = addr;
  request.state.store(kCopyAsked, std::memory_order_release);
  wake_copier(peer);
  Copy result = Copy::Done;
  for (;;) {
    const uint32_t state = request.state.load(std::memory_order_acquire);
    if (state == kCopyDone) break;
    if (state == kCopyFault) {
      result = Copy::RemoteFault;
      break;
    }
    if (wait_a_bit(fabric, rounds) && !fabric.alive(slot, incarnation)) {
      result = Copy::Gone;
      break;
    }
  }
  request.state.store(kCopyFree, std::memory_order_relaxed);
  request.lock.unlock();
  return result;
}

void* copier(void* argument) {
  Fabric& fabric = *static_cast<Fabric*>(argument);
  SlotHeader& header = fabric.self().header;
  for (;;) {
    const uint32_t seen = header.copies_asked.load(std::memory_order_seq_cst);
    serve_copies(fabric);
    header.copier.store(kCopierAsleep, std::memory_order_seq_cst);
    futex_wait(header.copies_asked, seen, nullptr);
    header.copier.store(kCopierAwake, std::memory_order_seq_cst);
  }
}

}  // namespace

Copy copy_by_target(Fabric& fabric, Slot& peer, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
                    std::span<const iovec> remote, bool writes) {
  const Bounce bounce(fabric);
  if (bounce.offset() == 0) return Copy::NoRoom;
  const uint64_t file_offset = Fabric::file_offset(fabric.slot(), bounce.offset());
  IovecCursor ours(local);
  IovecCursor theirs(remote);
  while (theirs.piece() != 0) {
    const uint64_t length = std::min(theirs.piece(), kBounceBytes);
    const auto ours_and_bounce = [&] {
      for (uint64_t done = 0; done < length;) {
        const uint64_t n = std::min(ours.piece(), length - done);
        if (n == 0) return false;
        const auto addr = reinterpret_cast<uint64_t>(ours.here());
        if (!(writes ? memory_to_file : file_to_memory)(fabric.file(), addr, n, file_offset + done)) return false;
        ours.advance(n);
        done += n;
      }
      return true;
    };
    if (writes && !ours_and_bounce()) return Copy::LocalFault;
    const auto addr = reinterpret_cast<uint64_t>(theirs.here());
    const Copy result = ask(fabric, peer, slot, incarnation, writes, addr, length, bounce.offset());
    if (result != Copy::Done) return result;
    if (!writes && !ours_and_bounce()) return Copy::LocalFault;
    theirs.advance(length);
  }
  return Copy::Done;
}

void serve_copies(Fabric& fabric) {
  // Before they are looked at: what is asked meanwhile is looked at again.
  copies_seen.store(fabric.self().header.copies_asked.load(std::memory_order_acquire), std::memory_order_relaxed);
  for (CopyRequest& request : fabric.self().copies) {
    uint32_t state = kCopyAsked;
    if (request.state.load(std::memory_order_acquire) != kCopyAsked) continue;
    if (!request.state.compare_exchange_strong(state, kCopyRunning, std::memory_order_acq_rel)) continue;
    // What somebody has asked for who is gone may be about memory that is used otherwise by now.
    const bool good = fabric.alive(request.asker) && serve(fabric, request);
    request.state.store(good ? kCopyDone : kCopyFault, std::memory_order_release);
  }
}

void finish_copies(Fabric& fabric) {
  if (fabric.self().header.copies_asked.load(std::memory_order_acquire) == 0) return;
  for (CopyRequest& request : fabric.self().copies)
    while (request.state.load(std::memory_order_acquire) == kCopyRunning && !fabric.alive(request.asker)) sched_yield();
}

void try_kernel_copy(Fabric& fabric, Slot& peer) {
  if (&peer == &fabric.self()) return;
  if (peer.header.can_copy.load(std::memory_order_relaxed) == kNotTried && kernel_may_copy(fabric, peer)) {
    char byte = 0;
    const iovec local{&byte, 1};
    const iovec remote{nullptr, 1};  // nobody has memory there: EFAULT says that it would be allowed
    const ssize_t n = process_vm_readv(peer.header.pid, &local, 1, &remote, 1, 0);
    const bool forbidden = n < 0 && (errno == EPERM || errno == ENOSYS);
    peer.header.can_copy.store(forbidden ? kMayNotCopy : kMayCopy, std::memory_order_relaxed);
  }
  if (!kernel_may_copy(fabric, peer) && peer.header.copier.load(std::memory_order_relaxed) == kNoCopier)
    engine::ring(peer, kLookCopies);
}

void start_copier(Fabric& fabric) {
  std::call_once(of_member<Copier>().once, [&fabric] {
    pthread_t thread;
    start_thread(&thread, copier, &fabric);  // it says itself when it is there; without it, who polls serves
  });
}

void allow_copies(Fabric& fabric) {
#ifdef PR_SET_PTRACER
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // where Yama lets only parents copy
#endif
  SlotHeader& header = fabric.self().header;
  char from = 0;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  const bool forbidden = !fabric.config().cma || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1;
  header.copier.store(kNoCopier);
  header.can_copy.store(forbidden ? kMayNotCopy : kNotTried);
}

}  // namespace softhca
