// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "common/base/error_text.h"
#include "common/base/verbs_handle.h"
#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTried = 32 * kMiB;
/// Less than this leaves nothing for the memory of large messages, which stays registered once it was sent from.
constexpr std::uint64_t kLittle = 1024 * kMiB;

constexpr const char* kRemedy =
    "ulimit -l unlimited where the job starts: memlock unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity in "
    "the unit of the service that starts it (slurmd, sshd), PropagateResourceLimitsExcept=MEMLOCK in slurm.conf";

/// The kernel lets such a process lock whatever it likes (capabilities(7)).
bool may_lock_all() {
  constexpr unsigned kCapIpcLock = 14;
  unsigned long long effective = 0;
  if (FILE* const file = std::fopen("/proc/self/status", "re"); file != nullptr) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr && std::sscanf(line, "CapEff: %llx", &effective) != 1) {
    }
    std::fclose(file);
  }
  return (effective >> kCapIpcLock & 1) != 0;
}

constexpr const char* kOtherRemedy = "the limit is not the reason: see what the kernel says of the device (dmesg)";

/// By what the kernel says when a limit is reached.
bool may_be_the_limit(int error, bool is_unlimited) {
  return !is_unlimited && (error == ENOMEM || error == EAGAIN || error == EPERM);
}

/// Why so much cannot be registered on the device, an errno; 0: it can.
int why_not(const OpenDevice& device) {
  void* const memory = mmap(nullptr, kTried, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return errno;
  }
  int error = 0;
  if (ibv_mr* const region =
          ibv_reg_mr(device.pd.get(), memory, kTried, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
      region != nullptr) {
    ibv_dereg_mr(region);
  } else {
    error = errno;
  }
  munmap(memory, kTried);
  return error;
}

}  // namespace

Findings check_memlock(const Host& host) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool is_unlimited = limit.rlim_cur == RLIM_INFINITY;
  const std::string text = is_unlimited ? "unlimited" : std::to_string(limit.rlim_cur / 1024) + " KiB";
  Findings findings;
  std::vector<const OpenDevice*> tried;
  for (const UsablePort& port : host.scan.ports) {
    const OpenDevice* const device = port.device.get();
    if (!tried.empty() && tried.back() == device) {
      continue;
    }
    tried.push_back(device);
    if (const int error = why_not(*device); error != 0) {
      findings.push_back(fail(
          device->name + ": 32 MiB cannot be registered: " + describe_errno(error) + " (the limit is " + text + ")",
          may_be_the_limit(error, is_unlimited) ? kRemedy : kOtherRemedy));
    }
  }
  const std::string registered = tried.empty() ? "" : ", and 32 MiB can be registered";
  if (!findings.empty()) {
    return findings;
  }
  if (is_unlimited || may_lock_all()) {
    return {ok(text + (is_unlimited ? "" : ", which does not count: the process has CAP_IPC_LOCK") + registered)};
  }
  if (limit.rlim_cur < kLittle) {
    return {warn(text + registered + "; large messages need more", kRemedy)};
  }
  return {ok(text + registered)};
}

}  // namespace fabric::doctor
