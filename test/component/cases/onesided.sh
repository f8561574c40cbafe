# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# One-sided communication, by osc/rdma alone.

rma() { # NP [MPIRUN ARGUMENT...]
  fabric "$1" --mca osc rdma "${@:2}" "$check" --rma --max 65536 && says 'checks passed'
}
case_rma_two_processes() { rma 2; }
case_rma_four_processes() { rma 4; }
case_rma_one_device() { rma 3 --mca btl_fabric_if_include "$dev_a"; }
case_rma_atomics_as_messages() { case_counters_of_atomics_as_messages && rma 3 --mca btl_fabric_device_atomics 0; }
case_rma_registers_everything() { rma 2 --mca btl_fabric_force_mr 1; }
case_rma_one_at_a_time() { rma 2 --mca btl_fabric_rdma_depth 1; }
case_rma_without_inline() { rma 2 --mca btl_fabric_max_inline_data 0; }
case_rma_queues_all_p() { rma 2 --mca btl_fabric_receive_queues P,4096,2,1:P,65536,8; }
case_rma_atomics_through_a_narrow_queue() {
  rma 3 --mca btl_fabric_device_atomics 0 --mca btl_fabric_receive_queues S,4096,2,1
}
# every_operation NP [MPIRUN ARGUMENT...] : all predefined operations on all types, everybody on everybody's memory.
every_operation() {
  stock check_accumulate && fabric "$1" --mca osc rdma "${@:2}" "$programs/check_accumulate" && says 'checks passed'
}
case_rma_every_operation() { every_operation 4; }
case_rma_every_operation_between_hosts() {
  stock check_accumulate && OMPI_MCA_osc=rdma between_hosts 4 "$programs/check_accumulate" && says 'checks passed'
}
# between_hosts NP PROGRAM [ARGUMENT...] : the job believes that its processes are on two hosts, so that atomics are the device's
# (param_table.h, device_atomics): Open MPI's daemons get host names of their own.
between_hosts() {
  local np=$1
  shift
  case $dev_a in softhca*) ;; *) echo 'SKIP elsewhere contrib/vm/two-hosts does it'; exit 77 ;; esac
  unshare --uts true 2> /dev/null || { echo 'SKIP no namespaces can be made here'; exit 77; }
  cat > agent << 'EOF'
#!/bin/bash
exec unshare --uts bash -c 'hostname "$1"; shift; eval "$*"' - "$@"
EOF
  chmod +x agent
  # shellcheck disable=SC2016 # for the other bash
  runs mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
    --mca btl fabric,self --mca orte_do_not_resolve 1 --mca plm_rsh_agent "$PWD/agent" --host "host-a:$np,host-b:$np" \
    --map-by node -np "$np" -x LD_PRELOAD -x SOFTHCA_DIR -x OMPI_MCA_mca_base_component_path \
    bash -c 'echo "on $(hostname)"; exec "$@"' - "$@" && says 'on host-a' && says 'on host-b'
}
# Open MPI 4.1.4 waits for ever in dynamic windows between hosts (open-mpi/ompi pull request 10518, in 4.1.5).
case_rma_between_hosts() {
  OMPI_MCA_osc=rdma between_hosts 4 "$check" --rma --no-dynamic --max 65536 && says 'checks passed'
}
# osc/rdma has a way of its own for a process that is alone on its host.
case_rma_one_process_on_each_host() {
  OMPI_MCA_osc=rdma between_hosts 2 "$check" --rma --no-dynamic --max 65536 && says 'checks passed' &&
    stock check_swaps && OMPI_MCA_osc=rdma between_hosts 2 "$programs/check_swaps" 10000 && says 'checks passed'
}
case_rma_swaps() {
  stock check_swaps && fabric 4 --mca osc rdma "$programs/check_swaps" 10000 && says 'checks passed'
}
# Both ways to memory of process 0: from its host and from another. See fit_rdma in btl_fabric/mca/rdma.cc.
case_rma_swaps_between_hosts() {
  stock check_swaps && OMPI_MCA_osc=rdma between_hosts 4 "$programs/check_swaps" 10000 && says 'checks passed'
}
# One process of each host chooses otherwise than the other: whose memory it is decides.
case_rma_everybody_chooses_the_executor() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no atomics'; exit 77; }
  # shellcheck disable=SC2016 # for the other bash
  local chosen='export OMPI_MCA_btl_fabric_device_atomics=$((OMPI_COMM_WORLD_RANK / 2)); exec "$@"'
  stock check_swaps && OMPI_MCA_osc=rdma between_hosts 4 bash -c "$chosen" - "$programs/check_swaps" 10000 && says 'checks passed' &&
    OMPI_MCA_osc=rdma between_hosts 4 bash -c "$chosen" - "$check" --rma --no-dynamic --max 4096 && says 'checks passed'
}
case_rma_every_operation_registers_everything() { every_operation 2 --mca btl_fabric_force_mr 1; }
# On iWARP memory that a get reads into is open to peers for as long as that takes: a window for each. btl_fabric_force_mr makes
# messages that are read do the same.
# (osc/rdma reads through buffers of its own first, which are registered for everything.)
windows_of() { # COUNTS... -- [MPIRUN ARGUMENT...]
  local wanted=()
  while [ "$1" != -- ]; do
    wanted+=("$1")
    shift
  done
  [ "$link" = iwarp ] || { echo 'SKIP only iWARP names the sinks of reads to peers'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP siw has no memory windows'; exit 77 ;; esac
  counts --mca osc rdma "${@:2}" -- "${wanted[@]}"
}
case_windows_of_gets() {
  windows_of --one-sided gets=200 windows_bound=100 windows_invalidated=100 -- &&
    windows_of --one-sided gets=200-200 windows_bound=0-0 windows_invalidated=0-0 -- --mca btl_fabric_read_windows 0
}
case_windows_of_messages() {
  windows_of gets=8 windows_bound=8-8 windows_invalidated=8-8 -- --mca btl_fabric_force_mr 1 --mca btl_fabric_stripe_size 0 &&
    windows_of gets=8 windows_bound=0-0 --
}
case_windows_of_short_queues() { # that have no room for all that windows need
  windows_of --one-sided gets=200 windows_bound=100 windows_invalidated=100 -- \
    --mca btl_fabric_rdma_depth 1 --mca btl_fabric_receive_queues P,4096,2,1 &&
    windows_of --one-sided gets=200 windows_bound=0 -- --mca btl_fabric_rdma_depth 1 --mca btl_fabric_receive_queues P,4096,1
}
case_windows_counted_in_bytes() {
  windows_of --one-sided windows_bound=100 windows_invalidated=100 -- --mca btl_fabric_queue_costs 32,16,32
}
case_windows_with_transmit_contexts() {
  windows_of --one-sided windows_bound=100 windows_invalidated=100 -- --mca btl_fabric_tx_contexts 2
}
