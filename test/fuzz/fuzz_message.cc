// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer: whatever a peer or an unknown process sends, or publishes, is decoded to something in range or refused with a reason;
// messages in one piece or in two.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "cpc/core/message.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/xoob_offer.h"

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
  const auto whole = cpc::decode_header(bytes);
  require(whole || !whole.error().text.empty());
  const auto half = cpc::decode_header(bytes.first(size / 2));
  require(half || !whole);  // what is wrong already does not get better
  const auto message = cpc::decode_message(bytes);
  if (message) {
    require(whole.has_value() && message->header.length == size && size <= cpc::kMaxMessageBytes);
    require(message->ends.size() <= kMaxQueues && message->text.size() <= cpc::kMaxRefuseText);
    require(message->xrc.srqs.size() <= kMaxQueues && message->xrc.target_qpn <= 0xffffff);
    const auto again = cpc::decode_message(cpc::encode(*message));
    require(again.has_value() && again->ends == message->ends && again->text == message->text &&
            again->xrc == message->xrc);
  } else {
    require(!message.error().text.empty());
  }
  const auto hello = cpc::decode_hello(bytes);
  require(hello || !hello.error().text.empty());
  if (hello && *hello) {
    const auto again = cpc::decode_hello(cpc::encode_hello(**hello));
    require(again.has_value() && *again == *hello);
  }
  const auto offer = cpc::decode_oob_offer(bytes);
  require(!offer || cpc::decode_oob_offer(cpc::encode(*offer)) == *offer);
  const auto xrc_offer = cpc::decode_xoob_offer(bytes);
  require(!xrc_offer || cpc::decode_xoob_offer(cpc::encode(*xrc_offer)) == *xrc_offer);
  return 0;
}
