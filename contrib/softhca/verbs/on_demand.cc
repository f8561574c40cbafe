// SPDX-License-Identifier: BSD-3-Clause
// Advice about memory that is registered on demand (ibv_advise_mr(3)). Copies find pages by themselves: advice makes them faster.
#include <sys/mman.h>
#include <unistd.h>

#include <span>

#include "transport/keys.h"
#include "verbs/call.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// 0, or EFAULT: there is no such memory, or it must not be written.
int bring_pages(uint64_t addr, uint64_t length, bool to_write) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = addr & ~(page - 1);
  auto* where = reinterpret_cast<void*>(begin);
  const uint64_t bytes = (addr + length - begin + page - 1) & ~(page - 1);
  const int advice = to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(where, bytes, advice) == 0) return 0;
  // Before Linux 5.14 there is no such advice, also of no bytes, but another that does no harm. Since then EINVAL is said of memory
  // that must not be written.
  return errno == EINVAL && madvise(where, 0, advice) != 0 && madvise(where, bytes, MADV_WILLNEED) == 0 ? 0 : EFAULT;
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
  if (const int error = cannot_use(*Context::of(pd->context))) return error;
  if (!Fabric::get()->config().odp || advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  const bool to_write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const uint32_t access = IBV_ACCESS_ON_DEMAND | (to_write ? uint32_t{IBV_ACCESS_LOCAL_WRITE} : 0);
  int result = 0;
  for (const ibv_sge& part : std::span(list, count)) {
    uint64_t addr = 0;
    const Sge sge{part.addr, part.length, part.lkey};
    if (!own_key_allows(Fabric::get()->self(), static_cast<Pd*>(pd)->id, sge, access, &addr)) return EFAULT;
    if (part.length == 0 || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
    if (const int error = bring_pages(addr, part.length, to_write)) result = error;
  }
  // Who does not wait for the result is not told.
  return (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0 ? result : 0;
}

}  // namespace softhca
