// SPDX-License-Identifier: BSD-3-Clause
//
// Who wants to know what Open MPI gives to be sent stands in front of the modules' functions. Without a watcher the functions stay as
// they are, and no send executes an instruction more.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "btl_fabric/mca/module.h"

namespace fabric {

/// Is told of each call that was accepted. Any thread may call, several at once. An endpoint may be null, or of the process itself.
class CallWatcher {
 public:
  virtual void sent(const Endpoint* endpoint, std::size_t bytes) noexcept = 0;
  virtual void put(const Endpoint* endpoint, std::size_t bytes) noexcept = 0;
  virtual void got(const Endpoint* endpoint, std::size_t bytes) noexcept = 0;
  virtual void operated(const Endpoint* endpoint) noexcept = 0;  ///< an atomic operation

 protected:
  ~CallWatcher() = default;
};

inline constexpr std::size_t kMaxCallWatchers = 2;

/// From now on the watcher is told of what goes through these modules. For the main thread, before Open MPI knows them. A watcher is
/// told once of each call, however often it was added, and stays for the life of the process.
void watch_calls(std::span<const std::unique_ptr<Module>> modules, CallWatcher& watcher) noexcept;

}  // namespace fabric
