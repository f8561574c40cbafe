// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/lost_device.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

namespace {

/// Of one queue in the order in which they were posted. Only those that are counted have numbers: they come last.
bool is_before(const Fragment* one, const Fragment* other) noexcept {
  if (one->posted_on != other->posted_on) {
    return std::less<>()(one->posted_on, other->posted_on);
  }
  if (!is_counted(one->kind) || !is_counted(other->kind)) {
    return !is_counted(one->kind) && is_counted(other->kind);
  }
  return static_cast<std::int32_t>(one->number - other->number) < 0;
}

}  // namespace

[[gnu::cold]] bool is_of_lost_device(Link& link, int error_number) noexcept {
  if (error_number != EIO) {
    return false;
  }
  LostDevice::note(link);
  return true;
}

[[gnu::cold]] void LostDevice::note(Link& link) noexcept {
  link.path_.events().device_is_gone();
}

[[gnu::cold]] void LostDevice::stop() noexcept {
  path_.is_lost_ = true;
  path_.queues_.completion_queues->stop();
  path_.shared_queues_short_ = false;
}

[[gnu::cold]] void LostDevice::flush(std::span<PacketPath* const> contexts) {
  flush_sends(contexts);
  flush_rdma();
  flush_receives();
}

/// Those of a pool that this path's links have posted.
void LostDevice::add_posted(const FragmentPool& pool, std::vector<Fragment*>& posted) const {
  for (Fragment* one = pool.newest(); one != nullptr; one = one->made_before) {
    if (one->posted_on != nullptr && &one->posted_on->link.path_ == &path_) {
      posted.push_back(one);
    }
  }
}

void LostDevice::flush_sends(std::span<PacketPath* const> contexts) {
  std::vector<Fragment*> posted;
  for (const PacketPath* const context : contexts) {
    for (const auto& pool : context->queues_.send_pools) {
      add_posted(*pool, posted);
    }
    add_posted(*context->queues_.own_pool, posted);
  }
  std::sort(posted.begin(), posted.end(), is_before);
  for (Fragment* const one : posted) {
    fail(reinterpret_cast<std::uintptr_t>(one) | static_cast<std::uint64_t>(SendTag::kFragment), one->posted_on->qpn);
  }
}

/// Other ports of the device have requests of the same pool.
void LostDevice::flush_rdma() {
  std::vector<RdmaRequest*> posted;
  path_.rdma().requests.for_each([&](RdmaRequest& one) {
    if (one.is_under_way() && &one.link->path_ == &path_) {
      posted.push_back(&one);
    }
  });
  for (RdmaRequest* const one : posted) {
    fail(reinterpret_cast<std::uintptr_t>(one) | static_cast<std::uint64_t>(SendTag::kRdma),
         one->link->rdma_queue().qpn);
  }
}

/// Those that lie ready are told from those that are posted first.
void LostDevice::flush_receives() {
  std::vector<Fragment*> posted;
  for (const auto& pool : path_.queues_.receive_pools) {
    add_posted(*pool, posted);
  }
  const LinkQueue* last = nullptr;
  for (const Fragment* const one : posted) {
    if (one->posted_on != nullptr && one->posted_on != last) {
      last = one->posted_on;
      one->posted_on->receives.mark_spares();
    }
  }
  for (Fragment* const one : posted) {
    if (one->posted_on != nullptr) {
      fail(reinterpret_cast<std::uintptr_t>(one), one->posted_on->qpn);
    }
  }
}

void LostDevice::fail(std::uint64_t id, std::uint32_t qpn) noexcept {
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.qp_num = qpn;
  path_.completion_failed(completion);
}

}  // namespace fabric
