// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/report.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <memory>

#include "btl_fabric/packet_header.h"
#include "common/device_probe.h"
#include "common/gid_choice.h"
#include "common/port_scan.h"
#include "common/verbs_handle.h"
#include "cpc/queue_pairs.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Link link) {
  switch (link) {
    case Link::kInfiniBand:
      return "InfiniBand";
    case Link::kRoce:
      return "RoCE";
    case Link::kIwarp:
      break;
  }
  return "iWARP";
}

const char* name_of(GidType type) {
  switch (type) {
    case GidType::kInfiniBand:
      return "";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      break;
  }
  return "RoCE v2";
}

const char* name_of(ibv_atomic_cap atomics) {
  switch (atomics) {
    case IBV_ATOMIC_NONE:
      return "none: by messages";
    case IBV_ATOMIC_HCA:
      return "among themselves";
    case IBV_ATOMIC_GLOB:
      break;
  }
  return "with the processor's too";
}

Json count(const ContextCount& value) {
  return {{"total", value.total}, {"optimal", value.optimal}};
}

Json port(ibv_context* device, std::uint8_t number) {
  Json result{{"port", number}};
  ibv_port_attr attributes{};
  if (ibv_query_port(device, number, &attributes) != 0) {
    result["state"] = "it does not answer";
    return result;
  }
  const std::optional<Link> link = link_of(device, attributes);
  result["state"] = ibv_port_state_str(attributes.state);
  result["link"] = link ? name_of(*link) : "unknown";
  result["lid"] = attributes.lid;
  result["mtu"] = 128 << attributes.active_mtu;
  result["mbit_per_second"] = port_bandwidth(attributes);
  result["max_message"] = attributes.max_msg_sz;
  const std::vector<GidEntry> table = gid_table(device, number, attributes);
  const std::optional<GidEntry> chosen = link ? choose_gid(table, *link) : std::nullopt;
  result["gids"] = Json::array();
  for (const GidEntry& entry : table) {
    result["gids"].push_back({{"index", entry.index},
                              {"gid", to_string(entry.gid)},
                              {"type", name_of(entry.type)},
                              {"chosen", chosen && chosen->index == entry.index}});
  }
  return result;
}

Json queue(const QueueNeeds& needs) {
  return {{"kind", std::string(1, static_cast<char>(needs.spec.kind))},
          {"size", needs.spec.size},
          {"bytes_per_peer", needs.bytes_per_peer},
          {"bytes_per_process_at_first", needs.bytes_per_process_at_first},
          {"bytes_per_process", needs.bytes_per_process},
          {"send_entries", needs.send_entries},
          {"receive_entries", needs.receive_entries},
          {"carries_rdma", needs.carries_rdma}};
}

/// The queues on a device, and their sums.
Json queues(const Question& question, const DeviceCosts& costs, std::uint32_t max_inline, std::uint64_t& entries) {
  Json list = Json::array();
  QueueNeeds sum;
  entries = 0;
  for (std::size_t i = 0; i < question.queues.count(); ++i) {
    const QueueNeeds needs = needs_of(question, i, costs, max_inline);
    list.push_back(queue(needs));
    sum.bytes_per_peer += needs.bytes_per_peer;
    sum.bytes_per_process_at_first += needs.bytes_per_process_at_first;
    sum.bytes_per_process += needs.bytes_per_process;
    entries += needs.send_entries + (needs.spec.kind == QueueKind::kPerPeer ? needs.receive_entries : 0);
  }
  return {
      {"receive_queues", question.queues.canonical()}, {"queues", std::move(list)},
      {"bytes_per_peer", sum.bytes_per_peer},          {"bytes_per_process_at_first", sum.bytes_per_process_at_first},
      {"bytes_per_process", sum.bytes_per_process},    {"completions_per_peer", entries}};
}

