// SPDX-License-Identifier: BSD-3-Clause
//
// Search through all that can become of a world, from the first on. The product's objects cannot be copied, so a world is
// kept as the list of choices that lead to it, and made again from the start to be looked at. That is what takes time.
#pragma once

#include <event2/event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "test/model/choice.h"
#include "test/model/digest.h"
#include "test/model/options.h"

namespace fabric::model {

struct Found {
  std::size_t worlds = 0;
  std::size_t steps = 0;
  std::size_t ends = 0;  ///< worlds in which nothing happens by itself any more
  std::string fault;     ///< "": none
  std::string way;       ///< a short one that leads there, a line for each step
};

/// Looks at every world that `options` allow, each once; ends with the first fault.
[[nodiscard]] Found search(const Options& options, event_base* loop);

/// Follows `runs` random ways through the same worlds, without knowing which have been seen: a fault that the search
/// takes for another world's is found here.
[[nodiscard]] Found wander(const Options& options, event_base* loop, std::uint64_t seed, std::size_t runs);

/// A line for each step of a run.
[[nodiscard]] std::string describe(const Options& options, event_base* loop, const Schedule& way);

}  // namespace fabric::model
