// SPDX-License-Identifier: BSD-3-Clause
//
// The file of the fabric that a test runs in, as everybody in it sees it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "fabric/fabric.h"
#include "fabric/layout.h"
#include "test/unit/check_main.h"

namespace verbs_test {

inline std::string fabric_directory() {
  return getenv("SOFTHCA_DIR");
}

/// The first bytes of a slot, for good.
inline void* map_slot(unsigned number, size_t bytes = sizeof(softhca::Slot)) {
  const int file = open((fabric_directory() + "/slots").c_str(), O_RDWR | O_CLOEXEC);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                      static_cast<off_t>(softhca::Fabric::file_offset(number, 0)));
  close(file);
  ck_assert(mapped != MAP_FAILED);
  return mapped;
}

/// The slot that a queue pair, or a shared queue with a number, is in.
inline softhca::Slot& slot_of(uint32_t number) {
  return *static_cast<softhca::Slot*>(map_slot(softhca::slot_of_qpn(number)));
}

/// By what the owner of that slot is known to hold a lock.
inline softhca::RobustLock::Stamp stamp_of(uint32_t number) {
  return softhca::Fabric::stamp_of(softhca::slot_of_qpn(number), slot_of(number).header.incarnation.load());
}

}  // namespace verbs_test
