// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/completion_queue.h"

#include <bit>
#include <mutex>
#include <utility>

#include "fabric/of_member.h"
#include "transport/adding.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/index_pool.h"

namespace softhca {
namespace {

struct Indices {
  IndexPool<kCqsPerSlot> pool{1};
};
IndexPool<kCqsPerSlot>& indices() {
  return of_member<Indices>().pool;
}

// The ring, and the half that others see; false: no memory.
bool publish(Cq& cq, uint32_t cqe) {
  Fabric& fabric = *Fabric::get();
  CqShared& shared = fabric.self().cqs[cq.index];
  if (!fabric.commit(&shared, sizeof shared)) return false;
  const uint32_t capacity = std::bit_ceil(cqe);
  const uint64_t offset = fabric.allocate(size_t{capacity} * sizeof(CqEntry));
  if (offset == 0) return false;
  RobustGuard guard(shared.lock, fabric.stamp());
  shared.capacity = capacity;
  shared.cqe = cqe;
  shared.offset = offset;
  shared.tail.store(0, std::memory_order_relaxed);
  shared.adding.store(0, std::memory_order_relaxed);
  shared.head_seen = 0;
  shared.stamped = 0;
  shared.head.store(0, std::memory_order_relaxed);
  shared.landings = {};
  shared.landings_freed.store(0, std::memory_order_relaxed);
  shared.armed.store(kCqIdle, std::memory_order_relaxed);
  shared.overrun.store(0, std::memory_order_relaxed);
  shared.stamped = 0;
  shared.in_use.store(1, std::memory_order_release);
  cq.shared = &shared;
  cq.poll_in(&own_entry_at(fabric, shared, 0), capacity);
  cq.go_to(0);
  return true;
}

// A process with more queues than this has no need for all of them to be fast.
constexpr unsigned kMostLandingRings = 32;
struct LandingRings {
  std::mutex mutex;  // also of LandingRing::offset, which only the owner writes
  unsigned count = 0;
};

// Nobody has the queue any more.
void release_landings(Fabric& fabric, uint64_t offset) {
  if (offset == 0) return;
  auto& rings = of_member<LandingRings>();
  const std::lock_guard mine(rings.mutex);
  fabric.release(offset, kLandingRingBytes);
  --rings.count;
}

}  // namespace

void prepare_to_receive(Cq& cq) {
  Fabric& fabric = *Fabric::get();
  CqShared& shared = *cq.shared;
  auto& rings = of_member<LandingRings>();
  const std::lock_guard mine(rings.mutex);
  if (fabric.config().landing <= kLandingBytes || shared.landings.offset != 0 || rings.count == kMostLandingRings)
    return;
  const uint64_t offset = fabric.has_plenty(kLandingRingBytes) ? fabric.allocate(kLandingRingBytes) : 0;
  if (offset == 0) return;
  ++rings.count;
  RobustGuard guard(shared.lock, fabric.stamp());
  shared.landings.offset = offset;
  cq.landings.store(reinterpret_cast<const uint8_t*>(&fabric.self()) + offset, std::memory_order_relaxed);
}

Cq* create_completion_queue(ibv_context* context, uint32_t cqe, void* cq_context, ibv_comp_channel* channel,
                            uint32_t comp_vector) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_create_cq")) return fail(error);
  const ibv_device_attr limits = limits_of(owner);
  if (cqe < 1 || cqe > static_cast<uint32_t>(limits.max_cqe)) return fail(EINVAL);
  if (comp_vector >= static_cast<uint32_t>(context->num_comp_vectors)) return fail(EINVAL);
  if (channel != nullptr && channel->context != context) return fail(EINVAL);
  auto cq = make<Cq>();
  if (cq == nullptr) return fail(ENOMEM);
  cq->index = indices().allocate(static_cast<unsigned>(limits.max_cq));
  if (cq->index == 0) return fail(ENOMEM);
  if (!publish(*cq, cqe)) {
    indices().release(cq->index);
    return fail(ENOMEM);
  }
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = cq->index;
  cq->cqe = static_cast<int>(cqe);
  pthread_mutex_init(&cq->base()->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  owner.objects.fetch_add(1);
  if (channel != nullptr) __atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
  tables().cqs[cq->index].store(cq.get(), std::memory_order_release);
  reach(tables().cqs_end, cq->index);
  return cq.release();
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                     int comp_vector) {
  Cq* cq = cqe < 0 || comp_vector < 0 ? fail(EINVAL)
                                      : create_completion_queue(context, static_cast<uint32_t>(cqe), cq_context,
                                                                channel, static_cast<uint32_t>(comp_vector));
  return cq != nullptr ? cq->base() : nullptr;
}

SOFTHCA_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  Context& owner = *Context::of(cq->context);
  if (const int error = cannot_use(owner)) return error;
  if (const int error = SOFTHCA_FAULTY("ibv_resize_cq")) return error;
  if (cqe < 1 || cqe > limits_of(owner).max_cqe) return EINVAL;
  return resize(*Cq::of(cq), static_cast<unsigned>(cqe));
}

SOFTHCA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  if (const int error = in_child(cq->context)) return error;
  Cq* mine = Cq::of(cq);
  if (mine->users.load() != 0) return EBUSY;
  Fabric& fabric = *Fabric::get();
  tables().cqs[mine->index].store(nullptr, std::memory_order_release);
  { std::lock_guard guard(lookup_mutex()); }
  uint64_t offset = 0;
  size_t bytes = 0;
  uint64_t landings = 0;
  {
    RobustGuard guard(mine->shared->lock, fabric.stamp());
    mine->shared->in_use.store(0, std::memory_order_relaxed);
    offset = mine->shared->offset;
    bytes = size_t{mine->shared->capacity} * sizeof(CqEntry);
    landings = std::exchange(mine->shared->landings.offset, 0);
  }
  if (cq->channel != nullptr) {
    auto& events = static_cast<CompChannel*>(cq->channel)->events;
    const size_t withdrawn = events.remove_if([cq](const ibv_cq* other) { return other == cq; });
    mine->unacked.fetch_sub(static_cast<uint32_t>(withdrawn), std::memory_order_relaxed);
    wait_for_acks(cq->mutex, cq->cond, cq->comp_events_completed, mine->unacked);
    __atomic_fetch_sub(&cq->channel->refcnt, 1, __ATOMIC_ACQ_REL);
  }
  settle_async_events(*mine);
  fabric.release(offset, bytes);
  release_landings(fabric, landings);
  indices().release(mine->index);
  if (mine->domain != nullptr) mine->domain->users.fetch_sub(1);
  Context::of(cq->context)->objects.fetch_sub(1);
  delete mine;
  return 0;
}
