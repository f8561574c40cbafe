// SPDX-License-Identifier: BSD-3-Clause
//
// Where CTS messages come in, and what happens when a peer of such a connection leaves.
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

namespace fabric {

/// On a P queue CTS takes the handshake buffer.
[[gnu::cold]] void Module::handshake_completed(const ibv_wc& completion) noexcept {
  const std::uint64_t serial = completion.wr_id >> cpc::kHandshakeTagBits;
  if (const auto found = handshakes_.find(serial); found != handshakes_.end()) {
    take_handshake(*found->second, completion.byte_len);
  } else {
    early_handshakes_.push_back({serial, completion.byte_len});
  }
}

void Module::take_handshake(Endpoint& endpoint, std::uint32_t length) noexcept {
  PacketHeader header;
  const std::byte* const packet = endpoint.handshake().receive;
  if (!header.read(packet, length) || header.kind != PacketKind::kClearToSend) {
    report_bad_packet(*this, endpoint.queue(0), packet, length);
    fail(endpoint);
    return;
  }
  if (Status taken = endpoint.cts_arrived(); !taken) {
    connection_failed(endpoint, taken.error().text);
  }
}

/// The first queue is a shared one: CTS takes one of its receives.
[[gnu::cold]] void Module::take_cts(EndpointQueue& queue, Fragment* fragment, std::uint32_t length) noexcept {
  if (!queue.is_shared || queue.index != 0 || !queue.endpoint.exchanges_cts()) {
    report_bad_packet(*this, queue, fragment->packet, length);
    fail(queue.endpoint);
    return;
  }
  if (Status taken = queue.endpoint.cts_arrived(); !taken) {
    connection_failed(queue.endpoint, taken.error().text);
  }
}

/// A message on a shared queue, from a queue pair that we do not know. Before CTS nothing else is sent.
[[gnu::cold]] void Module::stranger_spoke(const ibv_wc& completion, const Fragment& fragment) noexcept {
  PacketHeader header;
  if (header.read(fragment.packet, completion.byte_len) && header.kind == PacketKind::kClearToSend) {
    early_cts_.push_back(completion.qp_num);
  }
}

void Module::check_early_cts(Endpoint& endpoint) noexcept {
  const auto serial = endpoint.handshake().serial;
  for (std::size_t i = 0; i < early_handshakes_.size();) {
    const EarlyHandshake one = early_handshakes_[i];
    if (one.serial != serial) {
      ++i;
      continue;
    }
    early_handshakes_.erase(early_handshakes_.begin() + static_cast<std::ptrdiff_t>(i));
    take_handshake(endpoint, one.length);
  }
  EndpointQueue& first = endpoint.queue(0);
  if (std::erase(early_cts_, first.qp->qp_num) > 0) {
    if (Status taken = endpoint.cts_arrived(); !taken) {
      connection_failed(endpoint, taken.error().text);
    }
  }
}

/// An iWARP connection that the peer closes flushes what is posted here; on other links that follows an error of ours.
bool Module::is_peers_farewell(const ibv_wc& completion) const noexcept {
  return completion.status == IBV_WC_WR_FLUSH_ERR && port_.address.link == Transport::kIwarp;
}

[[gnu::cold]] void Module::peer_left(Endpoint& endpoint) noexcept {
  if (endpoint.state() == Endpoint::State::kFailed || endpoint.state() == Endpoint::State::kClosing) {
    return;
  }
  const bool is_peers_wish = endpoint.is_peers_wish();
  if (Status fine = endpoint.peer_left(); !fine && is_peers_wish) {
    forget_peers_wish(endpoint, fine.error().text);
    endpoint.give_up(fine.error().text);
  } else if (!fine) {
    connection_failed(endpoint, fine.error().text);
  }
}

}  // namespace fabric
