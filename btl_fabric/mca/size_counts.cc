// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/size_counts.h"

#include <atomic>
#include <utility>

namespace fabric {
namespace {

using Handle = mca_btl_base_registration_handle_t;

/// All modules have the same functions, and the counts are of the process. Static objects have no destructors here.
struct Counted {
  SizeHistogram sizes;
  std::uint64_t* by_rank = nullptr;  ///< of the job; one more is of all processes of other jobs
  std::size_t ranks = 0;             ///< of the job
  mca_btl_base_module_send_fn_t send = nullptr;
  mca_btl_base_module_sendi_fn_t sendi = nullptr;
  mca_btl_base_module_put_fn_t put = nullptr;
  mca_btl_base_module_get_fn_t get = nullptr;
};
Counted counted;

void increment(std::uint64_t& count) noexcept {
  if (opal_uses_threads) {
    std::atomic_ref(count).fetch_add(1, std::memory_order_relaxed);
  } else {
    ++count;
  }
}

void count(SizeClasses& classes, std::size_t size, const mca_btl_base_endpoint_t* endpoint) noexcept {
  increment(classes[size_class(size)]);
  const auto* const peer = static_cast<const Endpoint*>(endpoint);
  if (peer == nullptr || peer->is_self() || counted.by_rank == nullptr) {
    return;
  }
  const ProcessName& name = peer->key().peer;
  const std::size_t others = counted.ranks;
  increment(counted.by_rank[name.job == OPAL_PROC_MY_NAME.jobid && name.rank < others ? name.rank : others]);
}

/// A descriptor belongs to the module, and may be gone, when it has been sent.
int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
         mca_btl_base_tag_t tag) noexcept {
  std::size_t size = 0;
  for (std::size_t i = 0; i < descriptor->des_segment_count; ++i) {
    size += descriptor->des_segments[i].seg_len;
  }
  count(counted.sizes.messages, size, endpoint);
  return counted.send(btl, endpoint, descriptor, tag);
}

/// What is not sent at once comes again, by send().
int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor, void* header,
          size_t header_size, size_t payload_size, std::uint8_t order, std::uint32_t flags, mca_btl_base_tag_t tag,
          mca_btl_base_descriptor_t** descriptor) noexcept {
  const int result =
      counted.sendi(btl, endpoint, convertor, header, header_size, payload_size, order, flags, tag, descriptor);
  if (result == OPAL_SUCCESS) {
    count(counted.sizes.messages, header_size + payload_size, endpoint);
  }
  return result;
}

int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const int result = counted.put(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size, flags,
                                 order, callback, context, data);
  if (result >= 0) {
    count(counted.sizes.writes, size, endpoint);
  }
  return result;
}

int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const int result = counted.get(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size, flags,
                                 order, callback, context, data);
  if (result >= 0) {
    count(counted.sizes.reads, size, endpoint);
  }
  return result;
}

}  // namespace

void count_sizes(std::span<const std::unique_ptr<Module>> modules) {
  if (counted.by_rank == nullptr) {
    counted.ranks = job_size();
    counted.by_rank = new std::uint64_t[counted.ranks + 1]();
  }
  for (const auto& module : modules) {
    if (module->btl_send == send) {
      continue;
    }
    counted.send = module->btl_send;
    counted.sendi = module->btl_sendi;
    counted.put = module->btl_put;
    counted.get = module->btl_get;
    module->btl_send = send;
    module->btl_sendi = sendi;
    module->btl_put = put;
    module->btl_get = get;
  }
}

SizeHistogram take_counted_sizes() noexcept {
  SizeHistogram sizes = counted.sizes;
  sizes.peers = {};
  for (std::size_t rank = 0; counted.by_rank != nullptr && rank < counted.ranks; ++rank) {
    if (counted.by_rank[rank] > 0) {
      ++sizes.peers[size_class(counted.by_rank[rank])];
    }
  }
  delete[] std::exchange(counted.by_rank, nullptr);
  return sizes;
}

}  // namespace fabric
