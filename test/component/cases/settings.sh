# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What users set, also wrongly, and what is said of it.

case_differing_queues() {
  fabric_pair receive_queues=P,4096,64 receive_queues=P,4096,32 $small
  refuses $? && says 'P,4096,64,48,32,4' && says 'P,4096,32,24,16,4' && says 'different receive queues'
}
case_bad_queues_show_a_caret() {
  fabric 1 --mca btl_fabric_receive_queues P,128,256,300 "$check" $small
  says 'P,128,256,300' && grep -q '^ *^^^$' out && says 'rd_low must be less than rd_num'
}
case_bad_number() {
  fabric 1 --mca btl_fabric_retry_count 8 "$check" $small
  says 'btl_fabric_retry_count is 8, but must be between 0 and 7'
}
case_limit_above_queues() {
  fabric 1 --mca btl_fabric_receive_queues P,4096,64 --mca btl_fabric_eager_limit 8192 "$check" $small
  says 'btl_fabric_eager_limit is 8192, but the largest queue of btl_fabric_receive_queues takes 4096'
}
case_unknown_device() {
  fabric 2 --mca btl_fabric_if_include nosuch0 "$check" $small
  refuses $? && says 'nosuch0: this host has no device of that name'
}
# The others are used, and one process of the host says it for all.
case_unknown_device_among_others() {
  fabric 3 --mca btl_fabric_if_include "nosuch0,$dev_a,$dev_b:7" "$check" $small || return 1
  says 'checks passed' && says 'nosuch0: this host has no device of that name' && says "$dev_b:7: the device has no such port" &&
    [ "$(grep -c 'btl_fabric_if_include names ports' out)" -eq 1 ] || { echo 'not said once'; return 1; }
}
case_missing_gid() {
  fabric 2 --mca btl_fabric_gid_index 99 "$check" $small
  refuses $? && says 'its GID table has nothing at btl_fabric_gid_index 99'
}
case_verbose_says_why_a_peer_is_not_reached() { # GID 0 is link-local, the other an IPv4 address: two subnets
  [ "$link" = roce ] || { echo 'SKIP only RoCE ports have several GIDs'; exit 77; }
  fabric_pair gid_index=0 gid_index="${FABRIC_IPV4_GID:-1}" $small
  refuses $? && says 'no port of the peer is on the subnet of'
}

case_parameters_are_documented() {
  ompi_info --param btl fabric --level 9 > out 2>&1
  local name names
  names=$("$FABRIC_BUILD/contrib/docs/print_params" 2> /dev/null | sed -n 's/^| `\([a-z_]*\)`.*/\1/p')
  for name in ${names:-receive_queues} eager_limit max_send_size; do
    says "\"btl_fabric_$name\"" || return 1
  done
}

# Help files of Open MPI that are missing are not looked for in our folder, or it would be ours that users are told of.
case_missing_help_file() {
  once
  btl_user check_help || return 1
  fabric 1 "$work/check_help"
  says 'help-that-is-not-there.txt' && says_not btl_fabric
}
