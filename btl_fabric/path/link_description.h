// SPDX-License-Identifier: BSD-3-Clause
//
// What goes over a link now: in words, or as JSON for contrib/fabric_hang, for somebody who looks for the reason of a hang, and as numbers
// for contrib/fabric_top.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "btl_fabric/path/link.h"
#include "common/base/top_page.h"

namespace fabric {

/// Of a link. Belongs to whoever holds the context's lock.
class LinkDescription {
 public:
  explicit LinkDescription(const Link& link) noexcept : link_(link) {}

  /// Something waits for the peer, or is under way.
  [[nodiscard]] bool is_busy() const noexcept;
  /// A number that is another one as soon as a message has gone or come, or anything has ended. For two looks at one link.
  [[nodiscard]] std::uint64_t position() const noexcept;
  /// Puts "queues", an array, into `into`, and "rdma" if there is any.
  void add_to(nlohmann::ordered_json& into) const;
  /// Adds what waits and is under way to a row of contrib/fabric_top, and puts the fewest credits there.
  void add_to(top::Peer& row) const noexcept;
  /// Packets that have been taken of this link alone, or, where one is made anew, of those before it too. The number goes round.
  [[nodiscard]] std::uint32_t packets_taken() const noexcept;

 private:
  [[nodiscard]] nlohmann::ordered_json of_queue(const LinkQueue& queue) const;

  const Link& link_;
};

/// Appends what add_to() has put there, a line for each queue and one for RDMA; `indent` before each.
void append_link(std::string& text, const nlohmann::ordered_json& link, const std::string& indent);

/// Those of which more are not counted for whoever looks often.
inline constexpr std::size_t kMostWaiting = 10000;
/// Messages in a queue of them, or `most`.
[[nodiscard]] std::uint32_t count_of(const FragmentQueue& messages, std::size_t most = SIZE_MAX) noexcept;

}  // namespace fabric
