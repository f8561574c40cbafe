# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Large reads and writes over several ports at once.

# pair_counts [MPIRUN ARGUMENT...] -- NAME=LEAST[-MOST]... : counts, over two devices.
pair_counts() { counts --mca btl_fabric_if_include "$dev_a,$dev_b" "$@"; }
# The receiver reads 8 messages of 1 MiB, half of each over either device, but for the first ones, if only one is connected by then.
case_striped_reads() { pair_counts -- rdma_striped=1-8 gets=9-16 get_bytes=8388608-8388608; }
case_striped_writes() { pair_counts --mca btl_fabric_flags 0x3 -- rdma_striped=1 puts=9 put_bytes=1-8388608; }
case_striped_from_a_size_on() { # which the messages have, and have not
  pair_counts --mca btl_fabric_stripe_size 1m -- rdma_striped=1-8 &&
    pair_counts --mca btl_fabric_stripe_size 1048577 -- rdma_striped=0-0 gets=8-8 &&
    pair_counts --mca btl_fabric_stripe_size 0 -- rdma_striped=0-0 gets=8-8
}
long='--max 3000000 --flood 100'
# over_both [MPIRUN ARGUMENT...] : messages of all sizes and kinds of data, of which either device carries some.
over_both() {
  # shellcheck disable=SC2086 # several words
  watched 2 "$@" "$check" $long && says 'checks passed' && carries "$dev_a" && carries "$dev_b"
}
case_striped_messages() { over_both; }
case_striped_messages_written() { over_both --mca btl_fabric_flags 0x3; }
# One process has two devices, the other one with two ports: what it may write there it may not read.
case_striped_messages_to_one_device() {
  case $dev_a in softhca*) ;; *) echo 'SKIP the device has one port'; exit 77 ;; esac
  new_fabric --devices 2 --ports 2
  export OMPI_MCA_btl_fabric_flags=0x3
  # shellcheck disable=SC2086 # several words
  fabric_pair "if_include=$dev_a:1,$dev_b:1" "if_include=$dev_a" $long && says 'checks passed' &&
    fabric_pair "if_include=$dev_a" "if_include=$dev_a:1,$dev_b:1" $long && says 'checks passed'
}
case_striped_messages_in_a_pipeline() { over_both --mca mpi_leave_pinned 0; }
case_striped_at_any_size() { # also of less than a page, which one port takes
  over_both --mca btl_fabric_stripe_size 1 && over_both --mca btl_fabric_stripe_size 1 --mca btl_fabric_flags 0x3 &&
    fabric 3 --mca osc rdma --mca btl_fabric_stripe_size 1 "$check" --rma --max 65536 && says 'checks passed'
}
case_striped_rma() {
  fabric 4 --mca osc rdma "$check" --rma --max 1000000 && says 'checks passed' &&
    fabric 2 --mca osc rdma "$check" --rma --max 3000000 && says 'checks passed'
}
case_striped_rma_between_hosts() { # where atomics are the device's
  OMPI_MCA_osc=rdma between_hosts 2 "$check" --rma --no-dynamic --max 1000000 && says 'checks passed'
}
case_striped_rma_one_at_a_time() {
  fabric 2 --mca osc rdma --mca btl_fabric_rdma_depth 1 "$check" --rma --max 1000000 && says 'checks passed'
}
case_striped_registers_everything() { over_both --mca btl_fabric_force_mr 1; }
case_striped_contexts() { with_contexts 2 2 --mca btl_fabric_stripe_size 65536 --mca btl_fabric_paths 2; }
# What is written comes in any order, and later than what follows it over another device.
case_striped_in_any_order() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca can put writes out of order'; exit 77 ;; esac
  new_fabric --devices 2 --async 300 --set chaos_order=yes
  over_both && over_both --mca btl_fabric_flags 0x3 &&
    fabric 3 --mca osc rdma "$check" --rma --max 1000000 && says 'checks passed'
}
case_striped_by_one_side() { # the other one registers with one device, and its memory is reached through that
  # shellcheck disable=SC2086 # several words
  fabric_pair stripe_size=0 stripe_size=65536 $long && says 'checks passed' &&
    fabric_pair stripe_size=65536 stripe_size=0 --rma --max 1000000 && says 'checks passed'
}
# Every port reads and writes what was registered with every other one, whose key comes first.
case_striped_over_ports_in_any_order() {
  btl_user check_rails || return 1
  local two="--mca btl_fabric_if_include $dev_a,$dev_b"
  # shellcheck disable=SC2086 # several words
  fabric 2 $two "$programs/check_rails" 300001 && says '2 ports, 4 reads' &&
    fabric 2 $two --mca btl_fabric_paths 2 "$programs/check_rails" 300001 && says '4 ports, 16 reads' &&
    fabric 2 $two --mca btl_fabric_rdma_depth 1 "$programs/check_rails" 300001 && says '2 ports, 4 reads' || return 1
  case $dev_a in softhca*) ;; *) return 0 ;; esac
  new_fabric --devices 4 --ports 2 --async 200 --set chaos_order=yes
  fabric 2 "$programs/check_rails" 300001 && says '8 ports, 64 reads'
}
# piece_is_lost OP [MPIRUN ARGUMENT...] : one over the second device is, and with it the connection.
piece_is_lost() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has faults by rule'; exit 77 ;; esac
  echo "error op=$1 device=1 min_bytes=100000 nth=5 status=RETRY_EXC_ERR" > lost
  new_fabric --devices 2 --faults "$PWD/lost"
  fabric 2 --mca btl_fabric_heal_timeout 0 "${@:2}" "$check" --max 3000000 --flood 100
  refuses $? && says 'softhca1'
}
case_striped_read_is_lost() { piece_is_lost read; }
case_striped_write_is_lost() { piece_is_lost write --mca btl_fabric_flags 0x3; }

