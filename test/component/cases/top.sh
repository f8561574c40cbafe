# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# contrib/fabric_top: what it shows of a running job, and when a process has a page for it in shared memory.

# topping COMMAND [child] [MPIRUN ARGUMENT...] : when check_top has sent what it sends, COMMAND is run, with the PID of
# mpirun in `job` and those of the processes in `ranks`. Its exit status is given, and the job is ended.
topping() {
  local looks=$1 child='' status ranks=()
  local job
  shift
  [ "${1-}" != child ] || { child=child && shift; }
  needs_top
  stock check_top || return 1
  rm -rf "$work/top" && mkdir "$work/top" || return 1
  : > out
  # shellcheck disable=SC2086 # nothing, or a word
  mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl fabric,self \
    --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_top "${TOP:-1}" "$@" -np 2 "$programs/check_top" "$work/top" $child > out 2>&1 < /dev/null &
  job=$!
  comes 600 grep -q 'check_top: sent' out
  mapfile -t ranks < <(top_ranks)
  [ ${#ranks[@]} -eq 2 ] && $looks
  status=$?
  touch "$work/top/go" "$work/top/end"
  kill $job 2> /dev/null
  wait $job
  [ $status -eq 0 ] || cat out told
  return $status
}
# top_ranks : the PIDs of rank 0 and rank 1, without those of their children.
top_ranks() {
  local pid all
  all=$(ranks_of "$job" "$programs/check_top")
  for pid in $all; do
    grep -qxF "$(ps -o ppid= -p "$pid" | tr -d ' ')" <<< "$all" ||
      echo "$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p') $pid"
  done | sort -n | cut -d' ' -f2
}
# topping_hang WAY COMMAND [MPIRUN ARGUMENT...] : the same of check_hang (hangs.sh).
topping_hang() {
  needs_top
  hanging "$1" "$2" --mca btl_fabric_top 1 "${@:3}"
}
needs_top() {
  top=$FABRIC_BUILD/contrib/fabric_top/fabric_top
  [ -x "$top" ] || { echo 'SKIP FABRIC_BUILD has no fabric_top'; exit 77; }
  need python3 'no python3'
}
# comes TENTHS COMMAND... : until it succeeds, for so long at most.
comes() {
  local i
  for ((i = 0; i < $1; i++)); do
    ! "${@:2}" || return 0
    sleep 0.1
  done
  echo "this has not come about: ${*:2}"
  return 1
}
# pages : those of the job, by the PIDs in `ranks`.
pages() {
  local pid
  for pid in "${ranks[@]}"; do
    find /dev/shm -maxdepth 1 -name "btl_fabric_top.$(id -u).*.$pid*"
  done
}
has_pages() { [ "$(pages | wc -l)" -eq "$1" ]; }
# true_of EXPRESSION : of what fabric_top says of the job, in Python: `r` has the processes by rank, `told` all.
true_of() {
  "$top" --once --json --job "$job" > told 2>&1 && python3 - "$1" told << 'END' 2>> told
import json, sys
told = json.load(open(sys.argv[2], encoding="utf-8"))
r = told["processes"]
p = [one["peers"][0] if one["peers"] else {} for one in r]
sys.exit(0 if len(r) == 2 and eval(sys.argv[1]) else 1)
END
}

# What was sent is what it says, of processes and of peers; and of all of it that is all.
values() {
  local sent='p[0]["messages_sent"] >= 1004 and p[0]["messages_sent"] < 1200'
  sent="$sent and p[0]['bytes_sent'] + p[0]['put_bytes'] + p[1]['get_bytes'] >= 64000 + (4 << 20)"
  sent="$sent and p[0]['bytes_sent'] + p[0]['put_bytes'] + p[1]['get_bytes'] < 200000 + (4 << 20)"
  comes 100 true_of "$sent" || return 1
  true_of 'all(one["rank"] == 1 - i and one["method"] and one["state"] == "Connected" for i, one in enumerate(p))' || return 1
  true_of "all(one['port'] == '$dev_a:1' and one['link'] == '$link' for one in p)" || return 1
  true_of 'abs(r[0]["bytes_sent"] - p[0]["bytes_sent"]) <= 2000 and r[0]["counters"]["messages_received"] == r[0]["messages_received"]' || return 1
  true_of 'all(one["connection_memory"] > 1000 for one in r)' || return 1
  true_of 'r[0]["known_peers"] == 1 and p[1]["packets_received"] > 0 and p[1]["packets_received"] <= p[0]["messages_sent"] + 100' || return 1
  true_of 'r[1]["rdma_bytes"] == p[1]["put_bytes"] + p[1]["get_bytes"] and all(one["heals"] == 0 for one in p)' || return 1
  # They are inside MPI, and nothing goes any more.
  comes 100 true_of 'all(one["state"] == "in MPI" and one["per_s"]["bytes_sent"] == 0 for one in r)' || return 1
  true_of "sorted(one['pid'] for one in r) == sorted([${ranks[0]}, ${ranks[1]}]) and r[0]['program'] == 'check_top'" || return 1
  "$top" --once --job "$job" > told && grep -q "check_top *in MPI" told && grep -qE "^ +0 +1 $dev_a:1 " told && grep -qE "^ +1 +0 $dev_a:1 " told
}
case_top_values() { topping values; }
case_top_values_of_contexts() { topping values --mca btl_fabric_tx_contexts 2; }
case_top_values_of_shared_queues() { topping values --mca btl_fabric_receive_queues S,4096,64:S,65536,64; }

# Nothing is shown, and there is no page, unless the parameter says so.
nothing_is_shown() {
  has_pages 0 && ! "$top" --once --job "$job" > told 2>&1 && grep -q 'start the job with --mca btl_fabric_top 1' told &&
    ! "$top" --once --json --job "$job" > told 2>&1
}
case_top_is_off() { TOP=0 topping nothing_is_shown; }

# A page goes when MPI is finished, though the process stays; and while it lasts only its user may open it.
page_goes() {
  has_pages 2 && [ "$(stat -c '%a %u' "$(pages | head -n 1)")" = "600 $(id -u)" ] || { pages; return 1; }
  touch "$work/top/go"
  comes 300 grep -q 'check_top: over' out && comes 300 has_pages 0 && kill -0 "${ranks[0]}" && ! "$top" --once --job "$job" > told 2>&1
}
case_top_page_goes() { topping page_goes; }

# That of a process that was killed is not shown, and goes when somebody looks. No child keeps it.
killed() {
  local children
  mapfile -t children < <(pgrep -P "${ranks[0]}")
  [ ${#children[@]} -eq "$1" ] || { echo "there are ${#children[@]} children"; return 1; }
  kill -KILL "${ranks[@]}"
  comes 300 is_gone "${ranks[0]}" && comes 300 is_gone "${ranks[1]}" || return 1
  "$top" --once > told 2>&1
  ! grep -qE "^ +[01] +(${ranks[0]}|${ranks[1]}) " told && has_pages 0
}
is_gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }
killed_without_children() { killed 0; }
killed_with_children() { killed 1; }
case_top_killed_process() { topping killed_without_children; }
case_top_killed_parent() { topping killed_with_children child; }
# A child is not shown, and takes nothing away.
children_are_not_shown() {
  pgrep -P "${ranks[0]}" > /dev/null && comes 100 true_of "sorted(one['pid'] for one in r) == sorted([${ranks[0]}, ${ranks[1]}])" && page_goes
}
case_top_forks() { topping children_are_not_shown child; }

# What another user has put there under our name is not shown, and left alone; and others do not see ours.
pages_of_others() {
  local page forged=/dev/shm/btl_fabric_top.0.1.1.$$ status
  page=$(pages | head -n 1)
  # It gets its name last: as one of root's, whose process has gone, any other fabric_top may take it away.
  cp "$page" /dev/shm/forged.$$ && chown 65534 /dev/shm/forged.$$ && mv /dev/shm/forged.$$ $forged || return 1
  "$top" --once > told 2>&1
  status=$?
  grep -q "$forged is not shown: it belongs to user 65534, and says that it is of user 0" told && [ -e $forged ] || status=1
  rm -f $forged
  [ $status -eq 0 ] || return 1
  cp "$top" "/tmp/fabric_top.$$"
  setpriv --reuid 65534 --clear-groups "/tmp/fabric_top.$$" --once > told 2>&1
  status=$?
  rm -f "/tmp/fabric_top.$$"
  [ $status -eq 2 ] && grep -q 'no process on this host shows itself' told && has_pages 2
}
case_top_other_users() {
  [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null || { echo 'SKIP only root can make files of others'; exit 77; }
  topping pages_of_others
}

# Garbage under a name of ours is told of, or taken for what a process has left, and harms nobody.
garbage() {
  local name status
  name=/dev/shm/btl_fabric_top.$(id -u).7.7.$$
  head -c 20000 /dev/urandom > "$name"
  "$top" --once > told 2>&1
  status=$?
  [ ! -e "$name" ] && mkdir "$name.d" || status=1
  "$top" --once > told 2>&1 && grep -q "$name.d is not shown: it is no file" told || status=1
  rm -rf "$name" "$name.d"
  return $status
}
case_top_garbage() { topping garbage; }

# Names that anybody may make there are shown without what a terminal obeys.
case_top_names_of_any_bytes() {
  needs_top
  local name status=0
  name=/dev/shm/btl_fabric_top.$(id -u).$$.$'\e]0;x\a\xff'
  mkdir "$name" || return 1
  "$top" --once > told && grep -qF "top.$(id -u).$$.?]0;x?? is not shown: it is no file" told && ! grep -q $'\e' told || status=1
  "$top" --once --json > told && python3 -c 'import json; json.load(open("told", encoding="utf-8"))' || status=1
  rmdir "$name"
  return $status
}

# While messages go there are rates; a terminal shows it until somebody presses q.
works_on_a_terminal() {
  comes 100 true_of 'all(one["per_s"]["messages_sent"] > 0 and one["per_s"]["bytes_received"] > 0 for one in r)' &&
    comes 100 true_of 'all(one["per_s"]["messages_sent"] > 0 and one["per_s"]["packets_received"] > 0 for one in p)' || return 1
  [ "$(timeout 60 "$top" --interval 0.2 --job "$job" | grep -c -m 2 'PROGRAM')" -eq 2 ] || { echo 'it does not go on'; return 1; }
  python3 - "$top" "$job" << 'END' > told 2>&1
import os, pty, select, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "--interval", "0.2", "--job", sys.argv[2]])
seen = b""
while seen.count(b"PROGRAM") < 2:
    assert select.select([terminal], [], [], 60)[0], seen
    seen += os.read(terminal, 4096)
assert seen.startswith(b"\x1b[H\x1b[J"), seen
assert not termios.tcgetattr(terminal)[3] & termios.ICANON
os.write(terminal, b"xq")
while True:
    try:
        if not os.read(terminal, 4096):
            break
    except OSError:
        break
status = os.waitpid(pid, 0)[1]
assert status == 0, status
END
}
case_top_is_live() { topping_hang talks works_on_a_terminal; }

# Whoever waits for a credit is seen to, and so is the reason: its peer is stopped.
waits_are_seen() {
  kill -STOP "${ranks[1]}"
  comes 100 true_of 'r[1]["state"] == "stopped" and p[0].get("credits", 1) == 0 and p[0]["waiting"]["credit"] > 0'
}
case_top_waits() { topping_hang stream waits_are_seen --mca btl_fabric_receive_queues P,512,32:P,65536,32 --mca btl_fabric_eager_rdma 0; }
computes_is_seen() {
  comes 100 true_of 'r[1]["state"] == "outside MPI" and r[0]["state"] == "in MPI" and r[1]["age_ms"] > 1500'
}
case_top_computes() { topping_hang computes computes_is_seen --mca btl_fabric_receive_queues P,512,32:P,65536,32; }

# Connections that break and are made anew are counted, and what is sent again.
healing_is_seen() {
  comes 600 true_of 'any(one["heals"] > 0 for one in p) and any(one["packets_resent"] > 0 for one in r)'
}
case_top_heals() {
  breaks 'error status=RETRY_EXC_ERR executed=no op=send prob=0.003'
  topping_hang talks healing_is_seen --mca btl_fabric_heal_timeout 60
}

# What an adapter counts is read where the kernel has it, which softhca stands in for.
nic_is_read() {
  local ports=$SOFTHCA_DIR/sys/class/infiniband/$dev_a/ports/1
  comes 100 true_of "told['ports'][0]['port'] == '$dev_a:1' and told['ports'][0]['counters'] == {}" || return 1
  grep -q 'the device counts nothing' <("$top" --once --job "$job") || return 1
  mkdir -p "$ports/counters" "$ports/hw_counters"
  echo 4711 > "$ports/counters/port_xmit_data" && echo 3 > "$ports/hw_counters/packet_seq_err"
  true_of 'told["ports"][0]["counters"] == {"packet_seq_err": 3, "port_xmit_data": 4711}' &&
    "$top" --once --job "$job" > told && grep -q "$dev_a:1: .*packet_seq_err 3" told
  local status=$?
  rm -rf "$ports/counters" "$ports/hw_counters"
  return $status
}
case_top_nic_counters() {
  [[ ${LD_PRELOAD-} == *softhca_fs* ]] || { echo 'SKIP the devices are not shown in /sys/class/infiniband by softhca'; exit 77; }
  topping nic_is_read
}

case_top_wrong_use() {
  needs_top
  "$top" --json > told 2>&1
  [ $? -eq 2 ] && grep -q -- '--json requires --once' told || { cat told; return 1; }
  "$top" --once --job 1073741823 > told 2>&1
  [ $? -eq 2 ] && grep -q 'there is no process 1073741823 on this host' told || { cat told; return 1; }
  "$top" --once --job $$ > told 2>&1
  [ $? -eq 2 ] && grep -q 'no process on this host shows itself' told || { cat told; return 1; }
  local interval
  for interval in 0 nan inf x; do
    timeout 60 "$top" --interval $interval > told 2>&1
    [ $? -eq 2 ] && grep -q -- '--interval' told || { cat told; return 1; }
  done
}
