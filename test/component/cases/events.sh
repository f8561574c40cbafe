# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Asynchronous events of devices, while a job is under way.

# needs_ctl : sets `ctl`; a device in the kernel has no events on demand.
needs_ctl() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has events on demand'; exit 77 ;; esac
  ctl=$(command -v softhca-ctl || echo "$FABRIC_BUILD/contrib/softhca/softhca-ctl")
}
# meanwhile COMMAND [MPIRUN ARGUMENT...] : a job of two processes on the first device. When they are connected and wait, COMMAND is
# run with its standard output discarded, and they go on. The exit status is the job's.
meanwhile() {
  local happens=$1 job i status
  shift
  stock check_waits || return 1
  rm -rf "$work/wait" && mkdir "$work/wait" || return 1
  fabric 2 --mca btl_fabric_if_include "$dev_a" "$@" "$programs/check_waits" "$work/wait" &
  job=$!
  for ((i = 0; i < 600; i++)); do
    [ -e "$work/wait/ready.0" ] && [ -e "$work/wait/ready.1" ] && break
    sleep 0.1
  done
  local done=yes
  $happens || done=no
  [ $done = yes ] || { echo "could not be done: $happens" >&2; let_go; }
  wait $job
  status=$?
  [ $done = yes ] || return 1
  [ $i -lt 600 ] || { echo 'the processes were never connected'; return 1; }
  return $status
}
let_go() { : > "$work/wait/go"; }
# a_queue_pair : the number of one that is connected.
a_queue_pair() { "$ctl" list | sed -n 's/^  qp \(0x[0-9a-f]*\): RTS.*/\1/p' | head -n 1; }

queue_pair_fails() {
  qpn=$(a_queue_pair) && [ -n "$qpn" ] && "$ctl" "$event" "$qpn"
}
# peer_was_first : on iWARP the peer's queue pair fails with ours, and the job may have ended by the peer's report before our process
# had made its own.
peer_was_first() {
  [ "$link" = iwarp ] && says 'the connection is gone, and the peer has not said goodbye' > said && ! grep -qF 'the device reports' out
}
# fails_by EVENT TEXT : with each kind of queue.
fails_by() {
  local event=$1 ctl qpn queues status i
  needs_ctl
  for queues in S,4096,64:S,65536,64 X,4096,64:X,65536,64; do
    [[ $link = ib || $queues != X* ]] || continue
    for i in 1 2 3 4 5; do
      meanwhile queue_pair_fails --mca btl_fabric_heal_timeout 0 --mca btl_fabric_receive_queues "$queues"
      status=$?
      peer_was_first || break
    done
    refuses $status && says 'A transfer between two processes has failed' && says "$qpn" && says "the device reports: $2" ||
      { echo "with $queues"; return 1; }
  done
}
# Nothing waits there, so no failed request tells: it is the event that does. (On iWARP all queues are P queues, and what is
# posted comes back, as it does when the peer closes the connection.)
case_event_queue_pair_fails() { fails_by qp-fatal 'QP fatal error'; }
case_event_access_is_refused() { fails_by qp-access 'QP access error'; }

# is_told TEXT : waits until the job has said it, ten seconds at most.
is_told() {
  local i
  for ((i = 0; i < 100; i++)); do
    grep -qF -- "$1" out && return
    sleep 0.1
  done
  return 1
}
port_changes() {
  "$ctl" lid-change 0 0 1 && is_told 'has got another address' && "$ctl" gid-change 0 0 1 &&
    is_told "It was:      LID $(sed -n 's/.*It is:  *LID \([0-9]*\),.*/\1/p' out | head -n 1)" && let_go
}
# On InfiniBand, where the address of a port is its LID and GID. What is connected stays so.
case_event_address_changes() {
  local ctl
  [ "$link" = ib ] || { echo 'SKIP only ports of InfiniBand have addresses that are not those of their network interface'; exit 77; }
  needs_ctl
  meanwhile port_changes && says 'check_waits: 2 processes have waited'
}
# The GID table has entries that nobody uses, and these may change.
case_event_another_gid_changes() {
  local ctl
  [ "$link" = roce ] || { echo 'SKIP only RoCE ports have several GIDs'; exit 77; }
  needs_ctl
  other_gid_changes() { "$ctl" gid-change 0 0 1 && "$ctl" port-down 0 0 1 && is_told 'port error' && "$ctl" port-up 0 0 1 && let_go; }
  meanwhile other_gid_changes && says_not 'has got another address' && says 'check_waits: 2 processes have waited'
}
# A process that is inside MPI says what its connections wait for.
case_says_what_it_waits_for() {
  local ctl
  needs_ctl
  asked_while_a_port_is_down() {
    local ranks
    mapfile -t ranks < <(ranks_of $$ "$programs/check_waits")
    kill -USR1 "${ranks[@]}" && is_told '1 peer: nothing waits, and nothing is under way' || return 1
    "$ctl" port-down 0 0 1 && let_go && is_told 'port error' && sleep 3 && kill -USR1 "${ranks[@]}" &&
      is_told 'waits for the connection' && "$ctl" port-up 0 0 1
  }
  meanwhile asked_while_a_port_is_down --mca btl_fabric_dump_signal USR1 --mca btl_fabric_timeout 12 --mca btl_fabric_retry_count 1 &&
    says ' to connect since' && grep -qE 'all connections of this process have [1-9][0-9]* bytes of memory' out && says 'check_waits: 2 processes have waited'
}
