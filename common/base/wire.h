// SPDX-License-Identifier: BSD-3-Clause
//
// The one byte-order rule of this project: every multi-byte integer that leaves the process is big-endian, in the
// modex, in connection messages and in packet headers alike.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fabric {

/// The bytes of `value` in the other order.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T swap_bytes(T value) noexcept {
  if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else if constexpr (sizeof(T) == 8) {
    return __builtin_bswap64(value);
  } else {
    static_assert(sizeof(T) == 1);
    return value;
  }
}

/// Stores `value` big-endian at `to`, which need not be aligned.
template <std::unsigned_integral T>
inline void store_be(std::byte* to, T value) noexcept {
  const T wire = std::endian::native == std::endian::little ? swap_bytes(value) : value;
  std::memcpy(to, &wire, sizeof wire);
}

/// Loads a big-endian integer from `from`, which need not be aligned.
template <std::unsigned_integral T>
[[nodiscard]] inline T load_be(const std::byte* from) noexcept {
  T wire = 0;
  std::memcpy(&wire, from, sizeof wire);
  return std::endian::native == std::endian::little ? swap_bytes(wire) : wire;
}

/// Appends fields to a message.
class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    store_be(bytes_.data() + at, value);
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  /// A string as its length (16 bits) and its bytes. Longer strings are a programming error: callers check.
  void put_string(std::string_view text) {
    put(static_cast<std::uint16_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }

  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Takes fields off a message from an untrusted peer. Reading past the end gives zeros and makes `ok()` false for good,
/// so that a decoder reads all its fields and checks once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  template <std::unsigned_integral T>
  [[nodiscard]] T get() noexcept {
    if (rest_.size() < sizeof(T)) {
      fail();
      return 0;
    }
    const T value = load_be<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  /// Fills `to`, or fails and leaves it as it was.
  void get_bytes(std::span<std::byte> to) noexcept {
    const auto from = take(to.size());
    if (!from.empty()) {
      std::memcpy(to.data(), from.data(), from.size());
    }
  }

  /// The next `size` bytes, without a copy; empty after a failure.
  [[nodiscard]] std::span<const std::byte> take(std::size_t size) noexcept {
    if (rest_.size() < size) {
      fail();
      return {};
    }
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  [[nodiscard]] std::string get_string() {
    const auto bytes = take(get<std::uint16_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  void fail() noexcept {
    ok_ = false;
    rest_ = {};
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace fabric
