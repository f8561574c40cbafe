# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The counters, read through MPI_T.

# counts [MPIRUN ARGUMENT...] -- [--one-sided] NAME=LEAST[-MOST]... : sums over two processes, after traffic of a known amount.
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
# Four ports, and with X queues two directions of each: a pair of processes has one for all, or, where both begin at once, each has one;
# and one more on a machine that stands still for a second.
case_counters_of_tcp_connections() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices of two ports here'; exit 77 ;; esac
  new_fabric --devices 2 --set ports=2
  counts --mca btl_fabric_cpc_include oob -- connections_made=8 tcp_connections_opened=1-3 || return 1
  [ "$link" != ib ] ||
    counts --mca btl_fabric_receive_queues X,4096,256:X,65536,64 -- connections_made=8 tcp_connections_opened=1-3
}
case_counters_of_silence() { # both are asked in four of the five seconds, or nearly so
  counts --mca btl_fabric_keepalive 1 -- --idle keepalives=4 connections_failed=0-0 &&
    counts --mca btl_fabric_keepalive 0 -- --idle keepalives=0-0
}
case_counters_of_messages() { # 3000 of 64 bytes each, the first of which wait for the connection
  counts -- messages_received=3000 bytes_received=192000 bytes_sent=192000 messages_sent_inline=1 waits_for_connection=1 &&
    counts --mca btl_fabric_max_inline_data 0 --mca btl_fabric_coalesce_size 0 -- \
      messages_sent_inline=0-0 messages_sent_copied=3000
}
case_counters_of_packets() { # the same messages: 28 fit in a packet of 4 KiB, with the headers of the PML
  counts --mca btl_fabric_coalesce_size 4096 -- messages_coalesced=1000 packets_coalesced=20-1000 &&
    counts --mca btl_fabric_coalesce_size 0 -- messages_coalesced=0-0 packets_coalesced=0-0
}
# Of 1, 2, 4 ... messages; or 744 in each. In queues that have all credits from the start: what waits for one is filled.
case_counters_of_early_packets() {
  local settings=(--mca btl_fabric_coalesce_size 65536 --mca btl_fabric_receive_queues P,65536,256,192,128,4,256)
  counts "${settings[@]}" --mca btl_fabric_coalesce_first 1 -- messages_coalesced=1000 packets_coalesced=10 &&
    counts "${settings[@]}" --mca btl_fabric_coalesce_first 0 -- messages_coalesced=1000 packets_coalesced=1-8
}
case_counters_of_directed_messages() { # by rule; ob1 names no context
  counts --mca btl_fabric_rx_contexts 3 --mca btl_fabric_rx_steering 'tag=match:2' -- \
    messages_directed_by_rule=3000 messages_directed_by_index=0-0 messages_left_to_a_context=0-0 messages_received=3000 &&
    counts --mca btl_fabric_rx_contexts 3 -- messages_directed_by_rule=0-0
}
# Without RDMA the large messages go in fragments, headers of the PML included: 128 and some of 64 KiB, or 1024 and some of 8 KiB.
case_counters_of_fragments() {
  counts --mca btl_fabric_flags 1 -- messages_received=3128-3300 &&
    counts --mca btl_fabric_flags 1 --mca btl_fabric_max_send_size 8192 -- messages_received=4024-4300
}
case_counters_of_a_full_send_queue() {
  [ "$link" != iwarp ] || { echo 'SKIP on iWARP shared queues are run as P queues, whose senders wait for credits'; exit 77; }
  counts --mca btl_fabric_receive_queues S,4096,256,192,1:S,65536,64 --mca btl_fabric_coalesce_size 0 -- waits_for_slot=1000
}
# What the first queue has borrowed, the second one needs: there is room for 256 that share. A queue pair has 8 of its own.
case_counters_of_completions_that_are_shared() {
  local few='P,64,256:P,4096,256:P,65536,16 --mca btl_fabric_cq_size 1024 --mca btl_fabric_cq_resize 0'
  # shellcheck disable=SC2086 # several words
  counts --mca btl_fabric_coalesce_size 0 --mca btl_fabric_receive_queues $few -- completions_borrowed=1
}
# A queue of 16 receives becomes one of 256, by doubling; the two processes send each other 1,500 messages at once.
case_counters_of_queues_that_grow() {
  counts --mca btl_fabric_coalesce_size 0 -- receive_queues_grown=1 && counts --mca btl_fabric_coalesce_size 0 \
    --mca btl_fabric_receive_queues P,65536,256,192,128,4,256 -- receive_queues_grown=0-0
}
case_counters_of_puts_and_gets() {
  counts --mca osc rdma -- --one-sided puts=200-200 put_bytes=819200-819200 gets=200-200 get_bytes=819200-819200 &&
    counts --mca osc rdma --mca btl_fabric_rdma_depth 1 -- --one-sided rdma_queued=300 puts=200-200 gets=200-200
}
# Each read is followed by a message that says so, and there is one credit for them.
case_counters_of_reads_that_are_held() {
  counts --mca btl_fabric_receive_queues P,256,1:P,65536,8 -- --at-once rdma_held=1
}
case_counters_of_atomics_as_messages() {
  counts --mca osc rdma --mca btl_fabric_device_atomics 0 -- \
    --one-sided atomics_by_message=200-200 atomics_executed=200-200 atomics_by_device=0-0
}
case_counters_of_atomics_by_the_device() { # if it has any
  local wanted='atomics_by_device=200-200 atomics_by_message=0-0 atomics_executed=0-0'
  [ "$link" != iwarp ] || wanted='atomics_by_device=0-0 atomics_by_message=200-200 atomics_executed=200-200'
  # shellcheck disable=SC2086 # several words
  counts --mca osc rdma --mca btl_fabric_device_atomics 1 -- --one-sided $wanted
}
# Messages that wait have buffers, 3000 here; the receiver has a few. A registration is of as many as are made at once.
case_counters_of_buffers() {
  local few='S,4096,16,12,2:S,65536,16 --mca btl_fabric_coalesce_size 0 --mca btl_fabric_free_list_max 0'
  [ "$link" != iwarp ] || few='P,4096,16:P,65536,8 --mca btl_fabric_coalesce_size 0 --mca btl_fabric_free_list_max 0'
  # shellcheck disable=SC2086 # several words
  counts --mca btl_fabric_receive_queues $few -- registrations=80 &&
    counts --mca btl_fabric_receive_queues $few --mca btl_fabric_free_list_num 4000 -- registrations=0-60 &&
    counts --mca btl_fabric_receive_queues $few --mca btl_fabric_free_list_inc 2 -- registrations=1000
}
case_counters_of_missing_buffers() { # two at a time, and what is sent from them takes a while
  counts --mca btl_fabric_free_list_max 2 --mca btl_fabric_free_list_num 2 --mca btl_fabric_coalesce_size 0 \
    --mca btl_fabric_max_inline_data 0 -- waits_for_buffer=1 &&
    counts --mca btl_fabric_free_list_max 0 -- waits_for_buffer=0-0
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
# A thread of the program reads tx_size_left and rx_size_left while others work.
levels() { # [MPIRUN ARGUMENT...]
  stock check_levels && fabric 3 "$@" "$programs/check_levels" ${grows+"grows"} && says 'levels are right'
}
case_levels() { levels; }
case_levels_of_p_queues() { levels --mca btl_fabric_receive_queues P,4096,16:P,65536,8; }
case_levels_of_queues_that_grow() { # and with them the memory of a connection
  local grows=yes
  levels --mca btl_fabric_coalesce_size 0 --mca btl_fabric_receive_queues P,4096,256:P,65536,8
}
case_levels_with_transmit_contexts() { levels --mca btl_fabric_tx_contexts 2; }
case_levels_of_x_queues() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no XRC'; exit 77; }
  [ "$link" = ib ] || { echo 'SKIP xoob is tried on InfiniBand'; exit 77; }
  levels --mca btl_fabric_receive_queues "$x_queues"
}
# within_the_grant REGIONS NP LEAST [MPIRUN ARGUMENT...] : a job on a device, or DEVICES, with so many memory regions, of which each
# process has its part, and meets the limit so many times at least.
within_the_grant() {
  local part=$(($1 / $2)) devices=${DEVICES:-1}
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with few memory regions'; exit 77 ;; esac
  new_fabric --devices "$devices" --set "max_mrs=$1"
  stock check_regions && fabric "$2" --mca mpi_leave_pinned 1 --mca btl_base_verbose 10 "${@:4}" "$programs/check_regions" $part "$3" "$devices" &&
    says 'regions are right' && says "memory regions: $part ($1 of the device, shared by $2 processes of this node)"
}
few_buffers='P,4096,16:P,65536,8'
case_memory_regions_within_the_grant() { within_the_grant 160 2 1; }
case_memory_regions_within_a_tiny_grant() { within_the_grant 40 2 10 --mca btl_fabric_receive_queues $few_buffers; }
case_memory_regions_shared_by_four() { within_the_grant 120 4 10 --mca btl_fabric_receive_queues $few_buffers; }
# Messages are read by their receivers and written by their senders, both at once: neither waits for the other's regions for ever.
case_memory_regions_of_two_devices() { DEVICES=2 within_the_grant 120 4 10 --mca btl_fabric_receive_queues $few_buffers; }
case_memory_regions_of_transmit_contexts() {
  within_the_grant 60 2 10 --mca btl_fabric_receive_queues $few_buffers --mca btl_fabric_tx_contexts 2
}
case_memory_regions_registered_anew() { # for each read
  within_the_grant 40 2 10 --mca btl_fabric_receive_queues $few_buffers --mca btl_fabric_force_mr 1
}
case_memory_regions_of_threads() { # that look for regions, make room for others and release memory at the same time
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with few memory regions'; exit 77 ;; esac
  local time
  new_fabric --set max_mrs=160
  for time in 1 2 3; do
    stock check_region_threads && fabric 2 "$programs/check_region_threads" 8 && says 'every thread has its messages' || return 1
  done
}
case_memory_regions_of_one_sided_operations() {
  within_the_grant 40 2 10 --mca btl_fabric_receive_queues $few_buffers &&
    fabric 2 --mca osc rdma --mca btl_fabric_receive_queues $few_buffers "$check" --rma --max 65536 && says 'checks passed'
}
