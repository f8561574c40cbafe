// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/xrcd.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "device/attributes.h"
#include "fabric/of_member.h"
#include "verbs/call.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// How often this process has each domain open; guarded by Hub::xrcds_lock and, against other threads, `mutex`.
struct OpenDomains {
  std::mutex mutex;
  std::array<unsigned, kMaxXrcds> count{};
};
OpenDomains& open_domains() {
  return of_member<OpenDomains>();
}

struct OpenTargets {
  std::array<uint32_t, kMaxTargets> count{};
};
// How often this process has each target open; guarded by Hub::targets_lock.
std::array<uint32_t, kMaxTargets>& my_opens() {
  return of_member<OpenTargets>().count;
}

uint64_t bit_of(unsigned slot) {
  return uint64_t{1} << slot % 64;
}

// Whether that slot's present owner has the domain open. A bit without an owner is dropped: who died did not clear it.
bool has_open(Fabric& fabric, XrcdShared& xrcd, unsigned slot) {
  if ((xrcd.open[slot / 64].load(std::memory_order_relaxed) & bit_of(slot)) == 0) return false;
  if (fabric.alive(slot, xrcd.incarnations[slot].load(std::memory_order_relaxed))) return true;
  xrcd.open[slot / 64].fetch_and(~bit_of(slot), std::memory_order_relaxed);
  return false;
}

bool is_open(Fabric& fabric, XrcdShared& xrcd) {
  bool found = false;
  for (unsigned slot = 1; slot < kSlots; ++slot) {
    if (xrcd.open[slot / 64].load(std::memory_order_relaxed) == 0)
      slot |= 63;
    else
      found = has_open(fabric, xrcd, slot) || found;
  }
  return found;
}

QpShared& target_at(Fabric& fabric, uint32_t index) {
  return fabric.peer(kHubSlot)->qps[index];
}

// Forgets what an earlier owner of this process's slot had open in the domain.
void forget_targets(Fabric& fabric, uint32_t xrcd) {
  Hub& hub = fabric.hub();
  RobustGuard guard(hub.targets_lock, fabric.stamp());
  const uint32_t end = std::min<uint32_t>(hub.targets_end.load(std::memory_order_relaxed), kMaxTargets);
  for (uint32_t i = 2; i < end; ++i)
    if (target_at(fabric, i).xrcd == xrcd)
      hub.target_users[i].open[fabric.slot() / 64].fetch_and(~bit_of(fabric.slot()), std::memory_order_relaxed);
}

// Ends a target that nobody has open. Hub::targets_lock is held.
bool end_if_unused(Fabric& fabric, uint32_t index) {
  Hub& hub = fabric.hub();
  QpShared& target = target_at(fabric, index);
  XrcdShared& xrcd = hub.xrcds[target.xrcd % kMaxXrcds];
  for (unsigned word = 0; word < kSlots / 64; ++word)
    for (uint64_t bits = hub.target_users[index].open[word].load(std::memory_order_relaxed); bits != 0;
         bits &= bits - 1)
      if (has_open(fabric, xrcd, word * 64 + static_cast<unsigned>(__builtin_ctzll(bits)))) return false;
  for (auto& word : hub.target_users[index].open) word.store(0, std::memory_order_relaxed);
  RobustGuard guard(target.lock, fabric.stamp());
  target.state.store(IBV_QPS_RESET, std::memory_order_relaxed);
  target.qp_num.store(0, std::memory_order_release);
  return true;
}

// The domain of that file on that device, or kMaxXrcds. Hub::xrcds_lock is held.
uint32_t find(Fabric& fabric, const struct stat& file, uint32_t port_device) {
  Hub& hub = fabric.hub();
  for (uint32_t i = 0; i < kMaxXrcds; ++i) {
    XrcdShared& xrcd = hub.xrcds[i];
    if (xrcd.in_use.load(std::memory_order_relaxed) == 0 || xrcd.anonymous != 0 || xrcd.port_device != port_device)
      continue;
    if (xrcd.device == file.st_dev && xrcd.inode == file.st_ino && is_open(fabric, xrcd)) return i;
  }
  return kMaxXrcds;
}

uint32_t find_free(Fabric& fabric) {
  Hub& hub = fabric.hub();
  for (uint32_t i = 0; i < kMaxXrcds; ++i)
    if (hub.xrcds[i].in_use.load(std::memory_order_relaxed) == 0 || !is_open(fabric, hub.xrcds[i])) return i;
  return kMaxXrcds;
}

// The domain's index, with this process in it; kMaxXrcds and `error`.
uint32_t enter(Fabric& fabric, int fd, int flags, uint32_t port_device, int& error) {
  struct stat file {};
  if (fd >= 0 && fstat(fd, &file) != 0) {
    error = errno;
    return kMaxXrcds;
  }
  Hub& hub = fabric.hub();
  OpenDomains& mine = open_domains();
  std::lock_guard guard(mine.mutex);
  RobustGuard hub_guard(hub.xrcds_lock, fabric.stamp());
  uint32_t index = fd >= 0 ? find(fabric, file, port_device) : kMaxXrcds;
  if (index == kMaxXrcds && (flags & O_CREAT) == 0) {
    error = fd >= 0 ? EAGAIN : EINVAL;
    return kMaxXrcds;
  }
  if (index != kMaxXrcds && (flags & O_EXCL) != 0) {
    error = EINVAL;
    return kMaxXrcds;
  }
  if (index == kMaxXrcds) {
    index = find_free(fabric);
    if (index == kMaxXrcds) {
      error = ENOMEM;
      return kMaxXrcds;
    }
    XrcdShared& xrcd = hub.xrcds[index];
    xrcd.device = file.st_dev;
    xrcd.inode = file.st_ino;
    xrcd.anonymous = fd < 0;
    xrcd.port_device = port_device;
    xrcd.in_use.store(1, std::memory_order_release);
  }
  XrcdShared& xrcd = hub.xrcds[index];
  if (mine.count[index]++ == 0) {
    forget_targets(fabric, index);
    xrcd.incarnations[fabric.slot()].store(fabric.incarnation(), std::memory_order_relaxed);
    xrcd.open[fabric.slot() / 64].fetch_or(bit_of(fabric.slot()), std::memory_order_release);
  }
  return index;
}

