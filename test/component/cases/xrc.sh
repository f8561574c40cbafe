# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# X queues, which processes of a host share a sender's queue pair for. softhca has several hosts where one is needed.

x_queues=X,256,512:X,4096,512:X,65536,128
fabric_options=() # of softhca-run
need_xrc() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no XRC'; exit 77; }
  [ ${#launcher[@]} -gt 0 ] || ibv_devinfo -v -d "$dev_a" 2> /dev/null | grep -qw XRC || { echo "SKIP $dev_a has no XRC"; exit 77; }
}
xrc() { # NP [MPIRUN ARGUMENT...]
  need_xrc
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_receive_queues "$x_queues" "$@"
}
# on_hosts HOSTS DEVICES COMMAND... : on softhca anew, with so many hosts that processes are spread over in turn.
on_hosts() {
  need_xrc
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has several hosts'; exit 77 ;; esac
  new_fabric --nodes "$1" --devices "$2" "${fabric_options[@]}"
  "${@:3}"
}
hosts_check() { # NP ARGUMENT...
  xrc "$1" "$check" "${@:2}" && says 'checks passed'
}

case_xrc_two_processes() { xrc 2 "$check" && says 'checks passed'; }
case_xrc_four_processes_two_devices() { xrc 4 "$check" $small && says 'checks passed'; }
case_xrc_eight_processes() { xrc 8 "$check" --max 16384 --flood 500 && says 'checks passed'; }
case_xrc_endpoints_on_first_contact() { xrc 4 --mca mpi_add_procs_cutoff 0 "$check" $small && says 'checks passed'; }
case_xrc_queues() {
  need_xrc
  local list
  for list in X,4096,1 X,4096,2 X,4096,2,1 X,65536,64:X,128,256 X,4096,2,1:X,70000,2 X,4096,512,448,64,2,1; do
    fabric 4 --mca btl_fabric_receive_queues "$list" "$check" --max 65536 --flood 500 && says 'checks passed' ||
      { echo "with $list"; return 1; }
  done
}
case_xrc_goodbyes_to_who_has_gone() { # all say goodbye to all over the queue pair to the node
  need_xrc
  local i
  for i in 1 2 3 4 5; do
    fabric 12 --mca btl_fabric_receive_queues X,65536,1 "$check" --max 100 --flood 5 && says 'checks passed' ||
      { echo "at attempt $i"; return 1; }
  done
}
case_xrc_without_inline() { xrc 3 --mca btl_fabric_max_inline_data 0 "$check" $small && says 'checks passed'; }
case_xrc_small_completion_queues() { # each queue's receives need a completion queue of their own
  xrc 4 --mca btl_fabric_cq_size 700 --mca btl_fabric_rdma_depth 16 "$check" $small && says 'checks passed'
}
case_xrc_threads() { xrc 2 "$check" --threads 3 && says 'checks passed'; }
case_xrc_spawn() { xrc 2 "$check" --spawn && says 'checks passed'; }
case_xrc_peer_computes() { xrc 3 "$check" --compute 3 && says 'checks passed'; }
case_xrc_killed_peer() { kills_a_peer xrc; }
# Who only sends says goodbye to a process that is still there, however late: nobody acknowledges what goes to a target that is gone.
case_xrc_one_way_ends() {
  need_xrc
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca delays packets on demand'; exit 77 ;; esac
  stock check_first || return 1
  echo 'delay us=500000 op=send' | ctl faults - || return 1
  local before=$SECONDS
  xrc 2 --mca btl_fabric_goodbye_timeout 30000 --mca btl_fabric_timeout 22 "$programs/check_first"
  local status=$?
  ctl faults - < /dev/null > /dev/null
  [ $((SECONDS - before)) -lt 30 ] || { echo "MPI_Finalize waited for btl_fabric_goodbye_timeout"; return 1; }
  return $status
}
case_xrc_messages_to_a_dead_peer_end() {
  need_xrc
  messages_to_a_dead_peer X,128,8:X,4096,16,12,4:X,65536,16,12,4 xoob
}
case_xrc_rma() { xrc 4 --mca osc rdma "$check" --rma --max 65536 && says 'checks passed'; }
case_xrc_rma_between_hosts() {
  need_xrc
  OMPI_MCA_osc=rdma OMPI_MCA_btl_fabric_receive_queues=$x_queues between_hosts 4 "$check" --rma --no-dynamic --max 65536 &&
    says 'checks passed'
}
case_xrc_rma_one_at_a_time() {
  xrc 3 --mca osc rdma --mca btl_fabric_rdma_depth 1 "$check" --rma --max 65536 && says 'checks passed'
}
case_xrc_rma_through_narrow_queues() {
  need_xrc
  fabric 4 --mca osc rdma --mca btl_fabric_receive_queues X,4096,2,1 --mca btl_fabric_rdma_depth 2 "$check" --rma --max 65536 &&
    says 'checks passed'
}
case_xrc_rma_registers_everything() {
  xrc 3 --mca osc rdma --mca btl_fabric_force_mr 1 "$check" --rma --max 65536 && says 'checks passed'
}
case_xrc_hosts() { on_hosts 2 1 hosts_check 8 $small; }
case_xrc_hosts_two_devices() { on_hosts 2 2 hosts_check 4 $small; }
case_xrc_hosts_threads() { on_hosts 2 1 hosts_check 4 --threads 3; }
case_xrc_hosts_spawn() { on_hosts 2 1 hosts_check 2 --spawn; }
case_xrc_hosts_rma() {
  on_hosts 2 1 xrc 8 --mca osc rdma "$check" --rma --max 65536 && says 'checks passed'
}
case_xrc_hosts_thirty_two_processes() {
  on_hosts 4 1 xrc 32 --mca mpi_add_procs_cutoff 0 "$check" --max 4096 --flood 50 && says 'checks passed'
}
case_xrc_failed_sender() { # all who share it have failed; one says so, and the job ends
  echo 'error status=IBV_WC_RETRY_EXC_ERR op=send nth=2000' > faults
  fabric_options=(--faults "$work/faults")
  on_hosts 2 1 xrc 4 --mca btl_fabric_heal_timeout 0 "$check" --max 4096 --flood 20000
  local status=$?
  [ $status -ne 124 ] || { echo 'the job hung'; return 1; }
  refuses $status && says 'X queues, QPN 0x' && says 'transport retry counter exceeded'
}
# xrc_heals NP [OPTION]... : as heals. What breaks is the queue pair to a host, for all who send through it, one way at a time.
xrc_heals() {
  need_xrc
  local executed
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed op=send prob=0.003"
    xrc "$1" --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 "${@:2}" && says 'checks passed' && says_healed ||
      { echo "executed=$executed"; return 1; }
  done
}
case_xrc_heals_two_processes() { xrc_heals 2 "$check" $small; }
case_xrc_heals_six_processes() { xrc_heals 6 "$check" --max 16384 --flood 500; }
case_xrc_heals_two_devices() { xrc_heals 3 --mca btl_fabric_if_include "$dev_a,$dev_b" "$check" $small; }
case_xrc_heals_without_inline() { xrc_heals 3 --mca btl_fabric_max_inline_data 0 "$check" $small; }
case_xrc_heals_without_packets() { xrc_heals 3 --mca btl_fabric_coalesce_size 0 "$check" $small; }
case_xrc_heals_few_buffers() { xrc_heals 3 --mca btl_fabric_free_list_max 16 "$check" $small; }
case_xrc_heals_narrow_queues() {
  need_xrc
  x_queues=X,256,16,12,4:X,70000,4,3,2 xrc_heals 4 "$check" --max 16384 --flood 500
}
case_xrc_heals_contexts() { xrc_heals 2 --mca btl_fabric_tx_contexts 2 "$check" $small; }
case_xrc_heals_on_first_contact() { xrc_heals 3 --mca mpi_add_procs_cutoff 0 "$check" $small; }
case_xrc_heals_hosts() {
  need_xrc
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has several hosts'; exit 77 ;; esac
  echo 'error status=RETRY_EXC_ERR op=send prob=0.003' > faults
  fabric_options=(--faults "$work/faults")
  on_hosts 2 1 xrc 6 --mca btl_base_verbose 1 "$check" --max 16384 --flood 500 && says 'checks passed' && says_healed
}
case_xrc_heals_rma() {
  need_xrc
  local executed
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed prob=0.003"
    xrc 3 --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 --mca btl_fabric_device_atomics 0 --mca osc rdma "$check" --rma --max 65536 &&
      says 'checks passed' && says_healed || { echo "executed=$executed"; return 1; }
  done
}
case_xrc_heals_what_is_flushed() {
  need_xrc
  breaks 'error status=WR_FLUSH_ERR op=send prob=0.003'
  xrc 3 --mca btl_base_verbose 1 "$check" $small && says 'checks passed' && says_healed
}
# Rank 1 sends nothing: it connects to tell what has arrived.
case_xrc_heals_one_way() {
  need_xrc
  local nth
  stock check_first || return 1
  for nth in 1 2; do # the message, or what follows it
    breaks "error status=RETRY_EXC_ERR op=send nth=$nth"
    xrc 2 --mca btl_base_verbose 1 "$programs/check_first" && says 'the first message has come' || { echo "nth=$nth"; return 1; }
  done
}
# For a minute, with failures all the time.
case_xrc_heals_for_a_minute() {
  need_xrc
  breaks 'error status=RETRY_EXC_ERR op=send prob=0.001'
  stock check_soak && xrc 4 --mca btl_base_verbose 1 "$programs/check_soak" 60 && says 'as they were sent' && says_healed
}
# count_queue_pairs HOSTS PROCESSES : of a host; what fabric_info promises is what there is.
count_queue_pairs() {
  stock check_queue_pairs || return 1
  local np=$(($1 * $2)) promised senders targets
  promised=$("$FABRIC_BUILD/contrib/fabric_info/fabric_info" --receive-queues "$x_queues" --hosts "$1" --processes "$2" --json |
    sed -n '/^  "queues"/,$p')
  senders=$(sed -n 's/.*"senders_per_process": \([0-9]*\).*/\1/p' <<< "$promised")
  targets=$(sed -n 's/.*"targets_per_host": \([0-9]*\).*/\1/p' <<< "$promised")
  rm -rf meeting && mkdir meeting
  xrc "$np" "$programs/check_queue_pairs" "$work/meeting" || return 1
  # Every pair of processes has a connection each way; a target that is not made for it is one that was there.
  says "senders $((np * senders)) targets $(($1 * targets)) opened $((np * (np - 1) - $1 * targets)) connections $((np * (np - 1)))"
}
case_xrc_queue_pairs() {
  local shape
  for shape in '1 2' '1 6' '2 1' '2 4' '3 3'; do
    on_hosts "${shape% *}" 1 count_queue_pairs $shape || { echo "with hosts and processes of each: $shape"; return 1; }
  done
}
case_xrc_counters_of_a_starved_queue() {
  need_xrc
  counts --mca btl_fabric_receive_queues X,4096,512,448,64,2,1 -- srq_limit_events=1 xrc_senders=2-4
}
case_xrc_exchanges_no_cts() {
  need_xrc
  counts --mca btl_fabric_receive_queues "$x_queues" -- cts_messages=0-0 connections_failed=0-0
}
case_xrc_trace() {
  need_xrc
  traced --mca btl_fabric_receive_queues "$x_queues" && "$here/check_trace" "$work"/trace.[0-3]
}
case_xrc_mixed_with_others() {
  fabric 1 --mca btl_fabric_receive_queues X,128,256:S,65536,32 "$check" $small
  says 'X queues cannot be mixed with P or S queues'
}
case_xrc_by_other_methods() {
  need_xrc
  fabric 2 --mca btl_fabric_receive_queues "$x_queues" --mca btl_fabric_cpc_exclude xoob "$check" $small
  refuses $? && says 'xoob: btl_fabric_cpc_include or cpc_exclude leaves it out' && says 'X queues'
}
case_xrc_method_without_x_queues() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no XRC'; exit 77; }
  fabric 2 --mca btl_fabric_cpc_include xoob --mca btl_fabric_receive_queues S,12288,64 "$check" $small
  refuses $? && says 'xoob: '
}
case_xrc_on_a_device_without() {
  [ "$link" = iwarp ] || { echo 'SKIP the device has XRC'; exit 77; }
  fabric 2 --mca btl_fabric_receive_queues "$x_queues" "$check" $small
  refuses $? && says 'it has no XRC, and btl_fabric_receive_queues has X queues: use S queues'
}
