// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer: what stands in a page of shared memory is refused, or shown: as JSON that is valid, and as tables of printable characters
// that keep to their place.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/base/top_page.h"
#include "contrib/fabric_top/text.h"
#include "contrib/fabric_top/view.h"

namespace {

using namespace fabric::top;

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check_page(const std::vector<std::byte>& bytes) {
  auto image = decode(bytes);
  if (!image) {
    require(!image.error().text.empty());
    return;
  }
  std::vector<Shown> processes(1);
  processes[0].page.image = std::move(*image);
  const Nics nics = look_at_nics(processes, "/nowhere");
  const std::uint64_t now = processes[0].page.image->process.now_ns;
  const auto view = view_of(processes, nics, nics, now);
  require(view["processes"].size() == 1 && !view.dump().empty());  // dump() throws where a text is not UTF-8
  for (const std::size_t lines : {SIZE_MAX, std::size_t{0}, std::size_t{5}, std::size_t{23}}) {
    const std::string text = as_text(view, {lines, lines == SIZE_MAX ? SIZE_MAX : 80});
    require(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    require(lines < 2 || static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) <= lines);
  }
}

}  // namespace

/// The bytes as they are, and as an image behind a head that is right: the first 64 go to the process, then some to each table.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) {
    std::memcpy(bytes.data(), data, size);
  }
  check_page(bytes);

  std::vector<std::byte> page(sizeof(Page));
  const Page head;
  std::memcpy(page.data(), &head, kHeadSize);
  const auto put = [&](std::size_t at, std::size_t most) {
    const std::size_t part = std::min(most, size);
    if (part > 0) {
      std::memcpy(page.data() + offsetof(Page, words) + at, data, part);
      data += part;
      size -= part;
    }
  };
  put(0, sizeof(Process));
  put(offsetof(Image, peers), sizeof(Peer));
  put(offsetof(Image, ports), sizeof(Port));
  put(offsetof(Image, counters), sizeof(Image::counters));
  put(offsetof(Image, peers) + sizeof(Peer), sizeof(Image::peers) - sizeof(Peer));
  check_page(page);
  return 0;
}
