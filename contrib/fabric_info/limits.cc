// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/limits.h"

#include "btl_fabric/base/packet_header.h"
#include "common/ports/device_probe.h"
#include "common/ports/software_device.h"

namespace fabric::info {

void add_limits(nlohmann::ordered_json& port, const ibv_port_attr& state, Transport link, const DeviceFacts& device,
                const Question& question) {
  PortFacts facts;
  facts.link = link;
  facts.is_soft_iwarp = is_soft_iwarp(device.attributes->vendor_id);
  facts.in_software = is_software_device(device.attributes->vendor_id);
  facts.mtu = mtu_bytes(path_mtu(state, question.mtu));
  facts.mbit_per_second = port_bandwidth(state);
  facts.max_inline = device.max_inline;
  facts.wanted_inline = question.wanted_inline;
  facts.max_message = longest_message(state);
  facts.largest_queue = question.queues.largest();
  facts.packet_header = PacketHeader::kSize;
  facts.registration = device.registration;
  const ProtocolLimits chosen = choose_limits(facts, question.limits);
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    port["limits"].push_back(
        {{"limit", parameter_of(limit)}, {"value", chosen[limit].value}, {"reason", chosen[limit].reason}});
  }
}

}  // namespace fabric::info
