// SPDX-License-Identifier: BSD-3-Clause
//
// What is inside the objects of a main thread (inside.h). What links have posted, and of what it came, the device knows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"
#include "test/model/digest.h"
#include "test/model/inside.h"
#include "test/model/numbers.h"

namespace fabric::model {

FABRIC_OPEN(fabric, Endpoint, apply);
FABRIC_OPEN(fabric, Endpoint, carrier_);
FABRIC_OPEN(fabric, Endpoint, counts_);
FABRIC_OPEN(fabric, Endpoint, cts_received_);
FABRIC_OPEN(fabric, Endpoint, directions_);
FABRIC_OPEN(fabric, Endpoint, ending_);
FABRIC_OPEN(fabric, Endpoint, handshake_);
FABRIC_OPEN(fabric, Endpoint, has_asked_);
FABRIC_OPEN(fabric, Endpoint, has_heard_);
FABRIC_OPEN(fabric, Endpoint, healing_);
FABRIC_OPEN(fabric, Endpoint, is_known_);
FABRIC_OPEN(fabric, Endpoint, link_);
FABRIC_OPEN(fabric, Endpoint, may_rest);
FABRIC_OPEN(fabric, Endpoint, may_speak_first_);
FABRIC_OPEN(fabric, Endpoint, owes_counts_);
FABRIC_OPEN(fabric, Endpoint, owes_counts_aside_);
FABRIC_OPEN(fabric, Endpoint, rest_is_put_off_);
FABRIC_OPEN(fabric, Endpoint, state_);
FABRIC_OPEN(fabric, Endpoint, waiting_);
FABRIC_OPEN(fabric, Endpoints, closing_);
FABRIC_OPEN(fabric, Endpoints, early_cts_);
FABRIC_OPEN(fabric, Endpoints, early_handshakes_);
FABRIC_OPEN(fabric, Endpoints, ending_);
FABRIC_OPEN(fabric, Endpoints, endpoints_);
FABRIC_OPEN(fabric, Endpoints, newest_links_);
FABRIC_OPEN(fabric, Link, asked_incarnation_);
FABRIC_OPEN(fabric, Link, has_told_counts_);
FABRIC_OPEN(fabric, Link, incoming_incarnation_);
FABRIC_OPEN(fabric, Link, is_silent_);
FABRIC_OPEN(fabric, Link, outgoing_incarnation_);
FABRIC_OPEN(fabric, Link, owes_counts_);
FABRIC_OPEN(fabric, Link, rests_to_say_);
FABRIC_OPEN(fabric, Link, target_qpn_);
FABRIC_OPEN(fabric, Endpoints, path_);
FABRIC_OPEN(fabric, PacketPath, senders_);

/// Every link with the peer, current, being taken down, or of an endpoint that is being closed.
template <class Function>
void for_each_link(const Endpoints& endpoints, std::uint32_t peer, Function function) {
  const auto use = [&](const Endpoint& endpoint) {
    if (const auto& link = inside(endpoint, Endpoint_link_{}); link && endpoint.key().peer.rank == peer) {
      function(*link);
    }
  };
  for (const auto& [name, endpoint] : inside(endpoints, Endpoints_endpoints_{})) {
    use(*endpoint);
  }
  for (const auto& endpoint : inside(endpoints, Endpoints_closing_{})) {
    use(*endpoint);
  }
  for (EndpointLink* one = inside(endpoints, Endpoints_ending_{}).first(); one != nullptr; one = one->next.get()) {
    if (one->endpoint.key().peer.rank == peer) {
      function(*one);
    }
  }
}

/// X queues: the incarnations that links know.
inline void see(PairNumbers& numbers, const Endpoints& endpoints, std::uint32_t peer) {
  for_each_link(endpoints, peer, [&](const Link& link) {
    numbers.incarnations.see(inside(link, Link_asked_incarnation_{}));
    numbers.incarnations.see(inside(link, Link_incoming_incarnation_{}));
    numbers.incarnations.see(inside(link, Link_outgoing_incarnation_{}));
  });
}

inline void add_to(Digest& digest, Link& link, std::size_t queues, const PairNumbers& numbers) {
  digest.add(static_cast<unsigned>(link.state()) | (inside(link, Link_is_silent_{}) ? 16U : 0U) |
             (inside(link, Link_has_told_counts_{}) ? 32U : 0U) | (inside(link, Link_owes_counts_{}) ? 64U : 0U));
  digest.add_name(inside(link, Link_target_qpn_{}));
  digest.add(inside(link, Link_rests_to_say_{}));
  digest.add(numbers.incarnations.of(inside(link, Link_incoming_incarnation_{})) |
             std::uint64_t{numbers.incarnations.of(inside(link, Link_outgoing_incarnation_{}))} << 32U);
  digest.add(numbers.incarnations.of(inside(link, Link_asked_incarnation_{})));
  for (std::size_t i = 0; i < queues; ++i) {
    const LinkQueue& queue = link.queues()[i];
    digest.add_name(queue.qpn);
    digest.add(queue.in_flight | (queue.waiting.empty() ? 0 : 1U << 16U) | (queue.drained ? 1U << 17U : 0U) |
               (queue.share != nullptr ? 1U << 18U : 0U) | (queue.said_rest ? 1U << 19U : 0U) |
               std::uint64_t{queue.credits.sendable()} << 32U);
  }
}

/// `newest`: of the numbers that the links of the key have.
inline void add_to(Digest& digest, const Endpoint& endpoint, std::size_t queues, cpc::LinkNumber newest,
                   const PairNumbers& numbers) {
  unsigned ending = 0;
  for (const EndpointLink* one = inside(endpoint, Endpoint_ending_{}); one != nullptr; one = one->next_of_peer) {
    ++ending;
  }
  digest.add(static_cast<unsigned>(inside(endpoint, Endpoint_state_{})) |
             inside(endpoint, Endpoint_cts_received_{}) << 16U | ending << 24U);
  digest.add((inside(endpoint, Endpoint_carrier_{}) != nullptr ? 1U : 0U) |
             (inside(endpoint, Endpoint_has_asked_{}) ? 2U : 0U) | (inside(endpoint, Endpoint_is_known_{}) ? 4U : 0U) |
             (inside(endpoint, Endpoint_may_speak_first_{}) ? 8U : 0U) |
             (inside(endpoint, Endpoint_waiting_{}).empty() ? 0U : 16U) |
             (inside(endpoint, Endpoint_has_heard_{}) ? 32U : 0U) |
             (inside(endpoint, Endpoint_rest_is_put_off_{}) ? 64U : 0U));
  const Directions& directions = inside(endpoint, Endpoint_directions_{});
  for (const cpc::Direction direction : Directions::kAll) {
    digest.add(static_cast<unsigned>(directions.told(direction)));
    digest.add(directions.has(direction) ? newest - directions.link(direction) : 0);
  }
  if (const PeerCounts* const counts = inside(endpoint, Endpoint_counts_{})) {
    for (std::size_t i = 0; i < queues; ++i) {
      digest.add(counts->queues[i].sent | std::uint64_t{counts->queues[i].taken} << 32U);
    }
    digest.add(counts->is_agreed ? 1 : 0);
    digest.add(counts->tellings | std::uint64_t{counts->first_since_break} << 32U);
    digest.add(counts->newest_heard | std::uint64_t{counts->newest_aside} << 32U);
  }
  digest.add((inside(endpoint, Endpoint_owes_counts_{}) ? 1U : 0U) |
             (inside(endpoint, Endpoint_owes_counts_aside_{}) ? 2U : 0U));
  if (const auto& healing = inside(endpoint, Endpoint_healing_{})) {
    digest.add(healing->taken.size() | (healing->is_resending ? 16U : 0U) | (healing->has_broken ? 32U : 64U));
    for (const std::uint32_t taken : healing->taken) {
      digest.add(taken);
    }
    for (const auto& packets : healing->backlog.queues) {
      digest.add(packets.size());
    }
    digest.add(healing->backlog.unnumbered.size() | std::uint64_t{healing->lost_qpn} << 32U);
    digest.add(healing->taken_aside.size() | std::uint64_t{healing->number_aside} << 32U);
    for (const std::uint32_t taken : healing->taken_aside) {
      digest.add(taken);
    }
    digest.add((healing->is_settled ? 1U : 0U) | (healing->is_told_aside ? 2U : 0U) | (healing->is_blocked ? 4U : 0U));
  }
  digest.add_name(inside(endpoint, Endpoint_handshake_{}).serial);
  digest.add(inside(endpoint, Endpoint_link_{}) ? 1 : 0);
  if (inside(endpoint, Endpoint_link_{})) {
    add_to(digest, *inside(endpoint, Endpoint_link_{}), queues, numbers);
  }
}

/// Of processes with these ranks.
inline void add_to(Digest& digest, const Endpoints& endpoints, std::uint8_t processes, std::size_t queues,
                   const ProcessNumbers& numbers) {
  const auto& newest_links = inside(endpoints, Endpoints_newest_links_{});
  const auto newest_of = [&](const cpc::ConnectionKey& key) {
    const auto found = newest_links.find(key);
    return found == newest_links.end() ? 0U : found->second;
  };
  for (std::uint8_t peer = 0; peer < processes; ++peer) {
    if (const Endpoint* one = endpoints.endpoint_to({7, peer}, ~std::uint64_t{0}); one != nullptr) {
      digest.add(peer + 1U);
      add_to(digest, *one, queues, newest_of(one->key()), numbers[peer]);
    }
  }
  digest.add(inside(endpoints, Endpoints_endpoints_{}).size());
  for (const auto& one : inside(endpoints, Endpoints_closing_{})) {
    digest.add(one->key().peer.rank);
    add_to(digest, *one, queues, newest_of(one->key()), numbers[one->key().peer.rank]);
  }
  digest.add(inside(endpoints, Endpoints_closing_{}).size());
  std::size_t ending = 0;
  for (EndpointLink* one = inside(endpoints, Endpoints_ending_{}).first(); one != nullptr;
       one = one->next.get(), ++ending) {
    digest.add(one->endpoint.key().peer.rank | (one->is_flushed ? 16U : 0U));
    digest.add(newest_of(one->endpoint.key()) - one->number);
    add_to(digest, *one, queues, numbers[one->endpoint.key().peer.rank]);
  }
  digest.add(ending);
  std::vector<std::uint32_t> failed;  // of the queue pairs that X queues send through
  for (const auto& [serial, sends] : inside(*inside(endpoints, Endpoints_path_{}), PacketPath_senders_{})) {
    if (sends->has_failed() && !sends->is_gone()) {
      failed.push_back(sends->qp->qp_num);
    }
  }
  std::sort(failed.begin(), failed.end());
  for (const std::uint32_t number : failed) {
    digest.add_name(number);
  }
  digest.add(failed.size());
  for (const auto& one : inside(endpoints, Endpoints_early_cts_{})) {
    digest.add_name(one.qpn);
  }
  for (const auto& one : inside(endpoints, Endpoints_early_handshakes_{})) {
    digest.add_name(one.serial);
  }
}

}  // namespace fabric::model
