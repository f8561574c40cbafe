// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/port_share.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"
#include "common/ports/software_device.h"

namespace fabric {

namespace {

/// The session folder that all jobs of an mpirun have on this host: theirs are in it.
std::optional<std::string> job_family_folder() {
  const char* const job = opal_process_info.job_session_dir;
  if (job == nullptr) {
    return std::nullopt;
  }
  return std::filesystem::path(job).parent_path().string();
}

}  // namespace

cpc::QueuePairSettings queue_pair_settings(const UsablePort& port) {
  const Params& values = params();
  cpc::QueuePairSettings settings;
  settings.timeout = static_cast<std::uint8_t>(values.timeout);
  settings.retry_count =
      finite_retries(port.device->attributes.vendor_id, static_cast<std::uint8_t>(values.retry_count));
  settings.rnr_retry = static_cast<std::uint8_t>(values.rnr_retry);
  settings.min_rnr_timer = static_cast<std::uint8_t>(values.min_rnr_timer);
  settings.service_level = static_cast<std::uint8_t>(values.service_level);
  settings.traffic_class = port.traffic_class(values.traffic_class);
  settings.pkey_index = port.pkey_index;
  settings.max_inline = port.device->max_inline;
  settings.costs = device_costs(port.device->name);
  if (values.queue_costs != nullptr) {
    settings.costs = parse_costs(values.queue_costs).value_or(settings.costs);  // check_params() has read it before
  }
  settings.rdma_depth = static_cast<std::uint32_t>(values.rdma_depth);
  return settings;
}

ResourceManager share_device(const UsablePort& port, const ReceiveQueues& queues, const EndpointAttributes& contexts) {
  const cpc::QueuePairSettings settings = queue_pair_settings(port);
  QueuePairUse use{static_cast<std::int64_t>(queues.count()), 0, params().cq_size};
  for (std::size_t i = 0; i < queues.count(); ++i) {
    const cpc::QueueDepths depths = cpc::queue_depths(queues, i, port.address.link, settings);
    use.entries_per_context += depths.completions().own;
    use.entries_per_cq -= queues[i].kind == QueueKind::kPerPeer ? 0 : queues[i].rd_num;
  }
  if (queues.has_xrc()) {             // what a peer takes that is alone on its host: others there share its sender
    use.queue_pairs_per_context = 2;  // a sender, and the target of the peer's
    use.entries_per_context =
        cpc::queue_depths(queues, queues.count() - 1, port.address.link, settings).completions().own;
  }
  const NodeShare node{static_cast<std::int64_t>(opal_process_info.num_local_peers) + 1,
                       static_cast<std::int64_t>(std::thread::hardware_concurrency())};
  return {facts_of(port.device->attributes), node, use, contexts};
}

cpc::DeviceRoom room_of(const UsablePort& port, const ResourceManager& manager, std::int64_t contexts) {
  const auto count = [](int value) { return static_cast<std::uint32_t>(std::max(0, value)); };
  const ibv_device_attr& device = port.device->attributes;
  ibv_port_attr attributes{};
  const bool known = ibv_query_port(port.device->context.get(), port.port_num, &attributes) == 0;
  return {count(device.max_qp_wr), count(device.max_srq_wr), count(device.max_cqe),
          known && attributes.max_msg_sz > 0 ? attributes.max_msg_sz : UINT32_MAX,
          std::max<std::int64_t>(1, manager.completion_queues() / contexts)};
}

ContextRoles grant_contexts(const UsablePort& port, const ReceiveQueues& queues, int transmit, int receive) {
  const std::int64_t paths = port.paths;
  const auto on_all_paths = [paths](int wanted) { return wanted > 0 ? wanted * paths : wanted; };
  const ResourceManager most = share_device(port, queues, {on_all_paths(transmit), on_all_paths(receive)});
  const auto within = [paths](std::int64_t count) {
    return static_cast<unsigned>(std::clamp<std::int64_t>(count / paths, 1, kMostContexts));
  };
  const DomainAttributes& domain = most.attributes();
  const unsigned sends = within(transmit < 0 ? domain.ep_tx_ctx_cnt.optimal : most.granted().tx_ctx_cnt);
  if (receive == 0) {
    return {sends, sends};
  }
  return {sends, std::max(sends, within(receive < 0 ? domain.ep_rx_ctx_cnt.optimal : most.granted().rx_ctx_cnt))};
}

/// Processes find the domain by the name of its file.
Result<XrcDomain> open_xrc_domain(const UsablePort& port) {
  if (const std::string why_not = XrcDomain::why_not(port.device->attributes); !why_not.empty()) {
    return failure(why_not);
  }
  const std::optional<std::string> folder = job_family_folder();
  if (!folder) {
    return failure(
        "X queues need a folder that the processes of the job share, and Open MPI has made no session folder");
  }
  return XrcDomain::open(port.device->context.get(), *folder + "/btl_fabric_xrc_" + port.device->name);
}

Grant grant_memory_regions(const UsablePort& port, const ReceiveQueues& queues) {
  return share_device(port, queues, {1, 1}).memory_region_grant();
}

}  // namespace fabric
