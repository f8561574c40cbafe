// SPDX-License-Identifier: BSD-3-Clause
//
// The owner of a file descriptor.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace fabric::cpc {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) {
      // A child of fork(2) may have a copy, with which a socket would stay open. What is no socket is not concerned (ENOTSOCK).
      (void)::shutdown(fd_, SHUT_RDWR);
      ::close(fd_);
    }
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace fabric::cpc
