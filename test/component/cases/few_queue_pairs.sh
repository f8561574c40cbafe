# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Processes with more peers than queue pairs: idle connections make room for those that are wanted.

four_queues=P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64
# few PROCESSES QUEUE_PAIRS [MPIRUN ARGUMENT...] -- CHECK_MPI ARGUMENT... : each with so many queue pairs
few() {
  local -x OMPI_MCA_btl_fabric_dump_signal=USR1 # for what is slow (test/component/limited)
  local processes=$1 settings=(--mca btl_fabric_max_queue_pairs "$2" --mca btl_base_verbose 1 --mca btl_fabric_if_include "$dev_a")
  shift 2
  while [ "$1" != -- ]; do
    settings+=("$1")
    shift
  done
  fabric "$processes" "${settings[@]}" "$check" "${@:2}" && says 'checks passed' && says 'idle ones make room for them' &&
    says_not 'had broken'
}
# Everybody with everybody, with queue pairs for half of the peers, or two, by every method.
case_few_queue_pairs() {
  stock check_few_queue_pairs || return 1
  local method
  for method in $(methods); do
    fabric 6 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_max_queue_pairs 3 \
      --mca btl_fabric_receive_queues S,12288,256 "$programs/check_few_queue_pairs" 40 40 && says 'every message is right' &&
      fabric 6 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_max_queue_pairs 8 \
        --mca btl_fabric_receive_queues $four_queues "$programs/check_few_queue_pairs" 40 40 && says 'every message is right' ||
      { echo "by $method"; return 1; }
  done
}
case_few_queue_pairs_for_all_kinds_of_messages() {
  few 6 3 --mca btl_fabric_receive_queues S,12288,256 -- --max 65536 --flood 200 &&
    few 6 8 --mca btl_fabric_receive_queues $four_queues -- --max 65536 --flood 200
}
# Memory for shared receives and three connections.
case_few_queue_pairs_within_a_budget() {
  [ "$link" != iwarp ] || { echo 'SKIP on iWARP every peer has receives of its own, of which three take more'; exit 77; }
  stock check_few_queue_pairs && fabric 8 --mca btl_fabric_memory_budget 860000 --mca btl_fabric_if_include "$dev_a" --mca btl_base_verbose 1 \
    "$programs/check_few_queue_pairs" 10 10 && says 'every message is right' && says 'idle connections make room for others' &&
    says_not 'than btl_fabric_memory_budget allows'
}
case_few_queue_pairs_one_sided() {
  few 5 8 --mca osc rdma --mca btl_fabric_receive_queues $four_queues -- --rma --max 65536
}
case_few_queue_pairs_of_threads() {
  few 5 8 --mca btl_fabric_receive_queues $four_queues -- --threads 2 --max 16384 --flood 20
}
case_few_queue_pairs_of_contexts() {
  few 5 8 --mca btl_fabric_receive_queues $four_queues --mca btl_fabric_tx_contexts 2 -- --max 32768 --flood 100
}
case_few_queue_pairs_and_spawn() {
  few 4 8 --mca btl_fabric_receive_queues $four_queues -- --spawn
}
# Those of one port may hold what connections through the other wait for.
case_few_queue_pairs_of_two_ports() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with few queue pairs'; exit 77 ;; esac
  new_fabric --set ports=2 --set max_qps=18
  local seed
  stock check_few_queue_pairs && for seed in 1 2 3; do
    fabric 9 --mca btl_fabric_receive_queues $four_queues "$programs/check_few_queue_pairs" $((10 * seed)) 1 && says 'every message is right' ||
      return 1
  done
}
# The device refuses, of whose queue pairs others have more than their part.
case_few_queue_pairs_of_the_device() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices with few queue pairs'; exit 77 ;; esac
  new_fabric --set max_qps=18
  fabric 6 --mca btl_fabric_receive_queues $four_queues --mca btl_base_verbose 1 "$check" --max 65536 --flood 200 && says 'checks passed' &&
    says 'idle ones make room for them'
}
# Messages that wait for a connection hold all buffers there are, and what gives a connection up, or keeps it, needs none of them.
case_few_queue_pairs_and_buffers() {
  stock check_all_at_once || return 1
  local method
  for method in $(methods); do
    fabric 4 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_max_queue_pairs 2 \
      "$programs/check_all_at_once" 2000 2000 && says 'all messages are right' &&
      fabric 6 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_max_queue_pairs 3 \
        --mca btl_fabric_free_list_max 4 "$programs/check_all_at_once" 100 30000 && says 'all messages are right' ||
      { echo "by $method"; return 1; }
  done
}
