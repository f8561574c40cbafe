// SPDX-License-Identifier: BSD-3-Clause
//
// Making a module, and taking it apart.
#include "btl_fabric/mca/module.h"

#include <algorithm>

#include "btl_fabric/base/params.h"
#include "btl_fabric/base/ring_message.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/port_share.h"
#include "btl_fabric/mca/rdma.h"
#include "btl_fabric/mca/report.h"
#include "common/accounting/contexts.h"
#include "common/ports/software_device.h"
#include "common/ports/write_order.h"
#include "cpc/queue_pairs/port_context.h"

namespace fabric {

/// ob1 sends small messages over the modules of the lowest latency alone. One path of a port is enough for them: more would only
/// put them out of order. But to write a large message piece by piece it looks at the next four modules (its parameter
/// max_rdma_per_request, which is not registered yet), leaves out those of a higher latency, and relies on finding one
/// (mca_pml_ob1_rdma_pipeline_btls). So one path in four has the lowest.
constexpr unsigned kModulesOfAnOb1Request = 4;

Module::Module(const UsablePort& port, RegistrationCache& cache, const ModulePlace& place, cpc::QueueFit fit,
               const mca_btl_base_module_t& table, const LimitWishes& wishes)
    : mca_btl_base_module_t(table),
      port_(port),
      cache_(cache),
      place_(place),
      fit_(std::move(fit)),
      services_(*this),
      endpoints_(context_, services_, place.context) {
  if (btl_bandwidth == 0) {
    btl_bandwidth = port.weight;
  }
  btl_latency += port.address.path % kModulesOfAnOb1Request != 0 ? 1 : 0;
  set_btl_functions(*this);
  learn_rdma_limits();
  choose_protocols(wishes);
  fit_rdma(*this);
}

Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::make(const UsablePort& port, RegistrationCache& cache,
                                             const ChosenQueues& queues, const ModulePlace& place,
                                             const mca_btl_base_module_t& table, const LimitWishes& wishes) {
  const ReceiveQueues run = queues.on(port);
  // Of receive contexts what was asked for, unless that is more than was granted: the report says what became of it.
  const std::int64_t asked = params().rx_contexts < 0 ? place.contexts.receive : params().rx_contexts;
  const std::int64_t receive = std::min<std::int64_t>(asked, place.contexts.receive);
  const ResourceManager manager = share_device(port, run, {place.contexts.transmit * port.paths, receive * port.paths});
  auto fit = cpc::fit_queues(run, port.address.link, queue_pair_settings(port),
                             static_cast<std::uint32_t>(params().cq_size), std::max(1U, job_size()),
                             room_of(port, manager, std::int64_t{place.contexts.count()} * port.paths));
  if (!fit) {
    return tl::unexpected(fit.error());
  }
  const std::string changes = explain(fit->changes);
  std::unique_ptr<Module> module(new Module(port, cache, place, std::move(*fit), table, wishes));
  auto made = module->make_queues();
  if (!made) {
    return tl::unexpected(made.error());
  }
  module->fill_context(*made, queues);
  module->make_path(std::move(*made));
  const bool is_first = place.context == 0 && port.address.path == 0;  // the same for all
  if (is_first) {
    report_resources(*module, manager.explain());
    report_limits(*module);
  }
  if (is_first && !changes.empty()) {
    report_resources_changed(*module, changes);
  }
  return module;
}

/// An X queue's receives all complete on one queue, which keeps room for them; those of an S queue on any.
Result<std::unique_ptr<SharedQueue>> Module::make_shared_queue(const QueueSpec& spec, const PathQueues& queues) const {
  FragmentPool& pool = *queues.receive_pools.back();
  const DeviceCosts costs = queue_pair_settings(port_).costs;
  if (spec.kind == QueueKind::kShared) {
    return SharedQueue::make(*port_.device, spec, costs, pool);
  }
  auto room = queues.completion_queues->reserve(spec.rd_num);
  if (!room) {
    return tl::unexpected(room.error());
  }
  return SharedQueue::make_xrc(*port_.device, spec, costs, pool, *queues.xrc_domain, std::move(*room));
}

Result<PathQueues> Module::make_queues() const {
  const Params& values = params();
  PathQueues made;
  std::uint32_t shared_receives = 0;
  for (const QueueSpec& spec : fit_.queues.queues()) {
    shared_receives += spec.kind == QueueKind::kShared ? spec.rd_num : 0;
  }
  made.completion_queues =
      std::make_unique<CompletionQueueSet>(port_.device->context.get(), fit_.cq_entries, shared_receives,
                                           CompletionQueueSet::Limits{.queues = fit_.most_cqs,
                                                                      .last_entries = fit_.last_cq_entries,
                                                                      .at_first = fit_.entries_at_first,
                                                                      .may_resize = values.cq_resize != 0});
  if (fit_.queues.has_xrc()) {
    auto domain = open_xrc_domain(port_);
    if (!domain) {
      return tl::unexpected(domain.error());
    }
    made.xrc_domain.emplace(std::move(*domain));
  }
  auto own = make_own_pool(cache_.buffers(), fit_.queues, port_.device->max_inline);
  if (!own) {
    return tl::unexpected(own.error());
  }
  made.own_pool = std::move(*own);
  made.rings = make_rings(fit_.queues);
  for (std::size_t i = 0; i < fit_.queues.count(); ++i) {
    const QueueSpec& spec = fit_.queues[i];
    const auto queue = static_cast<std::uint8_t>(i);
    auto sends = FragmentPool::make(cache_.buffers(), queue, false, spec.size,
                                    {values.free_list_num, values.free_list_max, values.free_list_inc});
    // A limit on receive buffers would break the promise that rd_num are posted.
    auto receives = FragmentPool::make(cache_.buffers(), queue, true, spec.size, {0, 0, values.free_list_inc});
    if (!sends || !receives) {
      return tl::unexpected((sends ? receives : sends).error());
    }
    made.send_pools.push_back(std::move(*sends));
    made.receive_pools.push_back(std::move(*receives));
    made.shared_queues.emplace_back();
    if (spec.kind != QueueKind::kPerPeer) {
      auto shared = make_shared_queue(spec, made);
      if (!shared) {
        return tl::unexpected(shared.error());
      }
      made.shared_queues.back() = std::move(*shared);
    }
  }
  return made;
}

std::chrono::seconds Module::heal_timeout() const noexcept {
  return std::chrono::seconds(loses_requests(port_.device->attributes.vendor_id) ? 0 : params().heal_timeout);
}

EagerRdma Module::eager_rdma() const noexcept {
  const ibv_device_attr& device = port_.device->attributes;
  if (params().eager_rdma == 0 || port_.address.link == Transport::kIwarp) {
    return EagerRdma::kOff;
  }
  if (params().eager_rdma == 1) {
    return EagerRdma::kOn;
  }
  if (const WriteOrder* known = write_order(device.vendor_id, device.vendor_part_id); known != nullptr) {
    return known->is_fast ? EagerRdma::kOn : EagerRdma::kOff;
  }
  return EagerRdma::kWhereInOrder;
}

/// Slots for the messages that the device copies, as far as the smallest receive queue takes them.
std::unique_ptr<RingMemory> Module::make_rings(const ReceiveQueues& queues) const {
  const Params& values = params();
  const std::uint32_t max_inline = port_.device->max_inline;
  if (eager_rdma() == EagerRdma::kOff || queues.has_xrc() || max_inline <= RingTrailer::kSize) {
    return nullptr;
  }
  const std::size_t largest =
      std::min<std::size_t>(max_inline - RingTrailer::kSize, queues[queues.smallest_fitting(0)].size);
  const RingSizes sizes{static_cast<std::uint32_t>(values.eager_rdma_peers),
                        static_cast<std::uint32_t>(values.eager_rdma_slots),
                        static_cast<std::uint32_t>(RingTrailer::room_for(largest) + RingTrailer::kSize)};
  return std::make_unique<RingMemory>(cache_.buffers(), sizes);
}

/// Bytes of a packet of several messages, unless the user says something else.
constexpr std::uint32_t kCoalesceSize = 2048;

void Module::make_path(PathQueues queues) {
  PathSettings settings;
  settings.queues = &fit_.queues;
  settings.max_inline = port_.device->max_inline;
  settings.costs = context_.settings.costs;
  settings.rdma_depth = context_.settings.rdma_depth;
  settings.rdma_limits = cpc::rdma_limits(port_.address.link, max_message_, port_.device->max_inline,
                                          port_.device->attributes.max_qp_init_rd_atom);
  settings.rdma_limits.force_mr = params().force_mr != 0;
  settings.rdma_limits.windows = reads_by_windows_;
  settings.poll_batch = params().cq_poll_batch;
  const int coalesce_size = params().coalesce_size;
  settings.coalesce_size = coalesce_size < 0 ? kCoalesceSize : static_cast<std::uint32_t>(coalesce_size);
  if (params().coalesce_first >= 0) {
    settings.coalesce_first = static_cast<std::uint32_t>(params().coalesce_first);
  }
  settings.heals = heal_timeout().count() > 0;
  if (queues.rings) {
    settings.eager_rdma = eager_rdma();
    settings.eager_rdma_threshold = static_cast<std::uint32_t>(params().eager_rdma_threshold);
  }
  settings.receivers = mca_btl_base_active_message_trigger;
  endpoints_.make_path(settings, std::move(queues), cache_.rdma(place_.context, pool_hints()), cache_.atomic_targets(),
                       counters[place_.context], &Component::get().packet_watch());
}

void Module::set_family(std::span<const std::unique_ptr<Module>> family) {
  family_ = family;
  std::vector<Endpoints*> contexts;
  for (const auto& module : family) {
    contexts.push_back(&module->endpoints_);
  }
  endpoints_.set_contexts(std::move(contexts), family.front().get());
}

void Module::fill_context(const PathQueues& queues, const ChosenQueues& chosen) {
  context_ = cpc::context_of(port_, place_.index);
  context_.handshakes = &cache_.handshakes();
  context_.queues = &fit_.queues;
  context_.subsets = chosen.subsets(fit_.queues);
  context_.completion_queues = queues.completion_queues.get();
  for (const auto& shared : queues.shared_queues) {
    context_.srqs.push_back(shared ? shared->srq() : nullptr);
  }
  if (queues.xrc_domain) {
    context_.xrcd = queues.xrc_domain->handle();
    context_.xrc_domain = queues.xrc_domain->id();
  }
  context_.settings = queue_pair_settings(port_);
  context_.settings.rdma_depth = fit_.rdma_depth;
  if (fit_.queues.has_others()) {
    const auto each = static_cast<std::int64_t>(fit_.queues.count() - fit_.queues.xrc_count());
    budget_.emplace(chosen.queue_pairs(port_), each, each * (std::int64_t{job_size()} - 1));
    context_.budget = &*budget_;
  }
  if (params().path_records != 0 && port_.address.link == Transport::kInfiniBand) {
    path_table_.emplace(port_.paths > 1);
    context_.path_table = &*path_table_;
  }
}

}  // namespace fabric
