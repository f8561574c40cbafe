// SPDX-License-Identifier: BSD-3-Clause
//
// Assertions of the product, as faults that are found: the run that led to one is known.
#pragma once

#include <csetjmp>
#include <csignal>
#include <string>

namespace fabric::model {
namespace aborts {

inline sigjmp_buf here;
inline volatile std::sig_atomic_t is_set = 0;
inline bool has_come_back = false;

inline void on_abort(int /*signal*/) {
  if (is_set != 0) {
    siglongjmp(here, 1);
  }
}

}  // namespace aborts

/// Before what_aborts().
inline void catch_aborts() {
  struct sigaction action {};
  action.sa_handler = &aborts::on_abort;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGABRT, &action, nullptr);
}

/// Calls `what`. "" if that returns; if it ends in abort(), a text. What it was at is then left as it was: nothing of it
/// can be used or destroyed any more.
template <class What>
[[nodiscard]] std::string what_aborts(What what) {
  if (sigsetjmp(aborts::here, 0) != 0) {
    aborts::is_set = 0;
    aborts::has_come_back = true;
    return "the product aborts";
  }
  aborts::is_set = 1;
  what();
  aborts::is_set = 0;
  return "";
}

}  // namespace fabric::model
