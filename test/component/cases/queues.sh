# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Processes, devices and ports, and lists of receive queues.

case_two_processes() { fabric 2 "$check" && says 'checks passed'; }
case_four_processes_two_devices() {
  watched 4 "$check" $small && says 'checks passed' && carries "$dev_a" && carries "$dev_b"
}
case_eight_processes() { fabric 8 "$check" --max 16384 --flood 500 && says 'checks passed'; }
case_thirty_two_processes() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only on softhca: elsewhere it takes too long'; exit 77 ;; esac
  fabric 32 "$check" --max 4096 --flood 50 && says 'checks passed'
}
# over_devices USED NOT [MPIRUN ARGUMENT...] : a job of two processes over the one device, with not a byte through the other.
over_devices() {
  watched 2 "${@:3}" "$check" $small && says 'checks passed' && carries "$1" && carries_not "$2"
}
case_one_device() { over_devices "$dev_a" "$dev_b" --mca btl_fabric_if_include "$dev_a"; }
case_device_and_port() { over_devices "$dev_b" "$dev_a" --mca btl_fabric_if_include "$dev_b:1"; }
case_excluded_device() { over_devices "$dev_b" "$dev_a" --mca btl_fabric_if_exclude "$dev_a"; }
case_most_ports() { # of each process
  watched 2 --mca btl_fabric_max_ports 1 "$check" $small && says 'checks passed' && carries "$dev_a" && carries_not "$dev_b"
}
# Both ports of a device, in a fabric that has such.
case_two_ports() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with two ports'; exit 77 ;; esac
  new_fabric --ports 2
  watched 2 "$check" $small && says 'checks passed' && carries softhca0:1 && carries softhca0:2
}
case_between_devices() { # packets really leave one device and enter the other
  fabric_pair if_include="$dev_a" if_include="$dev_b" $small && says 'checks passed'
}
case_chosen_gid() { fabric 2 --mca btl_fabric_gid_index 0 "$check" $small && says 'checks passed'; }

case_queues_all_p() { with_queues 2 P,128,256:P,4096,64:P,65536,32; }
case_queues_all_s() { with_queues 2 S,128,256:S,4096,64:S,65536,32; }
case_queues_s_then_p() { with_queues 2 S,128,256:P,4096,64:S,65536,32; }
case_queues_p_then_s() { with_queues 2 P,65536,16:S,4096,64; }
case_queues_descending() { with_queues 2 S,65536,64:S,4096,64:P,128,64; }
case_queues_tiny_p() { with_queues 4 P,4096,2,1; }
case_queues_one_receive() { with_queues 2 P,4096,1; }
case_queues_tiny_s() { with_queues 2 S,4096,2,1; }
case_queues_sixteen() {
  local list=P,64,8
  for i in $(seq 2 16); do list=$list:P,$((i * 1024)),8; done
  with_queues 2 "$list"
}
case_starved_shared_queue() { # two receives at first: senders meet "receiver not ready" until the limit event brings more
  with_queues 2 'S,4096,512,448,64,2,1'
}

