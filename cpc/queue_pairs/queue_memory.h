// SPDX-License-Identifier: BSD-3-Clause
//
// What the connections of a process take of its memory, by part. It is reckoned here and nowhere else: receive queues are chosen by it
// (queue_choice.h), fabric_info shows it, and the level connection_memory is its sum over the connections that there are.
//
// Entries of queues count 64 bytes each, whether they are used or not: what devices have. Not counted are copies of packets that
// the device has copied (KeptPackets), which lie in memory that is touched only as far as they are under way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/accounting/receive_queues.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

// Bytes. Those of objects are no less than the objects, which is checked where these are declared.
inline constexpr std::uint64_t kEntryBytes = 64;       ///< an entry of a send, receive or completion queue
inline constexpr std::uint64_t kBufferAlignment = 64;  ///< of message buffers: no two share a cache line
inline constexpr std::uint64_t kFragmentBytes = 320;   ///< what describes a message buffer
inline constexpr std::uint64_t kRegistrationBytes =
    512;  ///< the record of a memory region, and what the library keeps of it
inline constexpr std::uint64_t kBuffersOfRegistration = 32;  ///< that lie in one, as they are made
inline constexpr std::uint64_t kConnectionBytes = 4096;      ///< what is kept of a connection, without its queues
inline constexpr std::uint64_t kQueueBytes = 2048;  ///< what is kept of a queue, and the library of its queue pair

/// Queue pairs that X queues take of a process for each host: the one that it sends through, and its part of those that
/// receive for all processes of its own host.
inline constexpr std::int64_t kXrcPairsPerHost = 2;

/// Bytes.
struct MemoryParts {
  std::uint64_t receive_buffers = 0;     ///< registered: headers and messages
  std::uint64_t fragments = 0;           ///< the descriptions of these
  std::uint64_t send_entries = 0;        ///< of queue pairs
  std::uint64_t receive_entries = 0;     ///< of queue pairs, or of shared queues
  std::uint64_t completion_entries = 0;  ///< of completion queues, kept for these
  std::uint64_t objects = 0;             ///< the connection, its queues and queue pairs
  std::uint64_t registrations = 0;       ///< records of the memory regions of the buffers

  [[nodiscard]] constexpr std::uint64_t sum() const noexcept {
    return receive_buffers + fragments + send_entries + receive_entries + completion_entries + objects + registrations;
  }
  constexpr MemoryParts& operator+=(const MemoryParts& other) noexcept {
    receive_buffers += other.receive_buffers;
    fragments += other.fragments;
    send_entries += other.send_entries;
    receive_entries += other.receive_entries;
    completion_entries += other.completion_entries;
    objects += other.objects;
    registrations += other.registrations;
    return *this;
  }
  bool operator==(const MemoryParts&) const = default;
};

/// A connection without its queues.
[[nodiscard]] constexpr MemoryParts connection_memory() noexcept {
  return {.objects = kConnectionBytes};
}

/// Queue `index` of a connection as it begins: its queue pair, which has all its entries, and the first receives of a P queue.
/// `queues`: as the kind of link runs them. Nothing of an X queue, for which there is host_memory().
[[nodiscard]] MemoryParts queue_memory(const ReceiveQueues& queues, std::size_t index, Transport link,
                                       const QueuePairSettings& settings) noexcept;

/// `count` receives that a P queue gets later, and room for their completions.
[[nodiscard]] MemoryParts growth_memory(const QueueSpec& spec, std::uint32_t count) noexcept;

/// What X queues take for all processes of a host together: the queue pair to send through, and a part in those to receive through.
[[nodiscard]] MemoryParts host_memory(const ReceiveQueues& queues, const QueuePairSettings& settings) noexcept;

/// An S or X queue with all its receives, for all connections. Nothing of a P queue.
[[nodiscard]] MemoryParts shared_memory(const QueueSpec& spec) noexcept;

}  // namespace fabric::cpc
