// SPDX-License-Identifier: BSD-3-Clause
//
// Results of operations that can fail while setting something up. The packet path does not use them: there, "no
// resource" is an enumerator (see btl_fabric/path/link_queue.h).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace fabric {

/// Why an operation failed, in words for a user: what happened and with which value. The caller that decides what the
/// failure means reports it, once.
struct Error {
  std::string text;
  bool is_shortage = false;  ///< something is used up, and may be given back: what was wanted can wait for that
};

/// A value or the reason there is none.
template <class T>
using Result = tl::expected<T, Error>;

/// A success without a value, or the reason of the failure.
using Status = tl::expected<void, Error>;

/// Makes the failed alternative of a Result or Status: `return failure("port 3 is down")`.
[[nodiscard]] inline tl::unexpected<Error> failure(std::string text) {
  return tl::unexpected<Error>(Error{std::move(text), false});
}

/// Passes a failure on, with what was being done in front: "creating queue pair 2: Cannot allocate memory".
[[nodiscard]] inline tl::unexpected<Error> failure(const std::string& while_doing, const Error& cause) {
  return tl::unexpected<Error>(Error{while_doing + ": " + cause.text, cause.is_shortage});
}

}  // namespace fabric
