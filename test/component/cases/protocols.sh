# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The limits of protocols: what the component chooses, what fabric_info says of that, and what users set.

limits='max_inline_data eager_limit rndv_eager_limit max_send_size in_place_size get_limit put_limit
  rdma_pipeline_send_length rdma_pipeline_frag_size min_rdma_pipeline_size'
limits_info() { "$FABRIC_BUILD/contrib/fabric_info/fabric_info" "$@"; }
has_fabric_info() {
  [ -x "$FABRIC_BUILD/contrib/fabric_info/fabric_info" ] || { echo 'SKIP FABRIC_BUILD has no fabric_info'; exit 77; }
}
# The lines "LIMIT VALUE REASON" of port 1 of the first device.
told_by_info() { # FILE
  awk -v device="$dev_a" '/^[^ ]/ { here = $1 == device } /^  port/ { port = $2 == "1:" } /^  [^ p]/ { port = 0 }
    here && port && /^    [a-z_]+ +[0-9]+  / { $1 = $1; print }' "$1"
}
told_by_component() { # FILE
  sed -n "s/.*btl:fabric: $dev_a:1: \([a-z_]* [0-9]*\): /\1 /p" "$1" | sort -u
}
only_values() { awk '{ print $1, $2 }' | sort -u; }
value_of() { awk -v name="$1" '$1 == name { print $2 }' told; }

# The component and the tool choose the same, in the bounds of the queues, and each choice has its reason.
case_protocol_limits() {
  local name
  has_fabric_info
  fabric 2 --mca btl_fabric_if_include "$dev_a:1" --mca btl_base_verbose 10 "$check" $small && says 'checks passed' || return 1
  limits_info > info && told_by_info info > told
  told_by_component out > said_by_component
  for name in $limits; do
    grep -qE "^$name [0-9]+ .{10}" told || { echo "fabric_info does not say why $name"; cat info; return 1; }
  done
  diff <(only_values < told) <(only_values < said_by_component) || { echo 'fabric_info and the component differ'; return 1; }
  ! grep 'set by' told || { echo 'but nothing is set'; return 1; }
  [ "$(value_of eager_limit)" -ge 12288 ] && [ "$(value_of eager_limit)" -le 65536 ] && [ "$(value_of max_send_size)" -le 65536 ] &&
    [ "$(value_of min_rdma_pipeline_size)" -eq "$(value_of eager_limit)" ] || { cat told; return 1; }
  grep -qE '^eager_limit .*takes [0-9.]+ us here' told || grep -qE '^eager_limit .*soft iWARP' told || { cat told; return 1; }
  # Nothing is sent that no buffer takes.
  limits_info --receive-queues P,4096,64 > info && told_by_info info > told
  [ "$(value_of eager_limit) $(value_of max_send_size)" = '4096 4096' ] || { cat told; return 1; }
}

# What is set is used, and said.
case_protocol_limits_of_the_user() {
  local name value settings=() i=0
  local values=(64 8192 4096 32768 20000 200000 300000 1000 500000 40000)
  has_fabric_info
  for name in $limits; do
    value=${values[i]}
    i=$((i + 1))
    settings+=(--mca "btl_fabric_$name" "$value")
    limits_info --mca "btl_fabric_$name" "$value" > info && told_by_info info > told
    grep -qxF "$name $value set by btl_fabric_$name" told && [ "$(grep -c 'set by' told)" -eq 1 ] || { cat told; return 1; }
    env "OMPI_MCA_btl_fabric_$name=$value" "$FABRIC_BUILD/contrib/fabric_info/fabric_info" > info && told_by_info info > told
    grep -qxF "$name $value set by btl_fabric_$name" told || { cat told; return 1; }
  done
  limits_info "${settings[@]}" --json | grep -A1 '"value": 200000' | grep -qF 'set by btl_fabric_get_limit' || return 1
  limits_info "${settings[@]}" > info && told_by_info info > told
  fabric 2 --mca btl_fabric_if_include "$dev_a:1" --mca btl_base_verbose 10 "${settings[@]}" "$check" --max 1000000 --flood 200 &&
    says 'checks passed' || return 1
  told_by_component out > said_by_component
  [ "$(grep -c 'set by btl_fabric_' said_by_component)" -eq 10 ] && diff <(sort told) <(sort said_by_component) || return 1
  # The ways that read nothing, and that neither read nor write.
  for i in 0x3 0x1; do
    fabric 2 --mca btl_fabric_flags $i "${settings[@]}" "$check" --max 1000000 --flood 200 && says 'checks passed' || return 1
  done
}

case_bad_protocol_limits() {
  has_fabric_info
  limits_info --mca btl_fabric_eager_limit 100000 > out 2>&1
  refuses $? && says 'btl_fabric_eager_limit is 100000, but the largest queue of btl_fabric_receive_queues takes 65536' || return 1
  limits_info --mca btl_fabric_max_inline_data 12x > out 2>&1
  refuses $? && says 'btl_fabric_max_inline_data is "12x", but must be a number' || return 1
  limits_info --mca btl_fabric_in_place_size -2 > out 2>&1
  refuses $? && says 'btl_fabric_in_place_size is -2, but must be at least -1' || return 1
  # Open MPI reads those of every BTL without a sign, so that this is no limit.
  limits_info --mca btl_fabric_get_limit -1 > out 2>&1 && says 'set by btl_fabric_get_limit, but the port' || return 1
  limits_info --mca btl_fabric_egaer_limit 1 > out 2>&1
  refuses $? && says '--mca btl_fabric_egaer_limit 1: btl_fabric has no such parameter' || return 1
  limits_info --mca btl_tcp_eager_limit 1 --mca btl fabric,self > out 2>&1
}
