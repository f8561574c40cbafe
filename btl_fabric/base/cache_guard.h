// SPDX-License-Identifier: BSD-3-Clause
//
// One thread at a time in Open MPI's registration caches. Theirs may wait for themselves for ever (Open MPI 4.1 and 5.0, grdma): a
// thread that makes room has the lock of the list and waits until nobody reads the tree; one that looks for a region, or tells of
// memory that is released, reads the tree and waits for the lock.
#pragma once

#include "btl_fabric/base/opal.h"

namespace fabric {

/// How many caches there can be at a time.
inline constexpr std::size_t kMostCaches = 16;

/// From now on the cache's calls wait for each other, and for those of the other caches, which are of the same kind. Memory that is
/// released, which may be in any call of the C library, is an exception: nobody waits then. If a thread is in a cache, what is
/// released is noted, and invalidated before anybody looks for a region again. Does nothing for more than kMostCaches.
void guard_cache(mca_rcache_base_module_t& cache) noexcept;

/// The cache goes. Nobody is in it.
void unguard_cache(const mca_rcache_base_module_t& cache) noexcept;

}  // namespace fabric
