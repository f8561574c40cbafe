// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/dump_signal.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace fabric::dump_signal {

namespace {

std::atomic<bool> has_come;
std::atomic<cpc::ConnectionManager*> nudged;
static_assert(std::atomic<cpc::ConnectionManager*>::is_always_lock_free, "it is used in a signal handler");
int watched;  // 0: none
struct sigaction before;

void hear(int /*number*/) {
  has_come.store(true);
  if (cpc::ConnectionManager* const manager = nudged.load(); manager != nullptr) {
    manager->nudge();
  }
}

}  // namespace

Status watch(int number, cpc::ConnectionManager& connections) noexcept {
  struct sigaction now {};
  if (sigaction(number, nullptr, &now) != 0) {
    return failure("btl_fabric_dump_signal is " + std::to_string(number) + ": " + std::strerror(errno));
  }
  if ((now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)) {
    return failure("btl_fabric_dump_signal is " + std::to_string(number) +
                   ", which the program or a tool handles already");
  }
  struct sigaction ours {};
  ours.sa_handler = hear;
  ours.sa_flags = SA_RESTART;
  nudged.store(&connections);
  if (sigaction(number, &ours, &before) != 0) {
    nudged.store(nullptr);
    return failure("btl_fabric_dump_signal is " + std::to_string(number) + ": " + std::strerror(errno));
  }
  watched = number;
  return {};
}

void forget() noexcept {
  nudged.store(nullptr);
  if (watched != 0) {
    struct sigaction now {};
    if (sigaction(watched, nullptr, &now) == 0 && now.sa_handler == hear) {
      (void)sigaction(watched, &before, nullptr);
    }
    watched = 0;
  }
}

bool take() noexcept {
  return has_come.exchange(false);
}

}  // namespace fabric::dump_signal
