# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The counters, read through MPI_T.

# counts [MPIRUN ARGUMENT...] -- NAME=LEAST[-MOST]... : sums over two processes, after traffic of a known amount.
counts() {
  local settings=()
  while [ "$1" != -- ]; do
    settings+=("$1")
    shift
  done
  stock check_counters || return 1
  fabric 2 "${settings[@]}" "$programs/check_counters" "${@:2}" && says 'counters are right'
}
case_counters() {
  counts -- connections_failed=0-0 connections_made=1 registrations=1 unknown_peers_refused=0-0
}
case_counters_of_reads() { # the large messages, which the receiver reads
  counts -- gets=8 get_bytes=8388608-8388608 puts=0-0
}
case_counters_of_writes() { # the sender writes them where the receiver says
  counts --mca btl_fabric_flags 0x3 -- gets=0-0 puts=8 put_bytes=1-8388608
}
case_counters_of_copies() {
  counts --mca btl_fabric_flags 0x1 --mca btl_fabric_in_place_size 0 -- \
    gets=0-0 puts=0-0 messages_sent_in_place=0-0 messages_sent_copied=128
}
case_counters_of_messages_in_place() { # 64 KiB each
  counts --mca btl_fabric_flags 0x1 -- gets=0-0 puts=0-0 messages_sent_in_place=128
}
case_memory_given_back() { # and had anew: its registration must not be the old one
  stock check_heap && fabric 2 "$programs/check_heap" && says 'times registered anew'
}
case_counters_of_a_starved_queue() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no receiver that is not ready, so its queues are not shared'; exit 77; }
  counts --mca btl_fabric_receive_queues S,4096,512,448,64,2,1 -- srq_limit_events=1
}
case_counters_without_shared_queues() {
  counts --mca btl_fabric_receive_queues P,4096,16:P,65536,8 -- srq_limit_events=0-0 waits_for_credit=1 credit_messages=1
}
case_counters_without_cts() { # OOB's answer says that the receives are posted
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  counts --mca btl_fabric_cpc_include oob -- cts_messages=0-0
}
case_counters_with_cts() { # one from each process on each connection
  counts --mca btl_fabric_cpc_include rdmacm --mca btl_fabric_if_include "$dev_a" -- \
    cts_messages=2-2 connections_made=2-2
}
