# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Connections that break and are made anew (btl_fabric_heal_timeout): the device's fault rules break them, with what was under way
# executed by the peer or not, and every message must arrive once, in order and as it was.

# breaks RULE : from now on each job meets it.
breaks() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca breaks connections when it is told to'; exit 77 ;; esac
  printf '%s\n' "$1" > rules
  : > no_rules
  trap 'ctl faults no_rules' EXIT
  ctl faults rules
}
# Some connection was made anew, or left for another port until the end.
says_healed() {
  grep -qE 'made anew after|what is sent goes by' out || { echo 'no connection was made anew'; return 1; }
}
# heals NP [OPTION]... : check_mpi, by every method, with and without what was under way being executed. It says that connections
# were made anew, and nothing else is wrong.
heals() {
  local executed method
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed op=send prob=0.003"
    for method in $(methods); do
      # shellcheck disable=SC2086 # several words
      fabric "$1" --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 --mca btl_fabric_cpc_include "$method" "${@:2}" \
        "$check" $small && says 'checks passed' && says_healed ||
        { echo "by $method, executed=$executed"; return 1; }
    done
  done
}
case_heals_two_processes() { heals 2; }
case_heals_four_processes() { heals 4; }
case_heals_two_devices() { heals 2 --mca btl_fabric_if_include "$dev_a,$dev_b"; }
case_heals_own_receives() { heals 2 --mca btl_fabric_receive_queues P,4096,8,4:P,65536,8,4; }
case_heals_shared_receives() { heals 2 --mca btl_fabric_receive_queues S,4096,64:S,65536,64; }
case_heals_few_buffers() { heals 2 --mca btl_fabric_free_list_max 16; }
case_heals_without_inline() { heals 2 --mca btl_fabric_max_inline_data 0; }
case_heals_without_packets() { heals 2 --mca btl_fabric_coalesce_size 0; }
case_heals_contexts() { heals 2 --mca btl_fabric_tx_contexts 2; }
# Reads and writes break too. An atomic operation of the device is an error when it does, so the target's processor executes them.
case_heals_rma() {
  local executed
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed prob=0.003"
    fabric 2 --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 --mca btl_fabric_device_atomics 0 --mca osc rdma "$check" --rma --max 65536 &&
      says 'checks passed' && says_healed || { echo "executed=$executed"; return 1; }
  done
}
# The first that is heard of it is that requests have been flushed.
case_heals_what_is_flushed() {
  local executed
  for executed in no yes; do
    breaks "error status=WR_FLUSH_ERR executed=$executed op=send prob=0.003"
    fabric 2 --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 "$check" $small && says 'checks passed' &&
      says_healed || { echo "executed=$executed"; return 1; }
  done
}
# What was written into the peer's memory, and seen there or not, goes over a queue the second time.
case_heals_eager_rdma() {
  [ $link != iwarp ] || { echo 'SKIP iWARP has no eager RDMA'; exit 77; }
  local executed
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed prob=0.003"
    fabric 3 --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 --mca btl_fabric_eager_rdma 1 \
      --mca btl_fabric_eager_rdma_threshold 1 "$check" --max 16384 --flood 1000 &&
      says 'checks passed' && says_healed || { echo "executed=$executed"; return 1; }
  done
}
case_heals_counters() {
  breaks 'error status=RETRY_EXC_ERR op=send every=20'
  counts --mca btl_fabric_heal_timeout 60 -- connections_healed=1 packets_resent=1
}
# An interface that is down for five seconds, in the middle of a job: nothing is lost. (By oob: whether rxe's communication manager gets
# an answer through afterwards is not sure.)
case_heals_a_link_that_was_down() {
  case $dev_a in rxe*) ;; *) echo 'SKIP only soft RoCE has an interface that this can take down'; exit 77 ;; esac
  stock check_soak || return 1
  rm -f out
  (
    until grep -qs 'each has spoken' out; do sleep 0.1; done
    ip link set va down
    sleep 5
    ip link set va up
  ) &
  check=$programs/check_soak OMPI_MCA_btl_fabric_heal_timeout=60 OMPI_MCA_btl_fabric_timeout=14 OMPI_MCA_btl_fabric_cpc_include=oob \
    fabric_pair if_include="$dev_a" if_include="$dev_b" 12 && says 'as they were sent' && says 'made anew after'
  local status=$?
  kill $! 2> /dev/null
  ip link set va up
  return $status
}
# both_ports_but_one NP KIB SECONDS [UP] : check_soak over both devices, and the port of the first goes down, for good or for UP seconds.
both_ports_but_one() {
  local pid status
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a port that goes down when it is told to'; exit 77 ;; esac
  stock check_soak || return 1
  rm -f out
  trap 'ctl port-up 0 0 1' EXIT
  (
    until grep -qs 'each has spoken' out; do sleep 0.1; done
    ctl port-down 0 0 1
    [ -z "$4" ] || { sleep "$4"; ctl port-up 0 0 1; }
  ) &
  pid=$!
  fabric "$1" --mca btl_base_verbose 1 --mca btl_fabric_if_include "$dev_a,$dev_b" --mca btl_fabric_heal_timeout 3 \
    --mca btl_fabric_timeout 12 "$programs/check_soak" "$3" "$2"
  status=$?
  kill $pid 2> /dev/null
  ctl port-up 0 0 1
  return $status
}
# What it has left, and all that is sent meanwhile, goes by the other one, for longer than heal_timeout.
case_heals_by_another_port() {
  local kib
  for kib in 16 4000; do
    both_ports_but_one 2 $kib 6 '' && says 'what is sent goes by' && says 'as they were sent' || return 1
  done
}
case_heals_by_another_port_for_a_while() {
  both_ports_but_one 3 64 9 1 && says 'what is sent goes by' && says 'made anew after' && says 'as they were sent'
}
# In the virtual machine soft RoCE's interface goes down and stays so, and soft iWARP's link carries on.
case_heals_by_another_device_of_the_kernel() {
  case $dev_a in rxe*) ;; *) echo 'SKIP only soft RoCE has an interface that this can take down'; exit 77 ;; esac
  rdma link show 2> /dev/null | grep -q siw0 || { echo 'SKIP there is no soft-iWARP device'; exit 77; }
  stock check_soak || return 1
  local pid status
  rm -f out
  (
    until grep -qs 'each has spoken' out; do sleep 0.1; done
    sleep 1
    ip link set va down
  ) &
  pid=$!
  check=$programs/check_soak OMPI_MCA_btl_fabric_heal_timeout=10 OMPI_MCA_btl_fabric_timeout=14 \
    fabric_pair if_include="$dev_a,siw0" if_include="$dev_b,siw1" 20 && says 'what is sent goes by' && says 'as they were sent'
  status=$?
  kill $pid 2> /dev/null
  ip link set va up
  return $status
}
# Reads, writes and the component's own atomics too. A port that never works does not end the job, whatever the peer has executed.
case_heals_rma_by_another_port() {
  local executed program
  stock check_accumulate || return 1
  for executed in no yes; do
    breaks "error status=RETRY_EXC_ERR executed=$executed device=0"
    for program in "$programs/check_accumulate" "$check --rma --max 65536"; do
      # shellcheck disable=SC2086 # several words
      fabric 3 --mca btl_base_verbose 1 --mca btl_fabric_if_include "$dev_a,$dev_b" --mca btl_fabric_heal_timeout 3 \
        --mca btl_fabric_device_atomics 0 --mca osc rdma $program && says 'checks passed' && says 'what is sent goes by' ||
        { echo "executed=$executed: $program"; return 1; }
    done
  done
}
case_counters_of_another_port() {
  breaks 'error status=RETRY_EXC_ERR device=0 op=send'
  counts --mca btl_fabric_if_include "$dev_a,$dev_b" --mca btl_fabric_stripe_size 0 --mca btl_fabric_heal_timeout 60 -- carried_by_other_ports=1
}
# For ten minutes (on InfiniBand; elsewhere one), with a failure every 50 ms or so: nothing is lost, doubled or reordered, and memory is
# level at the end.
case_heals_for_ten_minutes() {
  local breaks seconds=60
  [ $link != ib ] || seconds=600
  breaks 'error status=RETRY_EXC_ERR op=send prob=0.0003' # a connection every 20 to 200 ms, as fast as the machine is
  limit=900
  stock check_soak && fabric 3 --mca btl_base_verbose 1 --mca btl_fabric_heal_timeout 60 "$programs/check_soak" $seconds && says 'as they were sent' || return 1
  breaks=$(grep -cE 'made anew after|what is sent goes by' out)
  [ "$breaks" -gt $((2 * seconds)) ] || { echo "only $breaks connections have broken"; return 1; }
}
# A message that the way to the peer does not take breaks every connection that it is sent over: that is told in the end.
case_heals_not_for_ever() {
  breaks 'error status=RETRY_EXC_ERR min_bytes=40000'
  fabric 2 --mca btl_fabric_heal_timeout 3 --mca btl_fabric_timeout 14 "$check" $small
  refuses $? && says 'the way to the peer does not take it'
}
# A peer whose process has died is not waited for: its host answers that nobody listens there. (On iWARP a full backlog looks alike.)
case_heals_no_dead_peer() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a timeout that is this short'; exit 77 ;; esac
  [ $link != iwarp ] || { echo 'SKIP on iWARP the end of a listener cannot be told from a full backlog'; exit 77; }
  stock check_death || return 1
  local method start
  for method in $(methods); do
    start=$SECONDS
    fabric 2 --enable-recovery --mca btl_fabric_cpc_include "$method" --mca btl_fabric_timeout 14 --mca btl_fabric_heal_timeout 600 \
      "$programs/check_death" after
    [ $? -ne 124 ] || { echo "$method: the job hung"; return 1; }
    says_not 'was not told' && says 'could not connect two processes' || { echo "by $method"; return 1; }
    [ $((SECONDS - start)) -lt 30 ] || { echo "by $method: it took $((SECONDS - start)) s"; return 1; }
  done
}
# Only one of the paths of a port carries short messages, and only through that one the upper layer answers them.
case_heals_by_another_path() {
  breaks 'error status=RETRY_EXC_ERR op=send prob=0.001'
  LIMIT=100 fabric 2 --mca btl_base_verbose 1 --mca btl_fabric_paths 2 --mca btl_fabric_flags 0x1 "$check" --max 1000000 --flood 10000 &&
    says 'checks passed' && says_healed
}
