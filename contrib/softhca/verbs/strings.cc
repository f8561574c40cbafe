// SPDX-License-Identifier: BSD-3-Clause
// Names of numbers, and rates as numbers.
#include <infiniband/verbs.h>

#include "verbs/export.h"

namespace {

// The name of `value` in a table that begins at 0.
template <size_t kCount>
const char* name_in(const char* const (&names)[kCount], int value) {
  const char* name = value >= 0 && static_cast<size_t>(value) < kCount ? names[value] : nullptr;
  return name != nullptr ? name : "unknown";
}

constexpr const char* kNodeTypes[] = {nullptr,
                                      "InfiniBand channel adapter",
                                      "InfiniBand switch",
                                      "InfiniBand router",
                                      "iWARP NIC",
                                      "usNIC",
                                      "usNIC UDP",
                                      "unspecified"};
constexpr const char* kPortStates[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
constexpr const char* kEvents[] = {"CQ error",
                                   "QP fatal error",
                                   "QP request error",
                                   "QP access error",
                                   "communication established",
                                   "send queue drained",
                                   "path migrated",
                                   "path migration error",
                                   "device fatal error",
                                   "port active",
                                   "port error",
                                   "LID change",
                                   "P_Key change",
                                   "SM change",
                                   "SRQ error",
                                   "SRQ limit reached",
                                   "last WQE reached",
                                   "client reregistration",
                                   "GID change",
                                   "WQ fatal error"};
constexpr const char* kStatuses[] = {"success",
                                     "local length error",
                                     "local QP operation error",
                                     "local EE context operation error",
                                     "local protection error",
                                     "Work Request Flushed Error",
                                     "memory window bind error",
                                     "bad response error",
                                     "local access error",
                                     "remote invalid request error",
                                     "remote access error",
                                     "remote operation error",
                                     "transport retry counter exceeded",
                                     "RNR retry counter exceeded",
                                     "local RDD violation error",
                                     "remote invalid RD request",
                                     "remote aborted error",
                                     "invalid EE context number",
                                     "invalid EE context state",
                                     "fatal error",
                                     "response timeout error",
                                     "general error",
                                     "tag matching error",
                                     "tag matching rendezvous incomplete"};

struct Rate {
  ibv_rate rate;
  int multiple;  // of 2.5 Gbit/s; -1: it has none
  int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},        {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},     {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},     {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, -1, 14062},    {IBV_RATE_56_GBPS, -1, 56250},     {IBV_RATE_112_GBPS, -1, 112500},
    {IBV_RATE_168_GBPS, -1, 168750},  {IBV_RATE_25_GBPS, -1, 25781},     {IBV_RATE_100_GBPS, -1, 103125},
    {IBV_RATE_200_GBPS, -1, 206250},  {IBV_RATE_300_GBPS, -1, 309375},   {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},  {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000}};

template <typename T>
int number_of(ibv_rate rate, T Rate::*member) {
  for (const Rate& r : kRates)
    if (r.rate == rate) return r.*member;
  return -1;
}
template <typename T>
ibv_rate rate_with(T Rate::*member, int number) {
  for (const Rate& r : kRates)
    if (r.*member == number && number > 0) return r.rate;
  return IBV_RATE_MAX;
}

}  // namespace

SOFTHCA_EXPORT const char* ibv_node_type_str(ibv_node_type type) {
  return name_in(kNodeTypes, type);
}
SOFTHCA_EXPORT const char* ibv_port_state_str(ibv_port_state state) {
  return name_in(kPortStates, state);
}
SOFTHCA_EXPORT const char* ibv_event_type_str(ibv_event_type type) {
  return name_in(kEvents, type);
}
SOFTHCA_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return name_in(kStatuses, status);
}

SOFTHCA_EXPORT int ibv_rate_to_mult(ibv_rate rate) {
  return number_of(rate, &Rate::multiple);
}
SOFTHCA_EXPORT ibv_rate mult_to_ibv_rate(int multiple) {
  return rate_with(&Rate::multiple, multiple);
}
SOFTHCA_EXPORT int ibv_rate_to_mbps(ibv_rate rate) {
  return number_of(rate, &Rate::mbps);
}
SOFTHCA_EXPORT ibv_rate mbps_to_ibv_rate(int mbps) {
  return rate_with(&Rate::mbps, mbps);
}
