# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# contrib/fabric_tune. Nothing here is compared by time, which other programs of the machine have a say in: what is compared is how often
# messages have waited, or what a program pretends.

tuner=$FABRIC_BUILD/contrib/fabric_tune/fabric_tune
# starving PROGRAM [MPIRUN ARGUMENT...] : makes a program of that name, a job of two that a file of parameters gives too few receives. It
# prints how often messages have waited for a credit, and one more.
starving() {
  local program=$1
  shift
  [ -x "$tuner" ] || { echo 'SKIP FABRIC_BUILD has no fabric_tune'; exit 77; }
  rm -rf tuned.conf .fabric_tune.* # cases have one folder, and one kills fabric_tune
  echo 'btl_fabric_receive_queues = P,512,2' > site.conf
  cat > "$program" << END
#!/bin/bash
mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl fabric,self \
  --mca btl_fabric_if_include $dev_a --mca btl_fabric_coalesce_size 0 --mca btl_fabric_eager_rdma 0 $* -np 2 $check --max 512 --flood 500 || exit
python3 -c 'import glob, json, sys
print("waited:", json.load(open(glob.glob(sys.argv[1])[0]))["totals"]["waits_for_credit"] + 1)' "\${OMPI_MCA_btl_fabric_report//%j/*}"
END
  chmod +x "$program"
  export OMPI_MCA_mca_base_param_files=$work/site.conf
}
# tunes STATUS ARGUMENT... : fabric_tune, with its standard output in the file told, and what INPUT names as standard input. What does not end is given time enough for a machine
# that stands still for a while.
tunes() {
  local wanted=$1 status
  shift
  runs bash -c '"$@" < "$0" > told' "${INPUT:-/dev/null}" "$tuner" --grace "${GRACE:-100}" "$@"
  status=$?
  [ $status -eq "$wanted" ] || { echo "fabric_tune ends with status $status, not $wanted"; cat told; return 1; }
}
told() { grep -qF -- "$1" told || { echo "fabric_tune does not say: $1"; cat told; return 1; }; }
# What is kept besides the queues, which a case is about.
others='--keep mpi_preconnect_mpi --keep btl_fabric_rdma_depth --keep btl_fabric_eager_limit --keep btl_fabric_max_inline_data'

case_tune_removes_waits() {
  starving program
  # shellcheck disable=SC2086 # several words
  tunes 0 --json --proposals 1 $others --metric 'waited: ([0-9]+)' --output tuned.conf -- ./program || return 1
  python3 - told "$work/site.conf" << 'END' || return 1
import json, sys
told = json.load(open(sys.argv[1]))
first = told["proposals"][0]
queues = "btl_fabric_receive_queues"
assert first["kept"] and first["settings"][queues].startswith("P,512,"), first
wait = {one["counter"]: one for one in first["waits"]}["waits_for_credit"]
assert wait["before"] > 100 and wait["after"] * 20 < wait["before"], wait
assert len(first["figures"]) == 5 and told["gain"]["low"] > 0 and told["settings"] == first["settings"], told
was = {one["name"]: one for one in told["set"]}
assert was[queues]["value"] == "P,512,2" and was[queues]["file"] == sys.argv[2] and not was[queues]["stays"], was
assert was["btl_fabric_coalesce_size"]["stays"], was
END
  # The file does what fabric_tune has said of it.
  OMPI_MCA_btl_fabric_report=$work/after.json OMPI_MCA_mca_base_param_files=$work/tuned.conf runs ./program || return 1
  [ "$(sed -n 's/^waited: //p' out)" -lt 50 ] || { echo 'with the file messages wait'; cat out tuned.conf; return 1; }
  [ -z "$(ls -d .fabric_tune.* 2> /dev/null)" ] || { echo 'the folder for reports is left'; return 1; }
}

