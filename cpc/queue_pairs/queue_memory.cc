// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/queue_memory.h"

#include "cpc/queue_pairs/queue_fit.h"

namespace fabric::cpc {
namespace {

/// `count` message buffers of a queue.
MemoryParts buffer_memory(const QueueSpec& spec, std::uint64_t count) noexcept {
  const std::uint64_t size = kHandshakeBytes + spec.size;  // a header stands in front of every message
  return {.receive_buffers = count * ((size + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment),
          .fragments = count * kFragmentBytes,
          .registrations = count * (kRegistrationBytes / kBuffersOfRegistration)};
}

/// A queue pair with its entries.
MemoryParts queue_pair_memory(const QueueDepths& depths) noexcept {
  return {.send_entries = depths.send * kEntryBytes,
          .receive_entries = depths.receive * kEntryBytes,
          .completion_entries = depths.completions().own * kEntryBytes,
          .objects = kQueueBytes};
}

}  // namespace

MemoryParts queue_memory(const ReceiveQueues& queues, std::size_t index, Transport link,
                         const QueuePairSettings& settings) noexcept {
  const QueueSpec& spec = queues[index];
  if (spec.kind == QueueKind::kXrc) {
    return {};
  }
  MemoryParts parts = queue_pair_memory(queue_depths(queues, index, link, settings));
  parts += buffer_memory(spec, spec.receive_depth() - spec.receives_later());
  return parts;
}

MemoryParts growth_memory(const QueueSpec& spec, std::uint32_t count) noexcept {
  MemoryParts parts = buffer_memory(spec, count);
  parts.completion_entries = count * kEntryBytes;
  return parts;
}

MemoryParts host_memory(const ReceiveQueues& queues, const QueuePairSettings& settings) noexcept {
  if (!queues.has_xrc()) {
    return {};
  }
  // All of them have one sender, so each says the same of it. There is no XRC on iWARP.
  MemoryParts parts = queue_pair_memory(queue_depths(queues, queues.count() - 1, Transport::kInfiniBand, settings));
  parts.objects = static_cast<std::uint64_t>(kXrcPairsPerHost) * kQueueBytes;
  return parts;
}

MemoryParts shared_memory(const QueueSpec& spec) noexcept {
  if (spec.kind == QueueKind::kPerPeer) {
    return {};
  }
  MemoryParts parts = growth_memory(spec, spec.rd_num);
  parts.receive_entries = spec.rd_num * kEntryBytes;
  return parts;
}

}  // namespace fabric::cpc
