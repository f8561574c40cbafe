# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Jobs of many processes, with the queues that are chosen for them. They take minutes, and gigabytes.

# need_memory MEGABYTES
need_memory() {
  local megabytes
  megabytes=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
  [ "$megabytes" -ge "$1" ] || { echo "SKIP this takes $1 MB of memory"; exit 77; }
}
only_softhca() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has queue pairs and speed for so many processes'; exit 77 ;; esac
}
# crowd NP [MPIRUN ARGUMENT...] : as fabric, with time for so many. At the end of MPI_Finalize a process waits two seconds for mpirun to take
# note (PMIx_Finalize of PMIx 4.2), and ends all the same. mpirun, which has a hundred to hear and few processors, may see that first, and
# say that the process is "exiting improperly". So it is told not to judge by that, and the processes say themselves that they are out.
crowd() {
  LIMIT=2000 fabric "$1" --mca orte_allowed_exit_without_sync 1 "${@:2}" || return
  local out_of_it
  out_of_it=$(grep -ac 'is out of MPI_Finalize$' out)
  [ "$out_of_it" -eq "$1" ] || { echo "$out_of_it of $1 processes have come out of MPI_Finalize"; return 1; }
}
# of_128 METHODS QUEUE_PAIRS [MPIRUN ARGUMENT...] : everybody with everybody, on a device that has so many queue pairs for each.
of_128() {
  only_softhca
  [ "$link" != iwarp ] || { echo 'SKIP on iWARP each peer has receives of its own, which are 12 GB of 128 processes'; exit 77; }
  need_memory 6000
  case " $(methods) " in *" ${1%%,*} "*) ;; *) echo "SKIP $link has no $1"; exit 77 ;; esac
  stock check_few_queue_pairs || return 1
  new_fabric --set "max_qps=$((128 * $2))"
  crowd 128 --mca btl_fabric_cpc_include "$1" --mca btl_base_verbose 1 "${@:3}" \
    "$programs/check_few_queue_pairs" 2 0 && says 'every message is right' && says_not 'had broken'
}
budget=(--mca btl_fabric_memory_budget 8388608)
case_many_by_oob() { of_128 oob 127; }
case_many_by_oob_within_a_budget() { of_128 oob 127 "${budget[@]}"; }
case_many_by_oob_with_half_the_queue_pairs() { of_128 oob 63 && says 'idle connections make room for others'; }
case_many_by_xoob_with_half_the_queue_pairs() {
  need_xrc
  of_128 oob,xoob 63 && says 'the 128 processes of a host share queue pairs'
}
case_many_by_xoob_within_a_budget() {
  need_xrc
  of_128 oob,xoob 63 "${budget[@]}" && says 'the 128 processes of a host share queue pairs'
}
case_many_by_rdmacm() { of_128 rdmacm 127; }
case_many_by_rdmacm_within_a_budget() { of_128 rdmacm 127 "${budget[@]}"; }
case_many_by_rdmacm_with_half_the_queue_pairs() { of_128 rdmacm 63 && says 'idle connections make room for others'; }
case_many_by_ibcm() { of_128 ibcm 127; }
case_many_by_ibcm_within_a_budget() { of_128 ibcm 127 "${budget[@]}"; }
case_many_by_ibcm_with_half_the_queue_pairs() { of_128 ibcm 63 && says 'idle connections make room for others'; }

# Strangers connect 100,000 times to the listeners of a job that makes connections all the time.
case_many_strangers() {
  only_softhca
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  stock check_strangers || return 1
  LIMIT=2000 fabric 12 --mca btl_fabric_cpc_include oob --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_receive_queues S,12288,256 \
    --mca btl_fabric_max_queue_pairs 4 "$programs/check_strangers" 100000 && says 'check_strangers: 100000 attempts at' &&
    says_not 'had broken'
}

# A process that nobody has started but its user, and that spawns hundreds: the completion queues that it has begun with, for a job of
# one, grow for all of them. The children themselves have too few queue pairs, and share some (XRC), or make room for each other.
# 500 of them take 6 GB, and on two processors, beside other work, four minutes to start and 10 s to talk.
case_many_children_of_one_process() {
  only_softhca
  [ "$link" != iwarp ] || { echo 'SKIP on iWARP each peer has receives of its own, which are too much for so many processes'; exit 77; }
  [[ $(mpirun --version) == *' 4.1'* ]] || { echo 'SKIP this starts a process without mpirun as Open MPI 4.1 wants it'; exit 77; }
  need_memory 8000
  local children=500 completions
  stock check_children && stock watch_verbs.so || return 1
  rm -f verbs.*
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_orte_allowed_exit_without_sync=1 \
    OMPI_MCA_btl=fabric,self OMPI_MCA_btl_fabric_cq_size=512 OMPI_MCA_btl_fabric_if_include="$dev_a"
  # What the parent asks of its device is written down; children have the environment that it had before.
  # shellcheck disable=SC2016 # for the other bash
  LIMIT=1000 runs "${launcher[@]}" bash -c 'was=${LD_PRELOAD-}
    LD_PRELOAD=$0${was:+:$was} WATCH_VERBS=$1 exec "$2" "$3" env LD_PRELOAD="$was" "$2"' \
    "$programs/watch_verbs.so" "$work/verbs" "$programs/check_children" $children && says "check_children: $children children have met" &&
    says_not 'had broken' || return 1
  # The 2560 receives that peers share, and of each child a queue pair whose sends have 10 completions. With 8 children it is 5182.
  completions=$(awk '/^cq/ && $NF > most { most = $NF } END { print most + 0 }' verbs.0)
  [ "$completions" -ge $((2560 + 10 * children)) ] ||
    { echo "the parent has had a completion queue of $completions, for $children children"; return 1; }
}

case_many_512_processes() {
  only_softhca
  [ "$link" != iwarp ] || { echo 'SKIP on iWARP each peer has receives of its own, which are too much for 512 processes'; exit 77; }
  need_memory 12000
  stock check_ring && crowd 512 "$programs/check_ring" && says 'check_ring: 512 processes have met'
}