case_tune_keeps_what_the_user_has_set() {
  starving program --mca btl_fabric_receive_queues P,512,2
  # shellcheck disable=SC2086
  tunes 1 $others --output tuned.conf -- ./program && told 'btl_fabric_receive_queues P,512,2: set by you, in the environment or for mpirun: it stays' &&
    told 'not tried: btl_fabric_receive_queues is set by the environment or mpirun, and stays' && told 'no gain worth keeping' || return 1
  [ ! -e tuned.conf ] || { echo 'a file was written'; return 1; }
  starving program
  # shellcheck disable=SC2086
  OMPI_MCA_btl_fabric_receive_queues=P,512,2 tunes 1 $others -- ./program && told 'not tried: btl_fabric_receive_queues is set by' || return 1
  # shellcheck disable=SC2086
  tunes 1 $others --keep btl_fabric_receive_queues -- ./program && told 'not tried: btl_fabric_receive_queues is to stay' &&
    told ": set by $work/site.conf: a proposal may replace it"
}

# recorded : the report of a starved job, in the file starved.json.
recorded() {
  starving program
  OMPI_MCA_btl_fabric_report=$work/starved.json runs ./program || { cat out; return 1; }
}
# pretending TEXT : a program that leaves that report, with the queues that are set for it, and does what TEXT says.
pretending() {
  cat > pretends << END
#!/bin/bash
python3 - "\${OMPI_MCA_btl_fabric_report//%j/1}" << 'PYTHON'
import json, os, sys
report = json.load(open("$work/starved.json"))
for one in report["settings"]:
  if one["name"] == "btl_fabric_receive_queues":
    one["value"] = os.environ.get("OMPI_MCA_btl_fabric_receive_queues", one["value"])
json.dump(report, open(sys.argv[1], "w"))
PYTHON
$1
END
  chmod +x pretends
}

case_tune_from_a_report() {
  recorded && tunes 0 --from starved.json --output tuned.conf && told 'messages waited for a credit, most of them on P,512,2,' &&
    told 'none of this has been tried' && grep -q '^btl_fabric_receive_queues = P,512,64,' tuned.conf || return 1
  echo 'pml = ob1' > tuned.conf
  tunes 2 --from starved.json --output tuned.conf && says 'not written by fabric_tune' || return 1
  tunes 2 --from tuned.conf && says 'is no report' && tunes 2 --from "$work" && says "$work cannot be read" || return 1
  tunes 2 && says 'give a program' || return 1
  tunes 2 --runs 4 -- true && tunes 2 --no-such-option true && tunes 2 --metric '(' -- true && says 'no regular expression' || return 1
  GRACE=nan tunes 2 -- true && says 'nan is no number' && tunes 2 --limit nan -- true && says 'nan is no number' || return 1
  tunes 2 -- true && says 'no report of btl_fabric' && says 'fabric_doctor' || return 1
  tunes 2 -- true --mca btl_fabric_report 1 && says 'take btl_fabric_report off its command line' || return 1
  tunes 2 -- false && says 'its exit status is 1' && tunes 2 no-such-program && says 'cannot be run'
}

# One proposal fails, the other hangs.
case_tune_drops_what_fails() {
  local long=31415.$$
  # shellcheck disable=SC2016 # for the program
  recorded && pretending 'case ${OMPI_MCA_btl_fabric_receive_queues-} in P*) exit 3 ;; auto) sleep '$long' & sleep '$long' ;; esac' || return 1
  # shellcheck disable=SC2086
  GRACE=20 tunes 1 $others -- ./pretends && told 'dropped: its exit status is 3' && told 'dropped: it was ended after ' || return 1
  [ -z "$(left_of "sleep $long")" ] || { echo 'processes are left:'; left_of "sleep $long"; return 1; }
}

