// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/usage.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "ctl/fabric_view.h"

namespace softhca {
namespace {

// Strings with a zero behind each, as /proc has command lines and environments.
std::vector<std::string> strings_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> strings;
  for (std::string text; std::getline(file, text, '\0');) strings.push_back(text);
  return strings;
}

std::string program_of(pid_t pid) {
  const std::vector<std::string> words = strings_in("/proc/" + std::to_string(pid) + "/cmdline");
  if (words.empty()) return "?";
  return words[0].substr(words[0].rfind('/') + 1);  // npos + 1 is 0
}

// By what launchers set; the first that is there.
std::string rank_of(pid_t pid) {
  constexpr std::string_view kVariables[] = {
      "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "MV2_COMM_WORLD_RANK=", "SLURM_PROCID="};
  const std::vector<std::string> environment = strings_in("/proc/" + std::to_string(pid) + "/environ");
  for (const std::string_view variable : kVariables)
    for (const std::string& word : environment)
      if (word.compare(0, variable.size(), variable) == 0) return word.substr(variable.size());
  return {};
}

template <typename T>
T field(const unsigned char* entry, size_t offset) {
  T value;
  std::memcpy(&value, entry + offset, sizeof value);
  return value;
}

void add_queue_pair(Usage& usage, const unsigned char* qp) {
  constexpr size_t kArrived = offsetof(QpShared, arrived);
  if (field<uint32_t>(qp, offsetof(QpShared, qp_num)) == 0) return;
  ++usage.queue_pairs;
  if (const auto port = field<uint32_t>(qp, offsetof(QpShared, port_id)); port != 0 && port < kPortIds)
    usage.devices.insert(device_of_port_id(port));
  usage.messages_received += field<uint64_t>(qp, kArrived + offsetof(Traffic, messages));
  usage.bytes_received += field<uint64_t>(qp, kArrived + offsetof(Traffic, bytes_in));
  usage.bytes_sent += field<uint64_t>(qp, kArrived + offsetof(Traffic, bytes_out));
}

void add_sent(Usage& usage, const unsigned char* sent) {
  usage.messages_sent += field<uint64_t>(sent, offsetof(Traffic, messages));
  usage.bytes_received += field<uint64_t>(sent, offsetof(Traffic, bytes_in));
  usage.bytes_sent += field<uint64_t>(sent, offsetof(Traffic, bytes_out));
}

Usage usage_of_slot(FabricView& fabric, unsigned number, const SlotHeader& header) {
  Usage usage{};
  usage.slot = number;
  usage.incarnation = header.incarnation.load();
  usage.node = header.node;
  usage.pid = fabric.owner_of(number);
  usage.program = program_of(usage.pid);
  usage.rank = rank_of(usage.pid);
  usage.messages_received = header.past.messages.load();
  usage.bytes_received = header.past.bytes_in.load();
  usage.bytes_sent = header.past.bytes_out.load();
  fabric.for_each_entry(number, offsetof(Slot, qps), sizeof(QpShared), kQpsPerSlot,
                        [&](size_t, const unsigned char* qp) { add_queue_pair(usage, qp); });
  fabric.for_each_entry(number, offsetof(Slot, sent), sizeof(OwnTraffic), kQpsPerSlot,
                        [&](size_t, const unsigned char* sent) { add_sent(usage, sent); });
  return usage;
}

}  // namespace

std::vector<Usage> usage_of(FabricView& fabric) {
  std::vector<Usage> all;
  fabric.for_each_live([&](unsigned number, Slot& slot) { all.push_back(usage_of_slot(fabric, number, slot.header)); });
  // XRC targets are nobody's: they count for who has made them.
  fabric.for_each_entry(kHubSlot, offsetof(Slot, qps), sizeof(QpShared), kMaxTargets,
                        [&](size_t, const unsigned char* target) {
                          const auto creator = field<uint32_t>(target, offsetof(QpShared, creator));
                          for (Usage& usage : all)
                            if (creator == (usage.slot | usage.incarnation << 16)) add_queue_pair(usage, target);
                        });
  return all;
}

}  // namespace softhca
