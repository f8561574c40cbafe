// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_description.h"

#include <algorithm>

#include "btl_fabric/path/packet_path.h"

namespace fabric {

std::size_t count_of(const FragmentQueue& messages) noexcept {
  std::size_t count = 0;
  for (const Fragment* one = messages.front(); one != nullptr; one = one->next) {
    ++count;
  }
  return count;
}

std::string counted(std::size_t count, const char* one, const char* several) {
  return std::to_string(count) + ' ' + (count == 1 ? one : several);
}

bool LinkDescription::is_busy() const noexcept {
  return link_.has_waiting() || link_.rdma_.in_flight() > 0 || link_.rdma_.replies_to_come() > 0 ||
         !link_.has_no_fragments_out();
}

std::string LinkDescription::of_queue(const LinkQueue& queue, std::size_t place) const {
  const QueueSpec& spec = link_.path_.receive_queues()[queue.index];
  const SendQueue& sends = *queue.sends;
  std::string text =
      "queue " + std::to_string(place) + " (" + static_cast<char>(spec.kind) + ',' + std::to_string(spec.size) + "): ";
  if (const std::size_t waiting = count_of(queue.waiting); waiting > 0) {
    const bool for_credit = !queue.is_shared && queue.credits.sendable() == 0;
    text += counted(waiting, "message waits", "messages wait") +
            (for_credit ? " for a credit: the peer has not taken what it was sent; " : " for room in the send queue; ");
  }
  if (queue.in_flight > 0) {
    text += counted(queue.in_flight, "message is", "messages are") + " under way; ";
  }
  if (!queue.is_shared) {
    text += counted(queue.credits.sendable(), "credit", "credits") + ", " +
            counted(queue.receives.posted(), "receive", "receives") + " posted, ";
  }
  return text + "room for " + counted(sends.tx.size_left(), "send", "sends");
}

void LinkDescription::append_to(std::string& text, const std::string& indent) const {
  std::size_t place = 0;
  for (const LinkQueue& queue : link_.queues_) {
    text += indent + of_queue(queue, place++) + '\n';
  }
  const LinkRdma& rdma = link_.rdma_;
  const std::size_t answers = rdma.replies_to_come();
  if (rdma.outstanding() > 0) {
    text += indent + "RDMA: " + counted(rdma.outstanding(), "operation", "operations") + ", " +
            std::to_string(rdma.in_flight()) + " under way, " + std::to_string(answers) +
            " atomic operations that the peer has not answered\n";
  }
}

}  // namespace fabric
