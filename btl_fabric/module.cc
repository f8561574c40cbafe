// SPDX-License-Identifier: BSD-3-Clause
//
// Making a module, and taking it apart.
#include "btl_fabric/module.h"

#include <thread>

#include "btl_fabric/params.h"
#include "btl_fabric/rdma.h"
#include "btl_fabric/report.h"
#include "common/contexts.h"

namespace fabric {

namespace {

cpc::QueuePairSettings queue_pair_settings(const UsablePort& port) {
  const Params& values = params();
  cpc::QueuePairSettings settings;
  settings.timeout = static_cast<std::uint8_t>(values.timeout);
  settings.retry_count = static_cast<std::uint8_t>(values.retry_count);
  settings.rnr_retry = static_cast<std::uint8_t>(values.rnr_retry);
  settings.min_rnr_timer = static_cast<std::uint8_t>(values.min_rnr_timer);
  settings.service_level = static_cast<std::uint8_t>(values.service_level);
  settings.traffic_class = static_cast<std::uint8_t>(values.traffic_class);
  settings.pkey_index = port.pkey_index;
  settings.max_inline = port.device->max_inline;
  settings.costs = device_costs(port.device->name);
  if (values.queue_costs != nullptr) {
    settings.costs = parse_costs(values.queue_costs).value_or(settings.costs);  // check_params() has read it before
  }
  settings.rdma_depth = static_cast<std::uint32_t>(values.rdma_depth);
  return settings;
}

}  // namespace

Module::Module(const UsablePort& port, const RegistrationCache& cache, const ReceiveQueues& queues,
               const mca_btl_base_module_t& limits)
    : mca_btl_base_module_t(limits),
      port_(port),
      cache_(cache),
      queues_(port.address.link == Link::kIwarp ? queues.without_shared() : queues) {
  if (btl_bandwidth == 0) {
    btl_bandwidth = port.bandwidth;
  }
  set_btl_functions(*this);
  learn_rdma_limits();
  fit_rdma(*this);
}

Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::make(const UsablePort& port, const RegistrationCache& cache,
                                             const ReceiveQueues& queues, std::uint16_t index,
                                             const mca_btl_base_module_t& limits) {
  std::unique_ptr<Module> module(new Module(port, cache, queues, limits));
  if (auto made = module->make_queues(); !made) {
    return tl::unexpected(made.error());
  }
  module->fill_context(index);
  module->share_device();
  return module;
}

Status Module::make_queues() {
  const Params& values = params();
  std::uint32_t shared_receives = 0;
  for (std::size_t i = 0; i < queues_.count(); ++i) {
    const QueueSpec& spec = queues_[i];
    const auto queue = static_cast<std::uint8_t>(i);
    auto sends = FragmentPool::make(cache_, queue, false, spec.size,
                                    {values.free_list_num, values.free_list_max, values.free_list_inc});
    // A limit on receive buffers would break the promise that rd_num are posted.
    auto receives = FragmentPool::make(cache_, queue, true, spec.size, {0, 0, values.free_list_inc});
    if (!sends || !receives) {
      return tl::unexpected((sends ? receives : sends).error());
    }
    send_pools_.push_back(std::move(*sends));
    receive_pools_.push_back(std::move(*receives));
    shared_queues_.emplace_back();
    if (spec.kind == QueueKind::kShared) {
      auto shared = SharedQueue::make(*port_.device, spec, *receive_pools_.back());
      if (!shared) {
        return tl::unexpected(shared.error());
      }
      shared_queues_.back() = std::move(*shared);
      shared_receives += spec.rd_num;
    }
  }
  completion_queues_ = std::make_unique<CompletionQueueSet>(
      port_.device->context.get(), static_cast<std::uint32_t>(values.cq_size), shared_receives);
  return {};
}

void Module::share_device() {
  QueuePairUse use{static_cast<std::int64_t>(queues_.count()), 0, params().cq_size};
  for (std::size_t i = 0; i < queues_.count(); ++i) {
    use.entries_per_context += static_cast<std::int64_t>(send_space(i).entries()) + queues_[i].receive_depth();
    use.entries_per_cq -= queues_[i].kind == QueueKind::kPerPeer ? 0 : queues_[i].rd_num;
  }
  const NodeShare node{static_cast<std::int64_t>(opal_process_info.num_local_peers) + 1,
                       static_cast<std::int64_t>(std::thread::hardware_concurrency())};
  const ResourceManager manager(facts_of(port_.device->attributes), node, use, EndpointAttributes{});
  report_resources(*this, manager.explain());
}

void Module::fill_context(std::uint16_t index) {
  context_.index = index;
  context_.device = port_.device->context.get();
  context_.pd = port_.device->pd.get();
  context_.port_num = port_.port_num;
  context_.gid_index = port_.gid_index;
  context_.address = port_.address;
  context_.ip = port_.ip;
  context_.handshakes = &cache_.handshakes();
  context_.queues = &queues_;
  context_.completion_queues = completion_queues_.get();
  for (const auto& shared : shared_queues_) {
    context_.srqs.push_back(shared ? shared->srq() : nullptr);
  }
  context_.settings = queue_pair_settings(port_);
}

}  // namespace fabric
