// SPDX-License-Identifier: BSD-3-Clause
//
// What goes through another port to the same peer: what waits while the link of an endpoint cannot be made anew (endpoint_detour.cc), and
// while its first one is being made.
#include <algorithm>
#include <array>
#include <cassert>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"
#include "common/rdma/single_requests.h"

namespace fabric {

namespace {

/// What has broken so many ports is left to the last of them, which gives it up in time: a message that no way to the peer takes.
constexpr std::uint8_t kMostDetours = 4;

/// Messages that are handed to it are posted at once.
bool has_room(Endpoint& way) noexcept {
  Link* const link = way.carrier();
  return link != nullptr && std::all_of(link->queues().begin(), link->queues().end(),
                                        [](const LinkQueue& queue) { return queue.waiting.empty(); });
}

void carried_to_the_end(mca_btl_base_module_t* /*module*/, mca_btl_base_endpoint_t* /*endpoint*/,
                        mca_btl_base_descriptor_t* fragment, int /*status*/) {
  static_cast<Fragment*>(fragment)->detours = 0;
}

/// A copy of a packet's body for it: `header`, `first` and then `second`. False if there is no buffer now, or it is closed.
bool hand_over(Endpoint& way, PacketKind kind, mca_btl_base_tag_t tag, std::span<const std::byte> header,
               std::span<const std::byte> first, std::span<const std::byte> second, unsigned detours) noexcept {
  PacketPath& path = way.owner().path();
  const std::size_t size = header.size() + first.size() + second.size();
  Fragment* const fragment = path.get_send(path.queue_for(size));
  if (fragment == nullptr) {
    return false;
  }
  std::byte* const body = fragment->packet + PacketHeader::kSize;
  std::byte* end = std::copy(header.begin(), header.end(), body);
  end = std::copy(first.begin(), first.end(), end);
  std::copy(second.begin(), second.end(), end);
  fragment->kind = kind;
  fragment->tag = tag;
  fragment->segments[0].seg_len = size;
  fragment->des_flags =
      MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;  // so that it stays what it is
  fragment->des_cbfunc = carried_to_the_end;
  fragment->des_cbdata = nullptr;  // no request of the upper layer, whatever the tag is
  fragment->callback_due = false;
  fragment->detours = static_cast<std::uint8_t>(detours);
  if (way.send(*fragment) < 0) {
    fragment->detours = 0;
    put_back(fragment);
    return false;
  }
  return true;
}

/// Longer messages than the other port takes wait for this one.
bool is_too_long(const Endpoint& way, std::size_t size) noexcept {
  const PacketPath& path = way.owner().path();
  return path.queue_for(size) == path.receive_queues().count();
}

std::span<const std::byte> body_of(const Fragment& fragment) noexcept {
  return {fragment.packet + PacketHeader::kSize, fragment.segments[0].seg_len};
}
std::span<const std::byte> user_memory_of(const Fragment& fragment) noexcept {
  if (fragment.user_memory == nullptr) {
    return {};
  }
  return {static_cast<const std::byte*>(fragment.segments[1].seg_addr.pval), fragment.segments[1].seg_len};
}

}  // namespace

bool Endpoint::say_aside(Endpoint& way, DetourHeader::What what, std::span<const std::byte> body) noexcept {
  std::array<std::byte, DetourHeader::kSize> header;
  DetourHeader{key_.remote_port, key_.local_port, what, 0}.write(header.data());
  return hand_over(way, PacketKind::kDetour, 0, header, body, {}, 1);
}

/// What waits goes at once where that is possible: a message may be the last before its sender is in a call that makes no progress, as
/// MPI_Comm_disconnect of Open MPI 5.0.
void Endpoint::carry_at_once() {
  if (!is_healing()) {
    carry_first();
    return;
  }
  Endpoint* const way =
      !healing_->is_carrying && healing_->is_settled && may_settle() ? owner_.way_beside(*this) : nullptr;
  if (way != nullptr) {
    carry_aside(*way);
  }
}

/// While a connection is made after none that has left anything: by another port that carries, if it has room.
void Endpoint::carry_first() {
  const auto is_being_made = [this] {
    return !is_healing() && (state_ == EndpointState::kConnecting || state_ == EndpointState::kCtsSent ||
                             state_ == EndpointState::kCtsAwaited);
  };
  Endpoint* const way = is_being_made() ? owner_.way_beside(*this) : nullptr;
  while (way != nullptr && !waiting_.empty() && is_being_made() && has_room(*way)) {
    Fragment* const fragment = waiting_.front();
    if (carry_message(*way, *fragment) != Carried::kYes) {
      return;
    }
    (void)waiting_.pop_front();
    ++owner_.path().counters().carried_by_other_ports;
    end_send(upper(), fragment, OPAL_SUCCESS);
  }
}

/// As much as the other port takes now. In order, but for what goes round something that has to wait.
void Endpoint::carry_aside(Endpoint& way) {
  Backlog& backlog = healing_->backlog;
  const EndpointHealing* const same = healing_.get();
  const std::uint64_t before = healing_->carried;
  const auto goes_on = [&] { return healing_.get() == same && may_settle() && has_room(way); };
  bool is_blocked = false;
  healing_->is_carrying = true;
  while (goes_on() && !backlog.replies.empty()) {
    std::array<std::byte, AtomicReply::kSize> body;
    backlog.replies.front().write(body.data());
    if (!say_aside(way, DetourHeader::What::kAtomicReply, body)) {
      break;
    }
    backlog.replies.erase(backlog.replies.begin());
    ++healing_->carried;
  }
  while (goes_on() && !backlog.unnumbered.empty() && !is_blocked) {
    Backlog::Packet& packet = backlog.unnumbered.front();
    Fragment* const fragment = packet.fragment;
    const Carried carried = fragment != nullptr ? carry_message(way, *fragment) : carry_copy(way, packet.copy);
    is_blocked = carried == Carried::kNever;
    if (carried != Carried::kYes) {
      break;
    }
    backlog.unnumbered.pop_front();
    ++healing_->carried;
    if (fragment != nullptr) {
      end_send(upper(), fragment, OPAL_SUCCESS);
    }
  }
  while (goes_on() && backlog.unnumbered.empty() && !waiting_.empty() && !is_blocked) {
    Fragment* const fragment = waiting_.front();
    const Carried carried = carry_message(way, *fragment);
    is_blocked = carried == Carried::kNever;
    if (carried != Carried::kYes) {
      break;
    }
    (void)waiting_.pop_front();
    ++healing_->carried;
    end_send(upper(), fragment, OPAL_SUCCESS);
  }
  for (RdmaRequestQueue* const requests : {&backlog.requests, &waiting_rdma_}) {
    while (healing_.get() == same && may_settle() && way.takes_pieces() && !requests->empty() && !is_blocked) {
      RdmaRequest* const request = requests->pop_front();
      const Carried carried = carry_request(way, *request);
      is_blocked = carried == Carried::kNever;
      if (carried != Carried::kYes) {
        requests->push_front(request);
        break;
      }
      ++healing_->carried;
    }
    if (healing_.get() != same || !requests->empty()) {
      break;
    }
  }
  if (healing_.get() != same) {
    return;
  }
  healing_->is_carrying = false;
  healing_->is_blocked = is_blocked;
  if (!is_blocked) {
    healing_->carried_at = std::chrono::steady_clock::now();
  }
  owner_.path().counters().carried_by_other_ports += healing_->carried - before;
  if (before == 0 && healing_->carried > 0) {
    owner_.report_detour(*this, healing_->why, way);
  }
  if (is_blocked && owner_.is_lost()) {
    give_up_healing("The other device does not take all that waits: an atomic operation of the device, for example");
  }
}

Endpoint::Carried Endpoint::carry_copy(Endpoint& way, std::span<const std::byte> packet) noexcept {
  PacketHeader header;
  const bool is_ours = header.read(packet.data(), packet.size());
  assert(is_ours);
  (void)is_ours;
  return carry(way, header.kind, header.tag, packet.subspan(PacketHeader::kSize), {}, 1);
}

Endpoint::Carried Endpoint::carry_message(Endpoint& way, const Fragment& fragment) noexcept {
  return carry(way, fragment.kind, fragment.tag, body_of(fragment), user_memory_of(fragment), fragment.detours + 1U);
}

Endpoint::Carried Endpoint::carry(Endpoint& way, PacketKind kind, mca_btl_base_tag_t tag,
                                  std::span<const std::byte> first, std::span<const std::byte> second,
                                  unsigned detours) noexcept {
  if (kind == PacketKind::kAtomic || kind == PacketKind::kAtomicReply) {
    const auto what = kind == PacketKind::kAtomic ? DetourHeader::What::kAtomic : DetourHeader::What::kAtomicReply;
    return say_aside(way, what, first) ? Carried::kYes : Carried::kLater;
  }
  if (detours > kMostDetours || is_too_long(way, first.size() + second.size())) {
    return Carried::kNever;
  }
  // So that the peer's upper layer hears of it through the port that it was meant for: ob1 sends the answer to a message through that
  // one, if it sends short messages through it at all, and otherwise forgets the answer until something else happens.
  const bool is_message = kind == PacketKind::kMessage || kind == PacketKind::kMessages;
  if (is_message && !is_too_long(way, DetourHeader::kSize + first.size() + second.size())) {
    const auto what = kind == PacketKind::kMessage ? DetourHeader::What::kMessage : DetourHeader::What::kMessages;
    std::array<std::byte, DetourHeader::kSize> header;
    DetourHeader{key_.remote_port, key_.local_port, what, tag}.write(header.data());
    return hand_over(way, PacketKind::kDetour, 0, header, first, second, detours) ? Carried::kYes : Carried::kLater;
  }
  return hand_over(way, kind, tag, {}, first, second, detours) ? Carried::kYes : Carried::kLater;
}

Endpoint::Carried Endpoint::carry_request(Endpoint& way, RdmaRequest& request) {
  if (request.as_message) {
    AtomicMessage message;
    std::array<std::byte, AtomicMessage::kSize> body;
    if (!link().rdma().describe(request, message)) {
      return Carried::kLater;
    }
    message.write(body.data());
    if (!has_room(way) || !say_aside(way, DetourHeader::What::kAtomic, body)) {
      return Carried::kLater;
    }
    link().rdma().await_reply(&request, message.place);
    return Carried::kYes;
  }
  const DeviceKey* const key = request.local != nullptr ? request.remote.key_for(way.key().remote_port) : nullptr;
  if (key == nullptr || is_atomic(request.operation.kind) || request.detours >= kMostDetours) {
    return Carried::kNever;
  }
  RdmaRequestPool& requests = way.owner().path().rdma().requests;
  RdmaRequest* const piece = requests.get(way.owner().port().address.link);
  if (piece == nullptr) {
    return Carried::kLater;
  }
  const LocalMemory& memory = request.operation.local[0];
  const DeviceMemory* const there = request.local->with(way.owner().port().pd);
  piece->operation.kind = request.operation.kind;
  piece->operation.pieces = 1;
  piece->operation.local[0] = {memory.address, memory.length, there != nullptr ? there->mr : nullptr,
                               there != nullptr ? there->access : 0};
  piece->operation.remote_address = request.operation.remote_address;
  piece->operation.rkey = key->rkey;
  piece->operation.reads_back = request.remote.is_aside(*key, key_.remote_port);
  piece->local = request.local;  // the other port may break too
  piece->remote = request.remote;
  piece->detours = request.detours + 1;
  adopt_piece(*piece, request);
  begin_pieces(request, 1);
  if (way.submit(piece) != OPAL_SUCCESS) {
    requests.put(piece);
    request.pieces_to_come = 0;
    --in_pieces_;
    return Carried::kLater;
  }
  return Carried::kYes;
}

}  // namespace fabric
