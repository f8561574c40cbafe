// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The fabric in $SOFTHCA_DIR, or the only one there is, as softhca-ctl sees it: it looks and writes, but is no process of the fabric.
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "fabric/config.h"
#include "fabric/layout.h"

namespace softhca {

class FabricView {
 public:
  // Ends the program with a message when there is no fabric, or it has another layout.
  FabricView();
  // Whether anybody is in the fabric of a directory, which may be of any build.
  static bool has_members(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const Config& config() const { return config_; }
  Hub& hub() { return *reinterpret_cast<Hub*>(map(kHubSlot).arena); }

  // The process that has this slot, as the kernel knows it: by its number in this program's PID namespace. 0: nobody has it,
  // or it is not seen from here.
  pid_t owner_of(unsigned slot) const;
  // nullptr: nobody has this slot.
  Slot* live_slot(unsigned slot);
  void for_each_live(const std::function<void(unsigned number, Slot& slot)>& each);
  // Calls `each` for the entries of a table of a slot, without those where nothing has ever been.
  void for_each_entry(unsigned slot, size_t table, size_t entry_bytes, size_t count,
                      const std::function<void(size_t index, const unsigned char* entry)>& each) const;
  // Memory regions and windows of a slot.
  size_t memory_regions(unsigned slot) const;
  // By its index in Hub::target_users.
  const QpShared& xrc_target(unsigned index) { return map(kHubSlot).qps[index]; }
  // Has that process's engine look.
  static void ring(Slot& slot, uint32_t attention);

 private:
  Slot& map(unsigned slot);

  std::string directory_;
  Config config_;
  int file_ = -1;
  int locks_ = -1;
  Slot* base_[kSlots] = {};
};

// Ends the program: `why`, which may have several lines, goes to stderr.
[[noreturn]] void give_up(const std::string& why);
// The text with that in front of each of its lines, which all end with a newline then.
std::string in_each_line(const std::string& before, const std::string& text);

}  // namespace softhca
