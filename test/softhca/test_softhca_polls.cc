// SPDX-License-Identifier: BSD-3-Clause
//
// When a process that polls gives up its processor, with more processes on softhca than there are processors: not while one of
// the queues that it polls has something for it.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "test/softhca/verbs_world.h"

namespace {

thread_local unsigned yields = 0;
thread_local std::function<void()> others;  // what the others do meanwhile, once

}  // namespace

// Counts each thread's, for softhca, which finds this one before the C library's.
extern "C" [[gnu::visibility("default")]] int sched_yield() noexcept {
  ++yields;
  if (const auto now = std::exchange(others, nullptr)) now();
  return 0;
}

namespace {

using verbs_test::World;

// As many others with a device open as there are processors, as long as this process lives.
class Crowd {
 public:
  Crowd() {
    ck_assert_int_eq(pipe2(stay_, O_CLOEXEC), 0);
    int joined[2];
    ck_assert_int_eq(pipe2(joined, O_CLOEXEC), 0);
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < processors; ++i) {
      const pid_t child = fork();
      ck_assert_int_ge(child, 0);
      if (child == 0) stand(joined[1]);
    }
    close(joined[1]);  // one that dies is missed
    for (long i = 0; i < processors; ++i) {
      char byte = 0;
      ck_assert_int_eq(read(joined[0], &byte, 1), 1);
    }
  }

 private:
  [[noreturn]] void stand(int joined) {
    close(stay_[1]);
    const World world;
    char byte = 0;
    if (write(joined, &byte, 1) != 1) _exit(1);
    _exit(static_cast<int>(read(stay_[0], &byte, 1)));
  }

  int stay_[2];
};

// By its notice, a completion is there.
void wait_for_notice(const World& world) {
  ck_assert(World::becomes_readable(world.channel->fd));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ck_assert_int_eq(ibv_get_cq_event(world.channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

START_TEST(an_idle_thread_lets_others_run) {
  const Crowd crowd;
  const World world;
  yields = 0;
  for (int i = 0; i < 100; ++i) ck_assert(world.is_empty());
  ck_assert_uint_ge(yields, 50);
}
END_TEST

START_TEST(an_idle_queue_does_not_keep_from_another) {
  const Crowd crowd;
  World idle;
  World busy;
  const auto [a, b] = busy.pair();
  unsigned yielding = 0;  // rounds
  for (uint64_t i = 0; i < 100; ++i) {
    ck_assert_int_eq(busy.post_recv(b, i, 0, 64), 0);
    ck_assert_int_eq(ibv_req_notify_cq(busy.cq, 0), 0);
    ck_assert_int_eq(busy.post_send(a, i, 4096, 64), 0);
    wait_for_notice(busy);
    yields = 0;
    ck_assert(idle.is_empty());
    ck_assert_int_eq(busy.next().status, IBV_WC_SUCCESS);
    yielding += yields != 0 ? 1 : 0;
    ck_assert_int_eq(busy.next().status, IBV_WC_SUCCESS);
  }
  // softhca's own thread may have had a lock now and then, and while it does not run, who waits for that yields any number
  // of times. A poll that yields at once does in every round.
  ck_assert_uint_lt(yielding, 50);
}
END_TEST

START_TEST(what_came_while_others_ran_is_found) {
  const Crowd crowd;
  World world;
  const auto [a, b] = world.pair();
  for (uint64_t i = 0; i < 20; ++i) {
    ck_assert_int_eq(world.post_recv(b, i, 0, 64), 0);
    bool sent = false;
    others = [&] {
      ck_assert_int_eq(world.post_send(a, i, 4096, 64), 0);
      wait_for_notice(world);
      sent = true;
    };
    ck_assert_int_eq(ibv_req_notify_cq(world.cq, 0), 0);
    bool found = false;
    while (!sent) found = !world.is_empty();
    ck_assert(found);
    ck_assert_int_eq(world.next().status, IBV_WC_SUCCESS);  // the other half
  }
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_polls",
      {an_idle_thread_lets_others_run, an_idle_queue_does_not_keep_from_another, what_came_while_others_ran_is_found},
      60);
}
