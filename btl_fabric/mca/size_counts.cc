// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/size_counts.h"

#include <atomic>
#include <utility>

#include "btl_fabric/mca/watched_calls.h"

namespace fabric {
namespace {

void add(std::uint64_t& count, std::uint64_t more) noexcept {
  if (opal_uses_threads) {
    std::atomic_ref(count).fetch_add(more, std::memory_order_relaxed);
  } else {
    count += more;
  }
}

/// The counts are of the process. Static objects have no destructors here.
class SizeCounter final : public CallWatcher {
 public:
  void sent(const Endpoint* endpoint, std::size_t bytes) noexcept override { count(sizes.messages, bytes, endpoint); }
  void put(const Endpoint* endpoint, std::size_t bytes) noexcept override { count(sizes.writes, bytes, endpoint); }
  void got(const Endpoint* endpoint, std::size_t bytes) noexcept override { count(sizes.reads, bytes, endpoint); }
  void operated(const Endpoint* /*endpoint*/) noexcept override {}

  SizeHistogram sizes;
  std::uint64_t* by_rank = nullptr;        ///< of the job; one more is of all processes of other jobs
  std::size_t ranks = 0;                   ///< of the job
  std::uint64_t* bytes_by_rank = nullptr;  ///< by module and rank
  std::size_t modules = 0;

  [[nodiscard]] std::uint64_t& bytes_of(std::size_t rank, std::size_t module) const noexcept {
    return bytes_by_rank[module * ranks + rank];
  }

 private:
  void count(SizeClasses& classes, std::size_t size, const Endpoint* peer) const noexcept {
    add(classes[size_class(size)], 1);
    if (peer == nullptr || peer->is_self() || by_rank == nullptr) {
      return;
    }
    const ProcessName& name = peer->key().peer;
    const bool is_of_job = name.job == OPAL_PROC_MY_NAME.jobid && name.rank < ranks;
    add(by_rank[is_of_job ? name.rank : ranks], 1);
    if (is_of_job && peer->key().local_port < modules) {
      add(bytes_of(name.rank, peer->key().local_port), size);
    }
  }
};
SizeCounter counter;

}  // namespace

void count_sizes(std::span<const std::unique_ptr<Module>> modules) {
  if (counter.by_rank == nullptr) {
    counter.ranks = job_size();
    counter.by_rank = new std::uint64_t[counter.ranks + 1]();
    counter.modules = modules.size();
    counter.bytes_by_rank = new std::uint64_t[counter.ranks * counter.modules]();
  }
  watch_calls(modules, counter);
}

std::uint64_t counted_bytes(std::uint32_t rank, std::size_t module) noexcept {
  const bool is_known = counter.bytes_by_rank != nullptr && rank < counter.ranks && module < counter.modules;
  return is_known ? counter.bytes_of(rank, module) : 0;
}

SizeHistogram take_counted_sizes() noexcept {
  SizeHistogram sizes = counter.sizes;
  sizes.peers = {};
  for (std::size_t rank = 0; counter.by_rank != nullptr && rank < counter.ranks; ++rank) {
    if (counter.by_rank[rank] > 0) {
      ++sizes.peers[size_class(counter.by_rank[rank])];
    }
  }
  delete[] std::exchange(counter.by_rank, nullptr);
  delete[] std::exchange(counter.bytes_by_rank, nullptr);
  return sizes;
}

}  // namespace fabric
