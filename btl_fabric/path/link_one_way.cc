// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_one_way.h"

#include <array>
#include <cstring>
#include <utility>

#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/shared_send_queue.h"

namespace fabric {

void LinkOneWay::leave_receiving_to(Link& next) noexcept {
  if (link_.target_qpn_ != 0) {
    link_.path_.remove_queue_pair(link_.target_qpn_);
    link_.path_.add_queue_pair(link_.target_qpn_, next.queues_.front());  // there is room: one has just gone
    next.target_qpn_ = std::exchange(link_.target_qpn_, 0);
  }
  next.incoming_incarnation_ = link_.incoming_incarnation_;
  next.asked_incarnation_ = link_.asked_incarnation_;
  next.is_silent_ = link_.is_silent_;
  for (std::size_t place = 0; place < next.queues_.size(); ++place) {
    next.queues_[place].said_goodbye = link_.queues_[place].said_goodbye;
  }
  next.replies_ = std::exchange(link_.replies_, {});
  if (!next.replies_.empty()) {
    next.path_.retry_later(next);
  }
}

void LinkOneWay::break_sender() noexcept {
  if (SendShare* const share = link_.queues_.front().share; share != nullptr && !share->sends.has_failed()) {
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    (void)ibv_modify_qp(share->sends.qp, &error, IBV_QP_STATE);  // a device refuses it where it is there already
  }
}

bool LinkOneWay::hear(const CountsOfOneWay& told) noexcept {
  if (told.asks == 0 || told.asks != link_.incoming_incarnation_) {
    return false;  // of a connection before this one, which used the same queue pair
  }
  link_.asked_incarnation_ = told.asks;
  return true;
}

bool LinkOneWay::has_asked_for(const CountsOfOneWay& told) const noexcept {
  return link_.state_ == Link::State::kResuming && told.answers == link_.outgoing_incarnation_;
}

// ---- What several links keep together

/// As send_inline(): a copy stays until the batch is complete in which it goes.
bool Link::send_inline_shared(ImmediateMessage message) noexcept {
  const std::size_t size = message.size();
  const std::size_t index = path_.queue_for(size);
  if (index == path_.receive_queues().count()) {
    return false;
  }
  LinkQueue& queue = this->queue(index);
  if (!queue.waiting.empty() || queue.room() != Room::kYes) {
    return false;
  }
  alignas(8) std::array<std::byte, kMaxInline> passing;
  std::byte* const place = queue.kept != nullptr ? queue.kept->place() : nullptr;
  std::byte* const packet = place != nullptr ? place : passing.data();
  std::memcpy(packet + PacketHeader::kSize, message.header, message.header_size);
  const std::size_t length = PacketHeader::kSize + size;
  if (message.payload_size > 0) {
    copy_all(*message.convertor, {packet + PacketHeader::kSize + message.header_size, message.payload_size});
  }
  queue.next_header(PacketKind::kMessage, message.tag).write(packet);
  const std::uint32_t number = queue.take_number();
  if (place != nullptr) {
    std::memcpy(packet + length, &queue.keeper, sizeof queue.keeper);
    queue.kept->keep(number, length + sizeof queue.keeper);
  }
  ++path_.counters().messages_sent_inline;
  path_.counters().bytes_sent += size;
  if (const int error = queue.post_inline({packet, length}); error != 0) {
    post_refused(queue, error);  // the message is lost with the link, which is reported
  }
  return true;
}

}  // namespace fabric
