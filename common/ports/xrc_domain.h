// SPDX-License-Identifier: BSD-3-Clause
//
// The XRC domain that the processes of a job share on a device: what their shared receive queues are in, and the queue
// pairs that receive for all of them. InfiniBand Architecture Specification 1.4, annex A14.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/base/verbs_handle.h"

namespace fabric {

/// ibv_close_xrcd() is inline, so it cannot be an argument of VerbsDeleter.
struct XrcDomainDeleter {
  void operator()(ibv_xrcd* domain) const noexcept { ibv_close_xrcd(domain); }
};
using XrcDomainHandle = std::unique_ptr<ibv_xrcd, XrcDomainDeleter>;

/// A file stands for the domain: processes that open the same one, on the same device, share it. The file holds an
/// identifier that the first of them has chosen, so that peers can tell domains apart. Goes after everything that was
/// made in the domain.
class XrcDomain {
 public:
  /// Opens the domain of `path`, and makes both if there is none yet. The file is not removed: another process may be
  /// about to open it. The error says what the device or the file system refused.
  [[nodiscard]] static Result<XrcDomain> open(ibv_context* device, const std::string& path);

  [[nodiscard]] ibv_xrcd* handle() const noexcept { return handle_.get(); }
  /// The identifier, not 0. Domains of different devices may have the same.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

  /// An empty text if the device has XRC, else the reason for which it cannot be used for X queues.
  [[nodiscard]] static std::string why_not(const ibv_device_attr& device);

 private:
  XrcDomain(XrcDomainHandle handle, std::uint64_t id) noexcept : handle_(std::move(handle)), id_(id) {}

  XrcDomainHandle handle_;
  std::uint64_t id_;
};

}  // namespace fabric