Json device(ibv_device* found, const Question& question) {
  const std::string name = ibv_get_device_name(found);
  Json result{{"device", name}};
  const DeviceContext context(ibv_open_device(found));
  ibv_device_attr attributes{};
  if (!context || ibv_query_device(context.get(), &attributes) != 0) {
    result["error"] = "it cannot be opened";
    return result;
  }
  const ProtectionDomain pd(ibv_alloc_pd(context.get()));
  const Result<std::uint32_t> probed = pd ? probe_inline(pd.get(), kAutoInline) : failure("no protection domain");
  const std::uint32_t max_inline = probed.value_or(0);
  const DeviceCosts costs = device_costs(name);
  result["firmware"] = attributes.fw_ver;
  result["atomics"] = name_of(attributes.atomic_cap);
  result["max_inline"] = max_inline;
  result["max_queue_pairs"] = attributes.max_qp;
  result["max_queue_pair_entries"] = attributes.max_qp_wr;
  result["max_completion_queue_entries"] = attributes.max_cqe;
  result["max_memory_regions"] = attributes.max_mr;
  result["max_reads"] = attributes.max_qp_init_rd_atom;
  result["queue_costs"] = {{"fixed_entries", costs.operation.fixed_entries()},
                           {"op_size", costs.operation.op_size},
                           {"iov_size", costs.operation.iov_size},
                           {"alignment", costs.alignment}};
  std::uint64_t entries = 0;
  Json needs = queues(question, costs, max_inline, entries);
  std::int64_t shared_receives = 0;  // can complete on any completion queue, so each keeps room for them
  for (const QueueSpec& spec : question.queues.queues()) {
    shared_receives += spec.kind == QueueKind::kPerPeer ? 0 : spec.rd_num;
  }
  const QueuePairUse use{static_cast<std::int64_t>(question.queues.count()), static_cast<std::int64_t>(entries),
                         std::max<std::int64_t>(0, question.cq_size - shared_receives)};
  const ResourceManager manager(facts_of(attributes), question.node, use, question.contexts);
  const DomainAttributes& domain = manager.attributes();
  result["domain"] = {{"ep_cnt", count(domain.ep_cnt)},
                      {"tx_ctx_cnt", count(domain.tx_ctx_cnt)},
                      {"rx_ctx_cnt", count(domain.rx_ctx_cnt)},
                      {"ep_tx_ctx_cnt", count(domain.ep_tx_ctx_cnt)},
                      {"ep_rx_ctx_cnt", count(domain.ep_rx_ctx_cnt)},
                      {"cq_cnt", count(domain.cq_cnt)},
                      {"cq_ctx_cnt", count(domain.cq_ctx_cnt)}};
  result["grants"] = Json::array();
  for (const Grant& grant : manager.grants()) {
    result["grants"].push_back({{"what", grant.what}, {"count", grant.count}, {"why", grant.why}});
  }
  result["queues"] = std::move(needs);
  result["ports"] = Json::array();
  for (unsigned number = 1; number <= attributes.phys_port_cnt; ++number) {
    result["ports"].push_back(port(context.get(), static_cast<std::uint8_t>(number)));
  }
  return result;
}

}  // namespace

QueueNeeds needs_of(const Question& question, std::size_t index, const DeviceCosts& costs, std::uint32_t max_inline) {
  const QueueSpec& spec = question.queues[index];
  const std::uint64_t buffer = PacketHeader::kSize + spec.size;
  QueueNeeds needs;
  needs.spec = spec;
  needs.carries_rdma = index == cpc::rdma_queue(question.queues);
  needs.send_entries = cpc::send_space(question.queues, index, costs, max_inline, question.rdma_depth).entries() +
                       cpc::kMarkerEntries + (index == 0 ? cpc::kHandshakeEntries : 0);
  if (spec.kind == QueueKind::kPerPeer) {
    needs.receive_entries = spec.receive_depth() + (index == 0 ? cpc::kHandshakeEntries : 0);
    needs.bytes_per_peer = buffer * spec.receive_depth();
  } else {
    needs.receive_entries = spec.rd_num;
    needs.bytes_per_process_at_first = buffer * spec.rd_init;
    needs.bytes_per_process = buffer * spec.rd_num;
  }
  return needs;
}

Json report(const Question& question) {
  Json result{{"devices", Json::array()}};
  int found = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(ibv_get_device_list(&found),
                                                                           ibv_free_device_list);
  for (int i = 0; i < found; ++i) {
    result["devices"].push_back(device(list.get()[i], question));
  }
  std::uint64_t entries = 0;
  result["queues"] = queues(question, DeviceCosts{}, 0, entries);  // where every device counts entries
  return result;
}

}  // namespace fabric::info
