# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Small messages that peers write into memory which is polled. iWARP has none of that, whatever is asked for.

# in_turns yes|no [MPIRUN ARGUMENT...] : whether that is how 2000 messages go that are sent in turns
in_turns() {
  local wanted='messages_by_eager_rdma=1900-2000 eager_rdma_rings=2-2'
  [ "$1" = yes ] && [ "$link" != iwarp ] || wanted='eager_rdma_rings=0-0 messages_by_eager_rdma=0-0'
  # shellcheck disable=SC2086 # several words
  counts --mca btl_fabric_if_include "$dev_a" "${@:2}" -- --in-turns $wanted
}
case_eager_rdma() { in_turns yes --mca btl_fabric_eager_rdma 1; }
case_eager_rdma_off() { in_turns no --mca btl_fabric_eager_rdma 0; }
case_eager_rdma_by_default() { # where it is known to be right, and no slower: on rxe, of the devices that tests run on
  case $dev_a in
    rxe*) in_turns yes ;;
    *) in_turns no ;;
  esac
}
case_eager_rdma_without_inline() { in_turns no --mca btl_fabric_eager_rdma 1 --mca btl_fabric_max_inline_data 0; }
# Every second message asks for the ring of another peer, each of which holds two.
case_eager_rdma_for_one_peer_of_three() {
  fabric 4 --mca btl_fabric_eager_rdma 1 --mca btl_fabric_eager_rdma_peers 1 --mca btl_fabric_eager_rdma_slots 2 \
    --mca btl_fabric_eager_rdma_threshold 2 "$check" --max 16384 --flood 2000 && says 'checks passed'
}
case_eager_rdma_with_all_queues() {
  local queues
  for queues in P,128,16:P,65536,8 S,256,64:S,65536,64 P,64,8:S,4096,64:P,65536,8; do
    fabric 3 --mca btl_fabric_eager_rdma 1 --mca btl_fabric_eager_rdma_threshold 1 \
      --mca btl_fabric_receive_queues $queues "$check" --max 16384 --flood 1000 && says 'checks passed' || return 1
  done
}
case_eager_rdma_of_threads() {
  fabric 2 --mca btl_fabric_eager_rdma 1 --mca btl_fabric_tx_contexts 2 "$check" --threads 4 --max 65536 && says 'checks passed'
}
# Links that go take their rings along; the next ones are given others.
case_eager_rdma_again_and_again() {
  stock check_disconnect || return 1
  fabric 1 --mca btl_fabric_eager_rdma 1 --mca btl_fabric_eager_rdma_threshold 1 "$programs/check_disconnect" 20 &&
    says 'check_disconnect: 20 rounds'
}
