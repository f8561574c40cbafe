# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Processes that come and go: check_life, and nothing of the device is left when MPI_Finalize is over.

case_spawn() { fabric 2 "$check" --spawn && says 'checks passed'; }
case_peer_computes() { fabric 3 "$check" --compute 3 && says 'checks passed'; }

# prepare_life : builds check_life. On softhca every process, once it has called MPI_Finalize, must have none of its device's
# objects any more.
prepare_life() {
  stock check_life || return 1
  case $dev_a in
    softhca*)
      local ctl
      ctl=$(command -v softhca-ctl || echo "$FABRIC_BUILD/contrib/softhca/softhca-ctl")
      # shellcheck disable=SC2016 # for awk and the other shell
      printf '#!/bin/sh\n"%s" list | awk -v pid="$1" %s\n' "$ctl" \
        \''$1 == "slot" { mine = $4 == pid } mine && /^  / { print "left by", pid ":", $0; n = 1 } END { exit n }'\' > after
      chmod +x after
      export CHECK_LIFE_AFTER=$work/after
      ;;
  esac
}
# by_every_method FUNCTION [ARGUMENT...] : with the parameters for the method in `settings`; xoob too, where there is XRC.
by_every_method() {
  local method
  for method in $(methods) xoob; do
    settings=(--mca btl_fabric_cpc_include "$method")
    if [ "$method" = xoob ]; then
      ibv_devinfo -v -d "$dev_a" 2> /dev/null | grep -qw XRC && [ "$link" != iwarp ] || continue
      settings+=(--mca btl_fabric_receive_queues "$x_queues")
    fi
    "$@" || { echo "by $method"; return 1; }
  done
}
# lives STATUS : whether check_life has ended like that, and well.
lives() {
  [ "$1" -ne 124 ] || { echo 'the job hung'; return 1; }
  [ "$1" -eq 0 ] && says 'check_life: ' && says_not 'left by'
}
one_life() { # NP WHAT ROUNDS [MPIRUN ARGUMENT...]
  rm -f trace.*
  fabric "$1" "${settings[@]}" --mca btl_fabric_trace "$work/trace.%j.%r" "${@:4}" "$programs/check_life" "$2" "$3"
  lives $? && "${also:-true}"
}
life() { prepare_life && by_every_method one_life "$@"; }
# with_faults RULES COMMAND... : on softhca with these rules (contrib/softhca/README.md), elsewhere without.
with_faults() {
  local rules=$1 ctl status
  shift
  case $dev_a in softhca*) ;; *) "$@"; return ;; esac
  ctl=$(command -v softhca-ctl || echo "$FABRIC_BUILD/contrib/softhca/softhca-ctl")
  printf %b "$rules" | "$ctl" faults - || return 1
  "$@"
  status=$?
  "$ctl" faults - < /dev/null
  return $status
}
case_connect_accept() { life 2 meet 6; }
two_jobs() {
  rm -f port
  fabric 2 --ompi-server "file:$work/server" "${settings[@]}" "$programs/check_life" accept 3 "$work/port" &
  local other=$! status
  (mkdir -p other && cd other &&
    fabric 2 --ompi-server "file:$work/server" "${settings[@]}" "$programs/check_life" connect 3 "$work/port"
    lives $? || { cat out; exit 1; })
  status=$?
  wait $other
  lives $? && [ $status -eq 0 ]
}
case_connect_accept_of_two_jobs() {
  need ompi-server 'Open MPI 5 has no ompi-server'
  prepare_life || return 1
  ompi-server --no-daemonize -r "$work/server" > /dev/null 2>&1 &
  local server=$! i status
  for ((i = 0; i < 100; i++)); do
    [ -s "$work/server" ] && break
    sleep 0.1
  done
  by_every_method two_jobs
  status=$?
  kill $server
  wait $server 2> /dev/null
  return $status
}
case_disconnect_after_first_contact() { with_faults 'delay us=2000 prob=0.1\ncm action=reject every=7\n' life 2 hasty 4; }
# What comes to nothing because the peer has gone, and nobody but the peer wanted, is no reason to end the job.
case_a_guest_leaves_before_it_is_connected() { life 2 guest 1 --mca btl_fabric_handshake_timeout 500; }
case_one_sided_first_contact_then_finalize() { life 3 put 1; }
# The word that a peer has read a message is late, so it may come when MPI_Finalize has done with everything else.
case_finalize_with_requests_under_way() { with_faults 'delay us=3000 prob=0.3\n' life 4 unwaited 3; }
# some_are_half_made : of the ends of connections in the traces, fewer have ever been connected than were begun.
some_are_half_made() {
  local begun connected
  begun=$(cat trace.* | grep '"ph":"i"' | grep '"from":"Closed"' | grep -vc '"to":"Closed"')
  connected=$(cat trace.* | grep '"ph":"i"' | grep -v '"from":"Connected"' | grep -c '"to":"Connected"')
  [ "$begun" -gt "$connected" ] || { echo "no connection was half made: $begun ends begun, $connected connected"; return 1; }
}
# At MPI_Finalize one connection is being opened at a time, and the others wait; requests of the communication managers, and
# CTS messages, get lost or come late.
case_finalize_half_connected() {
  also=some_are_half_made with_faults 'delay us=5000 prob=0.3\ncm action=silence every=3\n' \
    life 8 unheard 3 --mca btl_fabric_connect_limit 1
}

# A message for a port that is not connected waits for both processes to be inside MPI, and Open MPI waits outside at times: all ports
# are connected as soon as one is.
case_all_ports_are_connected_at_once() {
  stock check_first || return 1
  local began
  fabric 2 --mca btl_fabric_trace "$work/trace.%r" "$programs/check_first" && says 'the first message has come' || return 1
  began=$(grep -c '"name":"ConnectWanted".*"from":"Closed"' trace.0)
  [ "$began" -eq 2 ] || { echo "$began ports of two were connected for one message"; return 1; }
}

# What a process says last, to tell a peer that its memory was read, has left before it waits for all to disconnect.
case_disconnect_again_and_again() {
  stock check_disconnect || return 1
  fabric 1 --mca btl_fabric_receive_queues P,256,1:P,65536,2 "$programs/check_disconnect" 20 && says 'check_disconnect: 20 rounds' &&
    fabric 1 "$programs/check_disconnect" 5 && says 'check_disconnect: 5 rounds'
}

# A process disconnects while a message to another one, which disconnects after it, is under way. Open MPI 4.1 waits in PMIx then.
case_disconnect_while_something_is_sent() {
  [[ $(mpirun --version) == *' 4.1'* ]] || { echo 'SKIP Open MPI 5.0 calls PMIx itself'; exit 77; }
  stock check_spawn || return 1
  fabric 1 "$programs/check_spawn" 2 sending && says 'check_spawn: 2 children'
}

# A process with more peers than it was started with has completion queues for all of them. Here one queue has room for one queue pair of
# the sixteen to a peer.
case_spawn_more_than_completion_queues() {
  stock check_spawn || return 1
  local queues=P,256,4 i
  for ((i = 1; i < 15; i++)); do queues+=:P,256,4; done
  fabric 1 --mca btl_fabric_cq_size 16 --mca btl_fabric_rdma_depth 1 --mca btl_fabric_max_ports 1 \
    --mca btl_fabric_receive_queues "$queues:P,65536,4" "$programs/check_spawn" 8 && says 'check_spawn: 8 children'
}
