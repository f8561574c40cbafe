# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Connection set-up by the communication manager: rdmacm on the same devices, and on iWARP ones, which have nothing else.

rdmacm() { # NP [MPIRUN ARGUMENT...]
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_cpc_include rdmacm "$@"
}
iwarp() { # NP [MPIRUN ARGUMENT...] : on the iWARP devices beside the others
  rdma link show 2> /dev/null | grep -q siw0 || { echo 'SKIP there is no soft-iWARP device'; exit 77; }
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_if_include siw0,siw1 "$@"
}
# The communication manager needs no file descriptor for a connection, as oob does.
case_rdmacm_without_descriptors() {
  stock check_shortage || return 1
  rdmacm 2 "$programs/check_shortage" without && says 'the message has gone without descriptors'
}
# queue_lists HOW NP : small and large queues of either kind, first and last. A queue with one credit makes every fragment a
# round trip, so on a busy host a run is slow without being stuck (contrib/vm/README.md): --stall tells these apart.
queue_lists() {
  local list lists='P,4096,2,1 S,4096,2,1 S,128,256:P,65536,32 P,65536,16:S,4096,64'
  case $dev_a in
    softhca*) lists="$lists P,4096,1 P,128,256:P,65536,32 S,128,256:S,65536,32 S,4096,512,448,64,2,1" ;;
  esac
  for list in $lists; do
    "$1" "$2" --mca btl_fabric_receive_queues "$list" "$check" --max 65536 --flood 200 --stall 120 &&
      says 'checks passed' || { echo "with $list"; return 1; }
  done
}
# kills_a_peer HOW : a process is killed while the two exchange messages. What is left of the job ends, and mpirun says that it is for
# that signal and no other; or the survivor has found out first (iWARP's TCP connection breaks at once), and names the peer.
kills_a_peer() {
  local job victim status
  "$1" 2 "$check" -v --max 65536 --flood 100000 --rounds 50 > said_by_job 2>&1 &
  job=$!
  until grep -qs ' s flood$' out; do
    kill -0 $job 2> /dev/null || break
    sleep 0.1
  done
  victim=$(ranks_of $job | tail -n 1)
  [ -z "$victim" ] || kill -9 "$victim"
  wait $job
  status=$?
  cat said_by_job
  [ $status -ne 77 ] || exit 77 # it has said why
  [ -n "$victim" ] || { echo 'the job has ended before a process could be killed'; return 1; }
  [ $status -ne 124 ] || { echo 'the job hung'; return 1; }
  says_not MISMATCH || return 1
  if [ $status -ne 0 ] && grep -qE 'connection .* has broken|[Tt]ransfer .*failed' out && grep -q 'Peer: .*, rank 1,' out; then
    return 0
  fi
  [ $status -eq 137 ] || { echo "status $status, not that of signal 9"; return 1; }
  tr '\n' ' ' < out | grep -qE 'exited on +signal 9' || { echo 'mpirun does not name the signal'; return 1; } # 5.0 wraps lines
}
roce_only() { [ "$link" = roce ] || { echo 'SKIP the devices are not RoCE'; exit 77; }; }

