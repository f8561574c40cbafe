# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Jobs that hang, each on purpose and in its own way: contrib/fabric_hang says who waits for whom.

# hanging WAY COMMAND [MPIRUN ARGUMENT...] : while a job of two processes hangs, COMMAND is run, with the PID of mpirun in `job`
# and those of the processes in `ranks`. Its exit status is given, and the job is ended. Variable PROGRAM: another name of check_hang.
hanging() {
  local way=$1 looks=$2 job status i ranks=() program
  shift 2
  hang=$FABRIC_BUILD/contrib/fabric_hang/fabric_hang
  [ -x "$hang" ] || { echo 'SKIP FABRIC_BUILD has no fabric_hang'; exit 77; }
  stock check_hang || return 1
  program=${PROGRAM:-$programs/check_hang}
  : > out
  mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl fabric,self \
    --mca btl_fabric_if_include "$dev_a" "$@" -np 2 "$program" "$way" > out 2>&1 < /dev/null &
  job=$!
  for ((i = 0; i < 600; i++)); do
    ! grep -q "check_hang: $way begins" out || break
    sleep 0.1
  done
  mapfile -t ranks < <(ranks_in_order)
  $looks
  status=$?
  kill -CONT "${ranks[@]}"
  kill $job
  wait $job
  [ $status -eq 0 ] || cat told
  return $status
}
# ranks_in_order : the PIDs of rank 0 and rank 1.
ranks_in_order() {
  local pid
  for pid in $(ranks_of "$job" "$program"); do
    echo "$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p') $pid"
  done | sort -n | cut -d' ' -f2
}
# it_says STATUS TEXT... : fabric_hang about this job, until it says all that, for at most half a minute: what it is about may
# not have happened yet.
it_says() {
  local status=$1 i text
  shift
  for ((i = 0; i < 15; i++)); do
    "$hang" --job "$job" > told 2>&1
    if [ $? -eq "$status" ]; then
      for text in "$@"; do
        grep -qF -- "$text" told || continue 2
      done
      return 0
    fi
  done
  echo "fabric_hang does not say with status $status: $*"
  return 1
}

receive_is_missing() {
  it_says 0 'NOTHING WAITS IN THE TRANSPORT' 'in MPI_Recv, called from check_hang+0x' 'rank 0 has sent rank 1 4 packets, which has taken 4' \
    'matches no receive'
}
case_hang_receive_is_missing() { hanging receive receive_is_missing; }

rank_1_is_stopped() {
  kill -STOP "${ranks[1]}"
  it_says 1 "rank 1 (pid ${ranks[1]} on " 'is stopped, by SIGSTOP or a debugger' 'it holds up rank 0' 'waits for rank 1; nothing has moved for at least'
}
# Nobody posts the receives of a process that is stopped, so its peer waits for a credit, or for a buffer.
case_hang_process_is_stopped() { hanging stream rank_1_is_stopped --mca btl_fabric_receive_queues P,512,32:P,65536,32; }

rank_1_computes() { it_says 1 "rank 1 (pid ${ranks[1]} on " 'computes outside MPI' 'it holds up rank 0' "rank 0 (pid ${ranks[0]} on "; }
case_hang_process_computes() { hanging computes rank_1_computes --mca btl_fabric_receive_queues P,512,32:P,65536,32; }

# lose RANK : from now on what this rank sends is lost, without a word.
lose() {
  local slot
  slot=$("$ctl" list | sed -n "s/^slot \([0-9]*\) pid ${ranks[$1]} .*/\1/p")
  echo "lose op=send slot=$slot" | "$ctl" faults -
}
credits_are_lost() {
  lose 1 && it_says 1 'waits for rank 1; nothing has moved' 'for a credit: the peer has not taken' 'WHO WAITS FOR WHOM' \
    'rank 0 to rank 1 on ' ' of 32 on queue P,' ' have been given back by the receiver and not arrived at the sender' 'in MPI_Recv'
}
case_hang_credits_are_lost() {
  local ctl
  needs_ctl
  hanging stream credits_are_lost --mca btl_fabric_receive_queues P,512,32,24,16,8,32:P,65536,32
}
message_is_lost() { lose 0 && it_says 1 'LOST, OR STUCK ON THE WAY' 'rank 0 to rank 1 on ' 'been sent and not arrived' 'in MPI_Sendrecv'; }
case_hang_message_is_lost() {
  local ctl
  needs_ctl
  hanging talks message_is_lost
}

