// SPDX-License-Identifier: BSD-3-Clause
//
// Up to which size messages are copied into a request, into a buffer, read or written in pieces: chosen for a port by what is known of
// it, each choice with its reason. Each process chooses for what it sends or asks for; peers need not agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/ports/port_address.h"
#include "common/ports/registration_cost.h"

namespace fabric {

/// In the order of protocols: the shortest messages first. All are in bytes.
enum class Limit : std::uint8_t {
  kInline,        ///< a message that is copied into its work request
  kEager,         ///< a message that is sent at once, from a buffer into a buffer; longer ones wait for their receive
  kRndvEager,     ///< what of a longer message goes with the request for that
  kMaxSend,       ///< a piece of a longer message that is neither read nor written
  kInPlace,       ///< from here on such a piece is sent from the user's memory; 0: never
  kGet,           ///< one read of a message
  kPut,           ///< one write of a message
  kPipelineSend,  ///< what of a written message is sent while memory is registered
  kPipelineFragment,  ///< a piece of a written message, each registered by itself
  kLeastPipeline,     ///< from here on a message may be written in pieces
};
inline constexpr std::size_t kLimits = 10;

/// The MCA parameter that sets it, without the btl_fabric_ in front.
[[nodiscard]] const char* parameter_of(Limit limit) noexcept;

/// What is known of a port.
struct PortFacts {
  Transport link = Transport::kRoce;
  bool is_soft_iwarp = false;         ///< is_soft_iwarp()
  bool in_software = false;           ///< is_software_device()
  std::uint32_t mtu = 0;              ///< of its packets, bytes
  std::uint32_t mbit_per_second = 0;  ///< UsablePort::bandwidth
  std::uint32_t max_inline = 0;       ///< what the device grants of what it was asked for
  std::uint32_t wanted_inline = 0;    ///< what it was asked for
  std::uint64_t max_message = 0;      ///< of one work request
  std::uint64_t largest_queue = 0;    ///< the longest message that a receive queue takes
  std::uint32_t packet_header = 0;    ///< what precedes each message in its packets
  RegistrationCost registration{};
};

/// What the user has set; nothing: it is to be chosen.
class LimitWishes {
 public:
  [[nodiscard]] std::optional<std::uint64_t>& operator[](Limit limit) noexcept {
    return values_[static_cast<std::size_t>(limit)];
  }
  [[nodiscard]] const std::optional<std::uint64_t>& operator[](Limit limit) const noexcept {
    return values_[static_cast<std::size_t>(limit)];
  }

 private:
  std::array<std::optional<std::uint64_t>, kLimits> values_;
};

struct ChosenLimit {
  std::uint64_t value = 0;
  std::string reason;  ///< one line
};

class ProtocolLimits {
 public:
  [[nodiscard]] const ChosenLimit& operator[](Limit limit) const noexcept {
    return values_[static_cast<std::size_t>(limit)];
  }
  [[nodiscard]] ChosenLimit& operator[](Limit limit) noexcept { return values_[static_cast<std::size_t>(limit)]; }

 private:
  std::array<ChosenLimit, kLimits> values_;
};

/// What the user has set is used as it is, but for what the device cannot do: reads and writes are of max_message at most, and
/// no message is inline beyond max_inline.
[[nodiscard]] ProtocolLimits choose_limits(const PortFacts& port, const LimitWishes& wishes);

/// Checks what the user has set against the receive queues. The error names the parameter, its value and the rule.
[[nodiscard]] Status check_limits(const LimitWishes& wishes, std::uint64_t largest_queue);

}  // namespace fabric
