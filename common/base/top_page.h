// SPDX-License-Identifier: BSD-3-Clause
//
// What a process shows to contrib/fabric_top: the layout of its page in shared memory, and the check of what somebody else may have
// written there. How pages are made, found and read is in top_file.h.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/base/printable.h"
#include "common/base/result.h"

namespace fabric::top {

// Everything is bounded, so that a page has one size.
inline constexpr std::size_t kMostPorts = 64;
inline constexpr std::size_t kMostCounters = 64;
inline constexpr std::size_t kMostPeers = 64;  ///< those with most traffic
/// Nanoseconds between two publications of a process that is inside MPI.
inline constexpr std::uint64_t kPeriod = 500'000'000;

/// Text with an end, or one that fills it.
template <std::size_t kSize>
struct Text {
  std::array<char, kSize> bytes{};

  /// As much of `text` as there is place for.
  void set(std::string_view text) noexcept {
    bytes = {};
    text.copy(bytes.data(), kSize);
  }
  /// What is safe to print: a question mark stands for anything but printable ASCII.
  [[nodiscard]] std::string get() const {
    return printable({bytes.begin(), std::find(bytes.begin(), bytes.end(), '\0')});
  }
};

/// What goes to and comes from a peer, since the process began.
struct Flow {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;        ///< in these
  std::uint64_t packets_received = 0;  ///< of one message or several
  std::uint64_t puts = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t gets = 0;
  std::uint64_t get_bytes = 0;
  std::uint64_t atomics = 0;
  std::uint64_t packets_resent = 0;  ///< when connections had broken
};

/// A peer through one of the process's ports, summed over transmit contexts.
struct Peer {
  static constexpr std::uint32_t kNone = 0xffffffff;

  Flow now;
  Flow before;  ///< at the publication before: the difference is what has gone in Process::now_ns - Process::before_ns
  std::uint32_t job = 0;
  std::uint32_t rank = 0;
  std::uint32_t port = 0;         ///< its place among Image::ports
  std::uint32_t remote_port = 0;  ///< in the peer's modex
  // Messages that wait now
  std::uint32_t wait_for_connection = 0;
  std::uint32_t wait_for_credit = 0;
  std::uint32_t wait_for_room = 0;  ///< in the send queue
  std::uint32_t under_way = 0;      ///< posted, and not completed
  std::uint32_t rdma_open = 0;      ///< reads, writes and atomics that have not ended
  std::uint32_t credits = kNone;    ///< the fewest on any P queue; none: there is no P queue
  std::uint32_t credits_queue = 0;  ///< bytes of a buffer of that queue
  std::uint32_t heals = 0;          ///< times that the connection broke and was made anew
  Text<16> state;
  Text<16> method;  ///< by which it is connected
};

struct Port {
  Text<64> device;
  Text<8> link;  ///< "ib", "roce", "iwarp"
  std::uint32_t number = 0;
  std::uint32_t path = 0;  ///< of the port, from 0
};

/// A counter of the process, as MPI_T has it.
struct Counter {
  Text<32> name;
  std::uint64_t now = 0;
  std::uint64_t before = 0;
};

struct Process {
  std::uint64_t now_ns = 0;     ///< CLOCK_MONOTONIC, when this was published
  std::uint64_t before_ns = 0;  ///< the publication before; the same if this is the first
  std::uint64_t publications = 0;
  std::uint64_t connection_memory = 0;  ///< bytes, as MPI_T has it
  std::uint32_t pid = 0;                ///< as the process knows itself
  std::uint32_t job = 0;
  std::uint32_t rank = 0;
  std::uint32_t ports = 0;
  std::uint32_t counters = 0;
  std::uint32_t peers = 0;        ///< in Image::peers
  std::uint32_t known_peers = 0;  ///< with those for which there was no place
  std::uint32_t padding = 0;
  Text<32> program;
  Text<16> version;
};

/// All that a page shows at a time.
struct Image {
  Process process;
  std::array<Port, kMostPorts> ports;
  std::array<Counter, kMostCounters> counters;
  std::array<Peer, kMostPeers> peers;
};
using Word = std::uint64_t;
static_assert(std::is_trivially_copyable_v<Image> && sizeof(Image) % sizeof(Word) == 0);
// There are no gaps, which would show what has been in memory before.
static_assert(std::has_unique_object_representations_v<Image>);

/// The page. Its owner alone writes it. `sequence` is odd while it does.
struct Page {
  static constexpr std::array<char, 8> kMagic = {'f', 'a', 'b', 'r', '.', 't', 'o', 'p'};
  static constexpr std::uint32_t kVersion = 2;  ///< of the layout: another one with every change

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t size = sizeof(Page);
  std::atomic<Word> sequence = 0;
  std::array<std::atomic<Word>, sizeof(Image) / sizeof(Word)> words{};  ///< an Image
};
static_assert(std::atomic<Word>::is_always_lock_free && sizeof(std::atomic<Word>) == sizeof(Word));
inline constexpr std::size_t kHeadSize = offsetof(Page, sequence);

/// Puts an image into a page: plain stores, of which each makes those before it visible first. One writer at a time.
void put(Page& page, const Image& image) noexcept;

/// Whether `bytes` are a page of this layout, by its head. The error says what they are instead.
[[nodiscard]] Status check_head(std::span<const std::byte> bytes);
/// The image in a copy of a page that nobody has written meanwhile. The error says what cannot be true of it.
[[nodiscard]] Result<std::unique_ptr<Image>> decode(std::span<const std::byte> bytes);

}  // namespace fabric::top