void leave(Fabric& fabric, uint32_t index) {
  Hub& hub = fabric.hub();
  OpenDomains& mine = open_domains();
  std::lock_guard guard(mine.mutex);
  RobustGuard hub_guard(hub.xrcds_lock, fabric.stamp());
  if (--mine.count[index] != 0) return;
  XrcdShared& xrcd = hub.xrcds[index];
  xrcd.open[fabric.slot() / 64].fetch_and(~bit_of(fabric.slot()), std::memory_order_relaxed);
  if (!is_open(fabric, xrcd)) xrcd.in_use.store(0, std::memory_order_release);
}

}  // namespace

namespace xrc_targets {

uint32_t create(Fabric& fabric, uint32_t xrcd) {
  Hub& hub = fabric.hub();
  RobustGuard guard(hub.targets_lock, fabric.stamp());
  // Numbers that were never used come first.
  uint32_t index = std::max<uint32_t>(hub.targets_end.load(std::memory_order_relaxed), 2);
  if (index >= kMaxTargets)
    for (index = 2; index < kMaxTargets && target_at(fabric, index).qp_num.load(std::memory_order_relaxed) != 0;
         ++index)
      if (end_if_unused(fabric, index)) break;
  if (index >= kMaxTargets || !fabric.commit(&target_at(fabric, index), sizeof(QpShared))) return 0;
  QpShared& target = target_at(fabric, index);
  for (auto& word : hub.target_users[index].open) word.store(0, std::memory_order_relaxed);
  hub.target_users[index].open[fabric.slot() / 64].store(bit_of(fabric.slot()), std::memory_order_relaxed);
  my_opens()[index] = 1;
  {
    RobustGuard target_guard(target.lock, fabric.stamp());
    target.state.store(IBV_QPS_RESET, std::memory_order_relaxed);
    target.type = IBV_QPT_XRC_RECV;
    target.port_id = target.dest_port_id = target.dest_qpn = 0;
    target.pd = target.access = target.qkey = target.recv_cq = target.srq = 0;
    target.taken_valid.store(0, std::memory_order_relaxed);
    target.arrived.clear();
    target.events.store(0, std::memory_order_relaxed);
    target.comm_established = 0;
    target.xrcd = xrcd;
    target.creator = fabric.slot() | fabric.incarnation() << 16;
    target.qp_num.store(qpn_of(kHubSlot, index), std::memory_order_release);
  }
  if (index >= hub.targets_end.load(std::memory_order_relaxed))
    hub.targets_end.store(index + 1, std::memory_order_release);
  return index;
}

bool open(Fabric& fabric, uint32_t index, uint32_t xrcd) {
  Hub& hub = fabric.hub();
  RobustGuard guard(hub.targets_lock, fabric.stamp());
  if (index < 2 || index >= hub.targets_end.load(std::memory_order_relaxed)) return false;
  QpShared& target = target_at(fabric, index);
  if (target.qp_num.load(std::memory_order_acquire) != qpn_of(kHubSlot, index) || target.xrcd != xrcd) return false;
  if (end_if_unused(fabric, index)) return false;
  ++my_opens()[index];
  hub.target_users[index].open[fabric.slot() / 64].fetch_or(bit_of(fabric.slot()), std::memory_order_relaxed);
  return true;
}

void close(Fabric& fabric, uint32_t index) {
  Hub& hub = fabric.hub();
  RobustGuard guard(hub.targets_lock, fabric.stamp());
  if (--my_opens()[index] != 0) return;
  hub.target_users[index].open[fabric.slot() / 64].fetch_and(~bit_of(fabric.slot()), std::memory_order_relaxed);
  end_if_unused(fabric, index);
}

}  // namespace xrc_targets

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_open_xrcd")) return fail(error);
  if (!has_xrc(Fabric::get()->config(), owner.device->index)) return fail(EOPNOTSUPP);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || (attr->oflags & ~(O_CREAT | O_EXCL)) != 0) return fail(EINVAL);
  auto xrcd = make<Xrcd>();
  if (xrcd == nullptr) return fail(ENOMEM);
  Fabric& fabric = *Fabric::get();
  int error = 0;
  const uint32_t index =
      enter(fabric, attr->fd, attr->oflags, fabric.node() * kMaxDevices + owner.device->index, error);
  if (index == kMaxXrcds) return fail(error);
  xrcd->context = context;
  xrcd->index = index;
  owner.objects.fetch_add(1);
  return xrcd.release();
}

int close_xrcd(ibv_xrcd* xrcd) {
  if (const int error = in_child(xrcd->context)) return error;
  auto* mine = static_cast<Xrcd*>(xrcd);
  if (mine->users.load() != 0) return EBUSY;
  leave(*Fabric::get(), mine->index);
  Context::of(xrcd->context)->objects.fetch_sub(1);
  delete mine;
  return 0;
}

}  // namespace softhca
