// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_top/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>

namespace fabric::top {
namespace {

std::atomic<bool> is_over;
static_assert(std::atomic<bool>::is_always_lock_free);

void end(int /*number*/) {
  is_over.store(true);
}

}  // namespace

Screen::Screen() : is_terminal_(isatty(STDOUT_FILENO) != 0) {
  struct sigaction ours {};
  ours.sa_handler = end;  // not SA_RESTART: poll() is to end
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    (void)sigaction(number, &ours, nullptr);
  }
  termios now{};
  if (is_terminal_ && isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &now) == 0) {
    before_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
}

Screen::~Screen() {
  if (before_) {
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  }
}

Place Screen::place() const {
  winsize size{};
  if (!is_terminal_ || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2 || size.ws_col == 0) {
    return {};
  }
  return {static_cast<std::size_t>(size.ws_row) - 1, size.ws_col};  // the last line is the cursor's
}

bool Screen::show(const std::string& text) const {
  if (is_terminal_) {
    std::cout << "\033[H\033[J";
  }
  std::cout << text << (is_terminal_ ? "" : "\n") << std::flush;
  return static_cast<bool>(std::cout);
}

bool Screen::pause(std::chrono::milliseconds time) const {
  const auto until = std::chrono::steady_clock::now() + time;
  for (auto left = time; left.count() > 0 && !is_over.load();
       left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())) {
    pollfd keys{before_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (poll(&keys, 1, static_cast<int>(left.count())) <= 0) {
      continue;
    }
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') {
      return false;
    }
  }
  return !is_over.load();
}

}  // namespace fabric::top
