// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric_top: what this process shows to contrib/fabric_top.
#pragma once

#include <memory>
#include <span>

#include "btl_fabric/mca/module.h"
#include "common/base/result.h"
#include "common/base/top_file.h"

namespace fabric {

/// The page of this process, which goes with it. For whoever holds all locks.
class TopPublisher {
 public:
  static constexpr unsigned kPeriodMs = top::kPeriod / 1'000'000;

  /// Makes the page. When the process has its name, before Open MPI knows the modules. The error says why there is none.
  [[nodiscard]] static Result<std::unique_ptr<TopPublisher>> begin(std::span<const std::unique_ptr<Module>> modules);

  /// Shows what has gone so far, and since the last time. No lock, and no system call.
  void publish(std::span<const std::unique_ptr<Module>> modules) noexcept;

 private:
  TopPublisher() = default;
  void name_ports(std::span<const std::unique_ptr<Module>> modules);
  void take_counters() noexcept;

  top::Image image_;
  std::unique_ptr<top::OwnPage> page_;
};

}  // namespace fabric
