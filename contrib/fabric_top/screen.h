// SPDX-License-Identifier: BSD-3-Clause
//
// The terminal, if there is one: its size, and keys without Enter.
#pragma once

#include <termios.h>

#include <chrono>
#include <optional>
#include <string>

#include "contrib/fabric_top/text.h"

namespace fabric::top {

/// Keys come at once while it lives. SIGINT, SIGTERM and SIGHUP end pause(), so that the terminal is what it was afterwards.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// What fits on it; everything, if standard output is no terminal.
  [[nodiscard]] Place place() const;
  /// Shows a text in the place of the one before; appends it, if standard output is no terminal. False: it cannot be written.
  [[nodiscard]] bool show(const std::string& text) const;
  /// False: the user has had enough (q, or a signal).
  [[nodiscard]] bool pause(std::chrono::milliseconds time) const;

 private:
  bool is_terminal_ = false;
  std::optional<termios> before_;  ///< of standard input, if that is a terminal
};

}  // namespace fabric::top
