// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/xrc_domain.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/private_file.h"

namespace fabric {
namespace {

/// Closes a file descriptor at the end, which also ends the lock on its file.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) noexcept : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  [[nodiscard]] int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

/// The number in the file, which is written if the file has none. The file is locked by this process.
Result<std::uint64_t> read_or_choose_id(int file, const std::string& path) {
  std::uint64_t id = 0;
  const ssize_t got = pread(file, &id, sizeof id, 0);
  if (got < 0) {
    return verbs_failure("reading " + path, errno);
  }
  if (got == sizeof id && id != 0) {
    return id;
  }
  // Whoever was to write it has died on the way.
  do {
    if (getrandom(&id, sizeof id, 0) != sizeof id) {
      return verbs_failure("a random number for " + path, errno);
    }
  } while (id == 0);
  if (pwrite(file, &id, sizeof id, 0) != sizeof id) {
    return verbs_failure("writing " + path, errno);
  }
  return id;
}

}  // namespace

std::string XrcDomain::why_not(const ibv_device_attr& device) {
  return (device.device_cap_flags & IBV_DEVICE_XRC) != 0
             ? std::string()
             : "it has no XRC, and btl_fabric_receive_queues has X queues: use S queues";
}

Result<XrcDomain> XrcDomain::open(ibv_context* device, const std::string& path) {
  const Result<int> opened = open_private_file(path);
  if (!opened) {
    return failure("opening the file of the XRC domain", opened.error());
  }
  const OpenFile file(*opened);
  // Nobody holds it for longer than it takes to read or write eight bytes.
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return verbs_failure("locking " + path, errno);
    }
  }
  const Result<std::uint64_t> id = read_or_choose_id(file.get(), path);
  if (!id) {
    return tl::unexpected(id.error());
  }
  // The device keeps hold of the file by itself (man ibv_open_xrcd: it is the inode that counts).
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = file.get();
  attributes.oflags = O_CREAT;
  XrcDomainHandle handle(ibv_open_xrcd(device, &attributes));
  if (!handle) {
    return verbs_failure("opening the XRC domain of " + path, errno);
  }
  return XrcDomain(std::move(handle), *id);
}

}  // namespace fabric
