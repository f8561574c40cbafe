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

}  // namespace

int main() {
  return fabric::test::run_suite(
      "device_probe", {known_speeds_are_told_apart, every_code_gives_a_bandwidth, every_code_gives_an_mtu,
                       an_mtu_has_bytes, the_longest_message_is_a_gibibyte, an_unknown_link_layer_is_infinibands});
}
