// SPDX-License-Identifier: BSD-3-Clause
//
// What goes over a link now, for somebody who looks for the reason of a hang: in words, or as JSON for contrib/fabric_hang.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "btl_fabric/path/link.h"

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

 private:
  [[nodiscard]] nlohmann::ordered_json of_queue(const LinkQueue& queue) const;

  const Link& link_;
};

/// Appends what add_to() has put there, a line for each queue and one for RDMA; `indent` before each.
void append_link(std::string& text, const nlohmann::ordered_json& link, const std::string& indent);

/// Messages in a queue of them.
[[nodiscard]] std::size_t count_of(const FragmentQueue& messages) noexcept;

}  // namespace fabric
