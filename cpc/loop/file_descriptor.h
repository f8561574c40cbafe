// SPDX-License-Identifier: BSD-3-Clause
//
// The owner of a file descriptor.
#pragma once

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace fabric::cpc {

/// Tells the other end of a socket, as close(2) of its last descriptor does: a child of fork(2) may have a copy, with
/// which the socket would stay open. A TCP connection with unread data is reset (RFC 9293, section 3.6.1), so that
/// whoever has sent them does not take them for read. What is no socket is not concerned (ENOTSOCK).
inline void end_connection(int fd) noexcept {
  int unread = 0;
  if (::ioctl(fd, FIONREAD, &unread) == 0 && unread > 0) {
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    (void)::connect(fd, &nobody, sizeof nobody);
  }
  (void)::shutdown(fd, SHUT_RDWR);
}

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
      end_connection(fd_);
      ::close(fd_);
    }
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace fabric::cpc
