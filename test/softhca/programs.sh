# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
#
# For scripts that run several test programs below softhca-run. What a program says is kept: at the end, when it failed, the
# beginning comes again, so that whoever sees only the last lines of a log sees the reason.

# The programs leave things behind at their end, as they would on hardware: that is no leak.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
# Check's time limits are there for what hangs, and may be long where a busy machine is slow.
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-5}"
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
failures=0

# try PROGRAM [OPTION...] : runs it below softhca-run with these options.
try() {
  program=$1
  shift
  echo "softhca-run $* -- $program"
  contrib/softhca/softhca-run "$@" -- "$program" > "$said/now" 2>&1
  status=$?
  cat "$said/now"
  [ $status -ne 0 ] || return 0
  failures=$((failures + 1))
  { echo "FAILED with status $status: softhca-run $* -- $program"
    # The lines of Check and of the sanitizers that tell why.
    grep -E '^[^ ]+\.cc:[0-9]+:[FE]:|ERROR: |WARNING: Thread|SUMMARY: |runtime error' "$said/now" | head -n 6
    tail -n 3 "$said/now"; } >> "$said/failed"
}

# The status of all; says again what failed.
finish() {
  [ $failures -eq 0 ] && exit 0
  echo "--- $failures failed"
  head -n 27 "$said/failed"
  exit 1
}
