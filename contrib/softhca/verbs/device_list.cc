// SPDX-License-Identifier: BSD-3-Clause
// The devices of this process's node. To list them needs no place in the fabric, so that a program may do it and then fork.
#include <endian.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "device/attributes.h"
#include "device/port.h"
#include "fabric/directory.h"
#include "verbs/export.h"
#include "verbs/objects.h"

#undef ibv_get_device_list

namespace softhca {
namespace {

struct DeviceTable {
  Config config;
  unsigned count = 0;
  Device devices[kMaxDevices] = {};

  DeviceTable();
};

void copy_text(char* to, size_t size, const std::string& text) {
  to[text.copy(to, size - 1)] = '\0';
}

DeviceTable::DeviceTable() {
  const char* directory = getenv("SOFTHCA_DIR");
  if (directory == nullptr || *directory == '\0') return;
  if (const std::string problem = problem_of_directory(directory); !problem.empty()) {
    fprintf(stderr, "softhca: %s\n", problem.c_str());
    return;
  }
  if (const std::string errors = load_config(directory, config); !errors.empty()) {
    fprintf(stderr, "softhca: %s/config: %s", directory, errors.c_str());
    return;
  }
  const std::string sysfs = std::string(directory) + "/sys/class/";
  for (count = 0; count < config.devices; ++count) {
    devices[count].index = count;
    ibv_device& device = devices[count].device;
    const std::string uverbs = "uverbs" + std::to_string(count);
    device.node_type = node_type_of(config.personality);
    device.transport_type = transport_type_of(config.personality);
    copy_text(device.name, sizeof device.name, device_name(count));
    copy_text(device.dev_name, sizeof device.dev_name, uverbs);
    copy_text(device.dev_path, sizeof device.dev_path, sysfs + "infiniband_verbs/" + uverbs);
    copy_text(device.ibdev_path, sizeof device.ibdev_path, sysfs + "infiniband/" + device_name(count));
  }
}

// Made once and never destroyed: a device stays valid after its list is freed, and threads may still use it while the process
// ends.
DeviceTable& device_table() {
  static auto& table = *new DeviceTable;
  return table;
}

}  // namespace
}  // namespace softhca

using softhca::Device;

SOFTHCA_EXPORT ibv_device** ibv_get_device_list(int* count) {
  softhca::DeviceTable& table = softhca::device_table();
  auto** list = new (std::nothrow) ibv_device*[table.count + 1]();
  if (count != nullptr) *count = list != nullptr ? static_cast<int>(table.count) : 0;
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  for (unsigned i = 0; i < table.count; ++i) list[i] = &table.devices[i].device;
  return list;
}

SOFTHCA_EXPORT void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}

SOFTHCA_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

// The node may depend on who joins when; with only one there is nothing to ask.
SOFTHCA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  unsigned node = 0;
  if (softhca::device_table().config.nodes > 1) {
    const softhca::Fabric* fabric = softhca::Fabric::join();
    if (fabric == nullptr) return 0;
    node = fabric->node();
  }
  return htobe64(softhca::node_guid_of(node, reinterpret_cast<Device*>(device)->index));
}

SOFTHCA_EXPORT int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(reinterpret_cast<Device*>(device)->index);
}
