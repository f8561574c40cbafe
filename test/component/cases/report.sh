# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The report at the end of a job, btl_fabric_report.

# reported NP QUEUES [MPIRUN ARGUMENT...] : a job with these receive queues, which asks for a report. Messages go one by one, so that each
# takes a credit.
reported() {
  local np=$1 queues=$2
  shift 2
  fabric "$np" --mca btl_fabric_receive_queues "$queues" --mca btl_fabric_coalesce_size 0 --mca btl_fabric_eager_rdma 0 \
    --mca btl_fabric_report 1 "$@" && says 'checks passed' && says 'btl_fabric: what this job did'
}
# waits_of COUNTER : the number in the report's section on that; 0 if there is none that matters.
waits_of() { sed -n "s/^  $1: \([0-9,]*\).*/\1/p" out | tr -d , | grep . || echo 0; }

case_report() {
  reported 8 P,4096,64:P,65536,16 "$check" --max 65536 --flood 200 && says 'processes on 1 host' && says "$dev_a:1: " &&
    says 'P,4096,64,' && says 'as btl_fabric_receive_queues says' && says 'Open MPI' && says 'MTU ' && says 'GID ' &&
    says 'the slowest took ' && says '  messages_received  ' && says_not 'no answer' && says_not 'nothing was sent'
}
case_report_of_chosen_queues() { # and a line for each connection, of either side
  fabric 2 --mca btl_fabric_report 2 --mca btl_fabric_if_include "$dev_a" "$check" $small && says '1 peers, for whom there is room' &&
    grep -qE "rank 0: $dev_a:1 is connected with .*, rank 1, .* by [a-z]+, after [0-9.]+ ms" out &&
    grep -qE "rank 1: $dev_a:1 is connected with .*, rank 0, " out
}
# What the report advises helps. It asks for more buffers of the queue that was too short.
case_report_names_what_is_short_and_what_helps() {
  reported 8 P,512,2 --mca btl_fabric_if_include "$dev_a" "$check" --max 1024 --flood 2000 || return 1
  local before
  before=$(waits_of waits_for_credit)
  [ "$before" -gt 1000 ] && grep -q 'waits_for_credit: .*, most of them on queue P,512,2,' out &&
    says 'what helps: btl_fabric_receive_queues: raise rd_num' && grep -qE '^    worst: rank [0-7] on ' out || return 1
  reported 8 P,512,2048,1536,512,8,2048 --mca btl_fabric_if_include "$dev_a" "$check" --max 1024 --flood 2000 || return 1
  [ "$(waits_of waits_for_credit)" -eq 0 ] || { echo "before $before, and then $(waits_of waits_for_credit)"; return 1; }
}
case_report_names_a_pool_that_is_too_small() {
  fabric 2 --mca btl_fabric_report 1 --mca btl_fabric_free_list_max 4 --mca btl_fabric_coalesce_size 0 \
    --mca btl_fabric_max_inline_data 0 "$check" $small && says 'what helps: btl_fabric_free_list_max: '
}
case_report_for_programs() {
  fabric 4 --mca btl_fabric_report "$work/job%j.json" "$check" $small && says 'checks passed' && says_not 'what this job did' || return 1
  local file
  file=$(ls "$work"/job*.json) && python3 -m json.tool "$file" > /dev/null || return 1
  [[ $file != *%* ]] && python3 - "$file" << 'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["processes"] == 4 and not report["silent"], report
assert [one["rank"] for one in report["ranks"]] == [0, 1, 2, 3], report
sent = report["sizes"]["messages"]
assert sum(one["count"] for one in sent if one["up_to"] <= 64) > 200, sent
assert report["sizes"]["reads"] + report["sizes"]["writes"] and report["sizes"]["most_peers"] == 3, report["sizes"]
assert any(one["name"] == "btl_fabric_report" and one["source"] == "environment" for one in report["settings"]), report["settings"]
assert report["limits"][0]["limits"]["btl_fabric_eager_limit"] >= 4096, report["limits"]
assert report["totals"]["messages_received"] == sum(one["counters"]["messages_received"] for one in report["ranks"]), report
END
}
case_report_that_cannot_be_written() {
  fabric 2 --mca btl_fabric_report "$work/nowhere/report.json" "$check" $small && says 'checks passed' &&
    says "btl_fabric_report: $work/nowhere/report.json: No such file or directory"
}
case_report_of_a_process_alone() {
  fabric 1 --mca btl_fabric_report 1 "$check" --max 1024 --flood 10 && says '1 process on 1 host' && says 'nothing was sent'
}
case_report_is_not_asked_for() {
  fabric 2 "$check" $small && says_not 'what this job did' && says_not 'is connected with' &&
    fabric 2 --mca btl_fabric_report 0 "$check" $small && says_not 'what this job did'
}
case_report_must_be_a_level_or_a_file() {
  fabric 2 --mca btl_fabric_report report.txt "$check" $small
  refuses $? && says 'btl_fabric_report is "report.txt", but must be 0, 1, 2 or the name of a file that ends in .json'
}
# Nobody waits for one who does not come to MPI_Finalize.
case_report_without_one_who_is_late() {
  stock check_late || return 1
  fabric 4 --mca async_mpi_finalize 1 --mca btl_fabric_goodbye_timeout 100 --mca btl_fabric_report 1 \
    bash -c '"$@" | while read -r line; do echo "$line at $SECONDS"; done' - "$programs/check_late" 8
  says 'no answer     from rank 3: ' && says 'processes on 1 host' && grep -qE 'come out of MPI_Finalize at [0-5]$' out
}
case_report_without_who_has_no_component() { # rank 0 among them
  local shared=sm
  [[ $(mpirun --version) != *' 4.1'* ]] || shared=vader
  # shellcheck disable=SC2016 # for the other bash
  BTLS=fabric,self,$shared fabric 4 --mca btl_fabric_report 1 bash -c \
    '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || export OMPI_MCA_btl_fabric_if_include=none; exec "$@"' - "$check" --max 4096 --flood 100
  says 'without       rank 0: ' && says 'told by       rank 1, ' && says 'ranks 1-3'
}
case_report_of_a_job_that_is_killed() {
  stock check_late || return 1
  LIMIT=60 fabric 4 --mca btl_fabric_report 1 "$programs/check_late" dies
  local status=$?
  refuses $status && [ $status -ne 124 ] && [ ! -s stacks ]
}
