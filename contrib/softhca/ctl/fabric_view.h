// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The fabric in $SOFTHCA_DIR as softhca-ctl sees it: it looks and writes, but is no process of the fabric.
#include <cstdint>
#include <functional>
#include <string>

#include "fabric/config.h"
#include "fabric/layout.h"

namespace softhca {

class FabricView {
 public:
  // Ends the program with a message when there is no fabric.
  FabricView();

  const std::string& directory() const { return directory_; }
  const Config& config() const { return config_; }
  Hub& hub() { return *reinterpret_cast<Hub*>(map(kHubSlot).arena); }

  // nullptr: nobody has this slot.
  Slot* live_slot(unsigned slot);
  void for_each_live(const std::function<void(unsigned number, Slot& slot)>& each);
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

[[noreturn]] void give_up(const std::string& why);

}  // namespace softhca
