// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/tcp.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/base/error_text.h"
#include "cpc/loop/file_descriptor.h"

namespace fabric::doctor {
namespace {

constexpr int kPatienceMs = 2000;

/// An errno; 0: it is there.
int try_address(const cpc::SocketAddress& address) {
  const cpc::FileDescriptor socket(
      ::socket(address.host.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_storage storage{};
  const socklen_t size = cpc::to_sockaddr(address, storage);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  pollfd wanted{socket.get(), POLLOUT, 0};
  if (poll(&wanted, 1, kPatienceMs) <= 0) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Result<std::string> reach_by_tcp(std::span<const cpc::SocketAddress> addresses) {
  std::string tried;
  for (const cpc::SocketAddress& address : addresses) {
    const int error = try_address(address);
    if (error == 0) {
      return to_string(address);
    }
    tried += (tried.empty() ? "" : "; ") + to_string(address) + ": " + describe_errno(error);
  }
  return failure(tried.empty() ? "it has no address" : tried);
}

}  // namespace fabric::doctor
