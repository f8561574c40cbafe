# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Nothing goes on when a script is ended by a signal. Of itself a shell ends alone: what runs in the background ignores SIGINT, what
# timeout runs has a process group of its own, and daemons have another parent.

# with_all_ended COMMAND... : runs it in the background, and returns its status. INT, TERM or HUP ends whatever it has started, and then
# this shell in the same way. Processes have some seconds to take away what they have made; after that they are killed.
with_all_ended() {
  local signal
  # In the environment of all, also of those that have left for another parent.
  export RUN_MARK=$$-$EPOCHREALTIME
  for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # the name is wanted now
    trap "end_all; trap - $signal; kill -$signal $$" $signal
  done
  "$@" &
  wait $!
}

end_all() {
  local began=$SECONDS asked=0 found=() known=()
  trap '' INT TERM HUP
  while ((SECONDS - began < 30)); do
    find_all
    ((${#found[@]})) || return 0
    if ((SECONDS - began > 8)); then
      kill -KILL "${found[@]}"
    elif ((SECONDS - began >= 4 * asked)); then # again: some were just being made
      kill -TERM "${found[@]}"
      asked=$((asked + 1))
    fi 2> /dev/null
    sleep 0.1
  done
  echo "still there after all: ${found[*]}" >&2
}

# find_all : the processes below this shell, those with its mark, those found before and what is below these, as found. It starts
# none, which would be among them.
find_all() {
  local stat state ancestor rest pid began parent=() start=() variables
  found=()
  for stat in /proc/[0-9]*/stat; do
    pid=${stat//[!0-9]/}
    { read -r rest < "$stat"; } 2> /dev/null || continue
    read -r state ancestor _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ began _ <<< "${rest##*) }"
    [[ $state == Z ]] || parent[pid]=$ancestor start[pid]=$began
  done
  for pid in "${!parent[@]}"; do
    ((pid != $$)) || continue
    ancestor=$pid
    until ((ancestor <= 1 || ancestor == $$)) || [[ ${known[ancestor]-} == "${start[ancestor]-none}" ]]; do
      ancestor=${parent[ancestor]:-0}
    done
    # Shells that were forked have the environment that this one began with, hence the list. What is older than this shell is not looked at.
    if ((ancestor > 1)) || { ((start[pid] >= start[$$])) && { mapfile -d '' variables < "/proc/$pid/environ"; } 2> /dev/null &&
      [[ " ${variables[*]} " == *" RUN_MARK=$RUN_MARK "* ]]; }; then
      found+=("$pid")
      known[pid]=${start[pid]}
    fi
  done
}
