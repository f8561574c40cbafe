// SPDX-License-Identifier: BSD-3-Clause
// What can be asked of a context, and of the file system in a device's name.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "device/attributes.h"
#include "device/port.h"
#include "verbs/call.h"
#include "verbs/verbs_ops.h"

#undef ibv_query_port

namespace softhca {
namespace {

int unusable(ibv_context* context) {
  return cannot_use(*Context::of(context));
}

// 0: the device has no such port.
uint32_t port_id_in(ibv_context* context, unsigned port) {
  return valid_port(port) ? port_id_on(*Context::of(context), port) : 0;
}

// Programs may know a smaller structure than we, or a larger one.
template <typename T>
void copy_as_known(void* to, size_t size, const T& from) {
  std::memset(to, 0, size);
  std::memcpy(to, &from, std::min(size, sizeof from));
}

// 0, ENODATA for an empty entry, or another errno.
int gid_entry(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry& entry) {
  static const unsigned loopback = if_nametoindex("lo");
  if (const int error = unusable(context)) return error;
  Fabric& fabric = *Fabric::get();
  const uint32_t port_id = port_id_in(context, port);
  entry = {};
  if (port_id == 0 || index >= gid_table_length(fabric.config())) return EINVAL;
  if (!gid_at(fabric, port_id, index, &entry.gid)) return ENODATA;
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = gid_type_at(fabric.config(), index);
  if (fabric.config().personality != Personality::Ib) entry.ndev_ifindex = loopback;
  return 0;
}

int minus_one(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace

// A child may ask as well: nothing here is in the fabric.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t size) {
  const Context& own = *Context::of(context);
  if (own.fatal.load(std::memory_order_relaxed)) return EIO;
  if ((input != nullptr && input->comp_mask != 0) || size < sizeof(ibv_device_attr)) return EINVAL;
  copy_as_known(attr, size, device_attributes_ex(own.fabric->config(), own.fabric->node(), own.device->index));
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
  if (const int error = unusable(context)) return error;
  const uint32_t port_id = port_id_in(context, port);
  if (port_id == 0) return EINVAL;
  copy_as_known(attr, size, port_attributes(*Fabric::get(), port_id));
  return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (const int error = unusable(context)) return error;
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  return clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) == 0 ? 0 : errno;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return query_device_ex(context, nullptr, reinterpret_cast<ibv_device_attr_ex*>(attr), sizeof *attr);
}

// For programs that were built when the structure ended before port_cap_flags2.
SOFTHCA_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

SOFTHCA_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  ibv_gid_entry entry;
  const int error = gid_entry(context, port, static_cast<uint32_t>(index), entry);
  if (error == 0 || error == ENODATA) *gid = entry.gid;  // an empty one is zero
  return minus_one(error == ENODATA ? 0 : error);
}

SOFTHCA_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                     uint32_t flags, size_t size) {
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry found;
  const int error = gid_entry(context, port, index, found);
  if (error == 0) copy_as_known(entry, size, found);
  return error;
}

SOFTHCA_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                                            uint32_t flags, size_t size) {
  if (flags != 0) return -EOPNOTSUPP;
  if (const int error = unusable(context)) return -error;
  const Config& config = Fabric::get()->config();
  const size_t count = config.ports * gid_count(config);
  if (max_entries < count) return -EINVAL;
  auto* to = reinterpret_cast<uint8_t*>(entries);
  for (uint32_t port = 1; port <= config.ports; ++port)
    for (uint32_t index = 0; index < gid_count(config); ++index, to += size)
      if (const int error = _ibv_query_gid_ex(context, port, index, reinterpret_cast<ibv_gid_entry*>(to), 0, size))
        return -error;
  return static_cast<ssize_t>(count);
}

// No header has it, but ibv_devinfo calls it. 0: RoCE v1 or not RoCE, 1: RoCE v2.
SOFTHCA_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, unsigned* type) {
  ibv_gid_entry entry;
  const int error = gid_entry(context, port, index, entry);
  if (error == 0 || error == ENODATA) *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return minus_one(error == ENODATA ? 0 : error);
}

SOFTHCA_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  if (const int error = unusable(context)) return minus_one(error);
  const Config& config = Fabric::get()->config();
  if (port_id_in(context, port) == 0 || static_cast<unsigned>(index) >= pkey_count(config)) return minus_one(EINVAL);
  *pkey = htobe16(pkey_at(config, static_cast<unsigned>(index)));
  return 0;
}

SOFTHCA_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  __be16 found;
  for (int index = 0; ibv_query_pkey(context, port, index, &found) == 0; ++index)
    if (found == pkey) return index;
  return -1;
}

SOFTHCA_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t mac[6],
                                               uint16_t* vlan) {
  if (const int error = unusable(context)) return error;
  Fabric& fabric = *Fabric::get();
  if (fabric.config().personality != Personality::Roce) return EOPNOTSUPP;
  const uint32_t port_id = port_id_in(context, attr->port_num);
  if (port_id == 0) return EINVAL;
  const uint32_t to = resolve(fabric, port_id, *attr);
  if (to == 0) return EHOSTUNREACH;
  mac_of(fabric, to, mac);
  *vlan = 0xffff;  // none
  return 0;
}

// softhca-run lays out what programs look for.
SOFTHCA_EXPORT const char* ibv_get_sysfs_path() {
  static const std::string& path = *new std::string([] {
    const char* directory = getenv("SOFTHCA_DIR");
    return directory != nullptr && *directory != '\0' ? std::string(directory) + "/sys" : std::string("/sys");
  }());
  return path.c_str();
}

// Returns the length of the text without the line's end, or -1.
SOFTHCA_EXPORT int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer, size_t size) {
  const int fd = open((std::string(directory) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = read(fd, buffer, size);
  const int error = errno;
  close(fd);
  if (length < 0) return minus_one(error);
  if (length > 0 && buffer[length - 1] == '\n') --length;
  if (static_cast<size_t>(length) < size) buffer[length] = '\0';
  return static_cast<int>(length);
}

// A parent is not disturbed by its children: what others write into its memory they write as it would itself.
SOFTHCA_EXPORT int ibv_fork_init() {
  return 0;
}
SOFTHCA_EXPORT ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}
SOFTHCA_EXPORT int ibv_dontfork_range(void*, size_t) {
  return 0;
}
SOFTHCA_EXPORT int ibv_dofork_range(void*, size_t) {
  return 0;
}
