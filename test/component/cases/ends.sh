# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The end of a peer, peers that are late, many connections at once, and connections of unknown processes.

# methods : the connection methods of this kind of device, without xoob.
methods() {
  case $link,$dev_a in
    ib,softhca*) echo oob rdmacm ibcm ;;
    ib,*) echo oob ;; # whether there is IPoIB is not known
    iwarp,*) echo rdmacm ;;
    *) echo oob rdmacm ;;
  esac
}
# dies WHEN : by every method, whoever sends to a dead process gets the error of its transport in bounded time, although mpirun
# does not end the job.
dies() {
  stock check_death || return 1
  local method
  for method in $(methods); do
    fabric 2 --enable-recovery --mca btl_fabric_cpc_include "$method" --mca btl_fabric_connect_retry_time 2000 \
      --mca btl_fabric_timeout 14 "$programs/check_death" "$1"
    [ $? -ne 124 ] || { echo "$method: the job hung"; return 1; }
    says_not 'was not told' && grep -qE 'could not connect two processes|connection .* has broken|[Tt]ransfer .*failed' out ||
      { echo "by $method"; return 1; }
  done
}
case_death_before_contact() { dies before; }
case_death_after_contact() { dies after; }
case_death_without_finalize() { dies leaves; }
case_death_while_waited_for() { dies waits; }
# Who sends nothing learns of it because the peer's adapter is asked now and then.
case_death_of_who_is_listened_to() {
  OMPI_MCA_btl_fabric_keepalive=1 dies listens
}
# What an upper layer that goes on without a dead peer is told of its messages: those under way, and those that wait for the
# connection, for a credit or for room in the send queue.
messages_to_a_dead_peer() { # QUEUES METHOD...
  btl_user check_failed_sends || return 1
  local method when
  for method in "${@:2}"; do
    for when in before after; do
      fabric 2 --enable-recovery --mca btl_fabric_cpc_include "$method" --mca btl_fabric_if_include "$dev_a" \
        --mca btl_fabric_connect_retry_time 2000 --mca btl_fabric_timeout 14 --mca btl_fabric_free_list_max 64 \
        --mca btl_fabric_receive_queues "$1" "$programs/check_failed_sends" $when && says 'all messages ended' ||
        { echo "by $method, $when contact"; return 1; }
    done
  done
}
# shellcheck disable=SC2046 # several words
case_messages_to_a_dead_peer_end() { messages_to_a_dead_peer P,128,8:S,4096,16,12,4:S,65536,16,12,4 $(methods); }
# ULFM: processes go on without one that has died.
case_survivors_go_on() {
  ompi_info | grep -q 'Fault Tolerance support: yes' || { echo 'SKIP this Open MPI has no fault tolerance (ULFM)'; exit 77; }
  stock check_ulfm || return 1
  local method
  for method in $(methods); do
    fabric 4 --with-ft ulfm --mca btl_fabric_cpc_include "$method" --mca btl_fabric_timeout 14 "$programs/check_ulfm"
    says '3 survivors went on' || { echo "by $method"; return 1; }
  done
}
# What waits for the dead process ends, with few buffers too, and nothing of it ends what survivors have to do with each other.
case_survivors_wait_for_nothing() {
  ompi_info | grep -q 'Fault Tolerance support: yes' || { echo 'SKIP this Open MPI has no fault tolerance (ULFM)'; exit 77; }
  stock check_ulfm || return 1
  local what few
  for what in sends receive; do
    for few in 0 16; do
      fabric 3 --with-ft ulfm --mca btl_fabric_timeout 14 --mca btl_fabric_free_list_max $few "$programs/check_ulfm" $what
      says 'what waited has ended' || { echo "$what, with at most $few buffers"; return 1; }
    done
  done
}
# A rank that computes for longer than every timeout of connection set-up, which are short for that, while the others connect.
case_peer_computes_longer_than_timeouts() {
  local method
  for method in $(methods); do
    fabric 3 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_connect_timeout 500 \
      --mca btl_fabric_handshake_timeout 500 --mca btl_fabric_rdmacm_resolve_timeout 500 \
      --mca btl_fabric_connect_retry_time 500 "$check" --compute 6 && says 'checks passed' || { echo "by $method"; return 1; }
  done
}
# MPI_Comm_spawn, exchange and disconnect, again and again, while the fabric loses and delays messages, and every process refuses
# connection requests by a communication manager: three of the first six, which are two or three attempts, as an attempt is as
# many requests as there are queues. (Every fifth for ever would leave one attempt of five.)
case_storm() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has faults by rule'; exit 77 ;; esac
  local method ctl file
  ctl=$(command -v softhca-ctl || echo "$FABRIC_BUILD/contrib/softhca/softhca-ctl")
  printf 'drop op=send prob=0.01\ndelay us=300 prob=0.05\ncm action=reject every=2 count=3\n' > faults
  for method in $(methods); do
    "$ctl" faults faults || return 1
    fabric 2 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_timeout 12 \
      --mca btl_fabric_trace "$work/storm.%j.%r" "$check" --spawn --rounds 3 --max 8192
    local status=$?
    : > nothing && "$ctl" faults nothing
    [ $status -eq 0 ] && says 'checks passed' || { echo "by $method: exit status $status"; return 1; }
    # The faults took place: attempts were refused, and others followed.
    [ "$method" = oob ] || grep -q '"name":"RetryTimer"' storm.* || { echo "by $method: nothing was tried again"; return 1; }
    for file in storm.*; do # in the timeline each peer leaves once
      [ -z "$(grep '"name":"PeerLeft"' "$file" | grep -o '"peer_job".*"direction"' | sort | uniq -d)" ] ||
        { echo "by $method: peers leave several times in the timeline"; return 1; }
    done
    rm -f storm.*
  done
}

