// SPDX-License-Identifier: BSD-3-Clause
#include "transport/engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "fabric/of_member.h"
#include "faults/faults.h"
#include "transport/copy_service.h"
#include "transport/futex.h"
#include "transport/transport.h"

namespace softhca::engine {

std::atomic<uint64_t> next_qp_ns{kNever};
std::atomic<uint64_t> polled_ns{0};
std::atomic<bool> has_taken{false};

namespace {

constexpr uint64_t kWatchNs = 50'000'000;
constexpr uint64_t kAskNs = 1'000'000'000;
constexpr uint64_t kBusyNs = 20'000;  // a QP that another thread works on: look again
// Who has polled so recently is expected to poll again.
constexpr uint64_t kPollerNs = 20'000;
// Who polls does in time what is due, and is disturbed by a thread that wakes for it. So the engine then comes later than what is
// due, by State::grace_ns: by more whenever it has come and was not needed, and in time after nobody else had come. Who comes in
// time takes the processor from who would have come a moment later: where somebody has just polled, that is no need. It is done
// a few times nevertheless, for who polls once and then sleeps until there is an event.
constexpr uint64_t kFirstGraceNs = 20'000;
constexpr uint64_t kLongestGraceNs = 1'000'000;
constexpr unsigned kTimesInTime = 3;

struct Call {
  uint64_t handle;
  std::function<void()> run;
};
struct Watched {
  unsigned slot;
  uint32_t incarnation;
};

struct State {
  std::mutex mutex;
  std::multimap<uint64_t, Qp*> qps;
  std::vector<Qp*> running;  // whose send queues are being looked at
  std::condition_variable done;
  std::multimap<uint64_t, Call> calls;
  uint64_t next_handle = 1;
  std::vector<Watched> watched;
  std::vector<Listener> listeners;
  uint64_t next_watch = kNever;
  uint64_t next_question = 0;
  uint64_t grace_ns = kFirstGraceNs;
  uint64_t grace_after_ns = kFirstGraceNs;  // what it becomes again, once the engine has come in time often enough
  unsigned needless = 0;      // how often the engine has come in time though somebody polls, since it was needed
  uint64_t sleeps_until = 0;  // the engine's thread; 0: it is awake
  std::mutex start_mutex;
  bool started = false;
  // The life mark is there, or there can be none. Who is killed before it would look alive until the kernel is asked.
  std::atomic<bool> is_marked = false;
};

State& state() {
  return of_member<State>();
}

// To whom this process is introduced: the incarnation.
std::atomic<uint32_t> known[kSlots];

// A child that begins has its parent's.
void forget() {
  next_qp_ns.store(kNever);
  polled_ns.store(0);
  has_taken.store(false);
  for (auto& one : known) one.store(0, std::memory_order_relaxed);
  forget_tables();
}

void poke() {
  SlotHeader& header = Fabric::get()->self().header;
  header.bell.fetch_add(1, std::memory_order_seq_cst);
  if (header.asleep.load(std::memory_order_seq_cst) != 0) futex_wake(header.bell);
}

// `mutex` held: something has to happen then.
void want(uint64_t when_ns) {
  if (when_ns < state().sleeps_until) {
    state().sleeps_until = 0;
    poke();
  }
}

bool somebody_polls(uint64_t now_ns) {
  return now_ns < polled_ns.load(std::memory_order_relaxed) + kPollerNs;
}

// `mutex` held: when the engine itself is to look after queue pairs whose time comes then. Where none waits, and somebody polls, it
// looks as well: what he posts next would have to wake it.
uint64_t engines_turn(uint64_t when_ns) {
  const uint64_t now = Fabric::now_ns();
  if (!somebody_polls(now)) return when_ns;
  return (when_ns == kNever ? now : when_ns) + state().grace_ns;
}

// The engine has slept: whether it was needed.
void learn_grace() {
  State& s = state();
  const std::lock_guard guard(s.mutex);
  const uint64_t now = Fabric::now_ns();
  const uint64_t next = next_qp_ns.load(std::memory_order_relaxed);
  const bool is_late = next != kNever && next + s.grace_ns / 2 <= now;
  if (!somebody_polls(now)) {
    if (!is_late) return;
    if (s.grace_ns != 0) s.grace_after_ns = std::max(s.grace_ns / 2, kFirstGraceNs);
    s.grace_ns = 0;
    s.needless = 0;
  } else if (s.grace_ns != 0) {
    s.grace_ns = std::min(s.grace_ns * 2, kLongestGraceNs);
  } else if (++s.needless >= kTimesInTime) {
    s.grace_ns = s.grace_after_ns;
  }
}

void note_next_qp() {
  State& s = state();
  next_qp_ns.store(s.qps.empty() ? kNever : s.qps.begin()->first, std::memory_order_relaxed);
}

// Never waits for a thread that works on the QP: that one might wait for us (cancel).
void look_again(Qp& qp) {
  State& s = state();
  bool busy = true;
  {
    std::unique_lock lock(qp.sq_mutex, std::try_to_lock);
    if (lock.owns_lock()) {
      busy = false;
      qp.sq.scheduled_ns = kNever;
      run_send_queue(qp);
    }
  }
  std::lock_guard guard(s.mutex);
  if (busy) s.qps.emplace(Fabric::now_ns() + kBusyNs, &qp);
  note_next_qp();
}

void run_calls() {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const uint64_t now = Fabric::now_ns();
  while (!s.calls.empty() && s.calls.begin()->first <= now) {
    const auto run = std::move(s.calls.begin()->second.run);
    s.calls.erase(s.calls.begin());
    lock.unlock();
    run();
    lock.lock();
  }
}

void look_at_qps(Fabric& fabric) {
  Slot& self = fabric.self();
  std::lock_guard guard(lookup_mutex());
  self.qp_events.drain([](unsigned index) {
    if (Qp* qp = tables().qps[index].load(std::memory_order_acquire); qp != nullptr) look_at_qp(*qp);
  });
  const uint32_t targets = std::min<uint32_t>(fabric.hub().targets_end.load(std::memory_order_acquire), kMaxTargets);
  for (unsigned i = 0; i < targets; ++i)
    for (Qp* qp = tables().targets[i].load(std::memory_order_acquire); qp != nullptr; qp = qp->next_handle)
      look_at_target(*qp);
}

void look_at_cqs(Slot& self) {
  std::lock_guard guard(lookup_mutex());
  self.cq_events.drain([](unsigned index) {
    if (Cq* cq = tables().cqs[index].load(std::memory_order_acquire); cq != nullptr) notify(*cq);
  });
}

void look_at_srqs(Slot& self) {
  std::lock_guard guard(lookup_mutex());
  self.srq_events.drain([](unsigned index) {
    if (Srq* srq = tables().srqs[index].load(std::memory_order_acquire); srq != nullptr) look_at_srq(*srq);
  });
}

void watch_visitors(Fabric& fabric) {
  fabric.self().visitors.drain([&](unsigned slot) {
    if (const Slot* visitor = fabric.peer(slot); visitor != nullptr)
      watch(slot, visitor->header.incarnation.load(std::memory_order_acquire));
  });
}

void attend(Fabric& fabric, uint32_t bits) {
  if ((bits & kLookCopies) != 0) start_copier(fabric);
  if ((bits & kLookVisitors) != 0) watch_visitors(fabric);
  if ((bits & kLookCqs) != 0) look_at_cqs(fabric.self());
  if ((bits & kLookQps) != 0) look_at_qps(fabric);
  if ((bits & kLookSrqs) != 0) look_at_srqs(fabric.self());
  if ((bits & kLookFaults) != 0)
    if (const std::string errors = faults::load(fabric); !errors.empty())
      fprintf(stderr, "softhca: faults: %s", errors.c_str());
  if ((bits & (kLookMail | kLookPorts)) == 0) return;
  std::vector<Listener> listeners;
  {
    std::lock_guard guard(state().mutex);
    listeners = state().listeners;
  }
  for (const Listener& l : listeners) {
    if ((bits & kLookMail) != 0 && l.mail != nullptr) l.mail();
    if ((bits & kLookPorts) != 0 && l.ports_changed != nullptr) l.ports_changed();
  }
}

// Who died may have changed a queue and told nobody: everything is looked at that others could have told of.
void look_at_everything(Fabric& fabric) {
  attend(fabric, kLookCqs | kLookQps | kLookSrqs | kLookMail);
  std::lock_guard guard(lookup_mutex());
  const auto all = [](auto& table, const std::atomic<unsigned>& end) {
    for (unsigned i = 0; i < end.load(std::memory_order_acquire); ++i)
      if (auto* object = table[i].load(std::memory_order_acquire); object != nullptr) suspect(*object);
  };
  all(tables().qps, tables().qps_end);
  all(tables().cqs, tables().cqs_end);
  all(tables().srqs, tables().srqs_end);
}

void look_at_watched(Fabric& fabric) {
  State& s = state();
  std::vector<Watched> dead;
  std::vector<Listener> listeners;
  {
    std::lock_guard guard(s.mutex);
    const uint64_t now = Fabric::now_ns();
    if (now < s.next_watch) return;
    // Mostly from memory: only whose death is marked, or not known to be marked in time, costs a system call.
    const bool ask_all = now >= s.next_question;
    if (ask_all) s.next_question = now + kAskNs;
    std::erase_if(s.watched, [&](const Watched& w) {
      if (!ask_all && fabric.known_alive(w.slot, w.incarnation)) return false;
      if (fabric.alive(w.slot, w.incarnation)) return false;
      dead.push_back(w);
      return true;
    });
    s.next_watch = s.watched.empty() ? kNever : now + kWatchNs;
    if (!dead.empty()) listeners = s.listeners;
  }
  if (!dead.empty()) look_at_everything(fabric);
  for (const Watched& w : dead)
    for (const Listener& l : listeners)
      if (l.death != nullptr) l.death(w.slot, w.incarnation);
}

// Sleeps until there is something to do.
void sleep(SlotHeader& header) {
  State& s = state();
  header.asleep.store(1, std::memory_order_seq_cst);
  const uint32_t bell = header.bell.load(std::memory_order_seq_cst);
  uint64_t until = 0;
  {
    std::lock_guard guard(s.mutex);
    until = std::min(s.next_watch, engines_turn(next_qp_ns.load(std::memory_order_relaxed)));
    if (!s.calls.empty()) until = std::min(until, s.calls.begin()->first);
    s.sleeps_until = until;
  }
  const uint64_t now = Fabric::now_ns();
  if (header.attention.load(std::memory_order_seq_cst) == 0 && now < until) {
    const uint64_t length = until - now;
    const timespec timeout{static_cast<time_t>(length / 1'000'000'000), static_cast<long>(length % 1'000'000'000)};
    futex_wait(header.bell, bell, until == kNever ? nullptr : &timeout);
  }
  header.asleep.store(0, std::memory_order_seq_cst);
  std::lock_guard guard(s.mutex);
  s.sleeps_until = 0;
}

void* run(void* argument) {
  Fabric& fabric = *static_cast<Fabric*>(argument);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  SlotHeader& header = fabric.self().header;
  hold(header.life);
  state().is_marked.store(true);
  state().is_marked.notify_all();
  for (;;) {
    attend(fabric, header.attention.exchange(0, std::memory_order_seq_cst));
    learn_grace();
    run_send_queues();
    run_calls();
    look_at_watched(fabric);
    sleep(header);
  }
}

}  // namespace

int start() {
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return EPERM;
  State& s = state();
  std::lock_guard guard(s.start_mutex);
  if (s.started) return 0;
  if (membership.load() != 0) forget();
  if (fabric->self().header.can_copy.load() == kMayNotCopy) start_copier(*fabric);
  pthread_t thread;
  const int error = start_thread(&thread, run, fabric);
  s.started = error == 0;
  if (s.started) s.is_marked.wait(false);
  return error;
}

void ring(Slot& slot, uint32_t attention) {
  SlotHeader& header = slot.header;
  header.attention.fetch_or(attention, std::memory_order_seq_cst);
  if (header.asleep.load(std::memory_order_seq_cst) == 0) return;
  header.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(header.bell);
}

void schedule(Qp& qp, uint64_t when_ns) {
  if (qp.sq.scheduled_ns <= when_ns) return;
  qp.sq.scheduled_ns = when_ns;
  // Between what he took and what he posts he may have been made to wait, by the engine too: he polls nevertheless.
  if (has_taken.exchange(false, std::memory_order_relaxed))
    polled_ns.store(Fabric::now_ns(), std::memory_order_relaxed);
  State& s = state();
  std::lock_guard guard(s.mutex);
  s.qps.emplace(when_ns, &qp);
  note_next_qp();
  want(engines_turn(when_ns));
}

void run_send_queues() {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const uint64_t now = Fabric::now_ns();
  while (!s.qps.empty() && s.qps.begin()->first <= now) {
    Qp& qp = *s.qps.begin()->second;
    s.qps.erase(s.qps.begin());
    note_next_qp();
    s.running.push_back(&qp);
    lock.unlock();
    look_again(qp);
    lock.lock();
    s.running.erase(std::find(s.running.begin(), s.running.end(), &qp));
    s.done.notify_all();
  }
}

void cancel(Qp& qp) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return std::find(s.running.begin(), s.running.end(), &qp) == s.running.end(); });
  std::erase_if(s.qps, [&](const auto& timer) { return timer.second == &qp; });
  note_next_qp();
}

