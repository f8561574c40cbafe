// SPDX-License-Identifier: BSD-3-Clause
//
// Preloaded, libibverbs says that it cannot protect registered memory from forked children, as on an old kernel without memory.
#include <errno.h>
#include <infiniband/verbs.h>

enum ibv_fork_status ibv_is_fork_initialized(void) {
  return IBV_FORK_DISABLED;
}
int ibv_fork_init(void) {
  return ENOMEM;
}
