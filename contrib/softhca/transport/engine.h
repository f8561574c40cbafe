// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One thread per process, asleep unless something has to happen without a call of the user's: timers (RNR, retries, the
// connection manager's), completion events and errors that peers have caused, mail, deaths of peers, copies on behalf of
// peers. It masks all signals. Everything it calls may take Qp::sq_mutex.
#include <atomic>
#include <cstdint>
#include <functional>

#include "fabric/fabric.h"
#include "verbs/objects.h"

namespace softhca::engine {

// Starts it, once per process; Fabric::join has succeeded. 0 or an errno.
int start();

// Wakes the engine of the process that owns this slot, which then looks at what `attention` (AttentionBits) says. Any
// thread of any process; a system call only if that engine sleeps.
void ring(Slot& slot, uint32_t attention);

// Has this process's engine look at the QP's send queue at that time (Fabric::now_ns), or a bit later.
void schedule(Qp& qp, uint64_t when_ns);
// The QP is going away: its timer is void when this returns.
void cancel(Qp& qp);

// Who polls helps: whether a QP's time has come, and what the engine would do then.
constexpr uint64_t kNever = UINT64_MAX;
extern std::atomic<uint64_t> next_qp_ns;  // kNever: none waits
extern std::atomic<uint64_t> polled_ns;   // when somebody last looked at it while one waited
extern std::atomic<bool> has_taken;       // somebody has polled a completion since a QP was last scheduled
inline bool timer_due() {
  const uint64_t next = next_qp_ns.load(std::memory_order_relaxed);
  if (next == kNever) return false;
  const uint64_t now = Fabric::now_ns();
  polled_ns.store(now, std::memory_order_relaxed);
  return next <= now;
}
void run_send_queues();

// Runs `call` on the engine at that time, once; returns a handle, never 0.
uint64_t call_at(uint64_t when_ns, std::function<void()> call);
// The call will not start any more; one that is running is not waited for.
void cancel_call(uint64_t handle);

// From now on the engine watches whether that process lives (every 50 ms), and when it has died notes it in the slot and
// tells `on_death` listeners. Repeated calls for the same owner are cheap.
void watch(unsigned slot, uint32_t incarnation);

// Before a message to a process that has no connection to this one and so does not watch it: from the first on it does. If this
// process dies with something half done, the other looks.
void introduce(Fabric& fabric, unsigned slot_number, Slot& slot);

// Who wants to hear of mail and deaths, on the engine's thread. Set once, before the first mail.
struct Listener {
  void (*mail)();  // the mailbox of this process may have some
  void (*death)(unsigned slot, uint32_t incarnation);
  void (*ports_changed)();
};
void add_listener(const Listener& listener);

}  // namespace softhca::engine
