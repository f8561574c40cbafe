// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/shared_send_queue.h"

#include <algorithm>
#include <cassert>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"

namespace fabric {

namespace {

/// Appends to a list that is linked through its members; once, however often it is asked.
template <class T>
void append(T*& first, T*& last, T& one) noexcept {
  if (one.is_enqueued) {
    return;
  }
  one.is_enqueued = true;
  one.next_enqueued = nullptr;
  assert((first == nullptr) == (last == nullptr));
  (last == nullptr ? first : last->next_enqueued) = &one;
  last = &one;
}

template <class T>
void remove(T*& first, T*& last, T& one) noexcept {
  if (!one.is_enqueued) {
    return;
  }
  one.is_enqueued = false;
  T* before = nullptr;
  for (T* at = first; at != &one; at = at->next_enqueued) {
    before = at;
  }
  (before == nullptr ? first : before->next_enqueued) = one.next_enqueued;
  if (last == &one) {
    last = before;
  }
}

}  // namespace

SharedSendQueue::SharedSendQueue(ibv_qp* queue_pair, const QueueSpace& space, PacketPath& path)
    : SendQueue(space), path_(path), rdma_(path, tx) {
  qp = queue_pair;
  rdma_.learn_reads(qp);
  if (const PathSettings& settings = path_.settings(); settings.heals && settings.max_inline > 0) {
    const auto entries = static_cast<std::size_t>(tx.space().entries());
    kept_ = std::make_unique<KeptPackets>(entries + kMostBatch, settings.max_inline + SendShare::kKeeperBytes);
    has_whole_batches = true;
  }
  path_.add_borrower(*this);
  memory_.add(cpc::host_memory(path_.receive_queues(), queue_pair_settings(path_.settings())));
}

SharedSendQueue::~SharedSendQueue() {
  path_.remove_borrower(*this);
}

/// Requests that are under way for a link that is gone are nobody's but the queue pair's: whoever has its share may be told
/// that they failed.
SendShare& SharedSendQueue::add(Link& link) {
  const auto unused =
      std::find_if(shares_.begin(), shares_.end(), [](const SendShare& share) { return share.link == nullptr; });
  if (unused == shares_.end()) {
    return shares_.emplace_back(SendShare{*this, &link, ++last_number_});
  }
  unused->link = &link;
  unused->number = ++last_number_;
  return *unused;
}

void SharedSendQueue::release(Link& link) noexcept {
  link.stop_sending();
}

void SharedSendQueue::break_down() noexcept {
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  (void)ibv_modify_qp(qp, &error, IBV_QP_STATE);  // it is there already, or gets there by what has failed
  failed_ = has_broken_down_ = true;
}

bool SharedSendQueue::is_used() const noexcept {
  return std::any_of(shares_.begin(), shares_.end(), [](const SendShare& share) { return share.link != nullptr; });
}

/// Which links have inline messages under way is not known. Those that come before a fragment complete with it, so there are none
/// if no fragment of another link is under way and none was posted since. And there are none after a goodbye if all bytes in use
/// are those of goodbyes.
bool SharedSendQueue::loses_nothing_with(const Link* failed, std::uint64_t goodbye_carried) const noexcept {
  std::uint64_t goodbyes = 0;
  bool others_are_quiet = true;
  for (const SendShare& share : shares_) {
    const Link* const link = share.link;
    if (link == nullptr) {
      continue;
    }
    goodbyes += link->goodbyes_under_way();
    if (link != failed && !link->is_quiet()) {
      others_are_quiet = false;
      if (!link->carries_only_goodbyes()) {
        return false;
      }
    }
  }
  if (others_are_quiet && unsignaled == 0 && batches.is_empty()) {
    return true;
  }
  return goodbye_carried != 0 && tx.used() == goodbye_carried + (goodbyes - 1) * tx.space().needed(1);
}

void SharedSendQueue::enqueue(LinkQueue& queue) noexcept {
  append(first_waiting, last_waiting_, queue);
}
void SharedSendQueue::leave(LinkQueue& queue) noexcept {
  remove(first_waiting, last_waiting_, queue);
}
void SharedSendQueue::enqueue(LinkRdma& rdma) noexcept {
  append(first_rdma_, last_rdma_, rdma);
}
void SharedSendQueue::leave(LinkRdma& rdma) noexcept {
  remove(first_rdma_, last_rdma_, rdma);
}

void SharedSendQueue::serve() noexcept {
  for (bool served = true; served && !failed_;) {
    served = serve_message();
    served = serve_rdma() || served;
  }
}

/// False if nobody could be served.
bool SharedSendQueue::serve_message() noexcept {
  LinkQueue* queue = first_waiting;
  if (queue == nullptr || (!tx.has_room() && !path_.lend(*this))) {
    return false;
  }
  leave(*queue);
  queue->link.send_one(*queue);
  if (!queue->waiting.empty()) {
    enqueue(*queue);
  }
  return true;
}

bool SharedSendQueue::serve_rdma() noexcept {
  LinkRdma* rdma = first_rdma_;
  if (rdma == nullptr || failed_) {
    return false;
  }
  switch (rdma->start_first()) {
    case LinkRdma::Started::kNoRoom:
      return false;
    case LinkRdma::Started::kLater:
      leave(*rdma);  // whatever it waits for brings it back
      return true;
    case LinkRdma::Started::kFailed:
      return false;
    case LinkRdma::Started::kYes:
    case LinkRdma::Started::kNever:
      break;
  }
  leave(*rdma);
  if (rdma->has_waiting()) {
    enqueue(*rdma);
  }
  return true;
}

}  // namespace fabric