# Nothing hangs; and both looks, as JSON, are what another host's may be.
works() {
  it_says 0 'AT WORK' 'ranks 0, 1: messages have gone or come' || return 1
  "$hang" --job "$job" --json > told.json && python3 - told.json << 'END' || return 1
import json, sys
told = json.load(open(sys.argv[1], encoding="utf-8"))
assert sorted(one["rank"] for one in told["processes"]) == [0, 1], told["processes"]
assert all(one["answer"]["ports"][0]["peers"] for one in told["processes"])
assert told["jobs"][0]["moving"] and not told["jobs"][0]["waits"]
END
  mkdir -p collected && "$hang" --collect collected "${ranks[0]}" && mv collected/*.json collected/first &&
    "$hang" --collect collected "${ranks[1]}" && "$hang" collected/* > told && grep -q 'ranks 0, 1: messages' told &&
    cat collected/* | "$hang" - > told && grep -q 'ranks 0, 1: messages' told && "$hang" "${ranks[1]}" > told &&
    grep -q 'NOT ASKED' told && grep -qF 'rank 0: on other hosts' told
}
case_hang_nothing_hangs() {
  need python3 'no python3'
  hanging talks works
}

# hang_refuses TEXT ARGUMENT... : a wrong use.
hang_refuses() {
  local text=$1
  shift
  "$hang" "$@" > told 2>&1
  [ $? -eq 2 ] && grep -qF -- "$text" told || { echo "not said with status 2: $text"; return 1; }
}
wrong_questions() {
  hang_refuses "process $$: does not run btl_fabric" $$ && hang_refuses 'process 999999999: there is none' 999999999 &&
    hang_refuses 'cannot be read' ./nowhere.json && hang_refuses 'give PIDs, files or --job' "${ranks[0]}" file &&
    hang_refuses '--timeout: ' --timeout 0 && hang_refuses 'nan is no number' --timeout nan &&
    hang_refuses 'nan is no number' --apart nan && hang_refuses '--job: ' --job x && hang_refuses 'not expected' --unknown || return 1
  echo '{}' > nothing.json
  hang_refuses 'nothing.json is none of --json or --collect' nothing.json && hang_refuses 'has started none' --job 1073741823 &&
    hang_refuses 'cannot be written' --collect ./nowhere "${ranks[0]}" || return 1
  "$hang" "${ranks[0]}" > /dev/full 2> told
  [ $? -eq 2 ] && grep -qF 'standard output cannot be written' told || return 1
  (ulimit -n 4 && exec "$hang" "${ranks[@]}") > told 2>&1
  grep -qF 'was not asked: fabric_hang has no file descriptor left' told || return 1
  echo '{"processes": [{"rank": "none"}]}' > nothing.json
  hang_refuses 'that is not what --json or --collect write' nothing.json || return 1
  # A process that does not run the component is passed over, and so is one that may not be looked at.
  "$hang" "${ranks[@]}" $$ > told 2>&1 && grep -qF "process $$: does not run btl_fabric" told && grep -qF "rank 1 (pid ${ranks[1]} on " told || return 1
  if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null && cp "$hang" "/tmp/fabric_hang.$$"; then
    hang=/tmp/fabric_hang.$$
    setpriv --reuid 65534 --clear-groups "$hang" "${ranks[0]}" > told 2>&1
    i=$?
    rm -f "$hang"
    [ $i -eq 2 ] && grep -qF 'belongs to root, and may not be looked at' told || return 1
  fi
}
case_hang_wrong_questions() { hanging receive wrong_questions; }

nobody_is_answered() { it_says 0 'ranks 0, 1 each: takes no questions' && "$hang" --job "$job" --json > told; }
case_hang_socket_off() { hanging receive nobody_is_answered --mca btl_fabric_hang_socket 0; }

# Signals and questions may come at any time.
storm() {
  local i
  for ((i = 0; i < 150; i++)); do
    kill -USR1 "${ranks[@]}" || return 1
    ((i % 10)) || "$hang" --job "$job" --apart 0.1 > told 2>&1 || [ $? -eq 1 ] || return 1
    sleep 0.01
  done
  grep -q 'rank 0, .*:$' out && grep -q 'peer.*nothing waits\|nothing has moved' out || { echo 'nothing has been dumped'; return 1; }
  it_says 0 'AT WORK'
}
case_hang_storm_of_signals() { hanging checks storm --mca btl_fabric_dump_signal USR1 && ! grep -q 'wrong' out; }

# The name of a process, which is not asked for it, is its own affair: here with a byte that is no UTF-8, and one that a terminal obeys.
name_is_shown() {
  it_says 0 'check_?hang?' 'takes no questions' && "$hang" --job "$job" --json > told && python3 - << 'END'
import json
told = json.load(open("told"))
assert [one["program"] for one in told["processes"]] == ["check_?hang?"] * 2, told["processes"]
END
}
case_hang_name_of_any_bytes() {
  need python3 'no python3'
  stock check_hang && ln -sf "$programs/check_hang" $'./check_\xe4hang\a' && PROGRAM=$PWD/$'check_\xe4hang\a' hanging receive name_is_shown --mca btl_fabric_hang_socket 0
}

# Any process may say that it runs the component, take questions, and answer what it likes: that is told of, and others are diagnosed.
liars_are_told_of() {
  local liars status=0
  echo > mca_btl_fabric.so
  cat > liar.py << 'END'
import mmap, os, socket, sys, time
def listen(pid):
    taken = socket.socket(socket.AF_UNIX)
    taken.bind("\0btl_fabric.%d.%d" % (os.stat("/proc/self/ns/pid").st_ino, pid))
    taken.listen(16)
    return taken
loaded = open("mca_btl_fabric.so", "rb")
page = mmap.mmap(loaded.fileno(), 0, access=mmap.ACCESS_READ)
if sys.argv[1] == "victim":  # somebody else has taken its address
    print(os.getpid(), flush=True)
    time.sleep(600)
own = listen(os.getpid())
other = listen(int(sys.argv[2]))
print(os.getpid(), flush=True)
greeting = b'{"host": "a\\u001b]0;x\\u0007", "job": 1, "rank": 0, "pid": 1, "connections": []}\n'
while True:
    asker = own.accept()[0]
    try:
        asker.sendall(greeting + sys.argv[1].encode() + b"\n")
    except OSError:
        pass
    asker.close()
END
  python3 liar.py victim > victim & liars=$!
  comes 600 test -s victim || status=1
  python3 liar.py '{"ports": "x"}' "$(cat victim)" > liar & liars+=" $!"
  comes 600 test -s liar || status=1
  "$hang" "$(cat liar)" "$(cat victim)" "${ranks[@]}" > told 2>&1
  [ $? -eq 0 ] && grep -qF "rank 0 has sent rank 1 4 packets, which has taken 4" told && grep -qF 'says what is no answer of btl_fabric' told &&
    grep -qF 'another process has taken its address' told && ! grep -q $'\e' told || status=1
  "$hang" --json "$(cat liar)" "$(cat victim)" "${ranks[@]}" > told.json && python3 - told.json << 'END' || status=1
import json, sys
told = json.load(open(sys.argv[1], encoding="utf-8"))["processes"]
assert [one.get("silent", {}).get("why") for one in told] == ["nonsense", "impostor", None, None], told
assert told[0]["host"] == "a?]0;x?" and told[0]["pid"] != 1, told[0]
END
  # So may who writes a file.
  sed 's/MPI_Recv/MPI_\\u001b[2J/' told.json > written.json && "$hang" written.json > told 2>&1
  [ $? -eq 0 ] && grep -qF 'in MPI_?[2J' told && ! grep -q $'\e' told || status=1
  # shellcheck disable=SC2086 # several
  kill $liars
  return $status
}
case_hang_liars() {
  need python3 'no python3'
  hanging receive liars_are_told_of
}
