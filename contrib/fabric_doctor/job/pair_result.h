// SPDX-License-Identifier: BSD-3-Clause
//
// What has come of the attempts between two processes, and what that says of the job.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "contrib/fabric_doctor/report.h"

namespace fabric::doctor {

/// One connection method, between one port of each. As one of the two processes has seen it.
struct ConnectionResult {
  std::string ports;  ///< "softhca0:1 - softhca1:1"
  std::string cpc;
  std::string error;  ///< why there is no connection
  double connect_ms = 0;
  std::string message_error;  ///< why a short message does not come through
  std::uint32_t mtu = 0;      ///< bytes of a full packet
  std::string mtu_error;      ///< why one does not come through
  std::string stream_error;   ///< why many messages do not, though these two have
  double latency_us = 0;      ///< 0: not measured
  double mb_per_s = 0;
};

struct PairResult {
  std::uint32_t a = 0;  ///< the lower rank
  std::uint32_t b = 0;
  std::string names;  ///< "node1 - node2"
  bool is_same_host = false;
  std::string no_ports;                       ///< why no port of the one reaches one of the other
  std::string tcp;                            ///< where a TCP connection came through to, from the process that says so
  std::string tcp_error;                      ///< why none did
  std::string tcp_way;                        ///< "node1 to node2"
  std::vector<ConnectionResult> connections;  ///< of two ports the method that Open MPI would choose comes first
};

/// A device that has failed while the processes tried each other.
struct LostDevice {
  std::uint32_t rank = 0;  ///< of the process that says so
  std::string host;
  std::string device;
};

void to_json(nlohmann::ordered_json& json, const PairResult& pair);
void from_json(const nlohmann::ordered_json& json, PairResult& pair);
void to_json(nlohmann::ordered_json& json, const LostDevice& lost);
void from_json(const nlohmann::ordered_json& json, LostDevice& lost);

/// The checks of the job: what all processes say of their pairs, those of the lower rank and those of the higher. `all_pairs`: how many
/// pairs the job has. What fails on a device that is lost says no more than that.
[[nodiscard]] std::vector<CheckResult> judge_pairs(const std::vector<PairResult>& pairs, std::uint64_t all_pairs,
                                                   const std::vector<LostDevice>& lost = {});

}  // namespace fabric::doctor
