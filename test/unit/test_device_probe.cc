// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/device_probe.h"
#include "test/unit/check_main.h"

namespace {

std::uint32_t bandwidth(unsigned speed, unsigned width) {
  ibv_port_attr port{};
  port.active_speed = static_cast<std::uint8_t>(speed);
  port.active_width = static_cast<std::uint8_t>(width);
  return fabric::port_bandwidth(port);
}

START_TEST(known_speeds_are_told_apart) {
  ck_assert_uint_eq(bandwidth(1, 1), 2000);       // SDR, one lane
  ck_assert_uint_eq(bandwidth(4, 2), 40000);      // QDR, four
  ck_assert_uint_eq(bandwidth(32, 1), 25000);     // EDR
  ck_assert_uint_eq(bandwidth(32, 2), 100000);    // EDR, four
  ck_assert_uint_eq(bandwidth(64, 16), 100000);   // HDR, two
  ck_assert_uint_eq(bandwidth(128, 2), 400000);   // NDR, four
  ck_assert_uint_eq(bandwidth(128, 8), 1200000);  // NDR, twelve
}
END_TEST

/// What a later adapter says is no reason not to use it: Open MPI divides messages by bandwidth, so no port has none.
START_TEST(every_code_gives_a_bandwidth) {
  for (unsigned speed = 0; speed < 256; ++speed) {
    for (unsigned width = 0; width < 256; ++width) {
      ck_assert_uint_ge(bandwidth(speed, width), 2000);
    }
  }
  ck_assert_uint_eq(bandwidth(0, 1), 10000);
  ck_assert_uint_eq(bandwidth(32, 0), 10000);
}
END_TEST

START_TEST(every_code_gives_an_mtu) {
  const auto mtu = [](int active, int wanted) {
    ibv_port_attr port{};
    port.active_mtu = static_cast<ibv_mtu>(active);
    return fabric::path_mtu(port, wanted);
  };
  ck_assert_uint_eq(mtu(IBV_MTU_1024, 0), IBV_MTU_1024);
  ck_assert_uint_eq(mtu(IBV_MTU_4096, IBV_MTU_2048), IBV_MTU_2048);
  ck_assert_uint_eq(mtu(IBV_MTU_1024, IBV_MTU_2048), IBV_MTU_1024);
  ck_assert_uint_eq(mtu(0, 0), IBV_MTU_256);
  ck_assert_uint_eq(mtu(7, 0), IBV_MTU_4096);
}
END_TEST

START_TEST(an_mtu_has_bytes) {
  ck_assert_uint_eq(fabric::mtu_bytes(IBV_MTU_256), 256);
  ck_assert_uint_eq(fabric::mtu_bytes(IBV_MTU_4096), 4096);
  ck_assert_uint_eq(fabric::mtu_bytes(0), 0);
  ck_assert_uint_eq(fabric::mtu_bytes(6), 0);
}
END_TEST

/// A port that does not say how long its messages may be takes any.
START_TEST(the_longest_message_is_a_gibibyte) {
  ibv_port_attr port{};
  ck_assert_uint_eq(fabric::longest_message(port), 1U << 30);
  port.max_msg_sz = 1U << 31;
  ck_assert_uint_eq(fabric::longest_message(port), 1U << 30);
  port.max_msg_sz = 8U << 20;
  ck_assert_uint_eq(fabric::longest_message(port), 8U << 20);
}
END_TEST

/// Old drivers do not say what their link layer is.
START_TEST(an_unknown_link_layer_is_infinibands) {
  ibv_device device{};
  ibv_context context{};
  ibv_port_attr port{};
  context.device = &device;
  device.transport_type = IBV_TRANSPORT_IB;
  ck_assert(fabric::link_of(&context, port) == fabric::Transport::kInfiniBand);
  port.link_layer = 77;
  ck_assert(fabric::link_of(&context, port) == fabric::Transport::kInfiniBand);
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  ck_assert(fabric::link_of(&context, port) == fabric::Transport::kRoce);
  device.transport_type = IBV_TRANSPORT_IWARP;
  ck_assert(fabric::link_of(&context, port) == fabric::Transport::kIwarp);
}
END_TEST

/// Four processors, one in each of four NUMA nodes; with distances as two processors of two parts each have them, if `known`.
class Machine {
 public:
  explicit Machine(bool known) {
    ck_assert_int_eq(hwloc_topology_init(&topology_), 0);
    ck_assert_int_eq(hwloc_topology_set_synthetic(topology_, "numa:4 pu:1"), 0);
    ck_assert_int_eq(hwloc_topology_load(topology_), 0);
    if (known) {
      hwloc_uint64_t values[] = {10, 12, 20, 32,  //
                                 12, 10, 32, 20,  //
                                 20, 32, 10, 12,  //
                                 32, 20, 12, 10};
      hwloc_obj_t nodes[4];
      for (unsigned i = 0; i < 4; ++i) {
        nodes[i] = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, i);
      }
      const auto handle = hwloc_distances_add_create(
          topology_, "NUMALatency", HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
      ck_assert_ptr_nonnull(handle);
      ck_assert_int_eq(hwloc_distances_add_values(topology_, handle, 4, nodes, values, 0), 0);
      ck_assert_int_eq(hwloc_distances_add_commit(topology_, handle, 0), 0);
    }
  }
  ~Machine() { hwloc_topology_destroy(topology_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Processors as bits.
  [[nodiscard]] unsigned nearness(unsigned device, unsigned process) const {
    const hwloc_bitmap_t local = hwloc_bitmap_alloc();
    const hwloc_bitmap_t binding = hwloc_bitmap_alloc();
    hwloc_bitmap_from_ulong(local, device);
    hwloc_bitmap_from_ulong(binding, process);
    const unsigned found = fabric::nearness(topology_, local, binding);
    hwloc_bitmap_free(local);
    hwloc_bitmap_free(binding);
    return found;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

START_TEST(devices_are_as_near_as_their_memory) {
  const Machine machine(true);
  ck_assert_uint_eq(machine.nearness(1, 1), 100);
  ck_assert_uint_eq(machine.nearness(1, 2), 83);
  ck_assert_uint_eq(machine.nearness(1, 4), 50);
  ck_assert_uint_eq(machine.nearness(1, 8), 31);
  ck_assert_uint_eq(machine.nearness(3, 8), 50);   // of a device at two nodes the nearer one counts
  ck_assert_uint_eq(machine.nearness(1, 12), 50);  // and of a process
  ck_assert_uint_eq(machine.nearness(1, 15), 100);
}
END_TEST

START_TEST(devices_elsewhere_are_far_where_there_are_no_distances) {
  const Machine machine(false);
  ck_assert_uint_eq(machine.nearness(1, 1), 100);
  ck_assert_uint_eq(machine.nearness(1, 2), 50);
  ck_assert_uint_eq(fabric::nearness(static_cast<ibv_device*>(nullptr), nullptr, nullptr), 100);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "device_probe", {known_speeds_are_told_apart, every_code_gives_a_bandwidth, every_code_gives_an_mtu,
                       an_mtu_has_bytes, the_longest_message_is_a_gibibyte, an_unknown_link_layer_is_infinibands,
                       devices_are_as_near_as_their_memory, devices_elsewhere_are_far_where_there_are_no_distances});
}
