# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Transmit and receive contexts: queue pairs, completion queues, buffers and a lock each; and where messages go.

with_contexts() { # CONTEXTS NP [MPIRUN ARGUMENT...]
  fabric "$2" --mca btl_fabric_tx_contexts "$1" "${@:3}" "$check" --threads 4 --max 65536 && says 'checks passed'
}
case_tx_contexts() {
  local method
  for method in $(methods); do
    with_contexts 3 2 --mca btl_fabric_cpc_include "$method" || { echo "by $method"; return 1; }
  done
}
case_tx_contexts_four_processes() { with_contexts 2 4; }
case_tx_contexts_tiny_queues() { with_contexts 2 2 --mca btl_fabric_receive_queues P,4096,2,1; }
case_tx_contexts_one_thread() { # works in the first of them
  fabric 2 --mca btl_fabric_tx_contexts 4 "$check" $small && says 'checks passed'
}
case_tx_contexts_rma() {
  fabric 3 --mca osc rdma --mca btl_fabric_tx_contexts 2 "$check" --rma --max 65536 && says 'checks passed'
}
case_tx_contexts_spawn() { fabric 2 --mca btl_fabric_tx_contexts 2 "$check" --spawn && says 'checks passed'; }
case_tx_contexts_differ() { # threads of contexts that the peer has not got use those that it has
  fabric_pair tx_contexts=2 tx_contexts=5 --threads 6 --max 65536 && says 'checks passed'
}
case_tx_contexts_x_queues() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no XRC'; exit 77; }
  [ "$link" = ib ] || { echo 'SKIP xoob is tried on InfiniBand'; exit 77; }
  with_contexts 2 4 --mca btl_fabric_receive_queues "$x_queues"
}
# connected NUMBER... : the contexts of which the timeline of rank 0 in the file contexts0 has connections.
connected() {
  local made
  made=$(grep -o '"to":"Connected".*"local_port":[0-9]*' "$work/contexts0" | grep -o '[0-9]*$' | sort -nu | tr '\n' ' ')
  [ "$made" = "$* " ] || { echo "connections of contexts $made"; return 1; }
}
case_tx_contexts_have_connections_each() {
  with_contexts 4 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_trace "$work/contexts%r" && connected 0 1 2 3
}
case_tx_contexts_named_by_a_message() { # first contact is in context 0
  btl_user check_order || return 1
  local context
  for context in 2 3; do
    fabric 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_tx_contexts 4 --mca btl_fabric_trace "$work/contexts%r" \
      "$programs/check_order" $context && says '500 messages arrived' && connected 0 $context || return 1
  done
}
case_first_contact_while_a_callback_runs() {
  btl_user check_first_contact || return 1
  fabric 3 "$programs/check_first_contact" && says 'the endpoint was made while a callback ran'
}
case_tx_contexts_of_callbacks_that_hold_others() { # one port: no connection is made meanwhile
  btl_user check_directed || return 1
  fabric 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_tx_contexts 4 "$programs/check_directed" && says '20 messages were left to a context and arrived'
}
case_tx_contexts_of_a_callback_that_waits() {
  btl_user check_nested || return 1
  fabric 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_tx_contexts 4 "$programs/check_nested" && says 'the message came within the callback'
}
case_rx_contexts() {
  local method
  for method in $(methods); do
    with_contexts 2 2 --mca btl_fabric_rx_contexts 5 --mca btl_fabric_cpc_include "$method" || { echo "by $method"; return 1; }
  done
}
case_rx_contexts_differ() { fabric_pair rx_contexts=2 rx_contexts=5 --threads 6 --max 65536 && says 'checks passed'; }
case_rx_contexts_fewer_than_tx_contexts() { # a queue pair receives where it sends
  with_contexts 3 2 --mca btl_fabric_rx_contexts 2 --mca btl_base_verbose 10 &&
    says 'receive contexts per endpoint: 3 (2 were asked for, but a queue pair receives where it sends'
}
case_rx_contexts_for_each_processor() { with_contexts 1 2 --mca btl_fabric_rx_contexts -1; }
case_rx_steering_by_source() { # a connection for each direction, and none of the contexts that no rule names
  fabric 2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_rx_contexts 4 --mca btl_fabric_trace "$work/contexts%r" \
    --mca btl_fabric_flags 0x1 \
    --mca btl_fabric_rx_steering 'source=0:1;source=1:3' "$check" $small && says 'checks passed' && connected 1 3
}
case_rx_steering_by_tag() { # ob1 needs no order between messages of different kinds
  with_contexts 2 2 --mca btl_fabric_rx_contexts 5 --mca btl_fabric_flags 0x1 \
    --mca btl_fabric_rx_steering 'source=0,tag=match:4;tag=frag:3;tag=ack:1;tag=fin:0;*:2' || return 1
  with_contexts 4 2 --mca btl_fabric_rx_steering 'tag=match:3;tag=rndv:2;tag=rget:1;tag=fin:0;tag=put:3;tag=ack:1'
}
case_rx_steering_four_processes() {
  with_contexts 3 4 --mca btl_fabric_rx_steering 'source=0-1:1;source=2,tag=pml:2'
}
case_rx_steering_rma() {
  fabric 3 --mca osc rdma --mca btl_fabric_rx_contexts 3 --mca btl_fabric_rx_steering 'tag=osc:1;*:2' \
    "$check" --rma --max 65536 && says 'checks passed'
}
case_rx_steering_wrong() {
  local rules
  for rules in 'tag=mtach:1' 'source=x:1' '*'; do
    fabric 1 --mca btl_fabric_rx_contexts 2 --mca btl_fabric_rx_steering "$rules" "$check" $small
    says "btl_fabric_rx_steering: rule \"$rules\": " || return 1
  done
  fabric 1 --mca btl_fabric_rx_contexts 2 --mca btl_fabric_rx_steering '*:2' "$check" $small
  says 'a rule names context 2, but there are 2'
}
case_tx_contexts_within_the_ports_there_can_be() { # 64, whatever the parameter says
  fabric 2 --mca btl_fabric_tx_contexts 64 --mca btl_base_verbose 5 "$check" --threads 4 --max 4096 && says 'checks passed' &&
    says '32 transmit contexts instead of'
}
case_tx_contexts_none() {
  fabric 2 --mca btl_fabric_tx_contexts 0 "$check" $small
  refuses $? && says 'btl_fabric_tx_contexts is 0'
}
