# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Several things at a time. MPI jobs wait more than they compute, at their start and end most of all.

lanes=${LANES:-$(($(nproc) + 1))}
lane_pids=()

# lane COMMAND... : runs it in the background, once fewer than $lanes others are running.
lane() {
  while forget_ended_lanes; ((${#lane_pids[@]} >= lanes)); do
    wait -n "${lane_pids[@]}"
  done
  "$@" &
  lane_pids+=($!)
}

forget_ended_lanes() {
  local pid left=()
  for pid in "${lane_pids[@]}"; do
    ! kill -0 "$pid" 2> /dev/null || left+=("$pid")
  done
  lane_pids=("${left[@]}")
}

all_lanes_done() {
  ((${#lane_pids[@]} == 0)) || wait "${lane_pids[@]}"
  lane_pids=()
}

# beside COMMAND... : runs it in the background, for longer than anything else and without much to do: it takes no lane, and
# all_lanes_done does not wait for it. all_done does.
beside() {
  "$@" &
  beside_pids+=($!)
}
beside_pids=()

all_done() {
  all_lanes_done
  ((${#beside_pids[@]} == 0)) || wait "${beside_pids[@]}"
}