# Whoever connects to the port that peers connect to and does not know the job's token is turned away, and the job never notices.
case_unknown_peers() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  need ss 'ss (package iproute2) is not installed'
  local turned_away=0
  meanwhile unknown_peers_come --mca btl_fabric_cpc_include oob && says 'check_waits: 2 processes have waited' &&
    { [ $turned_away -eq 20 ] || { echo "$turned_away of 20 were turned away"; return 1; }; }
}
# Five of each kind to each of two processes: noise is cut off, and so is what stops after the first bytes. Those that say nothing stay
# until the job ends.
unknown_peers_come() {
  local ports port i bytes
  ports=$(ss -4ltnpH | grep -F "$(ranks_of "$job" "$programs/check_waits" | sed 's/.*/pid=&,/')" | awk '{ sub(/.*:/, "", $4); print $4 }' | sort -u)
  [ "$(wc -w <<< "$ports")" -eq 2 ] || { echo "listening ports: $ports" >&2; return 1; }
  for port in $ports; do
    for i in 1 2 3 4 5; do
      (exec 3<> "/dev/tcp/127.0.0.1/$port" && sleep 60) 2> /dev/null &
      for bytes in $((i * 1000)) $((i * 17)); do
        rm -f connected
        # cat ends when the other side has closed the channel, well or with a reset.
        (exec 3<> "/dev/tcp/127.0.0.1/$port" && : > connected && head -c $bytes /dev/urandom >&3
          timeout 60 cat <&3 > /dev/null
          [ $? -ne 124 ]) 2> /dev/null && [ -e connected ] && turned_away=$((turned_away + 1))
      done
    done
  done
  let_go
}

case_a_killed_peer_ends_the_job() { kills_a_peer fabric; }

# What finds something of processes that are connected finds nothing when they have ended: on softhca when each has called
# MPI_Finalize, elsewhere in the kernel's list, when they are gone.
case_nothing_is_left_behind() {
  case $dev_a in
    softhca*)
      prepare_life && meanwhile processes_own_something && settings=() && one_life 2 put 1
      ;;
    *)
      need rdma 'rdma (package iproute2) is not installed'
      meanwhile kernel_lists_queue_pairs || return 1
      ! kernel_has_queue_pairs
      ;;
  esac
}
processes_own_something() {
  local pid
  for pid in $(ctl list | sed -n 's/^slot [0-9]* pid \([0-9]*\) .*/\1/p'); do
    ! "$CHECK_LIFE_AFTER" "$pid" > found || { echo "nothing of process $pid is found while it is connected" >&2; return 1; }
  done
  grep -q 'left by .* qp 0x' found && let_go
}
# The kernel names the thread that made a queue pair, which is the progress thread.
kernel_has_queue_pairs() { rdma resource show qp | grep 'comm btl_fabric'; }
kernel_lists_queue_pairs() { kernel_has_queue_pairs > found && let_go; }

# The goodbyes of two processes take as long as a rule says: MPI_Finalize waits for them, but not longer than the parameter allows.
case_goodbye_timeout() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca delays packets on demand'; exit 77 ;; esac
  ends_after 3 60000 && [ "$took" -ge 3 ] || { echo "MPI_Finalize waited for $took of 3 s"; return 1; }
  # Longer than a job may take.
  ends_after 3600 100
}
# ends_after SECONDS TIMEOUT : sets `took`, the seconds.
ends_after() {
  local delay="delay us=$(($1 * 1000000)) op=send" before
  ends() { echo "$delay" | ctl faults - && before=$SECONDS && let_go; }
  CHECK_WAITS_SILENT=1 meanwhile ends --mca btl_fabric_goodbye_timeout "$2" && says 'check_waits: 2 processes have waited'
  local status=$?
  took=$((SECONDS - before))
  ctl faults - < /dev/null > /dev/null
  return $status
}
