# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Eight processes that connect, talk and close again and again, by check_again, while messages get lost and come late and
# communication managers do not answer. 500 rounds are made with a component that keeps a ledger of its credits.

again_faults='drop op=send prob=0.003\ndelay us=1000 prob=0.05\ncm action=silence every=9\n'

one_meeting() { # ROUNDS [KILLED]
  rm -f meeting
  fabric 8 --enable-recovery "${settings[@]}" --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_timeout 12 \
    "$programs/check_again" "$1" "$work/meeting" "${@:2}"
  [ $? -ne 124 ] || { echo 'the job hung'; return 1; }
  says "$1 rounds with each of 7 peers" && says_not 'this process fails' || { grep -m 3 -B 1 'this process fails' out; return 1; }
}
# with_ledger FUNCTION [ARGUMENT...] : with the component in the folder FABRIC_WITH_LEDGER, which was built with --enable-debug.
with_ledger() {
  grep -qsF "a P queue's credit messages" "${FABRIC_WITH_LEDGER-}/mca_btl_fabric.so" ||  # what a ledger says of
    { echo 'SKIP FABRIC_WITH_LEDGER has no component with a ledger'; exit 77; }
  OMPI_MCA_mca_base_component_path=$FABRIC_WITH_LEDGER:${OMPI_MCA_mca_base_component_path#*:} "$@"
}
meetings() {
  btl_user check_again || return 1
  with_faults "$again_faults" by_every_method one_meeting "$@"
}
case_connect_talk_and_close_10_times() { meetings 10; }
case_connect_talk_and_close_500_times() { LIMIT=1200 with_ledger meetings 500; }
# One of them kills itself halfway: the others are told, and go on without it, those that it was connecting with after the
# handshake's timeout. Not with X queues: who sends to the process that is gone loses the queue pair to all of its node.
without_one_that_dies() { # ROUNDS
  local method
  for method in $(methods); do
    settings=(--mca btl_fabric_cpc_include "$method" --mca btl_fabric_connect_retry_time 2000
      --mca btl_fabric_handshake_timeout 10000)
    one_meeting "$1" 5 || { echo "by $method"; return 1; }
  done
}
meetings_without_one_that_dies() { # ROUNDS
  btl_user check_again || return 1
  with_faults "$again_faults" without_one_that_dies "$1"
}
case_connect_talk_and_close_without_one_that_dies() { meetings_without_one_that_dies 10; }
case_connect_talk_and_close_500_times_without_one_that_dies() { LIMIT=1200 with_ledger meetings_without_one_that_dies 500; }
