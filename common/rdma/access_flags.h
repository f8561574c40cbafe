// SPDX-License-Identifier: BSD-3-Clause
//
// What memory must be registered for, by the part it plays in an operation and by the transport. No other place in this
// project chooses access flags.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

#include "common/ports/port_address.h"

namespace fabric {

/// The part that a piece of memory plays. A registration for several is an or of them.
enum class MemoryRole : std::uint32_t {
  kSendSource = 1U << 0,
  kReceiveSink = 1U << 1,
  kReadSource = 1U << 2,    ///< a peer reads it
  kReadSink = 1U << 3,      ///< what was read goes there
  kWriteSource = 1U << 4,   ///< what is written comes from there
  kWriteSink = 1U << 5,     ///< a peer writes it
  kAtomicTarget = 1U << 6,  ///< a peer changes it
  kPolledSink = 1U << 7,    ///< a peer writes it, and software looks at it to find out that it has
};

/// A set of roles.
struct MemoryRoles {
  std::uint32_t bits = 0;

  constexpr MemoryRoles() = default;
  constexpr MemoryRoles(MemoryRole role) noexcept : bits(static_cast<std::uint32_t>(role)) {}  // NOLINT: a set of one
  [[nodiscard]] constexpr bool has(MemoryRole role) const noexcept {
    return (bits & static_cast<std::uint32_t>(role)) != 0;
  }
  constexpr MemoryRoles& operator|=(MemoryRoles other) noexcept {
    bits |= other.bits;
    return *this;
  }
  friend constexpr MemoryRoles operator|(MemoryRoles a, MemoryRoles b) noexcept { return a |= b; }
  bool operator==(const MemoryRoles&) const = default;
};

[[nodiscard]] constexpr MemoryRoles operator|(MemoryRole a, MemoryRole b) noexcept {
  return MemoryRoles(a) | MemoryRoles(b);
}

/// A row of the table.
struct AccessRow {
  MemoryRole role;
  unsigned ib;     ///< InfiniBand and RoCE
  unsigned iwarp;  ///< iWARP
  /// The device may write (or read) the memory in any order, which is faster on some hosts. Safe where software looks
  /// at the memory only after a completion of its own; not where a peer's next operation, or a look at the memory, may
  /// come first.
  bool may_reorder;
};

// iWARP names the sink of a read to the peer, whose answer is then like a write: the sink needs remote write access
// (RFC 5040, section 5). And a write there is known to be in place only when a read that follows it is answered, so
// what is written can be read (see RdmaOperation::confirm). What the device only reads from needs no flag. Atomics are
// InfiniBand's and RoCE's.
inline constexpr unsigned kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
inline constexpr unsigned kRemoteRead = IBV_ACCESS_REMOTE_READ;
inline constexpr unsigned kRemoteWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
inline constexpr unsigned kRemoteAtomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// Of memory that windows can be bound to with remote write access.
inline constexpr unsigned kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

inline constexpr std::array kAccessTable = {
    AccessRow{MemoryRole::kSendSource, 0, 0, true},
    AccessRow{MemoryRole::kReceiveSink, kLocalWrite, kLocalWrite, true},
    AccessRow{MemoryRole::kReadSource, kRemoteRead, kRemoteRead, true},
    AccessRow{MemoryRole::kReadSink, kLocalWrite, kRemoteWrite, true},
    AccessRow{MemoryRole::kWriteSource, 0, 0, true},
    AccessRow{MemoryRole::kWriteSink, kRemoteWrite, kRemoteWrite | kRemoteRead, false},
    AccessRow{MemoryRole::kAtomicTarget, kRemoteAtomic, kLocalWrite, false},
    AccessRow{MemoryRole::kPolledSink, kRemoteWrite, kRemoteWrite | kRemoteRead, false},
};

/// The flags for memory that plays these roles: what any of them needs, and relaxed ordering if all of them bear it
/// (which verbs ignores where the device or the kernel cannot).
///
/// `by_windows`: reads on iWARP are to name memory windows to the peer, which are bound for them (RdmaLimits::windows). The memory
/// then needs no remote write access for them.
[[nodiscard]] constexpr unsigned access_flags(MemoryRoles roles, Transport link, bool by_windows = false) noexcept {
  unsigned flags = 0;
  bool may_reorder = true;
  for (const AccessRow& row : kAccessTable) {
    if (roles.has(row.role)) {
      const bool binds = by_windows && link == Transport::kIwarp && row.role == MemoryRole::kReadSink;
      flags |= binds ? kBindable : link == Transport::kIwarp ? row.iwarp : row.ib;
      may_reorder = may_reorder && row.may_reorder;
    }
  }
  return may_reorder ? flags | IBV_ACCESS_RELAXED_ORDERING : flags;
}

/// How the user wants memory registered, as far as the device can.
struct AccessWishes {
  bool relaxed_ordering = true;    ///< where it is safe: AccessRow::may_reorder
  bool on_demand = false;          ///< the user's memory is pinned page by page, while the device uses it (ODP)
  bool on_demand_atomics = false;  ///< the device executes atomics on such memory
};

/// Flags of access_flags() with what is wished. `is_users`: not of the component's own buffers, which a message must find in place.
/// Windows are not bound to memory on demand (the drivers that have it refuse that), and what is polled has no time for a page fault.
[[nodiscard]] constexpr unsigned as_wished(unsigned flags, MemoryRoles roles, bool is_users,
                                           const AccessWishes& wishes) noexcept {
  const bool can_fault = is_users && (flags & IBV_ACCESS_MW_BIND) == 0 && !roles.has(MemoryRole::kPolledSink) &&
                         (!roles.has(MemoryRole::kAtomicTarget) || wishes.on_demand_atomics);
  if (!wishes.relaxed_ordering) {
    flags &= ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING);
  }
  return wishes.on_demand && can_fault ? flags | IBV_ACCESS_ON_DEMAND : flags;
}

/// True if memory registered with `have` can play these roles.
[[nodiscard]] constexpr bool suffices(unsigned have, MemoryRoles roles, Transport link) noexcept {
  const unsigned needed = access_flags(roles, link) & ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING);
  const bool ordered =
      (access_flags(roles, link) & IBV_ACCESS_RELAXED_ORDERING) != 0 || (have & IBV_ACCESS_RELAXED_ORDERING) == 0;
  return (have & needed) == needed && ordered;
}

static_assert(access_flags(MemoryRole::kReadSink, Transport::kIwarp) & IBV_ACCESS_REMOTE_WRITE);
static_assert(!(access_flags(MemoryRole::kReadSink, Transport::kIwarp, true) & IBV_ACCESS_REMOTE_WRITE));
static_assert(!(access_flags(MemoryRole::kReadSink, Transport::kRoce) & IBV_ACCESS_REMOTE_WRITE));
static_assert(!(access_flags(MemoryRole::kAtomicTarget | MemoryRole::kReadSource, Transport::kInfiniBand) &
                IBV_ACCESS_RELAXED_ORDERING));

}  // namespace fabric
