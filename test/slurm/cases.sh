# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What jobs do that srun starts; `run` has what these use.

small='--max 65536 --flood 1000 --stall 120'
checks_pass() { says '^check_mpi: [1-9][0-9]* checks passed$'; }

case_srun_offers_pmix() { srun --mpi=list > out 2>&1 && says '^\s*pmix$'; }

# Both processes of one host, and the component in place of shared memory.
case_one_host() {
  # shellcheck disable=SC2086 # several words
  OMPI_MCA_btl_base_verbose=5 job '--nodes 1 --ntasks 2' "$check" $small && checks_pass && says 'Using fabric btl for send' || return 1
}

# Four processes on two hosts, by each method of each kind of device.
hosts_with() { # LINK METHOD
  local LINK=$1
  set_for_job btl_fabric_cpc_include "$2"
  set_for_job btl_base_verbose 5
  # shellcheck disable=SC2016,SC2086 # for the other bash
  job "$two_hosts" bash -c 'echo "rank $PMIX_RANK is on $(hostname)"; exec "$@"' - "$check" $small && checks_pass &&
    says 'Using fabric btl for send' && says 'rank [0-3] is on n1' && says 'rank [0-3] is on n2'
}
case_two_hosts_ib_oob() { hosts_with ib oob; }
case_two_hosts_roce_oob() { hosts_with roce oob; }
case_two_hosts_roce_rdmacm() { hosts_with roce rdmacm; }
case_two_hosts_iwarp_rdmacm() { hosts_with iwarp rdmacm; }

case_ping_pong() {
  mpicc -std=c11 -D_GNU_SOURCE -O2 -o pingpong "$root/contrib/bench/pingpong.c" > out 2>&1 &&
    job '--nodes 2 --ntasks 2' "$work/pingpong" --max 65536 --time 0.05 && says '^ *bytes +latency us +MB/s$' && says '^ *65536 +[0-9.]+ +[0-9.]+$'
}

case_threads() { job "$two_hosts" "$check" --threads 3 --max 65536 --stall 120 && checks_pass; }

# Without dynamic windows, in which Open MPI 4.1.4 waits for ever between hosts (open-mpi/ompi pull request 10518).
case_one_sided() { job "$two_hosts" "$check" --rma --no-dynamic --max 65536 --stall 120 && checks_pass; }

# The processes of a host share a file in their session folder, which srun makes for each host.
case_x_queues() {
  set_for_job btl_fabric_receive_queues X,4096,256:X,65536,64
  # shellcheck disable=SC2086
  LINK=ib job "$two_hosts" "$check" $small && checks_pass
}

# Without PMIx each process would be a job of its own.
case_doctor_misses_pmix() {
  timeout 100 "$SOFTHCA_RUN" -- srun --mpi=none --nodes 1 --ntasks 2 "$doctor" > out 2>&1
  says '^FAIL +job .*srun has started this without PMIx' && says 'srun --mpi=pmix'
}

# Three processes, so that one rests in each round while two try each other.
case_doctor_over_two_hosts() {
  job '--nodes 2 --ntasks 3' "$doctor" && says 'MPI over the fabric BTL will work here' && says_not '^(FAIL|WARN +(tcp|pairs|connect|packets))' && says '^ok +pairs +3 of 3' &&
    says '^ok +connect +oob: 6 of 6' && says '^ok +connect +rdmacm: 6 of 6' && says '^ok +packets +.*both ways'
}

# A job may lock what srun may, or what slurmd may, as slurm.conf says. root may lock what it likes, but for those that give that up.
case_limit_of_locked_memory() {
  local status=0 limit
  limit=$(ulimit -l) # of slurmd, which this shell has started
  locks_with 4096 && says '^may lock 4096$' && says '^WARN +memlock +4096 KiB' && says 'PropagateResourceLimitsExcept=MEMLOCK in slurm.conf' ||
    return 1
  echo 'PropagateResourceLimitsExcept=MEMLOCK' >> "$SLURM_CONF" && cluster_reads_settings || return 1
  locks_with 4096 && says "^may lock $limit\$" && says "^(ok|WARN) +memlock +$limit( |\$)" || status=1
  sed -i '/^PropagateResourceLimitsExcept/d' "$SLURM_CONF" && cluster_reads_settings && return $status
}
# locks_with KIB : fabric_doctor in a job that is started with this limit, and what the limit is there.
locks_with() (
  # shellcheck disable=SC2016 # for the other bash
  ulimit -l "$1" && job '--nodes 1 --ntasks 2' setpriv --bounding-set=-ipc_lock bash -c 'echo "may lock $(ulimit -l)"; exec "$0"' "$doctor"
)

# Slurm does not carry PMIx_Publish from host to host.
case_report() {
  set_for_job btl_fabric_report 1
  # shellcheck disable=SC2086
  job "$two_hosts" "$check" $small && checks_pass && says 'btl_fabric: what this job did'
}

case_what_waits_is_told_on_a_signal() {
  set_for_job btl_fabric_dump_signal USR1
  job '--nodes 2 --ntasks 2 --job-name hangs' "$programs/check_hang" receive &
  local srun=$! status
  cluster_waits_for grep -q 'receive begins' out && scancel --signal=USR1 --name hangs && cluster_waits_for grep -q 'nothing waits' out
  status=$?
  scancel --name hangs
  wait $srun
  return $status
}

case_tools_find_the_job() {
  set_for_job btl_fabric_top 1
  job '--nodes 2 --ntasks 2 --job-name hangs' "$programs/check_hang" receive &
  local srun=$! status=0
  cluster_waits_for grep -q 'receive begins' out &&
    cluster_waits_for shows_both "$FABRIC_BUILD/contrib/fabric_top/fabric_top" --once &&
    cluster_waits_for shows_both "$FABRIC_BUILD/contrib/fabric_hang/fabric_hang" || status=1
  scancel --name hangs
  wait $srun
  return $status
}
shows_both() { "$@" > tool 2>&1 || true; awk '/^-.* check_hang: 2 processes on n1, n2/ { all = 1 } $3 == "check_hang" { ranks++ } END { exit !(all || ranks >= 2) }' tool; }

# shellcheck disable=SC2016 # for the other bash
case_a_process_that_dies_ends_the_job() {
  ! job '--nodes 2 --ntasks 2' bash -c '[ "$PMIX_RANK" = 0 ] || exec "$0" send; sleep 2; kill -KILL $$' "$programs/check_hang"
}

# Slurm's PMIx starts no processes for others, so this ends the job, and does not hang.
case_spawn_needs_mpirun() { ! LIMIT=100 job '--nodes 1 --ntasks 2' "$check" --spawn --max 1000 && says 'MPI_ERR_SPAWN: could not spawn processes'; }

case_mpirun_in_an_allocation() {
  # shellcheck disable=SC2086
  timeout 200 salloc --nodes 2 --ntasks-per-node 2 "$SOFTHCA_RUN" --devices 2 -- mpirun --bind-to none "$check" $small > out 2>&1 && checks_pass
}
