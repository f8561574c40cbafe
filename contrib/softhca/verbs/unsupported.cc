// SPDX-License-Identifier: BSD-3-Clause
// The functions of libibverbs that this device cannot do. They are here all the same: the real ones must not get a context
// of ours. Some are newer than the headers that this is built with, so none is included and arguments, which nobody looks
// at, are left out.
#include <cerrno>

#include "verbs/export.h"

#define SOFTHCA_NO_OBJECT(name) \
  SOFTHCA_EXPORT void* name() { \
    errno = EOPNOTSUPP;         \
    return nullptr;             \
  }
#define SOFTHCA_NO_CALL(name) \
  SOFTHCA_EXPORT int name() { \
    return EOPNOTSUPP;        \
  }
#define SOFTHCA_NOTHING(name) \
  SOFTHCA_EXPORT void name() {}

// Memory that is not the process's
SOFTHCA_NO_OBJECT(ibv_reg_mr_ex)
SOFTHCA_NO_OBJECT(ibv_alloc_dmah)
SOFTHCA_NO_CALL(ibv_dealloc_dmah)
SOFTHCA_NO_CALL(ibv_dm_export_dmabuf_fd)
SOFTHCA_NO_OBJECT(ibv_alloc_buf)
SOFTHCA_NO_CALL(ibv_free_buf)
SOFTHCA_NO_OBJECT(ibv_reg_buf_mr)

// Enhanced connection establishment, link speed, and drivers, which libibverbs itself has no use for any more
SOFTHCA_NO_CALL(ibv_query_ece)
SOFTHCA_NO_CALL(ibv_set_ece)
SOFTHCA_NO_CALL(ibv_query_port_speed)
SOFTHCA_NOTHING(ibv_register_driver)