uint64_t call_at(uint64_t when_ns, std::function<void()> call) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  const uint64_t handle = s.next_handle++;
  s.calls.emplace(when_ns, Call{handle, std::move(call)});
  want(when_ns);
  return handle;
}

void cancel_call(uint64_t handle) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  std::erase_if(s.calls, [&](const auto& call) { return call.second.handle == handle; });
}

void watch(unsigned slot, uint32_t incarnation) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  for (const Watched& w : s.watched)
    if (w.slot == slot && w.incarnation == incarnation) return;
  s.watched.push_back({slot, incarnation});
  if (s.next_watch != kNever) return;
  s.next_watch = Fabric::now_ns() + kWatchNs;
  want(s.next_watch);
}

void introduce(Fabric& fabric, unsigned slot_number, Slot& slot) {
  const uint32_t incarnation = slot.header.incarnation.load(std::memory_order_acquire);
  if (known[slot_number].load(std::memory_order_relaxed) == incarnation || slot_number == fabric.slot()) return;
  slot.visitors.add(fabric.slot());
  ring(slot, kLookVisitors);
  // Last: another thread that sees it may take a request at once, and the process may be killed then.
  known[slot_number].store(incarnation, std::memory_order_relaxed);
}

void add_listener(const Listener& listener) {
  std::lock_guard guard(state().mutex);
  state().listeners.push_back(listener);
}

}  // namespace softhca::engine
