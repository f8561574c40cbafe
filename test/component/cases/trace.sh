# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The timeline of connection set-up.

traced() { # MPIRUN ARGUMENT... : then the files are trace.0 to trace.3
  fabric 4 --mca btl_fabric_trace "$work/trace.%r" "$@" "$check" --max 4096 --flood 100 && says 'checks passed'
}
case_trace() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has rdmacm only'; exit 77; }
  traced --mca btl_fabric_cpc_include oob && "$here/check_trace" "$work"/trace.[0-3]
}
case_trace_with_cts() {
  traced --mca btl_fabric_cpc_include rdmacm --mca btl_fabric_if_include "$dev_a" &&
    "$here/check_trace" --cts "$work"/trace.[0-3]
}
case_trace_is_drawn() {
  /usr/bin/python3 -c 'import matplotlib' 2> /dev/null || { echo 'SKIP python3-matplotlib is not installed'; exit 77; }
  traced --mca btl_fabric_if_include "$dev_a" || return 1 # 12 ends of 6 connections
  "$here/../../contrib/wireup/draw" -o "$work/wireup.png" --merge "$work/merged" "$work"/trace.[0-3] > waits || return 1
  [ "$(head -c 4 "$work/wireup.png" | tail -c 3)" = PNG ] && [ -s "$work/merged" ] && [ "$(wc -l < waits)" -eq 13 ] || {
    cat waits
    return 1
  }
}
case_trace_that_cannot_be_written() {
  fabric 1 --mca btl_fabric_trace "$work/nowhere/%r" "$check" $small
  says "btl_fabric_trace: $work/nowhere/0: No such file or directory"
}
