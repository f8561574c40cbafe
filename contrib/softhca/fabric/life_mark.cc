// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/life_mark.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace softhca {

void hold(std::atomic<uint32_t>& word) {
  // A list of one. It is in private memory, so that no other process can spoil it; only the word, which the kernel finds at
  // an offset from the entry, is shared. glibc's list of this thread, which this one replaces, is empty: no code but
  // softhca's runs on it.
  static robust_list_head head;
  static robust_list entry;
  entry.next = &head.list;
  head.list.next = &entry;
  head.futex_offset = reinterpret_cast<intptr_t>(&word) - reinterpret_cast<intptr_t>(&entry);
  head.list_op_pending = nullptr;
  if (syscall(SYS_set_robust_list, &head, sizeof head) != 0) return;
  word.store(static_cast<uint32_t>(syscall(SYS_gettid)), std::memory_order_release);
}

}  // namespace softhca
