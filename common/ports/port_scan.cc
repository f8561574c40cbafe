// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_scan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/ports/device_probe.h"
#include "common/ports/gid_choice.h"
#include "common/ports/port_pairing.h"
#include "common/ports/port_traffic_class.h"
#include "common/ports/process_info.h"

namespace fabric {

namespace {

constexpr const char* kNoSuchPort = "the device has no such port";

Result<std::shared_ptr<OpenDevice>> open_device(ibv_device* device, const PortChoice& choice) {
  auto open = std::make_shared<OpenDevice>();
  open->name = ibv_get_device_name(device);
  open->context.reset(ibv_open_device(device));
  if (!open->context) {
    return verbs_failure("it cannot be opened", errno);
  }
  if (const int error = ibv_query_device(open->context.get(), &open->attributes); error != 0) {
    return verbs_failure("it does not say what it can do", error);
  }
  open->pd.reset(ibv_alloc_pd(open->context.get()));
  if (!open->pd) {
    return verbs_failure("it gives no protection domain", errno);
  }
  const std::uint32_t wanted = choice.max_inline < 0 ? kAutoInline : static_cast<std::uint32_t>(choice.max_inline);
  const auto max_inline = probe_inline(open->pd.get(), wanted);
  if (!max_inline) {
    return tl::unexpected(max_inline.error());
  }
  if (choice.max_inline > 0 && *max_inline < wanted) {
    return failure("it takes at most " + std::to_string(*max_inline) +
                   " bytes inline, but btl_fabric_max_inline_data is " + std::to_string(wanted));
  }
  open->max_inline = *max_inline;
  open->on_demand = on_demand_paging(open->context.get());
  return open;
}

/// As the user would write it: the IP address if there is one.
std::string address_text(const Gid& gid, Transport link, std::span<const InterfaceAddress> interfaces) {
  const auto ip = ip_of_port(gid, link, interfaces);
  const Gid shown = ip ? Gid{ip->address} : gid;
  const std::string text = to_string(shown);
  return is_ipv4_mapped(shown) ? text.substr(text.rfind(':') + 1) : text;
}

Result<GidEntry> port_gid(ibv_context* device, std::uint8_t port_num, const ibv_port_attr& attributes, Transport link,
                          const PortChoice& choice, std::span<const InterfaceAddress> interfaces) {
  auto table = gid_table(device, port_num, attributes);
  const int wanted = choice.gid_index;
  if (wanted < 0) {
    if (!choose_gid(table, link)) {
      return failure("its GID table is empty: does its network interface have an address and is it up?");
    }
    std::string elsewhere;
    std::erase_if(table, [&](const GidEntry& entry) {
      const bool is_left_out = !is_zero(entry.gid) && !choice.subnets.passes(entry.gid, link, interfaces);
      if (is_left_out) {
        elsewhere += (elsewhere.empty() ? "" : ", ") + address_text(entry.gid, link, interfaces);
      }
      return is_left_out;
    });
    if (const auto chosen = choose_gid(table, link); chosen) {
      return *chosen;
    }
    return failure("no address of it is in btl_fabric_subnets (" + choice.subnets.text() + "): it has " + elsewhere);
  }
  const auto found = std::find_if(table.begin(), table.end(), [&](const GidEntry& entry) {
    return entry.index == static_cast<std::uint32_t>(wanted);
  });
  if (found == table.end()) {
    return failure("its GID table has nothing at btl_fabric_gid_index " + std::to_string(wanted));
  }
  if (!choice.subnets.passes(found->gid, link, interfaces)) {
    return failure("the GID of btl_fabric_gid_index " + std::to_string(wanted) + " is not in btl_fabric_subnets (" +
                   choice.subnets.text() + "): it is " + address_text(found->gid, link, interfaces));
  }
  return *found;
}

/// Fills in everything about a port, or says why it cannot be used.
Result<UsablePort> look_at_port(const std::shared_ptr<OpenDevice>& device, std::uint8_t port_num,
                                const PortChoice& choice) {
  ibv_context* context = device->context.get();
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(context, port_num, &attributes); error != 0) {
    return verbs_failure("it does not answer", error);
  }
  if (attributes.state != IBV_PORT_ACTIVE) {
    return failure(std::string("it is ") + ibv_port_state_str(attributes.state) + ", not active");
  }
  const auto link = link_of(context, attributes);
  if (!link) {
    return failure("it is neither InfiniBand, RoCE nor iWARP");
  }
  const std::vector<InterfaceAddress> interfaces = interface_addresses();
  const auto gid = port_gid(context, port_num, attributes, *link, choice, interfaces);
  if (!gid) {
    return tl::unexpected(gid.error());
  }
  UsablePort port;
  port.device = device;
  port.port_num = port_num;
  port.gid_index = static_cast<std::uint8_t>(gid->index);
  port.needs_grh = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (const auto pkey = find_pkey(context, port_num, attributes, choice.pkey); pkey) {
    port.pkey_index = pkey->index;
    port.pkey = pkey->value;
  } else if (choice.pkey != 0) {
    return tl::unexpected(pkey.error());
  }
  port.address.link = *link;
  port.address.lid = attributes.lid;
  port.lmc = attributes.lmc;
  port.sm_lid = attributes.sm_lid;
  port.address.gid = gid->gid;
  if (*link == Transport::kRoce) {
    port.own_traffic_class = own_traffic_class(kConfigFolder, device->name, port_num);
  }
  port.address.roce = *link != Transport::kRoce ? 0 : gid->type == GidType::kRoceV1 ? 1 : 2;
  port.address.rail = choice.rails.rail_of(device->name, port_num);
  port.address.mtu = path_mtu(attributes, choice.mtu);
  port.address.subnet = subnet_of(gid->gid, *link, interfaces);
  port.ip = ip_of_port(gid->gid, *link, interfaces);
  port.bandwidth = port_bandwidth(attributes);
  return port;
}

/// Ports in if_include that the device does not have are told to the user like ports that cannot be used.
void refuse_unknown_ports(const PortFilter& filter, const OpenDevice& device, std::vector<PortRefusal>& refusals) {
  for (const PortFilter::Item& item : filter.items()) {
    if (filter.includes() && item.device == device.name && item.port > device.attributes.phys_port_cnt) {
      refusals.push_back({item.text(), kNoSuchPort});
    }
  }
}

void scan_device(ibv_device* verbs_device, const PortChoice& choice, std::vector<PortCandidate>& candidates,
                 std::vector<PortRefusal>& refusals) {
  const std::string name = ibv_get_device_name(verbs_device);
  if (!choice.filter.may_pass(name)) {
    refusals.push_back({name, "btl_fabric_if_include or if_exclude leaves it out"});
    return;
  }
  const auto device = open_device(verbs_device, choice);
  if (!device) {
    refusals.push_back({name, device.error().text});
    return;
  }
  const unsigned near = choice.ignore_locality ? kNearest : nearness(verbs_device, choice.topology, choice.binding);
  for (unsigned number = 1; number <= (*device)->attributes.phys_port_cnt; ++number) {
    const auto port_num = static_cast<std::uint8_t>(number);
    const std::string port_name = name + ":" + std::to_string(number);
    if (!choice.filter.passes(name, port_num)) {
      refusals.push_back({port_name, "btl_fabric_if_include or if_exclude leaves it out"});
      continue;
    }
    auto port = look_at_port(*device, port_num, choice);
    if (port) {
      candidates.push_back({std::move(*port), near});
    } else {
      refusals.push_back({port_name, port.error().text});
    }
  }
  refuse_unknown_ports(choice.filter, **device, refusals);
}

/// Names in if_include that are no port here are told to the user like ports that cannot be used. Those in if_exclude are passed
/// over: a list for all hosts may name what one of them lacks.
void refuse_unknown_names(const PortFilter& filter, ibv_device** devices, int count,
                          std::vector<PortRefusal>& refusals) {
  if (!filter.includes()) {
    return;
  }
  for (const PortFilter::Item& item : filter.items()) {
    const bool known = std::any_of(devices, devices + count,
                                   [&](ibv_device* device) { return item.device == ibv_get_device_name(device); });
    if (!known) {
      refusals.push_back({item.device, "this host has no device of that name"});
    }
  }
}

}  // namespace

