// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/report.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <memory>

#include "btl_fabric/base/packet_header.h"
#include "common/base/verbs_handle.h"
#include "common/ports/device_probe.h"
#include "common/ports/gid_choice.h"
#include "common/ports/port_scan.h"
#include "common/ports/write_order.h"
#include "common/ports/xrc_domain.h"
#include "contrib/fabric_info/explain.h"
#include "contrib/fabric_info/fit.h"
#include "contrib/fabric_info/limits.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Transport link) {
  switch (link) {
    case Transport::kInfiniBand:
      return "InfiniBand";
    case Transport::kRoce:
      return "RoCE";
    case Transport::kIwarp:
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

/// The GID that the component would use. Nothing if there is none, or not where the user wants it.
std::optional<GidEntry> gid_of(const std::vector<GidEntry>& table, Transport link, int wanted) {
  if (wanted < 0) {
    return choose_gid(table, link);
  }
  const auto found = std::find_if(table.begin(), table.end(), [wanted](const GidEntry& entry) {
    return entry.index == static_cast<std::uint32_t>(wanted);
  });
  return found == table.end() ? std::nullopt : std::optional(*found);
}

Json port(ibv_context* device, std::uint8_t number, int gid_index) {
  Json result{{"port", number}};
  ibv_port_attr attributes{};
  if (ibv_query_port(device, number, &attributes) != 0) {
    result["state"] = "it does not answer";
    return result;
  }
  const std::optional<Transport> link = link_of(device, attributes);
  result["state"] = ibv_port_state_str(attributes.state);
  result["link"] = link ? name_of(*link) : "unknown";
  result["lid"] = attributes.lid;
  result["mtu"] = 128 << attributes.active_mtu;
  result["mbit_per_second"] = port_bandwidth(attributes);
  result["max_message"] = attributes.max_msg_sz;
  const std::vector<GidEntry> table = gid_table(device, number, attributes);
  const std::optional<GidEntry> chosen = link ? gid_of(table, *link, gid_index) : std::nullopt;
  result["gids"] = Json::array();
  for (const GidEntry& entry : table) {
    result["gids"].push_back({{"index", entry.index},
                              {"gid", to_string(entry.gid)},
                              {"type", name_of(entry.type)},
                              {"chosen", chosen && chosen->index == entry.index}});
  }
  return result;
}

/// Which protocols messages would go by through a port, and how the operations that the user asks about would.
void add_protocols(Json& port, ibv_pd* pd, const DeviceFacts& device, const Question& question,
                   const DeviceCosts& costs) {
  ibv_port_attr state{};
  const auto number = port["port"].get<std::uint8_t>();
  if (pd == nullptr || ibv_query_port(pd->context, number, &state) != 0) {
    return;
  }
  const std::optional<Transport> link = link_of(pd->context, state);
  if (!link) {
    return;
  }
  add_limits(port, state, *link, device, question);
  for (const PlannedOperation& operation : question.operations) {
    const PortLimits limits{pd, *link, state.max_msg_sz, device.max_inline, device.attributes->max_qp_init_rd_atom};
    port["plans"].push_back(explain(question, operation, limits, costs));
  }
}

Json queue(const QueueNeeds& needs) {
  return {{"kind", std::string(1, static_cast<char>(needs.spec.kind))},
          {"size", needs.spec.size},
          {"bytes_per_peer_at_first", needs.bytes_per_peer_at_first},
          {"bytes_per_peer", needs.bytes_per_peer},
          {"bytes_per_process_at_first", needs.bytes_per_process_at_first},
          {"bytes_per_process", needs.bytes_per_process},
          {"send_entries", needs.send_entries},
          {"receive_entries", needs.receive_entries},
          {"carries_rdma", needs.carries_rdma}};
}

/// To a peer. With X queues one that is alone on its host takes a sender and a target.
std::int64_t queue_pairs_of_context(const Question& question) noexcept {
  return question.queues.has_xrc() ? 2 : static_cast<std::int64_t>(question.queues.count());
}

/// The queues on a device, and their sums.
Json queues(const Question& question, const DeviceCosts& costs, std::uint32_t max_inline, std::uint64_t& entries) {
  Json list = Json::array();
  QueueNeeds sum;
  entries = 0;
  for (std::size_t i = 0; i < question.queues.count(); ++i) {
    const QueueNeeds needs = needs_of(question, i, costs, max_inline);
    list.push_back(queue(needs));
    sum.bytes_per_peer_at_first += needs.bytes_per_peer_at_first;
    sum.bytes_per_peer += needs.bytes_per_peer;
    sum.bytes_per_process_at_first += needs.bytes_per_process_at_first;
    sum.bytes_per_process += needs.bytes_per_process;
    entries += needs.completions;
  }
  const QueuePairCounts pairs = queue_pairs_of(question);
  return {{"receive_queues", question.queues.canonical()},
          {"queues", std::move(list)},
          {"bytes_per_peer_at_first", sum.bytes_per_peer_at_first},
          {"bytes_per_peer", sum.bytes_per_peer},
          {"bytes_per_process_at_first", sum.bytes_per_process_at_first},
          {"bytes_per_process", sum.bytes_per_process},
          {"completions_per_peer", entries},
          {"hosts", question.hosts},
          {"processes_per_host", question.node.processes},
          {"queue_pairs_per_process", pairs.per_process},
          {"senders_per_process", pairs.senders_per_process},
          {"targets_per_host", pairs.targets_per_host},
          {"queue_pairs_per_host", pairs.per_host}};
}

/// What the queues would be run with on port 1, as far as that is not what was asked for; or why they would not.
void add_run(Json& result, const Question& question, const HostRoom& room) {
  if (!room.queues) {
    return;
  }
  const auto run = run_with(question, room);
  if (!run) {
    result["does_not_fit"] = run.error().text;
    return;
  }
  for (const Grant& grant : run->changes) {
    result["grants"].push_back({{"what", grant.what}, {"count", grant.count}, {"why", grant.why}});
  }
}

/// As its first port would be used.
HostRoom host_room(ibv_context* device, const ibv_device_attr& attributes, const DeviceCosts& costs,
                   std::uint32_t max_inline) {
  ibv_port_attr port{};
  const std::optional<Transport> link =
      ibv_query_port(device, 1, &port) == 0 ? link_of(device, port) : std::optional<Transport>();
  const bool is_iwarp = link == Transport::kIwarp;
  HostRoom room{static_cast<std::uint64_t>(std::max(0, attributes.max_qp)),
                !is_iwarp && XrcDomain::why_not(attributes).empty(),
                !is_iwarp,
                costs,
                max_inline,
                {}};
  if (link) {
    const auto count = [](int value) { return static_cast<std::uint32_t>(std::max(0, value)); };
    room.queues = {count(attributes.max_qp_wr), count(attributes.max_srq_wr), count(attributes.max_cqe),
                   port.max_msg_sz, 1};
  }
  return room;
}

/// The question as the component would put it to this device.
Question asked_of(ibv_context* device, const ibv_device_attr& attributes, const Question& question,
                  const DeviceCosts& costs, std::uint32_t max_inline) {
  Question asked = question;
  ibv_port_attr port{};
  if (question.are_queues_chosen && ibv_query_port(device, 1, &port) == 0) {
    const std::optional<Transport> link = link_of(device, port);
    const std::int64_t share =
        attributes.max_qp / std::max<std::int64_t>(1, question.node.processes) / contexts_of(question);
    asked.queues = chosen_queues(question, link.value_or(Transport::kRoce), share, costs, max_inline,
                                 host_room(device, attributes, costs, max_inline).has_xrc);
  }
  asked.contexts = granted_contexts(asked, attributes.max_qp);  // for the queues that are chosen
  return asked;
}

Json device(ibv_device* found, const Question& about_all) {
  const std::string name = ibv_get_device_name(found);
  Json result{{"device", name}};
  const DeviceContext context(ibv_open_device(found));
  ibv_device_attr attributes{};
  if (!context || ibv_query_device(context.get(), &attributes) != 0) {
    result["error"] = "it cannot be opened";
    return result;
  }
  const ProtectionDomain pd(ibv_alloc_pd(context.get()));
  const Result<std::uint32_t> probed =
      pd ? probe_inline(pd.get(), about_all.wanted_inline) : failure("no protection domain");
  const std::uint32_t max_inline = probed.value_or(0);
  const DeviceCosts costs = about_all.costs.value_or(device_costs(name));
  const Question question = asked_of(context.get(), attributes, about_all, costs, max_inline);
  result["firmware"] = attributes.fw_ver;
  result["atomics"] = name_of(attributes.atomic_cap);
  result["max_inline"] = max_inline;
  const WriteOrder* const order = write_order(attributes.vendor_id, attributes.vendor_part_id);
  result["eager_rdma"] = order != nullptr ? (order->is_fast ? "yes" : "on request") : "ask the driver";
  result["eager_rdma_source"] = order != nullptr ? order->source : "ibv_query_qp_data_in_order(3)";
  result["max_queue_pairs"] = attributes.max_qp;
  result["max_queue_pair_entries"] = attributes.max_qp_wr;
  result["max_completion_queue_entries"] = attributes.max_cqe;
  result["max_memory_regions"] = attributes.max_mr;
  result["max_reads"] = attributes.max_qp_init_rd_atom;
  result["queue_costs"] = {{"fixed_entries", costs.operation.fixed_entries()},
                           {"op_size", costs.operation.op_size},
                           {"iov_size", costs.operation.iov_size},
                           {"alignment", costs.alignment},
                           {"receive",
                            {{"fixed_entries", costs.receive.operation.fixed_entries()},
                             {"op_size", costs.receive.operation.op_size},
                             {"iov_size", costs.receive.operation.iov_size},
                             {"alignment", costs.receive.alignment}}}};
  std::uint64_t entries = 0;
  Json needs = queues(question, costs, max_inline, entries);
  std::int64_t shared_receives = 0;  // can complete on any completion queue, so each keeps room for them
  for (const QueueSpec& spec : question.queues.queues()) {
    shared_receives += spec.kind == QueueKind::kPerPeer ? 0 : spec.rd_num;
  }
  const QueuePairUse use{queue_pairs_of_context(question), static_cast<std::int64_t>(entries),
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
  HostRoom room = host_room(context.get(), attributes, costs, max_inline);
  if (room.queues) {
    room.queues->completion_queues = manager.completion_queues();
  }
  add_run(result, question, room);
  result["queues"] = std::move(needs);
  if (question.is_fit_asked) {
    result["fit"] = as_json(question, room);
  }
  const DeviceFacts facts{&attributes, max_inline, pd ? measure_registration(pd.get()) : RegistrationCost{}};
  result["ports"] = Json::array();
  for (unsigned number = 1; number <= attributes.phys_port_cnt; ++number) {
    Json one = port(context.get(), static_cast<std::uint8_t>(number), question.gid_index);
    add_protocols(one, pd.get(), facts, question, costs);
    result["ports"].push_back(std::move(one));
  }
  return result;
}

}  // namespace

EndpointAttributes granted_contexts(const Question& question, std::int64_t queue_pairs) {
  fabric::DeviceFacts device;
  device.max_qp = queue_pairs;
  QueuePairUse use;
  use.queue_pairs_per_context = queue_pairs_of_context(question);
  const DomainAttributes domain = domain_attributes(device, question.node, use, question.contexts);
  EndpointAttributes granted = question.contexts;
  if (granted.tx_ctx_cnt < 0) {
    granted.tx_ctx_cnt = std::max<std::int64_t>(1, domain.ep_tx_ctx_cnt.optimal);
  }
  if (granted.rx_ctx_cnt < 0) {
    granted.rx_ctx_cnt = std::max<std::int64_t>(1, domain.ep_rx_ctx_cnt.optimal);
  }
  return granted;
}

std::int64_t contexts_of(const Question& question) noexcept {
  return std::max<std::int64_t>({1, question.contexts.tx_ctx_cnt, question.contexts.rx_ctx_cnt});
}

QueuePairCounts queue_pairs_of(const Question& question) noexcept {
  const auto hosts = static_cast<std::uint64_t>(question.hosts);
  const auto processes = static_cast<std::uint64_t>(question.node.processes);
  QueuePairCounts counts;
  if (question.queues.has_xrc()) {
    // A process that is alone on its host does not send there.
    counts.senders_per_process = processes > 1 ? hosts : hosts - 1;
    counts.per_process = counts.senders_per_process;
    counts.targets_per_host = processes > 1 ? hosts * processes : hosts - 1;
  } else {
    counts.per_process = (hosts * processes - 1) * question.queues.count();
  }
  const auto contexts = static_cast<std::uint64_t>(contexts_of(question));
  counts.senders_per_process *= contexts;
  counts.per_process *= contexts;
  counts.targets_per_host *= contexts;
  counts.per_host = processes * counts.per_process + counts.targets_per_host;
  return counts;
}

ReceiveQueues chosen_queues(const Question& question, Transport link, std::int64_t queue_pairs,
                            const DeviceCosts& costs, std::uint32_t max_inline, bool has_xrc) {
  cpc::QueueRoom room;
  room.link = link;
  room.settings.costs = costs;
  room.settings.max_inline = max_inline;
  room.settings.rdma_depth = question.rdma_depth;
  room.peers = std::max<std::int64_t>(1, question.hosts * question.node.processes - 1);
  room.queue_pairs = queue_pairs;
  room.memory = question.memory / static_cast<std::uint64_t>(contexts_of(question));  // each has its part
  room.processes = std::max<std::int64_t>(1, question.node.processes);
  room.has_xrc = has_xrc;
  const ReceiveQueues queues = cpc::queues_of_level(cpc::choose_level_of_all({&room, 1}).level);
  return link == Transport::kIwarp ? queues : cpc::within_memory(queues, room);
}

QueueNeeds needs_of(const Question& question, std::size_t index, const DeviceCosts& costs, std::uint32_t max_inline) {
  const QueueSpec& spec = question.queues[index];
  const std::uint64_t buffer = PacketHeader::kSize + spec.size;
  QueueNeeds needs;
  needs.spec = spec;
  needs.carries_rdma = index == cpc::rdma_queue(question.queues);
  const QueueSpace sends = cpc::send_space(question.queues, index, costs, max_inline, question.rdma_depth);
  needs.send_entries = sends.entries();
  needs.completions = sends.few_entries(cpc::kOwnSends);
  if (spec.kind != QueueKind::kXrc) {  // of X queues it is the part that each has of the sender's entries
    const std::uint64_t own = cpc::kMarkerEntries + (index == 0 ? cpc::kHandshakeEntries : 0);
    needs.send_entries += own;
    needs.completions += own;
  } else if (index > 0) {
    needs.completions = 0;  // all of them have one sender
  }
  if (spec.kind == QueueKind::kPerPeer) {
    needs.receive_entries = spec.receive_depth() + (index == 0 ? cpc::kHandshakeEntries : 0);
    needs.completions += needs.receive_entries - spec.receives_later();
    needs.bytes_per_peer = buffer * spec.receive_depth();
    needs.bytes_per_peer_at_first = needs.bytes_per_peer - buffer * spec.receives_later();
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
  Question on_any = question;
  on_any.contexts = granted_contexts(question, INT32_MAX);
  HostRoom room;
  room.costs = question.costs.value_or(DeviceCosts{});  // where every device counts entries
  result["queues"] = queues(on_any, room.costs, 0, entries);
  if (question.is_fit_asked && result["devices"].empty()) {
    result["fit"] = as_json(on_any, room);
  }
  return result;
}

}  // namespace fabric::info
