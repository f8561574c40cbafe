// SPDX-License-Identifier: BSD-3-Clause
//
// What the report of a job (btl_fabric_report=FILE.json) has for tuning.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/accounting/receive_queues.h"
#include "common/base/result.h"

namespace fabric::tune {

/// A parameter that was set for the job.
struct Setting {
  std::string name;
  std::string value;
  std::string source;  ///< "environment", "file" or "override"
  std::string file;
};

/// Somebody waited, or did something twice.
struct Wait {
  std::string counter;
  std::string queue;  ///< of which most have waited, or nothing
  std::uint64_t total = 0;
  bool matters = false;
};

/// Numbers up to this, but above half of it.
struct SizeCount {
  std::uint64_t up_to = 0;
  std::uint64_t count = 0;
};

struct Recorded {
  std::uint32_t processes = 0;
  std::size_t hosts = 0;
  std::size_t ports = 0;
  bool is_iwarp = false;         ///< one port at least is
  std::uint64_t operations = 0;  ///< messages, reads, writes and atomics
  ReceiveQueues queues;          ///< as the list says them
  std::map<std::string, std::uint64_t> limits;
  std::vector<Setting> settings;
  std::vector<Wait> waits;
  std::map<std::string, std::uint64_t> totals;
  std::vector<SizeCount> messages;
  std::vector<SizeCount> writes;
  std::vector<SizeCount> reads;
  std::uint64_t most_peers = 0;  ///< that a process has sent to, read or written

  /// Null if it has its default.
  [[nodiscard]] const Setting* setting(const std::string& name) const noexcept;
  /// 0 if it is not told.
  [[nodiscard]] std::uint64_t total(const std::string& counter) const noexcept;
  [[nodiscard]] std::uint64_t limit(const std::string& name) const noexcept;
};

/// The error: what is wrong with it.
[[nodiscard]] Result<Recorded> read_recorded(const nlohmann::ordered_json& report);
[[nodiscard]] Result<Recorded> read_recorded(const std::string& file);

/// "1,234,567"
[[nodiscard]] std::string grouped_digits(std::uint64_t number);

}  // namespace fabric::tune