# Its input comes again each time, and a part of the output decides.
case_tune_by_a_metric() {
  # shellcheck disable=SC2016
  recorded && pretending 'read -r line && [ "$line" = input ] || exit 4
    case ${OMPI_MCA_btl_fabric_receive_queues-} in auto) echo "score 150 of 200" ;; *) echo "score 100 of 200" ;; esac' || return 1
  echo input > input
  # shellcheck disable=SC2086
  INPUT=input tunes 0 $others --metric 'score ([0-9]+)' --better higher -- ./pretends && told '50 % better (50 to 50 %, 5 runs), 100 -> 150' &&
    told 'no gain worth keeping: 0.0 % better (0.0 to 0.0 %, 5 runs)' && told 'together: 50 % better' || return 1
  # shellcheck disable=SC2086
  INPUT=input tunes 2 $others --metric 'points ([0-9]+)' -- ./pretends && says 'nothing that it prints matches --metric'
}

# left_of TEXT : processes of this user whose command line has that in it.
left_of() { ps -e -o pid=,stat=,args= | awk -v text="$1" 'index($0, text) && $2 !~ /^Z/ && $3 != "awk"'; }
# Whatever ends fabric_tune, the job goes.
case_tune_interrupted_leaves_nothing() {
  local signal pid status i
  starving program
  stock check_hang && cp "$programs/check_hang" "$work/hangs_here" || return 1
  for signal in INT TERM KILL; do
    rm -rf .fabric_tune.*
    env --default-signal=INT "$tuner" -- mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 \
      --mca btl fabric,self --mca btl_fabric_if_include "$dev_a" -np 2 "$work/hangs_here" receive > told 2>&1 &
    pid=$!
    for ((i = 0; i < 600; i++)); do
      ! grep -qs 'receive begins' .fabric_tune.*/output || break
      sleep 0.1
    done
    [ "$(left_of "$work/hangs_here" | grep -cv mpirun)" -ge 2 ] || { echo 'there is no job'; cat told; return 1; }
    kill -$signal $pid
    wait $pid
    status=$?
    # Killed, it cannot wait for mpirun, which ends the job by itself.
    for ((i = 0; i < 600; i++)); do
      [ $signal = KILL ] && [ -n "$(left_of "$work/hangs_here")" ] || break
      sleep 0.1
    done
    [ -z "$(left_of "$work/hangs_here")" ] || { echo "after $signal there is left:"; left_of "$work/hangs_here"; return 1; }
    [ $signal = KILL ] || { [ $status -eq 130 ] && grep -q interrupted told; } || { echo "$signal: status $status"; cat told; return 1; }
  done
  # What SIGKILL has left goes with the next run, and what belongs to one that goes on stays.
  local left lives
  left=$(ls -d .fabric_tune.*) && [ "$(wc -l <<< "$left")" -eq 1 ] || { echo "left is: $left"; return 1; }
  mkdir .fabric_tune.lives && : > .fabric_tune.lives/lock && exec {lives}> .fabric_tune.lives/lock && flock "$lives" || return 1
  "$tuner" -- true > told 2>&1
  exec {lives}>&-
  [ "$(ls -d .fabric_tune.*)" = .fabric_tune.lives ] || { echo "left are:"; ls -d .fabric_tune.*; return 1; }
}

# Whoever read what it says has enough: the same as an interruption.
case_tune_nobody_reads() {
  local long=31416.$$ status
  recorded && pretending "[ -n \"\${OMPI_MCA_btl_fabric_receive_queues-}\" ] && sleep $long & wait" || return 1
  timeout 200 "$tuner" --grace 150 -- ./pretends 2>&1 | head -n 1 > told
  status=${PIPESTATUS[0]}
  [ "$status" -eq 2 ] && told 'the program as it is' || { echo "status $status"; return 1; }
  [ -z "$(left_of "sleep $long")" ] || { echo 'processes are left:'; left_of "sleep $long"; return 1; }
  [ -z "$(ls -d .fabric_tune.* 2> /dev/null)" ] || { echo 'the folder for reports is left'; return 1; }
}
