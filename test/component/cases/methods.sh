# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The choice of a connection method; the network that oob uses; ibcm.

case_unknown_connection_method() {
  fabric 2 --mca btl_fabric_cpc_include oob,carrier "$check" $small
  says '"carrier" is no connection method: there are oob, xoob, rdmacm and ibcm'
}
# connected_by WHAT [MPIRUN ARGUMENT...] : by the connection manager with peers addressed by `ip` or `gid`, or not by it: `none`.
connected_by() {
  local wanted=$1 seen
  shift
  watched 2 --mca btl_fabric_if_include "$dev_a" "$@" "$check" --max 4096 --flood 100 && says 'checks passed' || return 1
  seen=$(sed -n 's/^connects: \([a-z]*\).*/\1/p' verbs.* | sort -u | tr '\n' ' ')
  [ "${seen:-none }" = "$wanted " ] || { echo "$*: connected by ${seen:-none}"; return 1; }
}
case_connection_methods_have_priorities() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP ports have one connection method'; exit 77; }
  connected_by none && connected_by ip --mca btl_fabric_oob_priority 0 && connected_by ip --mca btl_fabric_rdmacm_priority 51 || return 1
  [ "$link" = roce ] || {
    connected_by gid --mca btl_fabric_ibcm_priority 51 &&
      connected_by none --mca btl_fabric_receive_queues "$x_queues" --mca btl_fabric_xoob_priority 0 # they have no other
  }
}
case_connection_methods_include_and_exclude() {
  fabric 2 --mca btl_fabric_cpc_include oob --mca btl_fabric_cpc_exclude rdmacm "$check" $small
  says 'btl_fabric_cpc_include (oob) and btl_fabric_cpc_exclude (rdmacm) are both set'
}
# --- The network that oob uses

oob() { # NP [MPIRUN ARGUMENT...]
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_cpc_include oob "$@"
}
# A process that is out of file descriptors waits until it has some again, and says so; after btl_fabric_connect_retry_time its
# connections fail for that reason.
case_oob_without_descriptors() {
  stock check_shortage || return 1
  oob 2 "$programs/check_shortage" 1 && says 'the message has gone, after descriptors were back' &&
    says 'A process is short of file descriptors' && says_not 'could not connect two processes' || return 1
  oob 2 --mca btl_fabric_connect_retry_time 1000 "$programs/check_shortage"
  refuses $? && says 'opening a TCP connection: Too many open files (this process may have 4096: raise ulimit -n)' &&
    says 'could not connect two processes' && grep 'Reason: *connection to rank 1 .*: Too many open files (this process may' out
}
case_oob_on_one_interface() { oob 2 --mca btl_fabric_oob_if_include lo "$check" $small && says 'checks passed'; }
case_oob_on_one_network() {
  oob 2 --mca btl_fabric_oob_if_include 10.0.0.0/8,127.0.0.0/8 "$check" $small && says 'checks passed'
}
case_oob_without_some_networks() {
  oob 2 --mca btl_fabric_oob_if_exclude nosuch0,203.0.113.0/24 "$check" $small && says 'checks passed' || return 1
  oob 2 --mca btl_fabric_oob_if_exclude 0.0.0.0/0,::/0 "$check" $small
  refuses $? && says 'btl_fabric_oob_if_include or oob_if_exclude (0.0.0.0/0,::/0) leaves no address of this host'
}
case_oob_on_ipv6() { # alone: in a network namespace with nothing else than loopback
  local option
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only on softhca: kernel devices stay in their namespace'; exit 77 ;; esac
  for option in -n -rn; do
    unshare $option true 2> /dev/null || continue
    runs unshare $option "$here/on-ipv6" "$check" $small && says 'checks passed'
    return
  done
  echo 'SKIP no network namespaces'
  exit 77
}
case_oob_with_one_socket_each() {
  oob 8 --mca btl_fabric_connect_limit 1 "$check" --max 4096 --flood 100 && says 'checks passed'
}
case_oob_bad_lists() {
  fabric 1 --mca btl_fabric_oob_if_include lo,10.0.0.0/40 "$check" $small
  says 'btl_fabric_oob_if_include: "10.0.0.0/40" has no prefix length after the slash: it is a number from 0 to 32' ||
    return 1
  fabric 1 --mca btl_fabric_oob_if_exclude 'lo,' "$check" $small
  says 'btl_fabric_oob_if_exclude: "" is neither an interface nor a network' || return 1
  fabric 1 --mca btl_fabric_oob_if_include lo --mca btl_fabric_oob_if_exclude eth0 "$check" $small
  says 'btl_fabric_oob_if_include (lo) and btl_fabric_oob_if_exclude (eth0) are both set'
}
case_oob_without_one_of_its_interfaces() { # it does with the others, and names those once
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  oob 2 --mca btl_fabric_oob_if_include nosuch0,127.0.0.0/8,203.0.113.0/24 "$check" $small && says 'checks passed' || return 1
  names_once 'nosuch0, 203.0.113.0/24'
}
names_once() { # ITEMS
  [ "$(grep -c "btl_fabric_oob_if_include: this host has no address of $1; it has lo 127.0.0.1/8" out)" -eq 1 ] ||
    { echo "not told once that the host has no $1"; return 1; }
}
case_oob_without_all_of_its_interfaces() { # another method does it, and the user is told
  fabric 2 --mca btl_fabric_cpc_exclude ibcm --mca btl_fabric_oob_if_include nosuch0 "$check" $small &&
    says 'checks passed' && names_once nosuch0
}
case_oob_without_an_interface() { # named, with what there is
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  fabric 2 --mca btl_fabric_cpc_include oob --mca btl_fabric_oob_if_include nosuch0 "$check" $small
  refuses $? && says '(nosuch0) leaves no address of this host, which has lo 127.0.0.1/8'
}

