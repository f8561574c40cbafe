// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer entry: any modex of a peer is refused with a reason, or decodes to something that survives a round trip.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "common/base/wire.h"
#include "common/ports/process_info.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

bool is_known(fabric::CpcKind kind) {
  return kind >= fabric::CpcKind{1} && kind <= fabric::CpcKind{4};
}

void check(std::span<const std::byte> bytes) {
  const auto info = fabric::decode_process_info(bytes, is_known);
  if (!info) {
    require(!info.error().text.empty());
    return;
  }
  const auto again = fabric::encode(*info);
  // Offers of unknown kinds are dropped; all else must come out as it went in.
  require(again.size() < bytes.size() || std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  const auto twice = fabric::decode_process_info(again, is_known);
  require(twice && *twice == *info);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  // Also with the header made right, which a fuzzer takes long to find out with every new size.
  fabric::ByteWriter whole;
  whole.put(std::uint32_t{0x46414249});
  whole.put(fabric::kProcessInfoVersion);
  whole.put(static_cast<std::uint32_t>(10 + size));
  whole.put_bytes(bytes);
  check(whole.bytes());
  return 0;
}
