// SPDX-License-Identifier: BSD-3-Clause
//
// Steering rules: in which of its receive contexts a process wants messages, by sender and by tag. The receiver publishes
// them, and who sends to it makes a table of them, once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace fabric {

/// What comes from these senders under these tags goes to that context. The first rule that matches counts.
struct SteeringRule {
  std::uint32_t first_source = 0;  ///< ranks in the sender's job, up to and with last_source
  std::uint32_t last_source = UINT32_MAX;
  std::uint8_t first_tag = 0;  ///< of BTL messages, up to and with last_tag
  std::uint8_t last_tag = UINT8_MAX;
  std::uint8_t context = 0;
  bool operator==(const SteeringRule&) const = default;
};

inline constexpr std::size_t kMostSteeringRules = 64;
inline constexpr unsigned kMostSteeredContext = 63;

/// Reads rules as a user writes them, separated by semicolons: [source=RANKS][,tag=TAGS]:CONTEXT or *:CONTEXT. RANKS are a
/// number, a range 0-3, or *; TAGS the same, or a name: pml, osc or usr for those of one part of Open MPI, or match, rndv,
/// rget, ack, nack, frag, get, put, fin or cid for one of ob1's. The error shows the part that is wrong, and the rule that it
/// breaks.
[[nodiscard]] Result<std::vector<SteeringRule>> parse_steering(std::string_view text);

/// The context for each tag; kNotSteered: whichever the sender likes.
using SteeringTable = std::array<std::uint8_t, 256>;
inline constexpr std::uint8_t kNotSteered = UINT8_MAX;

/// The receiver's rules as they are for one sender, where the two have so many contexts (at least 1) in common; a rule that
/// names a higher one means the remainder. Null if no rule is for the sender.
[[nodiscard]] std::unique_ptr<const SteeringTable> steering_table(std::span<const SteeringRule> rules,
                                                                  std::uint32_t source, unsigned contexts);

}  // namespace fabric
