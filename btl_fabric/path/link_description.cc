// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_description.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "btl_fabric/path/packet_path.h"
#include "common/base/counted.h"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of_queue(const Json& queue, std::size_t place) {
  const auto number = [&](const char* name) { return queue.value(name, std::size_t{0}); };
  std::string text =
      "queue " + std::to_string(place) + " (" + queue.value("kind", "") + ',' + std::to_string(number("size")) + "): ";
  if (const std::size_t waiting = number("waiting"); waiting > 0) {
    text += counted(waiting, "message waits", "messages wait") +
            (queue.value("waits_for", "") == "credit" ? " for a credit: the peer has not taken what it was sent; "
                                                      : " for room in the send queue; ");
  }
  if (const std::size_t under_way = number("under_way"); under_way > 0) {
    text += counted(under_way, "message is", "messages are") + " under way; ";
  }
  if (queue.contains("credits")) {
    text += counted(number("credits"), "credit", "credits") + ", " +
            counted(number("receives"), "receive", "receives") + " posted, ";
  }
  return text + "room for " + counted(number("room"), "send", "sends") + "; " + std::to_string(number("sent")) +
         " sent, " + std::to_string(number("taken")) + " taken";
}

}  // namespace

std::uint32_t count_of(const FragmentQueue& messages, std::size_t most) noexcept {
  std::uint32_t count = 0;
  for (const Fragment* one = messages.front(); one != nullptr && count < most; one = one->next) {
    ++count;
  }
  return count;
}

bool LinkDescription::is_busy() const noexcept {
  return link_.has_waiting() || link_.rdma_.in_flight() > 0 || link_.rdma_.replies_to_come() > 0 ||
         !link_.has_no_fragments_out();
}

/// Reads and writes have no numbers of their own: those of the path's count for each of its links.
std::uint64_t LinkDescription::position() const noexcept {
  const Counters& all = link_.path_.counters();
  std::uint64_t sum = all.puts + all.gets + all.atomics_by_device + all.atomics_by_message;
  const auto add = [&](std::uint64_t number) { sum = sum * 31 + number; };
  add(link_.rdma_.outstanding());
  add(link_.rdma_.in_flight());
  for (const LinkQueue& queue : link_.queues_) {
    add(queue.counts->sent);
    add(queue.counts->taken);
    add(queue.in_flight);
    add(queue.is_shared ? 0 : queue.credits.account().credits);
  }
  return sum;
}

Json LinkDescription::of_queue(const LinkQueue& queue) const {
  const QueueSpec& spec = link_.path_.receive_queues()[queue.index];
  Json told{{"kind", std::string(1, static_cast<char>(spec.kind))},
            {"size", spec.size},
            {"sent", queue.counts->sent},
            {"taken", queue.counts->taken}};
  if (const std::size_t waiting = count_of(queue.waiting); waiting > 0) {
    const bool for_credit = !queue.is_shared && queue.credits.sendable() == 0;
    told["waiting"] = waiting;
    told["waits_for"] = for_credit ? "credit" : "room";
  }
  if (queue.in_flight > 0) {
    told["under_way"] = queue.in_flight;
  }
  if (!queue.is_shared) {
    const CreditWindow::Account account = queue.credits.account();
    told["credits"] = account.credits;
    told["receives"] = queue.receives.posted();
    told["owed"] = account.owed;
    told["missing"] = account.missing;
    told["depth"] = account.depth;
  }
  told["room"] = queue.sends->tx.size_left();
  return told;
}

void LinkDescription::add_to(Json& into) const {
  Json queues = Json::array();
  for (const LinkQueue& queue : link_.queues_) {
    queues.push_back(of_queue(queue));
  }
  into["queues"] = std::move(queues);
  if (const LinkRdma& rdma = link_.rdma_; rdma.outstanding() > 0) {
    into["rdma"] = {
        {"operations", rdma.outstanding()}, {"under_way", rdma.in_flight()}, {"unanswered", rdma.replies_to_come()}};
  }
}

std::uint32_t LinkDescription::packets_taken() const noexcept {
  std::uint32_t sum = link_.ring_counts_->taken;
  for (const LinkQueue& queue : link_.queues_) {
    sum += queue.counts->taken;
  }
  return sum;
}

void LinkDescription::add_to(top::Peer& row) const noexcept {
  for (const LinkQueue& queue : link_.queues_) {
    const std::uint32_t credits = queue.is_shared ? top::Peer::kNone : queue.credits.sendable();
    (credits == 0 ? row.wait_for_credit : row.wait_for_room) += count_of(queue.waiting, kMostWaiting);
    row.under_way += queue.in_flight;
    if (credits < row.credits) {
      row.credits = credits;
      row.credits_queue = link_.path_.receive_queues()[queue.index].size;
    }
  }
  row.rdma_open += link_.rdma_.outstanding();
}

void append_link(std::string& text, const Json& link, const std::string& indent) {
  std::size_t place = 0;
  for (const Json& queue : link.value("queues", Json::array())) {
    text += indent + line_of_queue(queue, place++) + '\n';
  }
  if (const auto rdma = link.find("rdma"); rdma != link.end()) {
    text += indent + "RDMA: " + counted(rdma->value("operations", std::size_t{0}), "operation", "operations") + ", " +
            std::to_string(rdma->value("under_way", 0U)) + " under way, " +
            std::to_string(rdma->value("unanswered", 0U)) + " atomic operations that the peer has not answered\n";
  }
}

}  // namespace fabric