ibcm() { # NP [MPIRUN ARGUMENT...]
  [ "$link" = ib ] || { echo 'SKIP the devices are not InfiniBand'; exit 77; }
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_cpc_include ibcm "$@"
}
case_ibcm_two_processes() { ibcm 2 "$check" && says 'checks passed'; }
case_ibcm_four_processes() { ibcm 4 "$check" $small && says 'checks passed'; }
case_ibcm_eight_processes() { ibcm 8 "$check" --max 16384 --flood 500 && says 'checks passed'; }
case_ibcm_queues() { queue_lists ibcm 2; }
case_ibcm_threads() { ibcm 2 "$check" --threads 3 && says 'checks passed'; }
case_ibcm_spawn() { ibcm 2 "$check" --spawn && says 'checks passed'; }
case_ibcm_peer_computes() { ibcm 3 "$check" --compute 3 && says 'checks passed'; }
case_ibcm_killed_peer() { kills_a_peer ibcm; }
case_ibcm_partition_key() { # peers are asked for with the key that is in the table, which says who is a full member
  [ "$link" = ib ] || { echo 'SKIP the devices are not InfiniBand'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a second partition for certain'; exit 77 ;; esac
  local keys
  watched 2 --mca btl_fabric_cpc_include ibcm --mca btl_fabric_pkey 1 "$check" --max 4096 --flood 100 && says 'checks passed' || return 1
  keys=$(sed -n 's/^connects: //p' verbs.* | sort -u)
  [ "$keys" = 'gid pkey 0x8001' ] || { echo "connected by ${keys:-none}"; return 1; }
}
case_ibcm_needs_infiniband() {
  roce_only
  fabric 2 --mca btl_fabric_cpc_include ibcm "$check" $small
  refuses $? && says 'native InfiniBand addressing (AF_IB) is for InfiniBand only'
}
case_no_common_connection_method() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP ports have one connection method'; exit 77; }
  fabric_pair cpc_include=oob cpc_include=rdmacm $small
  refuses $? && says 'no way to connect them' && says 'oob: not at the peer (btl_fabric_cpc_include or cpc_exclude' &&
    says 'rdmacm: not here (btl_fabric_cpc_include or cpc_exclude'
}
