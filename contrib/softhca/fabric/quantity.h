// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Quantities with units, one for each port of a device: what the link options of Config are.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/layout.h"

namespace softhca {

enum class Unit : uint8_t {
  BitsPerSecond,  // "100G", "2.5G", "800M"; 0: no limit
  Nanoseconds,    // "1us", "500ns", "2ms"; "0" needs no unit
  Share,          // "0.001" or "0.1%", in parts of kWhole
  Lid,            // "7": a whole number that is a unicast LID, or 0
};
constexpr uint64_t kWhole = 1'000'000'000;

// The same for each node. Zero where nothing was said.
struct PerPort {
  uint64_t values[kMaxDevices][kMaxPorts] = {};
  std::string text;  // as it was written

  uint64_t at(uint32_t port_id) const { return values[device_of_port_id(port_id)][port_of_port_id(port_id) - 1]; }
  bool is_set() const;
};

// One quantity. Empty if it is not written so, or too large (10 Tbit/s, 10 s, all).
std::optional<uint64_t> parse_quantity(std::string_view text, Unit unit);
// QUANTITY for all ports, DEVICE:PORT=QUANTITY for one, or several of these, with commas between; the later ones hold. False, and
// nothing has changed, if that is not what `text` says.
bool parse_per_port(std::string_view text, Unit unit, PerPort& quantities);
// How a quantity is written, and an example: for messages.
const char* form_of(Unit unit);
const char* example_of(Unit unit);

}  // namespace softhca
