// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/directed_sends.h"

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

DirectedSends::Direction DirectedSends::direction_of(const Endpoint& first, std::uint8_t order,
                                                     mca_btl_base_tag_t tag) const noexcept {
  const Endpoint::Direction wanted = first.direction(order, tag);
  switch (wanted.by) {
    case Endpoint::Direction::By::kIndex:
      return {wanted.context, &Counters::messages_directed_by_index};
    case Endpoint::Direction::By::kRule:
      return {wanted.context, &Counters::messages_directed_by_rule};
    case Endpoint::Direction::By::kNothing:
      break;
  }
  return {locks_.current() % first.contexts(), nullptr};
}

int DirectedSends::send(Endpoint& first, Fragment& fragment) noexcept {
  const Direction direction = direction_of(first, fragment.order, fragment.tag);
  const auto guard = locks_.lock_if_allowed(direction.context);
  if (!guard) {
    count(direction, locks_.current());  // whose lock this thread holds
    ++counters[locks_.current()].messages_left_to_a_context;
    left_.leave(direction.context, fragment, &first);
    return OPAL_SUCCESS;
  }
  send_what_was_left(direction.context);
  Endpoint* const endpoint = first.in_context(direction.context);
  if (endpoint == nullptr) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  const int result = endpoint->send(fragment);
  if (result >= 0) {
    count(direction, direction.context);
  }
  return result;
}

bool DirectedSends::send_immediately(Endpoint& first, const ImmediateMessage& message, std::uint8_t order) noexcept {
  const Direction direction = direction_of(first, order, message.tag);
  const auto guard = locks_.lock_if_allowed(direction.context);
  if (!guard) {
    return false;
  }
  send_what_was_left(direction.context);
  Endpoint* const endpoint = first.in_context(direction.context);
  const bool is_sent = endpoint != nullptr && endpoint->send_immediately(message);
  if (is_sent) {
    count(direction, direction.context);
  }
  return is_sent;
}

void DirectedSends::count(const Direction& direction, unsigned context) noexcept {
  if (direction.counter != nullptr) {
    ++(counters[context].*direction.counter);
  }
}

/// For whoever holds the context's lock.
[[gnu::cold]] void DirectedSends::send_left(unsigned context) noexcept {
  while (Fragment* const fragment = left_.take(context)) {
    auto& first = *static_cast<Endpoint*>(fragment->directed_to);
    Endpoint* const endpoint = first.in_context(context);
    const int result = endpoint != nullptr ? endpoint->send(*fragment) : OPAL_ERR_OUT_OF_RESOURCE;
    if (result < 0) {  // as of any message that waited
      end_unsent(endpoint != nullptr ? *endpoint : first, *fragment, result);
    }
  }
}

/// For whoever holds all locks.
void DirectedSends::send_all_left() noexcept {
  for (unsigned context = 0; context < locks_.contexts(); ++context) {
    send_what_was_left(context);
  }
}

}  // namespace fabric
