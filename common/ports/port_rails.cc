// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_rails.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace fabric {
namespace {

tl::unexpected<Error> wrong(std::string_view item, const std::string& why) {
  return failure("\"" + std::string(item) + "\" " + why);
}

}  // namespace

Result<PortRails> PortRails::parse(std::string_view text) {
  PortRails rails;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return wrong(item, "has no rail: write DEVICE=RAIL or DEVICE:PORT=RAIL, separated by commas");
    }
    auto port = PortFilter::parse(item.substr(0, equals), true);
    if (!port) {
      return tl::unexpected(port.error());
    }
    const std::string_view number = item.substr(equals + 1);
    std::uint8_t rail = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rail);
    if (error != std::errc{} || end != number.data() + number.size() || rail == 0) {
      return wrong(item, "has no rail after the equals sign: rails are 1 to 255");
    }
    const PortFilter::Item& one = port->items().front();
    if (std::any_of(rails.items_.begin(), rails.items_.end(), [&one](const Item& other) {
          return other.port.device == one.device &&
                 (other.port.port == one.port || other.port.port == 0 || one.port == 0);
        })) {
      return wrong(item, "puts a port on a rail that has one already: name each once");
    }
    rails.items_.push_back({one, rail});
    if (comma == std::string_view::npos) {
      return rails;
    }
    rest.remove_prefix(comma + 1);
  }
}

std::uint8_t PortRails::rail_of(std::string_view device, std::uint8_t port) const noexcept {
  const auto found = std::find_if(items_.begin(), items_.end(), [&](const Item& item) {
    return item.port.device == device && (item.port.port == 0 || item.port.port == port);
  });
  return found != items_.end() ? found->rail : std::uint8_t{0};
}

}  // namespace fabric
