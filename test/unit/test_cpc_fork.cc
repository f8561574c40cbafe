// SPDX-License-Identifier: BSD-3-Clause
//
// Processes that have children by fork(2) while they have connections: a child has copies of all sockets, and keeps those
// open that its parent closes.
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "test/unit/cpc_node.h"

namespace fabric {
namespace {

using test::Fate;
using test::Node;
using test::run_until;

/// A child that does nothing until this goes.
class Child {
 public:
  Child() {
    ck_assert_int_eq(pipe2(pipe_, O_CLOEXEC), 0);
    pid_ = fork();
    ck_assert_int_ge(pid_, 0);
    if (pid_ == 0) {
      ::close(pipe_[1]);
      char byte = 0;
      while (::read(pipe_[0], &byte, 1) > 0) {
      }
      _exit(0);
    }
  }
  ~Child() {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    int status = 0;
    ck_assert_int_eq(waitpid(pid_, &status, 0), pid_);
    ck_assert_int_eq(status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

std::set<int> open_descriptors() {
  std::set<int> found;
  DIR* const folder = opendir("/proc/self/fd");
  ck_assert_ptr_nonnull(folder);
  while (const dirent* entry = readdir(folder)) {
    if (const int fd = std::atoi(entry->d_name); entry->d_name[0] != '.' && fd != dirfd(folder)) {
      found.insert(fd);
    }
  }
  closedir(folder);
  return found;
}

/// A process that ends closes its channels and tells nobody.
START_TEST(end_of_a_process_is_seen) {
  Node a(1);
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 100);
  b.posts = false;
  a.connect(b);
  const cpc::ConnectionKey at_b = b.key_to(a);
  ck_assert(run_until({&a, &b}, [&] { return b.seen(at_b).fate == Fate::kAsked; }));
  const Child child;
  a.stop();
  b.posts = true;
  ck_assert(run_until(
      {&b}, [&] { return b.seen(at_b).failed == 1; }, 10));
}
END_TEST

/// Nobody is left waiting in the backlog of a listener that has gone.
START_TEST(end_of_a_listener_is_seen) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 100);
  Node b(2);
  const cpc::PeerTarget target = b.target();
  const cpc::ConnectionKey key = a.key_to(b);
  const Child child;
  b.stop();
  a.connect(key, target);
  ck_assert(run_until(
      {&a}, [&] { return a.seen(key).failed == 1; }, 10));
}
END_TEST

/// A program that a child runs has no descriptor of ours.
START_TEST(descriptors_are_closed_by_exec) {
  const std::set<int> before = open_descriptors();
  Node a(1);
  Node b(2);
  b.posts = false;
  a.connect(b);
  ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a)).fate == Fate::kAsked; }));
  std::size_t ours = 0;
  for (const int fd : open_descriptors()) {
    if (!before.contains(fd)) {
      ck_assert_msg((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0, "descriptor %d stays open", fd);
      ++ours;
    }
  }
  ck_assert_uint_ge(ours, 6);  // of each node an epoll set and an eventfd, a listener, and the two ends of the channel
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_fork",
                         {end_of_a_process_is_seen, end_of_a_listener_is_seen, descriptors_are_closed_by_exec}, 60);
}