# Several paths of a port.

case_paths() { # have a queue pair each for every receive queue
  local paths pairs
  for paths in 1 2 3; do
    over_both --mca btl_fabric_paths $paths --mca btl_fabric_receive_queues P,4096,64:P,65536,16 || return 1
    pairs=$(grep -c "^gone: $dev_b:1 " "$work/verbs.0")
    # or more, where both sides have begun to connect
    [ "$pairs" -eq $((2 * paths)) ] || { [ "$link" = iwarp ] && [ "$pairs" -ge $((2 * paths)) ]; } || { echo "$pairs queue pairs for $paths paths"; return 1; }
  done
}
case_paths_of_one_device() { # take a part each of a large message, and small ones go the first path
  local busy
  counts --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_paths 2 -- rdma_striped=1-8 gets=9-16 &&
    counts --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_paths 8 -- rdma_striped=1-8 gets=17-64 || return 1
  watched 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_paths 3 --mca btl_fabric_receive_queues P,4096,64 \
    "$check" --max 2000 --flood 500 && says 'checks passed' || return 1
  busy=$(awk '$1 == "gone:" && $3 > 100000' "$work/verbs.0" | wc -l)
  [ "$busy" -eq 1 ] || { echo "small messages took $busy paths"; return 1; }
}
case_paths_written_in_pieces() { # by ob1, which needs a path for small messages among any four
  local paths
  for paths in 5 8; do
    fabric 2 --mca mpi_leave_pinned 0 --mca btl_fabric_paths $paths "$check" --max 1000000 --flood 50 && says 'checks passed' || return 1
  done
}
case_paths_differ() { # the third path of one has none to go to
  # shellcheck disable=SC2086 # several words
  fabric_pair paths=2 paths=3 $long && says 'checks passed' && fabric_pair paths=1 paths=8 $long && says 'checks passed'
}
case_paths_by_every_method() {
  local method
  for method in $(methods); do
    counts --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_paths 2 --mca btl_fabric_cpc_include "$method" -- \
      rdma_striped=1-8 gets=9-16 || { echo "by $method"; return 1; }
  done
}
case_paths_of_four_processes() {
  # shellcheck disable=SC2086 # several words
  fabric 4 --mca btl_fabric_paths 2 "$check" $long && says 'checks passed' &&
    fabric 4 --mca osc rdma --mca btl_fabric_paths 2 "$check" --rma --max 1000000 && says 'checks passed'
}
case_paths_x_queues() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no XRC'; exit 77; }
  [ "$link" = ib ] || { echo 'SKIP xoob is tried on InfiniBand'; exit 77; }
  over_both --mca btl_fabric_paths 2 --mca btl_fabric_receive_queues "$x_queues"
}
case_paths_and_contexts() { # together no more than a process can have of ports
  fabric 2 --mca btl_fabric_paths 8 --mca btl_fabric_tx_contexts 64 --mca btl_base_verbose 5 "$check" --threads 4 --max 4096 &&
    says 'checks passed' && says '4 transmit contexts instead of'
}
# ways_of DEVICE FIELD : the different values that its queue pairs to the peer have, in order.
ways_of() { sed -nE "s/^to rtr: $1:1 .*\\b$2 ([0-9]+) .*/\\1/p" "$work/verbs.0" | sort -nu | tr '\n' ' '; }
case_paths_by_lid() { # the third path has the first LID again
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has LIDs'; exit 77; }
  new_fabric --devices 2 --set lmc=1
  over_both --mca btl_fabric_paths 3 || return 1
  [ "$(ways_of softhca0 path_bits)" = '0 1 ' ] || { echo "path bits: $(ways_of softhca0 path_bits)"; return 1; }
  local first second
  read -r first second < <(ways_of softhca0 dlid)
  [ $((first % 2)) -eq 0 ] && [ "$second" = $((first + 1)) ] || { echo "LIDs of the peer: $first $second"; return 1; }
}
case_paths_by_flow_label() {
  [ "$link" = roce ] || { echo 'SKIP only RoCE has them'; exit 77; }
  local labels method
  for method in $(methods); do
    over_both --mca btl_fabric_cpc_include "$method" --mca btl_fabric_paths 2 || return 1
    read -r -a labels < <(ways_of "$dev_a" flow_label)
    [ ${#labels[@]} -eq 2 ] && [ $((labels[0] + 1)) -eq "${labels[1]}" ] || { echo "by $method: ${labels[*]}"; return 1; }
  done
  watched 2 --mca btl_fabric_cpc_include oob "$check" $small && # the kernel's communication manager has labels of its own
    [ "$(ways_of "$dev_a" flow_label)" = '0 ' ] || { echo "of one path: $(ways_of "$dev_a" flow_label)"; return 1; }
}
