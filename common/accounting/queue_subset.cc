// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/queue_subset.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fabric {

QueueSubset::QueueSubset(const ReceiveQueues& list, std::vector<std::uint8_t> indices)
    : queues_(list.only(indices)), indices_(std::move(indices)), largest_(queues_.largest()) {
  const std::size_t largest = queues_.smallest_fitting(largest_);
  for (std::size_t index = 0; index < list.count(); ++index) {
    const auto found = std::find(indices_.begin(), indices_.end(), index);
    const std::size_t place = found != indices_.end() ? static_cast<std::size_t>(found - indices_.begin())
                                                      : queues_.smallest_fitting(list[index].size);
    places_.at(index) = static_cast<std::uint8_t>(place < count() ? place : largest);
  }
}

QueueSubset QueueSubset::all(const ReceiveQueues& list) {
  std::vector<std::uint8_t> indices(list.count());
  std::iota(indices.begin(), indices.end(), std::uint8_t{0});
  return {list, std::move(indices)};
}

}  // namespace fabric