PortScan scan_ports(const PortChoice& choice) {
  PortScan scan;
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr) {
    return scan;
  }
  const std::unique_ptr<ibv_device*, VerbsDeleter<ibv_free_device_list>> owner(devices);
  refuse_unknown_names(choice.filter, devices, count, scan.refusals);

  std::vector<PortCandidate> candidates;
  for (int i = 0; i < count; ++i) {
    scan_device(devices[i], choice, candidates, scan.refusals);
  }
  select_ports(std::move(candidates), choice.max_ports, scan);
  return scan;
}

void select_ports(std::vector<PortCandidate> candidates, int max_ports, PortScan& scan) {
  for (PortCandidate& candidate : candidates) {
    candidate.port.weight =
        static_cast<std::uint32_t>(std::uint64_t{candidate.port.bandwidth} * candidate.nearness / kNearest);
  }
  // For each network by itself: a peer that is near another device may have ports on that one's network only.
  const auto has_nearer = [&nearer = std::as_const(candidates)](const PortCandidate& candidate) {
    return std::any_of(nearer.begin(), nearer.end(), [&candidate](const PortCandidate& other) {
      return other.nearness > candidate.nearness && other.port.weight / 2 >= candidate.port.weight &&
             reachable(other.port.address, candidate.port.address, false);
    });
  };
  for (PortCandidate& candidate : candidates) {
    if (has_nearer(candidate)) {
      scan.refusals.push_back(
          {candidate.port.name(), "a device nearer to this process's processor is on the same network"});
    } else if (max_ports >= 0 && scan.ports.size() >= static_cast<std::size_t>(max_ports)) {
      scan.refusals.push_back({candidate.port.name(), "btl_fabric_max_ports is " + std::to_string(max_ports) +
                                                          ", and so many are in use already"});
    } else if (scan.ports.size() == kMaxPorts) {
      scan.refusals.push_back({candidate.port.name(), std::to_string(kMaxPorts) +
                                                          " ports are in use already, and a process can have no more"});
      ++scan.beyond_maximum;
    } else {
      scan.ports.push_back(candidate.port);  // others are compared with it
    }
  }
}

std::vector<PortRefusal> unused_items(const PortFilter& filter, const std::vector<std::string>& used,
                                      const std::vector<PortRefusal>& refusals) {
  std::vector<PortRefusal> unused;
  if (!filter.includes()) {
    return unused;
  }
  for (const PortFilter::Item& item : filter.items()) {
    // Names of ports; a refusal may be of the whole device too.
    const auto is_meant = [&](std::string_view port) {
      return port == item.text() || (item.port == 0 && port.starts_with(item.device + ":"));
    };
    if (std::any_of(used.begin(), used.end(), is_meant)) {
      continue;
    }
    std::string reasons;
    for (const PortRefusal& refusal : refusals) {
      if (is_meant(refusal.port) || refusal.port == item.device) {
        const bool is_same = refusal.port == item.text();
        reasons += (reasons.empty() ? "" : "; ") + (is_same ? "" : refusal.port + ": ") + refusal.reason;
      }
    }
    unused.push_back({item.text(), reasons.empty() ? kNoSuchPort : reasons});
  }
  return unused;
}

}  // namespace fabric
