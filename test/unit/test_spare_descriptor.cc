// SPDX-License-Identifier: BSD-3-Clause
//
// A report of a process that is out of descriptors, beside a thread that wants one.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "btl_fabric/mca/spare_descriptor.h"
#include "test/unit/check_main.h"

namespace {

/// The process has all descriptors that it may have.
class Shortage {
 public:
  Shortage() {
    rlimit limit{};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int fd = 0; (fd = dup(STDIN_FILENO)) >= 0;) {
      taken_.push_back(fd);
    }
  }
  ~Shortage() {
    for (const int fd : taken_) {
      close(fd);
    }
  }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

 private:
  std::vector<int> taken_;
};

[[nodiscard]] bool opens_a_file() {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    close(fd);
  }
  return fd >= 0;
}

/// unshare(2), which a container may forbid.
[[nodiscard]] bool threads_may_have_their_own_descriptors() {
  int status = -1;
  std::thread([&status] { status = unshare(CLONE_FILES); }).join();
  return status == 0;
}

}  // namespace

START_TEST(nobody_else_gets_it) {
  fabric::keep_spare_descriptor();
  const Shortage shortage;
  std::atomic<bool> is_over = false;
  unsigned taken_by_others = 0;
  std::thread greedy([&is_over, &taken_by_others] {
    while (!is_over) {
      taken_by_others += opens_a_file() ? 1U : 0U;
    }
  });
  unsigned missed = 0;
  for (int i = 0; i < 200; ++i) {
    fabric::with_spare_descriptor([&missed] { missed += opens_a_file() ? 0U : 1U; });
  }
  is_over = true;
  greedy.join();
  ck_assert_uint_eq(missed, 0);
  ck_assert_uint_eq(taken_by_others, 0);
  fabric::drop_spare_descriptor();
  ck_assert(opens_a_file());
}
END_TEST

START_TEST(without_a_spare_one) {
  bool opened = false;
  fabric::with_spare_descriptor([&opened] { opened = opens_a_file(); });
  ck_assert(opened);
  const Shortage shortage;
  fabric::with_spare_descriptor([&opened] { opened = opens_a_file(); });
  ck_assert(!opened);
}
END_TEST

int main() {
  if (!threads_may_have_their_own_descriptors()) {
    std::puts("SKIP unshare(2) is not allowed here");
    return 77;
  }
  return fabric::test::run_suite("spare_descriptor", {nobody_else_gets_it, without_a_spare_one});
}
