// SPDX-License-Identifier: BSD-3-Clause
//
// What a packet path on fake verbs is made of.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "btl_fabric/path/packet_path.h"
#include "test/unit/check_main.h"
#include "test/unit/fake_verbs.h"

namespace fabric::test {

/// Memory and registrations for message buffers, by Open MPI's interfaces.
class FakeBuffers {
 public:
  explicit FakeBuffers(FakeDevice& device) : device_(device) {
    memory_.mpool_alloc = [](mca_mpool_base_module_t*, size_t size, size_t align, std::uint32_t) -> void* {
      return std::aligned_alloc(align, (size + align - 1) / align * align);
    };
    memory_.mpool_free = [](mca_mpool_base_module_t*, void* address) { std::free(address); };
    registrations_.owner = this;
    registrations_.rcache_register = [](mca_rcache_base_module_t* cache, void* address, size_t size, std::uint32_t,
                                        std::int32_t, mca_rcache_base_registration_t** made) {
      return static_cast<Registrations*>(cache)->owner->add(address, size, made);
    };
    registrations_.rcache_deregister = [](mca_rcache_base_module_t* cache, mca_rcache_base_registration_t* one) -> int {
      static_cast<Registrations*>(cache)->owner->remove(static_cast<Registration*>(one));
      return OPAL_SUCCESS;
    };
  }

  [[nodiscard]] BufferSource source() { return {&memory_, &registrations_, "fake0"}; }
  /// A registration of the user's memory, to send from; the packet path lets it go.
  [[nodiscard]] mca_rcache_base_registration_t* hold(void* address, std::size_t size) {
    mca_rcache_base_registration_t* made = nullptr;
    ck_assert_int_eq(add(address, size, &made), OPAL_SUCCESS);
    return made;
  }
  unsigned held = 0;  ///< registrations that there are

 private:
  struct Registrations : mca_rcache_base_module_t {
    FakeBuffers* owner;
  };
  int add(void* address, std::size_t size, mca_rcache_base_registration_t** made) {
    ibv_mr* const region = ibv_reg_mr(device_.pd(), address, size, 0);
    if (region == nullptr) {
      return OPAL_ERR_OUT_OF_RESOURCE;
    }
    auto* registration = static_cast<Registration*>(std::calloc(1, sizeof(Registration)));
    registration->rcache = &registrations_;
    registration->memory.front().mr = region;
    *made = registration;
    ++held;
    return OPAL_SUCCESS;
  }
  void remove(Registration* registration) {
    ibv_dereg_mr(registration->memory.front().mr);
    std::free(registration);
    --held;
  }

  FakeDevice& device_;
  mca_mpool_base_module_t memory_{};
  Registrations registrations_{};
};

/// Settings of a path that copies messages of up to `max_inline` bytes.
[[nodiscard]] inline PathSettings path_settings(const ReceiveQueues& queues, std::uint32_t max_inline = 128,
                                                std::uint32_t rdma_depth = 4) {
  PathSettings settings;
  settings.queues = &queues;
  settings.max_inline = max_inline;
  settings.rdma_depth = rdma_depth;
  settings.rdma_limits = RdmaLimits{.link = Transport::kInfiniBand,
                                    .max_sge = 2,
                                    .max_read_sge = 2,
                                    .max_inline = max_inline,
                                    .outstanding_reads = 2};
  settings.poll_batch = 16;
  return settings;
}

/// Queues of the device. `most_sends`: buffers of a queue to send from; 0: no limit. `shared`: the shared receive queues,
/// in order. `max_inline`: as in path_settings().
[[nodiscard]] inline PathQueues make_queues(FakeDevice& device, FakeBuffers& buffers, const ReceiveQueues& queues,
                                            int most_sends, std::vector<FakeSharedQueue*>& shared,
                                            std::uint32_t max_inline = 128) {
  OpenDevice open;
  open.name = "fake0";
  open.context.reset(device.context());
  open.pd.reset(device.pd());
  PathQueues made;
  made.completion_queues = std::make_unique<CompletionQueueSet>(device.context(), 1024, 0);
  made.own_pool = make_own_pool(buffers.source(), queues, max_inline).value();
  for (std::size_t i = 0; i < queues.count(); ++i) {
    const auto queue = static_cast<std::uint8_t>(i);
    made.send_pools.push_back(
        FragmentPool::make(buffers.source(), queue, false, queues[i].size, {0, most_sends, 1}).value());
    made.receive_pools.push_back(FragmentPool::make(buffers.source(), queue, true, queues[i].size, {0, 0, 8}).value());
    made.shared_queues.emplace_back();
    if (queues[i].kind != QueueKind::kPerPeer) {
      QueueSpec spec = queues[i];
      spec.kind = QueueKind::kShared;  // X queues differ in what the device does
      made.shared_queues.back() = SharedQueue::make(open, spec, DeviceCosts{}, *made.receive_pools.back()).value();
      shared.push_back(&device.shared_queue());
    }
  }
  return made;
}

}  // namespace fabric::test
