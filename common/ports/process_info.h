// SPDX-License-Identifier: BSD-3-Clause
//
// What a process tells every other one about itself when the job starts (its "modex").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "common/ports/port_address.h"
#include "common/ports/steering.h"

namespace fabric {

/// A way to set up a connection, by its number in the modex, which never changes its meaning (cpc/registry/registry.h).
enum class CpcKind : std::uint8_t {};

/// "You can connect to me this way": what one CPC needs to be told, for the ports it serves. If it serves none, its blob
/// is a text that says why.
struct CpcOffer {
  CpcKind kind{};
  std::uint8_t priority = 0;    ///< 0 to 100, higher is preferred
  std::uint64_t ports = 0;      ///< bit i: serves ports[i] of the ProcessInfo
  std::vector<std::byte> blob;  ///< the CPC's own data, at most kMaxOfferBlob bytes
  bool operator==(const CpcOffer&) const = default;
};

inline constexpr std::uint16_t kProcessInfoVersion = 13;
/// ProcessInfo::queue_level of a process whose list the user has given: no level (cpc/queue_pairs/queue_choice.h).
inline constexpr std::uint8_t kListGiven = 255;
inline constexpr std::size_t kMaxOfferBlob = 4096;
inline constexpr std::size_t kMaxPorts = 64;  ///< ports of one process: what CpcOffer::ports holds

/// The modex of a process.
struct ProcessInfo {
  JobToken token{};
  std::string receive_queues;  ///< canonical form of the list in force
  std::uint8_t queue_level = kListGiven;
  /// At most kMaxPorts. A port is there once for each path and each context: a path's contexts come one after the other.
  std::vector<PortAddress> ports;
  std::uint8_t contexts = 1;  ///< of each port, to send by and to receive from: a divisor of the number of ports
  /// Where messages to this process are to go: at most kMostSteeringRules.
  std::vector<SteeringRule> steering;
  std::vector<CpcOffer> offers;
  bool operator==(const ProcessInfo&) const = default;
};

/// Encodes `info`: magic, version, length, fields; see process_info.cc for the layout.
[[nodiscard]] std::vector<std::byte> encode(const ProcessInfo& info);

/// Decodes what a peer published. Every length, count and enumerator is checked; the error says which one was wrong.
/// Offers of kinds that `is_known` does not know are left out: a later version may have more.
[[nodiscard]] Result<ProcessInfo> decode_process_info(std::span<const std::byte> bytes, bool (*is_known)(CpcKind));

}  // namespace fabric
