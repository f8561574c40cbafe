// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes connect while the progress threads are refused memory, at every place in turn: what comes of it is a
// connection, or an error that the main thread hears of, and never the end of the process or a wait without end. And the
// handshake buffers, which connections of oob do not use.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/handshake_slab.h"
#include "test/unit/cpc_node.h"
#include "test/unit/fake_verbs.h"

namespace {

/// Allocations of progress threads that are granted before one is refused; negative: all are.
std::atomic<long> allocations_left{-1};
std::atomic<bool> refuses_one_only{true};
/// The main thread gets nothing.
thread_local bool refuses_this_thread = false;

bool is_refused() {
  if (refuses_this_thread) {
    return true;
  }
  if (allocations_left < 0 || !fabric::cpc::on_progress_thread() || fabric::test::fakes_at_work > 0) {
    return false;
  }
  long left = allocations_left;
  long next = 0;
  do {  // the main thread may say at any moment that all are granted again
    if (left < 0) {
      return false;
    }
    next = left > 0 ? left - 1 : refuses_one_only ? -1 : 0;
  } while (!allocations_left.compare_exchange_weak(left, next));
  return left == 0;
}

}  // namespace

// The program's own, so that it can say no.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = is_refused() ? nullptr : std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace fabric {
namespace {

using test::Fate;
using test::Node;

/// It is connected, or has been told why not. A process that has lost something tells that, and ends.
bool has_an_end(Node& node, const Node& peer) {
  const test::Seen& seen = node.seen(node.key_to(peer));
  return seen.fate == Fate::kConnected || seen.failed > 0 || !node.shortages.empty() || !peer.shortages.empty();
}

/// False if there was memory for everything.
bool connect_with(long allocations, bool one_only) {
  Node a(1);
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 100);
  refuses_one_only = one_only;
  allocations_left = allocations;
  a.connect(b);
  const bool done = test::run_until({&a, &b}, [&] { return has_an_end(a, b); });
  ck_assert_msg(done, "nothing was heard after %ld allocations", allocations);
  return one_only ? allocations_left.exchange(-1) < 0 : allocations_left.exchange(-1) <= 0;
}

START_TEST(one_allocation_is_refused) {
  long count = 0;
  while (connect_with(count, true)) {
    ++count;
  }
  ck_assert_int_gt(count, 50);
}
END_TEST

START_TEST(all_allocations_are_refused) {
  long count = 0;
  while (connect_with(count, false)) {
    ++count;
  }
  ck_assert_int_gt(count, 50);
}
END_TEST

/// The main thread has no memory to be told of a loss: it is told when there is some.
START_TEST(a_loss_is_told_later) {
  Node a(1);
  Node b(2);
  refuses_one_only = false;
  allocations_left = 0;
  a.connect(b);
  ck_assert(test::run_until({}, [&] { return a.manager().has_upcalls(); }));
  allocations_left = -1;
  std::size_t told = 0;
  bool has_thrown = false;
  refuses_this_thread = true;
  try {
    told = a.manager().take_upcalls().size();
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  refuses_this_thread = false;
  ck_assert_msg(!has_thrown, "take_upcalls() needs memory");
  ck_assert_uint_eq(told, 0);
  ck_assert(a.manager().has_upcalls());
  const std::vector<cpc::Upcall> later = a.manager().take_upcalls();
  ck_assert_uint_eq(later.size(), 1);
  const auto* const shortage = std::get_if<cpc::Shortage>(&later[0]);
  ck_assert(shortage != nullptr && shortage->is_fatal);
  ck_assert(!a.manager().has_upcalls());
}
END_TEST

/// What a process starts with. An error, or it runs.
START_TEST(starting_without_memory) {
  long count = 0;
  for (bool refused = true; refused; ++count) {
    const auto options = Node::options(1);
    auto methods = options.parameters.make();
    refuses_one_only = true;
    allocations_left = count;
    const auto started = cpc::ConnectionManager::start(
        options.settings, std::move(methods),
        [](const cpc::PortContext&, const QueueSubset&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
          return failure("not needed");
        });
    refused = allocations_left.exchange(-1) < 0;
    ck_assert(started || started.error().text.find("out of memory") != std::string::npos);
  }
  ck_assert_int_gt(count, 5);
}
END_TEST

template <class Work>
void on_progress_thread(Work work) {
  const auto thread = cpc::ProgressThread::start({[&](event_base*) {
                                                    work();
                                                    return Status();
                                                  },
                                                  [] {},
                                                  [] {},
                                                  {}});
  ck_assert(thread.has_value());
}

/// A block that there is no memory for leaves no slot.
START_TEST(no_memory_for_handshakes) {
  on_progress_thread([] {
    long count = 0;
    for (bool refused = true; refused; ++count) {
      test::FakeDevice device;
      RegionBudget budget(2);
      cpc::HandshakeSlab slab(device.pd(), &budget);
      std::size_t taken = 0;
      refuses_one_only = true;
      allocations_left = count;
      try {
        taken += slab.take() ? 1 : 0;
      } catch (const std::bad_alloc&) {
      }
      refused = allocations_left.exchange(-1) < 0;
      ck_assert_uint_eq(taken, refused ? 0 : 1);
      ck_assert_uint_eq(slab.taken(), taken);
      ck_assert_uint_eq(device.regions, taken);
      ck_assert_uint_eq(budget.in_use(), taken);
    }
    ck_assert_int_gt(count, 2);
  });
}
END_TEST

/// A block counts against what the process may register.
START_TEST(no_region_for_handshakes) {
  on_progress_thread([] {
    test::FakeDevice device;
    RegionBudget budget(1, "why");
    {
      cpc::HandshakeSlab slab(device.pd(), &budget);
      std::vector<cpc::HandshakeSlot> slots;
      auto slot = slab.take();
      for (; slot.has_value(); slot = slab.take()) {
        slots.push_back(*slot);
      }
      ck_assert_uint_eq(device.regions, 1);
      ck_assert_uint_eq(slab.taken(), slots.size());
      ck_assert(slot.error().text.find("all 1 memory regions of this process are in use") != std::string::npos);
      for (const cpc::HandshakeSlot& one : slots) {
        slab.give_back(one);
      }
    }
    ck_assert_uint_eq(budget.in_use(), 0);
  });
}
END_TEST

/// Connections go, and need no memory for it.
START_TEST(handshakes_are_given_back_without_memory) {
  on_progress_thread([] {
    test::FakeDevice device;
    cpc::HandshakeSlab slab(device.pd());
    std::vector<cpc::HandshakeSlot> slots;
    while (device.regions < 4) {
      auto slot = slab.take();
      ck_assert(slot.has_value());
      slots.push_back(*slot);
    }
    refuses_one_only = false;
    allocations_left = 0;
    for (const cpc::HandshakeSlot& slot : slots) {
      slab.give_back(slot);
    }
    allocations_left = -1;
    ck_assert_uint_eq(slab.taken(), 0);
  });
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "cpc_memory",
      {one_allocation_is_refused, all_allocations_are_refused, a_loss_is_told_later, starting_without_memory,
       no_memory_for_handshakes, no_region_for_handshakes, handshakes_are_given_back_without_memory},
      120);
}
