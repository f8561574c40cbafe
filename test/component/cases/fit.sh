# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# fabric_info --fit: whether a job fits the devices of this host.

# told_of [ARGUMENT...] : what fabric_info says, in the file out. fit_of: the verdict too
told_of() { runs "${launcher[@]}" "$FABRIC_BUILD/contrib/fabric_info/fabric_info" "$@"; }
fit_of() { told_of --fit "$@"; }

case_fit_of_queues_that_cannot_be_run() {
  has_fabric_info
  new_fabric --set max_wr=64
  fit_of --receive-queues P,128,256
  [ $? -eq 1 ] && says 'this device cannot be used' && says 'it does not fit' && says_not 'it fits' || return 1
  fit_of --receive-queues P,128,16 && says 'it fits'
}

pairs_per_host() { grep -oE '[0-9]+ per host' out | sort -u; }
# Parameters count, whether an option, --mca or the environment sets them.
case_fit_of_parameters() {
  has_fabric_info
  local one eight
  told_of -o 64 -n 64 && one=$(pairs_per_host) && told_of -o 64 -n 64 -t 8 && eight=$(pairs_per_host) || return 1
  [ "$one" != "$eight" ] || { echo 'contexts do not count'; return 1; }
  told_of -o 64 -n 64 --mca btl_fabric_tx_contexts 8 && [ "$(pairs_per_host)" = "$eight" ] || { cat out; return 1; }
  OMPI_MCA_btl_fabric_tx_contexts=8 told_of -o 64 -n 64 && [ "$(pairs_per_host)" = "$eight" ] || { cat out; return 1; }
  told_of --mca btl_fabric_gid_index 0 && ! grep '<- chosen' out | grep -v 'GID 0 ' || { cat out; return 1; }
  fit_of --mca btl_fabric_memory_budget 1000
  [ $? -eq 1 ] && says 'and 1000 are allowed' || return 1
  fit_of --rdma-depth 0
  [ $? -eq 2 ] && says 'btl_fabric_rdma_depth is 0, but must be between 1 and 16384' || return 1
  fit_of --mca btl_fabric_retry_count 99
  [ $? -eq 2 ] && says 'btl_fabric_retry_count is 99, but must be between 0 and 7'
}

# What cannot be written is no success, and no number is taken for a small one.
case_fit_wrong_use() {
  has_fabric_info
  "$FABRIC_BUILD/contrib/fabric_info/fabric_info" > /dev/full 2> out
  [ $? -eq 2 ] && says 'standard output cannot be written' || return 1
  local wrong
  for wrong in '--hosts 4611686018427387905' '--hosts 1000001' '--processes 10001' '--hosts 0'; do
    # shellcheck disable=SC2086 # two words
    fit_of $wrong
    refuses $? && says 'not in range' || return 1
  done
}
