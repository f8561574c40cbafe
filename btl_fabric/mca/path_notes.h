// SPDX-License-Identifier: BSD-3-Clause
//
// Notes by which way each peer is reached, for btl_fabric_report: when the report is written, the connections are gone.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "btl_fabric/mca/job_paths.h"
#include "common/base/identity.h"

namespace fabric {

class Endpoint;
class Module;

/// For all threads.
class PathNotes {
 public:
  /// `endpoint`, of `module`, has been connected by this method. Takes memory: where a connection comes about, not where it carries.
  void note(const Module& module, const Endpoint& endpoint, std::string_view method);
  /// All ways, with the bytes that size_counts.h has counted.
  [[nodiscard]] std::vector<ReportedPath> take() const;

 private:
  /// Each port and context has connections of its own.
  struct Connection {
    ProcessName peer;
    std::uint16_t module = 0;  ///< its number in the modex
    auto operator<=>(const Connection&) const = default;
  };
  struct Note {
    PathWay way;
    std::uint16_t first_module = 0;  ///< of the same port, in the first context: bytes are counted there
  };
  mutable std::mutex mutex_;
  std::map<Connection, Note> notes_;
};

}  // namespace fabric
