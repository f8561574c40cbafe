// SPDX-License-Identifier: BSD-3-Clause
//
// What goes over a link now, in words, for somebody who looks for the reason of a hang.
#pragma once

#include <string>

#include "btl_fabric/path/link.h"

namespace fabric {

/// Of a link. Belongs to whoever holds the context's lock.
class LinkDescription {
 public:
  explicit LinkDescription(const Link& link) noexcept : link_(link) {}

  /// Something waits for the peer, or is under way.
  [[nodiscard]] bool is_busy() const noexcept;
  /// Appends a line for each queue, and one for RDMA, that say something; `indent` before each.
  void append_to(std::string& text, const std::string& indent) const;

 private:
  [[nodiscard]] std::string of_queue(const LinkQueue& queue, std::size_t place) const;

  const Link& link_;
};

/// Messages in a queue of them.
[[nodiscard]] std::size_t count_of(const FragmentQueue& messages) noexcept;
/// "3 messages"
[[nodiscard]] std::string counted(std::size_t count, const char* one, const char* several);

}  // namespace fabric
