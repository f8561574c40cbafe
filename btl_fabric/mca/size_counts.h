// SPDX-License-Identifier: BSD-3-Clause
//
// How large what the upper layers hand over is, and for whom: for the report at the end of a job, which alone pays for it
// (btl_fabric/mca/watched_calls.h).
#pragma once

#include <memory>
#include <span>

#include "btl_fabric/base/size_classes.h"
#include "btl_fabric/mca/module.h"

namespace fabric {

/// From now on all that goes through these modules is counted. Before Open MPI has them, once; later calls go on with what there
/// is. Any thread may send.
void count_sizes(std::span<const std::unique_ptr<Module>> modules);

/// Bytes of all that has gone to the rank of this job through the module with this number, but for pieces that others have taken. Until
/// take_counted_sizes().
[[nodiscard]] std::uint64_t counted_bytes(std::uint32_t rank, std::size_t module) noexcept;
/// What has been counted. When nobody sends any more; peers are forgotten then.
[[nodiscard]] SizeHistogram take_counted_sizes() noexcept;

}  // namespace fabric
