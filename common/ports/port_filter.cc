// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_filter.h"

#include <algorithm>
#include <charconv>

namespace fabric {

namespace {

Result<PortFilter::Item> parse_item(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view device = text.substr(0, colon);
  if (device.empty()) {
    return failure("\"" + std::string(text) + "\" names no device: write DEVICE or DEVICE:PORT, separated by commas");
  }
  if (device.find_first_of(" \t\n/") != std::string_view::npos) {
    return failure("\"" + std::string(text) + "\" has a blank or a slash in it: device names have none");
  }
  PortFilter::Item item{std::string(device), 0};
  if (colon == std::string_view::npos) {
    return item;
  }
  const std::string_view number = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), item.port);
  if (error != std::errc{} || end != number.data() + number.size() || item.port == 0) {
    return failure("\"" + std::string(text) + "\" has no port number after the colon: ports are 1 to 255");
  }
  return item;
}

}  // namespace

Result<PortFilter> PortFilter::parse(std::string_view text, bool include) {
  PortFilter filter;
  filter.include_ = include;
  while (true) {
    const std::size_t comma = text.find(',');
    auto item = parse_item(text.substr(0, comma));
    if (!item) {
      return tl::unexpected(item.error());
    }
    filter.items_.push_back(std::move(*item));
    if (comma == std::string_view::npos) {
      return filter;
    }
    text.remove_prefix(comma + 1);
  }
}

bool PortFilter::passes(std::string_view device, std::uint8_t port) const noexcept {
  const bool listed = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
    return item.device == device && (item.port == 0 || item.port == port);
  });
  return listed == include_;
}

bool PortFilter::may_pass(std::string_view device) const noexcept {
  if (include_) {
    return std::any_of(items_.begin(), items_.end(), [&](const Item& item) { return item.device == device; });
  }
  return std::none_of(items_.begin(), items_.end(),
                      [&](const Item& item) { return item.device == device && item.port == 0; });
}

}  // namespace fabric
