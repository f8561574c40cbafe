// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabric/layout_magic.h"

namespace softhca {
namespace {

std::string text(const char* format, unsigned long long value) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

// As `ls -l /proc/self/ns/pid` has it; 0 where that cannot be read.
uint64_t pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// Writes `mine` where nobody has been yet; what is there then.
uint64_t agree(std::atomic<uint64_t>& word, uint64_t mine) {
  uint64_t there = 0;
  return word.compare_exchange_strong(there, mine) ? mine : there;
}

std::string layouts_differ(const std::string& directory, uint64_t there) {
  return "the shared memory in " + directory + " has another layout (" + text("%llx", there) + ") than this build of " +
         "softhca (" + text("%llx", kLayoutMagic) +
         "): let all programs of a fabric, softhca-run and softhca-ctl be of " + "one build";
}

}  // namespace

std::string problem_of_directory(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0)
    return "$SOFTHCA_DIR, " + directory + ", cannot be used (" + strerror(errno) +
           "): start the program with softhca-run, " + "as this user";
  if (!S_ISDIR(status.st_mode))
    return "$SOFTHCA_DIR, " + directory + ", is no directory: start the program with softhca-run";
  if (status.st_uid != geteuid())
    return "the fabric in " + directory + " is of user " + text("%llu", status.st_uid) +
           ", and this process is of user " + text("%llu", geteuid()) +
           ": a fabric is one user's; start softhca-run as this user";
  if ((status.st_mode & 077) != 0)
    return "others may use $SOFTHCA_DIR, " + directory + " (mode " + text("%04llo", status.st_mode & 07777) +
           "): chmod 0700 it, or let softhca-run make it";
  return {};
}

std::string problem_of_layout(const std::string& directory, const SlotHeader& hub) {
  const uint64_t there = hub.magic.load(std::memory_order_acquire);
  return there == 0 || there == kLayoutMagic ? std::string() : layouts_differ(directory, there);
}

std::string problem_of_member(const std::string& directory, SlotHeader& hub) {
  if (const uint64_t there = agree(hub.magic, kLayoutMagic); there != kLayoutMagic)
    return layouts_differ(directory, there);
  const uint64_t mine = pid_namespace();
  const uint64_t there = agree(hub.pid_namespace, mine);
  if (there == mine || mine == 0) return {};
  return "the fabric in " + directory + " is of another PID namespace (pid:[" + text("%llu", there) +
         "], this process is in " + "pid:[" + text("%llu", mine) +
         "]): start softhca-run inside of the container, or let the containers share the " + "namespace";
}

}  // namespace softhca
