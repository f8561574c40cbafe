// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer: private data from whoever can reach the communication manager, and offers from the modex, are decoded to
// something in range or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "common/ports/process_info.h"
#include "cpc/rdmacm/cm_message.h"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fabric;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (const auto message = cpc::decode_cm_message(bytes)) {
    require(message->queue < message->queue_count && message->queue_count <= kMaxQueues);
    require(message->text.size() <= cpc::kMaxCmText && message->header.length <= size);
    const auto again = cpc::decode_cm_message(cpc::encode(*message));
    require(again.has_value() && again->header.attempt == message->header.attempt && again->text == message->text);
    require(again->header.sender == message->header.sender && again->header.proof == message->header.proof);
  } else {
    require(!message.error().text.empty());
  }
  if (const auto addresses = cpc::decode_cm_addresses(bytes)) {
    require(addresses->size() <= kMaxPorts && cpc::decode_cm_addresses(cpc::encode(*addresses)) == *addresses);
  } else {
    require(!addresses.error().text.empty());
  }
  return 0;
}
