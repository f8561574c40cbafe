// SPDX-License-Identifier: BSD-3-Clause
//
// Where CTS messages come in.
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// On a P queue CTS takes the handshake buffer.
[[gnu::cold]] void Endpoints::handshake_completed(const ibv_wc& completion) noexcept {
  const std::uint64_t serial = completion.wr_id >> cpc::kHandshakeTagBits;
  const auto found = handshakes_.find(serial);
  const bool has_link = found != handshakes_.end() && found->second->link_;  // else there was no memory for one
  if (completion.status != IBV_WC_SUCCESS) {
    if (has_link) {
      completion_failed(found->second->link(), {.kind = LinkFailure::Kind::kCompletion,
                                                .qpn = completion.qp_num,
                                                .is_missed = false,
                                                .completion = completion});
    }
    return;
  }
  if (has_link) {
    take_handshake(*found->second, completion.byte_len);
  } else {
    guarded(nullptr, [&] { early_handshakes_.push_back({serial, completion.byte_len}); });
  }
}

void Endpoints::take_handshake(Endpoint& endpoint, std::uint32_t length) noexcept {
  PacketHeader header;
  const std::byte* const packet = endpoint.handshake_.receive;
  if (!header.read(packet, length) || header.kind != PacketKind::kClearToSend ||
      header.cts_number() != endpoint.cts_number_) {
    link_failed(endpoint.link(), {.kind = LinkFailure::Kind::kBadPacket,
                                  .qpn = endpoint.link().queues().front().qpn,
                                  .packet = {packet, length}});
    return;
  }
  guarded(&endpoint, [&] { endpoint.cts_arrived(); });
}

/// The first queue is a shared one: CTS takes one of its receives.
[[gnu::cold]] void Endpoints::cts_received(LinkQueue& queue, std::span<const std::byte> packet) noexcept {
  Endpoint& endpoint = static_cast<EndpointLink&>(queue.link).endpoint;
  if (!endpoint.is_current(queue.link)) {
    return;  // it was polled after the link was given up
  }
  if (!queue.is_shared || &queue != &queue.link.queues().front() || !endpoint.exchanges_cts_) {
    link_failed(queue.link, {.kind = LinkFailure::Kind::kBadPacket, .qpn = queue.qpn, .packet = packet});
    return;
  }
  PacketHeader header;
  if (!header.read(packet.data(), packet.size()) || header.cts_number() != endpoint.cts_number_) {
    return;  // it came through a queue pair that had this number before
  }
  guarded(&endpoint, [&] { endpoint.cts_arrived(); });
}

/// On a shared queue. Before CTS nothing else is sent.
[[gnu::cold]] void Endpoints::unknown_queue_pair_spoke(std::uint32_t qpn, std::span<const std::byte> packet) noexcept {
  PacketHeader header;
  if (header.read(packet.data(), packet.size()) && header.kind == PacketKind::kClearToSend) {
    guarded(nullptr, [&] { early_cts_.push_back({qpn, header.cts_number()}); });
  }
}

void Endpoints::check_early_cts(Endpoint& endpoint) noexcept {
  if (!endpoint.link_) {
    return;  // there was no memory for it, and the endpoint has failed
  }
  const auto serial = endpoint.handshake_.serial;
  for (std::size_t i = 0; i < early_handshakes_.size();) {
    const EarlyHandshake one = early_handshakes_[i];
    if (one.serial != serial) {
      ++i;
      continue;
    }
    early_handshakes_.erase(early_handshakes_.begin() + static_cast<std::ptrdiff_t>(i));
    take_handshake(endpoint, one.length);
  }
  if (std::erase(early_cts_, EarlyCts{endpoint.link().queues().front().qpn, endpoint.cts_number_}) > 0) {
    guarded(&endpoint, [&] { endpoint.cts_arrived(); });
  }
}

/// What has come through them is here, and nothing else comes.
void Endpoints::on(const cpc::QueuePairsGone& upcall) noexcept {
  take_what_is_here();
  std::erase_if(early_handshakes_, [&](const EarlyHandshake& one) { return one.serial == upcall.handshake; });
  std::erase(early_cts_, EarlyCts{upcall.first_qpn, upcall.cts});
  path_->sender_is_gone(upcall.sender);
  has_chores_ = has_chores_ || path_->has_senders_gone();
}

}  // namespace fabric
