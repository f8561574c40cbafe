// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parent domains (ibv_alloc_parent_domain(3)): a protection domain with a thread domain, and with memory that the program gives.
// Keys and queue pairs are those of the protection domain inside.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>

#include "verbs/objects.h"

namespace softhca {

/// What the allocator of a parent domain is asked for: the send queue of a queue pair. Everything else that a device has is
/// in the fabric's file, where peers reach it.
constexpr uint64_t kSendQueueMemory = 1;

struct Td : ibv_td {
  std::atomic<uint32_t> users{0};  // parent domains
};

struct ParentDomain : Pd {
  Pd* inside;
  Td* thread;                                          // or nullptr
  decltype(ibv_parent_domain_init_attr::alloc) alloc;  // nullptr: the device's own memory
  decltype(ibv_parent_domain_init_attr::free) free;
  void* pd_context;
};

// The same object; nullptr: it is no parent domain.
ParentDomain* parent_domain(ibv_pd* pd);

// Memory of a domain's allocator for a send queue. nullptr with errno 0: the device's own memory shall do; else with an errno.
void* allocate_from(ibv_pd* pd, size_t bytes);
void give_back(ibv_pd* pd, void* memory);

// The last that ibv_dealloc_pd does.
void release(ParentDomain& domain);

}  // namespace softhca
