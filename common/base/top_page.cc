// SPDX-License-Identifier: BSD-3-Clause
#include "common/base/top_page.h"

namespace fabric::top {

/// Who sees a word of this image, which is released, sees the odd number that was stored before it: a reader that finds the same
/// even number before and after its look has seen one image.
void put(Page& page, const Image& image) noexcept {
  const Word number = page.sequence.load(std::memory_order_relaxed);
  page.sequence.store(number + 1, std::memory_order_relaxed);
  const auto* bytes = reinterpret_cast<const std::byte*>(&image);
  for (auto& word : page.words) {
    Word value = 0;
    std::memcpy(&value, bytes, sizeof value);
    bytes += sizeof value;
    word.store(value, std::memory_order_release);
  }
  page.sequence.store(number + 2, std::memory_order_release);
}

Status check_head(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadSize || std::memcmp(bytes.data(), Page::kMagic.data(), Page::kMagic.size()) != 0) {
    return failure("it is no page of btl_fabric");
  }
  std::uint32_t version = 0;
  std::uint32_t size = 0;
  std::memcpy(&version, bytes.data() + offsetof(Page, version), sizeof version);
  std::memcpy(&size, bytes.data() + offsetof(Page, size), sizeof size);
  if (version != Page::kVersion) {
    return failure("its layout has version " + std::to_string(version) + ", and this program knows version " +
                   std::to_string(Page::kVersion) + ": it belongs to another version of btl_fabric");
  }
  if (size != sizeof(Page)) {
    return failure("it says that it has " + std::to_string(size) + " bytes, not " + std::to_string(sizeof(Page)));
  }
  return {};
}

Result<std::unique_ptr<Image>> decode(std::span<const std::byte> bytes) {
  if (Status checked = check_head(bytes); !checked) {
    return tl::unexpected(checked.error());
  }
  if (bytes.size() != sizeof(Page)) {
    return failure("it has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(sizeof(Page)));
  }
  auto image = std::make_unique<Image>();
  std::memcpy(image.get(), bytes.data() + offsetof(Page, words), sizeof(Image));
  const Process& process = image->process;
  if (process.ports > kMostPorts || process.counters > kMostCounters || process.peers > kMostPeers ||
      process.known_peers < process.peers) {
    return failure("it says that it has " + std::to_string(process.ports) + " ports, " +
                   std::to_string(process.counters) + " counters and " + std::to_string(process.peers) + " of " +
                   std::to_string(process.known_peers) + " peers");
  }
  for (const Peer& peer : std::span(image->peers).first(process.peers)) {
    if (peer.port >= process.ports) {
      return failure("it has a peer at port " + std::to_string(peer.port) + " of " + std::to_string(process.ports));
    }
  }
  return image;
}

}  // namespace fabric::top
