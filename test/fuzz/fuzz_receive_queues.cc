// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer entry: any receive_queues string gives a list that is equal to its canonical form, or an error of three
// lines that is safe to print.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/accounting/receive_queues.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check_error(std::string_view text) {
  require(std::count(text.begin(), text.end(), '\n') == 2);
  require(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  require(text.size() < 400);
  const std::string_view carets = text.substr(text.rfind('\n') + 1);
  require(!carets.empty() && carets.back() == '^');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = fabric::ReceiveQueues::parse(text);
  if (!list) {
    check_error(list.error().text);
    return 0;
  }
  require(list->count() >= 1 && list->count() <= fabric::kMaxQueues);
  const auto again = fabric::ReceiveQueues::parse(list->canonical());
  require(again && again->queues() == list->queues());
  require(list->smallest_fitting(list->largest()) < list->count());
  return 0;
}
