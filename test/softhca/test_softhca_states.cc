// SPDX-License-Identifier: BSD-3-Clause
//
// The table of QP states: every type, every pair of states, with every attribute missing that is required and every one
// given that is not allowed.
#include "test/unit/check_main.h"
#include "verbs/qp_states.h"

namespace {

using softhca::find_transition;
using softhca::may_move;

constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC,         IBV_QPT_UC,       IBV_QPT_UD,
                                  IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
constexpr int kLastAttribute = 20;  // IBV_QP_DEST_QPN is 1 << 20

template <typename F>
void for_all(F&& each) {
  for (const auto type : kTypes)
    for (const auto from : kStates)
      for (const auto to : kStates) each(type, from, to);
}

bool goes_anywhere(ibv_qp_state to) {
  return to == IBV_QPS_RESET || to == IBV_QPS_ERR;
}

START_TEST(required_is_enough) {
  for_all([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    if (const auto* t = find_transition(type, from, to)) {
      ck_assert_msg(may_move(type, from, to, t->required | IBV_QP_STATE), "%d: %d -> %d", type, from, to);
      ck_assert_msg(may_move(type, from, to, t->required | t->optional | IBV_QP_STATE), "%d: %d -> %d", type, from, to);
    }
  });
}
END_TEST

START_TEST(nothing_required_may_be_missing) {
  for_all([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    const auto* t = find_transition(type, from, to);
    if (t == nullptr) return;
    for (int bit = 0; bit <= kLastAttribute; ++bit)
      if ((t->required & 1 << bit) != 0)
        ck_assert_msg(!may_move(type, from, to, (t->required & ~(1 << bit)) | t->optional | IBV_QP_STATE),
                      "%d: %d -> %d without %#x", type, from, to, 1U << bit);
  });
}
END_TEST

START_TEST(nothing_else_may_be_given) {
  for_all([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    const auto* t = find_transition(type, from, to);
    const int required = t != nullptr ? t->required : 0;
    const int allowed = required | (t != nullptr ? t->optional : 0) | IBV_QP_STATE;
    for (int bit = 0; bit <= kLastAttribute; ++bit)
      if ((allowed & 1 << bit) == 0)
        ck_assert_msg(!may_move(type, from, to, required | 1 << bit | IBV_QP_STATE), "%d: %d -> %d with %#x", type,
                      from, to, 1U << bit);
  });
}
END_TEST

/// What is not in the table is not allowed, but for the ways to RESET and to ERR.
START_TEST(all_other_ways_are_closed) {
  for_all([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    if (find_transition(type, from, to) != nullptr) return;
    const bool open = goes_anywhere(to) && !(from == IBV_QPS_RESET && to == IBV_QPS_ERR);
    ck_assert_msg(may_move(type, from, to, IBV_QP_STATE) == open, "%d: %d -> %d", type, from, to);
  });
}
END_TEST

/// The masks that ibv_modify_qp(3) prints.
START_TEST(manual_page) {
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  constexpr int kUcRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kRcRtr = kUcRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kUdRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  constexpr int kRcRts = kUdRts | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
  const auto exactly = [](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
    const auto* t = find_transition(type, from, to);
    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(t->required | IBV_QP_STATE, mask);
  };
  exactly(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY);
  exactly(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE);
  exactly(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, kUdRts);
  exactly(IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT);
  exactly(IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE);
  exactly(IBV_QPT_RAW_PACKET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE);
  exactly(IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS);
  exactly(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kUcRtr);
  exactly(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, kUdRts);
  exactly(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS);
  exactly(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcRtr);
  exactly(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRcRts);
}
END_TEST

START_TEST(strange_states_and_types) {
  for (const auto to : kStates) ck_assert(!may_move(IBV_QPT_RC, IBV_QPS_UNKNOWN, to, IBV_QP_STATE));
  ck_assert(!may_move(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_UNKNOWN, IBV_QP_STATE));
  ck_assert(!may_move(IBV_QPT_DRIVER, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT));
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("softhca_states",
                                 {required_is_enough, nothing_required_may_be_missing, nothing_else_may_be_given,
                                  all_other_ways_are_closed, manual_page, strange_states_and_types});
}