case_packets_hold_back_nothing() { # that is complete
  stock check_bursts || return 1
  fabric 2 --mca btl_fabric_coalesce_size 2048 "$programs/check_bursts" "$work/over" && says 'every burst has arrived'
}
case_reads_in_small_pieces() { # more than wait for room anywhere
  fabric 2 --mca btl_fabric_get_limit 64 --mca btl_fabric_stripe_size 0 "$check" --max 300000 && says 'checks passed'
}
case_packets_of_all_sizes() { # of several messages
  local size
  for size in 0 72 1000 65536; do
    fabric 2 --mca btl_fabric_coalesce_size $size "$check" --max 16384 --flood 2000 && says 'checks passed' || return 1
  done
}
# Queues that each process chooses: by the number of peers, and within a budget.
case_queues_auto() {
  fabric 4 --mca btl_fabric_receive_queues auto --mca btl_base_verbose 1 "$check" $small && says 'checks passed' &&
    says '3 peers, for whom there is room'
}
case_queues_auto_within_a_budget() {
  fabric 3 --mca btl_fabric_receive_queues auto --mca btl_fabric_memory_budget 5000000 --mca btl_base_verbose 1 "$check" $small &&
    says 'checks passed' && says 'receive queues S,12288,'
}
case_queues_auto_beyond_the_budget() {
  fabric 2 --mca btl_fabric_receive_queues auto --mca btl_fabric_memory_budget 1000 "$check" $small && says 'checks passed' &&
    says 'than btl_fabric_memory_budget allows'
}
# One process has four queues, the other one of them.
case_queues_auto_of_two_levels() {
  export OMPI_MCA_btl_fabric_receive_queues=auto
  fabric_pair memory_budget=0 memory_budget=4000000 --max 100000 --flood 1000 && says 'checks passed' && says 'receive queues P,128,' &&
    says 'receive queues S,12288,' && fabric_pair memory_budget=4000000 memory_budget=0 --rma --max 65536 && says 'checks passed'
}
case_queues_auto_of_two_levels_by_rdmacm() {
  export OMPI_MCA_btl_fabric_cpc_include=rdmacm OMPI_MCA_btl_fabric_if_include=$dev_a
  case_queues_auto_of_two_levels
}
# of_many PROCESSES OPTION... -- ARGUMENT... : by auto, on softhca anew, whose device has too few queue pairs for all peers.
of_many() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with few queue pairs'; exit 77 ;; esac
  local processes=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  new_fabric "${options[@]}"
  fabric "$processes" --mca btl_fabric_receive_queues auto --mca btl_base_verbose 1 "${@:2}" && says 'checks passed'
}
share_pairs='processes of a host share queue pairs'
# Each has 5 queue pairs and 7 peers. X queues take two, and two are for peers without.
case_queues_auto_takes_x_queues() {
  need_xrc
  of_many 8 --set max_qps=40 -- "$check" $small && says "the 8 $share_pairs" && says_not 'make room' &&
    of_many 8 --set max_qps=24 -- "$check" $small && says 'make room for others' && says_not "$share_pairs" && # X queues have no room either
    of_many 8 --set max_qps=40 -- --mca osc rdma "$check" --rma --max 65536 && says "the 8 $share_pairs"
}
case_queues_auto_takes_x_queues_for_xoob_alone() { # which connects nothing else
  need_xrc
  fabric 4 --mca btl_base_verbose 1 --mca btl_fabric_cpc_include xoob "$check" $small && says 'checks passed' &&
    says 'only a method that connects X queues is allowed'
}
case_queues_auto_takes_x_queues_by_two_ports() {
  need_xrc
  of_many 8 --devices 2 --set max_qps=40 -- "$check" $small && says "the 8 $share_pairs"
}
case_queues_auto_takes_x_queues_and_spawns() { # processes that have others
  need_xrc
  of_many 8 --set max_qps=40 -- "$check" --spawn && says "the 8 $share_pairs"
}
case_queues_auto_without_xrc() {
  need_xrc
  of_many 8 --set max_qps=40 --set xrc_devices=0 -- "$check" $small && says 'make room for others' && says_not "$share_pairs" &&
    of_many 8 --set max_qps=40 -- --mca btl_fabric_cpc_exclude xoob "$check" $small && says 'make room for others' &&
    says_not "$share_pairs"
}
# Every second process has both devices, or that without XRC, and talks with all by the queue that they have in common.
case_queues_auto_where_one_device_lacks_xrc() {
  need_xrc
  local odd
  # shellcheck disable=SC2016 # for the other bash
  for odd in softhca1 softhca0,softhca1; do
    of_many 8 --devices 2 --set max_qps=40 --set xrc_devices=1 -- bash -c '
      ((OMPI_COMM_WORLD_RANK % 2)) && OMPI_MCA_btl_fabric_if_include=$0 || OMPI_MCA_btl_fabric_if_include=softhca0
      export OMPI_MCA_btl_fabric_if_include; exec "$@"' $odd "$check" $small && says 'make room for others' && says "the 8 $share_pairs" ||
      { echo "with $odd"; return 1; }
  done
}
case_without_inline() { fabric 2 --mca btl_fabric_max_inline_data 0 "$check" $small && says 'checks passed'; }
# Messages that wait for credits may hold all buffers, of which credits that are not sent inline need one too.
case_few_buffers_without_inline() {
  fabric 6 --mca btl_fabric_flags 1 --mca btl_fabric_max_inline_data 0 --mca btl_fabric_receive_queues P,4096,2,1 \
    --mca btl_fabric_free_list_max 4 "$check" --max 65536 --flood 300 && says 'checks passed'
}
# Open MPI 5.0 forgets an ACK that finds no buffer.
case_acks_when_all_buffers_are_out() {
  stock check_acks || return 1
  local few
  for few in 4 16 1024; do
    fabric 3 --mca btl_fabric_free_list_max $few "$programs/check_acks" && says 'as they were sent' || { echo "with $few buffers"; return 1; }
  done
}
# Every endpoint needs more room in the completion queue, which grows; where the device cannot do that, or the user does not
# want it, another is made.
case_small_completion_queues() {
  completion_queues_of "$dev_a" 4 && [ "$made" -eq 4 ] && [ "$grown" -ge 4 ] && return
  echo "4 processes have made $made completion queues, which have grown $grown times"
  return 1
}
case_small_completion_queues_not_resized() {
  completion_queues_of "$dev_a" 4 --mca btl_fabric_cq_resize 0 && [ "$made" -ge 8 ] && [ "$grown" -eq 0 ] && return
  echo "4 processes have made $made completion queues, which have grown $grown times"
  return 1
}
case_iwarp_small_completion_queues() { # siw cannot resize them
  rdma link show 2> /dev/null | grep -q siw0 || { echo 'SKIP there is no soft-iWARP device'; exit 77; }
  completion_queues_of siw0 4 && [ "$made" -ge 8 ] && [ "$grown" -eq 0 ] && return
  echo "4 processes have made $made completion queues, which have grown $grown times"
  return 1
}
completion_queues_of() { # DEVICE NP [MPIRUN ARGUMENT...] : into $made and $grown
  local device=$1
  shift
  watched "$@" --mca btl_fabric_cq_size 600 --mca btl_fabric_receive_queues P,4096,128,,,,128:P,65536,16 \
    --mca btl_fabric_if_include "$device" "$check" $small && says 'checks passed' || return 1
  made=$(cat verbs.* | grep -c '^cq: .* [0-9]\{3,\}$') # another of 2 is made to see what the device can
  grown=$(cat verbs.* | grep -c '^cq grows: ') || true # none
}

case_queues_counted_in_bytes() {
  rma 2 --mca btl_fabric_queue_costs 32,16,32,16,16,32 &&
    fabric 2 --mca btl_fabric_queue_costs 32,16,32 "$check" $small && says 'checks passed'
}
case_bad_queue_costs() {
  fabric 1 --mca btl_fabric_queue_costs 32,16 "$check" $small
  says 'btl_fabric_queue_costs: "32,16" is not op_size,iov_size,alignment'
}
case_large_messages_without_reads() { # ob1 then writes, or sends
  fabric 2 --mca btl_fabric_flags 0x3 "$check" --max 3000000 --flood 100 && says 'checks passed' &&
    fabric 2 --mca btl_fabric_flags 0x1 "$check" --max 3000000 --flood 100 && says 'checks passed'
}

case_endpoints_on_first_contact() { fabric 4 --mca mpi_add_procs_cutoff 0 "$check" $small && says 'checks passed'; }
case_threads() { fabric 2 "$check" --threads 3 && says 'checks passed'; }