case_rdmacm_two_processes() { rdmacm 2 "$check" && says 'checks passed'; }
case_rdmacm_four_processes() { rdmacm 4 "$check" $small && says 'checks passed'; }
case_rdmacm_eight_processes() { rdmacm 8 "$check" --max 16384 --flood 500 && says 'checks passed'; }
case_rdmacm_queues() { queue_lists rdmacm 2; }
case_rdmacm_without_inline() {
  rdmacm 2 --mca btl_fabric_max_inline_data 0 "$check" $small && says 'checks passed' || return 1
  rdmacm 2 --mca btl_fabric_max_inline_data 0 --mca btl_fabric_receive_queues S,65536,64 "$check" $small &&
    says 'checks passed'
}
case_rdmacm_endpoints_on_first_contact() {
  rdmacm 4 --mca mpi_add_procs_cutoff 0 "$check" $small && says 'checks passed'
}
case_rdmacm_threads() { rdmacm 2 "$check" --threads 3 && says 'checks passed'; }
case_rdmacm_spawn() { rdmacm 2 "$check" --spawn && says 'checks passed'; }
case_rdmacm_peer_computes() { rdmacm 3 "$check" --compute 3 && says 'checks passed'; }
case_rdmacm_between_devices() {
  [ "$link" != ib ] || { echo 'SKIP the second device has no IPoIB address'; exit 77; }
  OMPI_MCA_btl_fabric_cpc_include=rdmacm fabric_pair if_include="$dev_a" if_include="$dev_b" $small && says 'checks passed'
}
case_rdmacm_link_local_address() { # needs the interface's index on both sides
  roce_only
  case $dev_a in softhca*) echo 'SKIP no interface has the link-local addresses of softhca'; exit 77 ;; esac
  rdmacm 2 --mca btl_fabric_gid_index 0 --mca btl_fabric_if_include "$dev_a" "$check" $small && says 'checks passed'
}
case_rdmacm_chosen_port() { # and the next ones, for the other processes
  local port=$((20000 + RANDOM % 12000)) ports # below those that the kernel gives out, from 32768 on
  watched 4 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_cpc_include rdmacm --mca btl_fabric_rdmacm_port $port "$check" $small &&
    says 'checks passed' || return 1
  ports=$(sed -n 's/^listens: //p' verbs.* | sort -n | tr '\n' ' ')
  [ "$ports" = "$port $((port + 1)) $((port + 2)) $((port + 3)) " ] || { echo "from $port on they listen on $ports"; return 1; }
}
case_rdmacm_full_backlog() { # whose kernel rejects what does not fit is there, and is asked again for as long as it takes
  case $dev_a in softhca*) ;; *) echo 'SKIP the faults are softhca'"'"'s'; exit 77 ;; esac
  [ "$link" != iwarp ] || { echo 'SKIP iWARP does not tell a full backlog from a port on which nobody listens'; exit 77; }
  with_faults 'cm action=reject count=22\n' rdmacm 2 --mca btl_fabric_connect_retry_time 3000 "$check" $small &&
    says 'checks passed'
}
case_rdmacm_killed_peer() { kills_a_peer rdmacm; }

case_iwarp_two_processes() { iwarp 2 "$check" && says 'checks passed'; }
case_iwarp_four_processes() { iwarp 4 "$check" $small && says 'checks passed'; }
case_iwarp_eight_processes() { iwarp 8 "$check" --max 16384 --flood 500 && says 'checks passed'; }
case_iwarp_queues() { queue_lists iwarp 2; }
case_iwarp_endpoints_on_first_contact() { iwarp 4 --mca mpi_add_procs_cutoff 0 "$check" $small && says 'checks passed'; }
case_iwarp_threads() { iwarp 2 "$check" --threads 3 && says 'checks passed'; }
case_iwarp_spawn() { iwarp 2 "$check" --spawn && says 'checks passed'; }
case_iwarp_peer_computes() { iwarp 3 "$check" --compute 3 && says 'checks passed'; }
case_iwarp_killed_peer() { kills_a_peer iwarp; }
case_iwarp_and_roce_together() { # the pairs of ports that can talk do, each by a method that serves it
  rdma link show 2> /dev/null | grep -q siw0 || { echo 'SKIP there is no soft-iWARP device'; exit 77; }
  fabric 4 --mca btl_fabric_if_include "$dev_a,siw0" "$check" $small && says 'checks passed'
}
case_iwarp_without_rdmacm_says_why() {
  iwarp 2 --mca btl_fabric_cpc_exclude rdmacm "$check" $small
  refuses $? && says 'it connects queue pairs by their numbers, which iWARP does not have' &&
    says 'rdmacm: btl_fabric_cpc_include or cpc_exclude leaves it out'
}
