# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# A device that is removed in the middle of a job (IBV_EVENT_DEVICE_FATAL): what went through it goes through another one.

gone='An RDMA device that this job uses is gone'
# loses_device SECONDS NP [MPIRUN ARGUMENT...] : a job over both devices, or `devices`, that loses the first one so long after it has
# a queue pair that is connected, or has said what `begins_with` is. The exit status is the job's. One that has ended before is run again.
loses_device() {
  local seconds=$1 np=$2 pid status
  shift 2
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a device that fails when it is told to'; exit 77 ;; esac
  for _ in 1 2 3 4 5 6; do
    rm -f out
    (
      if [ -n "${begins_with-}" ]; then
        until grep -qs "$begins_with" out; do sleep 0.1; done
      else
        until ctl list | grep -q '^  qp .*: RTS'; do sleep 0.1; done
      fi
      sleep "$seconds"
      ctl device-fatal 0 0
    ) &
    pid=$!
    fabric "$np" --mca btl_base_verbose 1 --mca btl_fabric_if_include "${devices:-$dev_a,$dev_b}" "$@"
    status=$?
    kill $pid 2> /dev/null
    wait $pid 2> /dev/null
    [ $status -ne 0 ] || grep -qF "$gone" out || continue
    break
  done
  return $status
}
# soaks SECONDS NP KIB [MPIRUN ARGUMENT...] : check_soak with messages of up to so many KiB.
soaks() {
  local begins_with='each has spoken'
  stock check_soak && loses_device "$1" "$2" "${@:4}" "$programs/check_soak" 5 "$3" && goes_on_without_it && says 'as they were sent'
}
goes_on_without_it() {
  says "$gone" && says 'goes through other devices from now on' && says 'what is sent goes by' &&
    says_not 'has failed, and with it' && says_not 'has broken. The job ends'
}
case_device_gone() {
  local kib
  for kib in 16 4000; do
    soaks 1 2 $kib || { echo "with $kib KiB"; return 1; }
  done
}
case_device_gone_of_four_processes() { soaks 1 4 64; }
case_device_gone_own_receives() { soaks 1 2 64 --mca btl_fabric_receive_queues P,4096,8,4:P,65536,8,4; }
case_device_gone_shared_receives() { soaks 1 2 64 --mca btl_fabric_receive_queues S,4096,64:S,65536,64; }
case_device_gone_contexts() { soaks 1 2 64 --mca btl_fabric_tx_contexts 2; }
# Messages go by other contexts than those whose buffers they have.
case_device_gone_with_threads() {
  loses_device 0.2 2 --mca btl_fabric_tx_contexts 3 --mca btl_fabric_flags 0x1 \
    --mca btl_fabric_rx_steering 'tag=match:2;tag=frag:1;tag=ack:0;tag=fin:2' "$check" --threads 4 --max 65536 --rounds 3 &&
    says "$gone" && says 'checks passed'
}
case_device_gone_paths() { soaks 1 2 2000 --mca btl_fabric_paths 2; }
# While some processes are not connected yet.
case_device_gone_early() {
  stock check_soak || return 1
  local seconds
  for seconds in 0 0.05 0.1 0.2 0.3; do
    loses_device $seconds 4 "$programs/check_soak" 2 64 && says "$gone" && says 'as they were sent' || { echo "after $seconds s"; return 1; }
  done
}
# Collectives, pieces of large messages, a flood: all of check_mpi.
case_device_gone_in_the_middle() {
  local seconds
  for seconds in 0.3 0.6 1; do
    loses_device $seconds 3 --mca btl_fabric_flags 0x1 "$check" --max 1000000 --flood 20000 --rounds 3 &&
      says "$gone" && says 'checks passed' || { echo "after $seconds s"; return 1; }
  done
}
# Reads, writes and the component's own atomics.
case_device_gone_rma() {
  local program seconds
  stock check_accumulate || return 1
  for seconds in 0 0.1; do
    for program in "$programs/check_accumulate 5" "$check --rma --max 65536 --rounds 3"; do
      # shellcheck disable=SC2086 # several words
      loses_device $seconds 3 --mca btl_fabric_device_atomics 0 --mca osc rdma $program && says 'checks passed' &&
        says "$gone" || { echo "after $seconds s: $program"; return 1; }
    done
  done
}
# A device that nothing can take the place of: that is told, and the job ends at once.
ends_without_it() {
  local start=$SECONDS begins_with='each has spoken'
  loses_device 1 2 "$@" "$programs/check_soak" 30 64
  refuses $? && says "$gone" && says 'There is no other device to go on with: the job ends' &&
    says_not 'what is sent goes by' || return 1
  [ $((SECONDS - start)) -lt 25 ] || { echo "it took $((SECONDS - start)) s"; return 1; }
}
case_device_gone_and_no_other() {
  stock check_soak && devices=$dev_a ends_without_it && ends_without_it --mca btl_fabric_heal_timeout 0
}
case_device_gone_with_x_queues() {
  [ $link = ib ] || { echo 'SKIP only InfiniBand has X queues'; exit 77; }
  stock check_soak && ends_without_it --mca btl_fabric_receive_queues X,4096,64:X,65536,64
}
# of_one_node NP PROGRAM... : on the hosts of the fabric, of which the first loses a device when the program has said that each has spoken; the file `lost`
# is there after that. The device of the others is there; they hear of it by what they send, by other devices, and by requests for a
# connection that are refused.
of_one_node() {
  rm -f out lost
  # shellcheck disable=SC2016 # for the other bash
  CTL=$(command -v softhca-ctl || echo "$FABRIC_BUILD/contrib/softhca/softhca-ctl") \
    fabric "$1" --mca btl_base_verbose 1 --mca btl_fabric_cpc_include "$method" \
    bash -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || {
        for ((i = 0; i < 600; i++)); do grep -qs "each has spoken" out && break; sleep 0.1; done
        sleep 0.5; "$CTL" device-fatal 0 0; sleep 0.5; : > lost
      } & exec "$@"' - "${@:2}"
}
# Methods that serve both devices.
of_both_devices() { [ "$link" = ib ] && echo oob || methods; }
on_two_nodes() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a device that fails when it is told to'; exit 77 ;; esac
  new_fabric --nodes 2 --devices 2
}
case_device_gone_of_one_node() {
  local method
  stock check_soak && on_two_nodes || return 1
  for method in $(of_both_devices); do
    of_one_node 4 "$programs/check_soak" 5 64 && goes_on_without_it && says 'as they were sent' || { echo "by $method"; return 1; }
  done
}
case_device_gone_before_first_contact() {
  local method
  stock check_after && on_two_nodes || return 1
  for method in $(of_both_devices); do
    of_one_node 6 "$programs/check_after" lost && goes_on_without_it && says 'as they were sent' || { echo "by $method"; return 1; }
  done
}
# What a child sends by a port that is not connected goes by one that is: it waits for nothing before it disconnects.
case_device_gone_and_children() {
  local method
  stock check_child && on_two_nodes || return 1
  for method in $(of_both_devices); do
    of_one_node 2 "$programs/check_child" lost && says "$gone" && says 'as they were sent' || { echo "by $method"; return 1; }
  done
}
# Registrations fail before anybody has been told why.
case_device_gone_told_late() {
  local method
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a device that fails when it is told to'; exit 77 ;; esac
  stock check_windows && new_fabric --devices 2 --set fatal_us=1000000 || return 1
  for method in $(of_both_devices); do
    OMPI_MCA_osc=rdma of_one_node 2 "$programs/check_windows" lost && says "$gone" && says 'all is there that was put' || { echo "by $method"; return 1; }
  done
}
