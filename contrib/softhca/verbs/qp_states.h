// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a QP: which attributes ibv_modify_qp has to be given, and which it may be given, for every transition of every
// type. The rules of the InfiniBand specification (volume 1, 10.3.1), as ibv_modify_qp(3) gives them for the first steps.
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

namespace softhca {

// Whether a QP of that type has one other at a time: all but those for datagrams and frames.
constexpr bool is_connected(uint32_t type) {
  static_assert((IBV_QPT_UD & 3) == 0 && (IBV_QPT_RAW_PACKET & 3) == 0);
  static_assert((IBV_QPT_RC & 3) != 0 && (IBV_QPT_UC & 3) != 0 && (IBV_QPT_XRC_SEND & 3) != 0 &&
                (IBV_QPT_XRC_RECV & 3) != 0);
  return (type & 3) != 0;
}

struct QpTransition {
  ibv_qp_type type;
  ibv_qp_state from;
  ibv_qp_state to;
  int required;  // besides IBV_QP_STATE, which may always be given
  int optional;
};

namespace qp_masks {
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitUd = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRetries = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kMigration = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
// What a connected QP may be given once it can receive.
constexpr int kRunning = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kMigration;
constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kSqd = IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | kMigration;
constexpr int kSqdReliable = kSqd | IBV_QP_PORT | IBV_QP_TIMEOUT;
}  // namespace qp_masks

// Of each type: everything but the ways to RESET and ERR, which are the same for all.
inline constexpr auto kQpTransitions = [] {
  using namespace qp_masks;
  return std::to_array<QpTransition>({
      {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
      {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
      {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kPath | kResponder, kRtrOptional},
      {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRetries | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
       kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqdReliable | kRetries | kResponder},

      {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
      {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
      {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kPath, kRtrOptional},
      {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRunning},
      {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning},
      {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning},
      {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqd},
      {IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},

      {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInitUd, 0},
      {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitUd},
      {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},

      {IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},
      {IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PORT},
      {IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},
      {IBV_QPT_RAW_PACKET, IBV_QPS_RTR, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE},
      {IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE},
      {IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_RAW_PACKET, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE},
      {IBV_QPT_RAW_PACKET, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0},
      {IBV_QPT_RAW_PACKET, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE},

      {IBV_QPT_XRC_SEND, IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
      {IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
      {IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR, kPath, kRtrOptional},
      {IBV_QPT_XRC_SEND, IBV_QPS_RTR, IBV_QPS_RTS, kRetries | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, kRunning},
      {IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning},
      {IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning},
      {IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqdReliable | kRetries},

      {IBV_QPT_XRC_RECV, IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
      {IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
      {IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_RTR, kPath | kResponder, kRtrOptional},
      {IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRunning | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqdReliable | kResponder},
  });
}();

constexpr bool has_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  for (const QpTransition& t : kQpTransitions)
    if (t.type == type && t.from == from && t.to == to) return true;
  return false;
}
constexpr const QpTransition* find_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  for (const QpTransition& t : kQpTransitions)
    if (t.type == type && t.from == from && t.to == to) return &t;
  return nullptr;
}

// Whether a QP of that type can go there with these attributes.
constexpr bool may_move(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if (from < IBV_QPS_RESET || from > IBV_QPS_ERR) return false;
  const int attributes = mask & ~static_cast<int>(IBV_QP_STATE);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return attributes == 0 && !(from == IBV_QPS_RESET && to == IBV_QPS_ERR);
  const QpTransition* t = find_transition(type, from, to);
  return t != nullptr && (attributes & t->required) == t->required && (attributes & ~(t->required | t->optional)) == 0;
}

namespace qp_states_checks {
constexpr bool unique() {
  for (size_t i = 0; i < kQpTransitions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (kQpTransitions[i].type == kQpTransitions[j].type && kQpTransitions[i].from == kQpTransitions[j].from &&
          kQpTransitions[i].to == kQpTransitions[j].to)
        return false;
  return true;
}
constexpr bool disjoint() {
  for (const QpTransition& t : kQpTransitions)
    if ((t.required & t.optional) != 0 || ((t.required | t.optional) & IBV_QP_STATE) != 0) return false;
  return true;
}
// Every type can be brought to RTS and back; only unreliable ones have SQE.
constexpr bool complete() {
  for (const ibv_qp_type type :
       {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
    for (const auto& [from, to] : {std::array{IBV_QPS_RESET, IBV_QPS_INIT},
                                   {IBV_QPS_INIT, IBV_QPS_RTR},
                                   {IBV_QPS_RTR, IBV_QPS_RTS},
                                   {IBV_QPS_RTS, IBV_QPS_SQD},
                                   {IBV_QPS_SQD, IBV_QPS_RTS}})
      if (!has_transition(type, from, to)) return false;
    const bool unreliable = type == IBV_QPT_UC || !is_connected(type);
    if (has_transition(type, IBV_QPS_SQE, IBV_QPS_RTS) != unreliable) return false;
  }
  return true;
}
static_assert(unique());
static_assert(disjoint());
static_assert(complete());
}  // namespace qp_states_checks

}  // namespace softhca
