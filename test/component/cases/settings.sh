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
case_words_and_times() {
  fabric 2 --mca btl_fabric_mtu 1024 --mca btl_fabric_gid_index auto --mca btl_fabric_heal_timeout 2min \
    --mca btl_fabric_connect_timeout 5s "$check" $small && says 'checks passed' || return 1
  fabric 1 --mca btl_fabric_mtu 1500 --mca btl_fabric_heal_timeout 1500ms "$check" $small
  says 'this is why' && says 'btl_fabric_mtu is 1500, but must be between 0 and 5, or 256, or 512, or 1024, or 2048, or 4096' &&
    says 'btl_fabric_heal_timeout is "1500ms", but must be a number at least 0' || return 1
  fabric 1 --mca btl_fabric_heal_timeout 10m --mca btl_fabric_connect_timeout 5k "$check" $small
  says 'btl_fabric_heal_timeout is "10m", but must be a number at least 0; ms, s or min may follow' &&
    says 'btl_fabric_connect_timeout is "5k", but must be a number at least 1; ms, s or min may follow'
}
case_misspelt_names() {
  fabric 2 --mca btl_fabric_recieve_queues auto --mca btl_fabric_no_such_thing 1 "$check" $small || return 1
  says 'checks passed' && says 'btl_fabric_recieve_queues: there is no such parameter; is btl_fabric_receive_queues meant?' &&
    says 'btl_fabric_no_such_thing: there is no such parameter'
}
case_limit_above_queues() {
  fabric 1 --mca btl_fabric_receive_queues P,4096,64 --mca btl_fabric_eager_limit 8192 "$check" $small
  says 'btl_fabric_eager_limit is 8192, but the largest queue of btl_fabric_receive_queues takes 4096'
}
case_queues_too_small() { # for what Open MPI sends
  fabric 1 --mca btl_fabric_receive_queues P,10,10:S,100,16 "$check" $small
  says 'btl_fabric_receive_queues is P,10,10,8,4,5,10:S,100,16,12,3,4,1, and its largest queue takes 100 bytes' &&
    says 'one queue at least must take 128' && says_not eager || return 1
  fabric 2 --mca btl_fabric_receive_queues P,10,10:P,128,64 "$check" $small && says 'checks passed'
}
case_no_ports_allowed() {
  fabric 1 --mca btl_fabric_max_ports 0 "$check" $small
  says 'btl_fabric_max_ports is 0, but a process needs at least 1 (-1: all that there are)'
}
case_no_partition() {
  fabric 1 --mca btl_fabric_pkey 0x8000 "$check" $small
  says 'btl_fabric_pkey is 0x8000, but that is membership without a partition (0: the first of the table)'
}
case_unknown_device() {
  fabric 2 --mca btl_fabric_if_include nosuch0 "$check" $small
  refuses $? && says 'nosuch0: this host has no device of that name'
}
case_unknown_port() {
  fabric 2 --mca btl_fabric_if_include "$dev_a:7" "$check" $small
  refuses $? && says "$dev_a:7: the device has no such port"
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
case_subnets() { # softhca's GIDs are link-local, and on Ethernet of 127.64.0.0/10 too
  fabric 2 --mca btl_fabric_subnets 203.0.113.0/24 "$check" $small
  refuses $? && says 'no address of it is in btl_fabric_subnets (203.0.113.0/24): it has' || return 1
  fabric 2 --mca btl_fabric_subnets 203.0.113.0/24,fe80::/10,127.64.0.0/10 "$check" $small && says 'checks passed' || return 1
  [ "$link" = roce ] || return 0
  fabric 2 --mca btl_fabric_subnets fe80::/10 --mca btl_fabric_report 1 "$check" $small
  says 'checks passed' && says 'GID fe80::' || return 1
  fabric 2 --mca btl_fabric_subnets fe80::/10 --mca btl_fabric_gid_index 3 "$check" $small
  refuses $? && says 'the GID of btl_fabric_gid_index 3 is not in btl_fabric_subnets (fe80::/10): it is 127.64'
}
# The first device of one process talks to the second of the other, which does not have its first; a third rail of one is of no use.
case_rails() {
  local a=$dev_a b=$dev_b
  # shellcheck disable=SC2016 # for the other bash
  pair() { # LIST LIST [MPIRUN ARGUMENT...] : two processes with a list each
    watched 2 "${@:3}" bash -c 'export OMPI_MCA_btl_fabric_rails=${@:OMPI_COMM_WORLD_RANK + 1:1}; exec "${@:3}"' - "$1" "$2" "$check" $small
  }
  pair "$a=1,$b:1=2" "$b=1,$a=2" && says 'checks passed' && carries "$a" && carries "$b" || return 1
  pair "$a=1,$b=3" "$b=1,$a=2" --mca btl_base_verbose 5 && says 'checks passed' &&
    says "$b:1 is on rail 3, and the peer has no port left on that rail" && carries "$a" verbs.0 && carries_not "$b" verbs.0 &&
    carries "$b" verbs.1 && carries_not "$a" verbs.1 || return 1
  pair "$a=1,$b=1" "$a=2,$b=2"
  refuses $? && says 'btl_fabric reaches no port of another process of this job' || return 1
  [ "$link" = ib ] && [[ $dev_a = softhca* ]] || return 0
  new_fabric --devices 2 --set sm_lid=1,1:1=9 # who says what belongs together is not told that it is not clear
  fabric 2 --mca btl_fabric_rails softhca0=1,softhca1=2 "$check" $small && says 'checks passed' && says_not 'on different subnets'
}
# Two subnets with the default GID prefix: what tells them apart on softhca is what the ports say of their subnet managers.
case_default_gid_prefix() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has subnet managers'; exit 77; }
  local about='InfiniBand ports that btl_fabric uses are on different subnets' off=btl_fabric_warn_default_gid_prefix
  fabric 2 "$check" $small && says 'checks passed' && says_not "$about" || return 1 # one subnet
  new_fabric --devices 2 --set sm_lid=1,1:1=9
  fabric 3 "$check" $small && says 'checks passed' && says 'Prefix:  fe80::/64' && says 'Ports:   softhca0:1 and softhca1:1' &&
    says 'their subnet managers have LIDs 1 and 9, and a subnet has one' &&
    [ "$(grep -c "$about" out)" -eq 1 ] || { echo 'not said once'; return 1; }
  fabric 2 --mca $off 0 "$check" $small && says 'checks passed' && says_not "$about" || return 1
  fabric 2 --mca btl_fabric_if_include softhca1 "$check" $small && says 'checks passed' && says_not "$about" || return 1
  BTLS=^openib fabric 2 --mca pml ob1 "$check" $small && says 'checks passed' && says_not "$about" # nobody has named fabric
}
case_versions_of_roce() { # GIDs 2 and 3 of softhca are one address
  [[ $link = roce && $dev_a = softhca* ]] || { echo 'SKIP only RoCE ports have several GIDs'; exit 77; }
  fabric_pair gid_index=2 gid_index=3 $small
  refuses $? && says "uses RoCE v1, and the peer's port on its subnet another version" &&
    says 'btl_fabric reaches no port of another process of this job' || return 1
  BTLS=fabric,tcp,self fabric_pair gid_index=2 gid_index=3 $small
  says 'btl_fabric reaches no port of another process of this job' && says 'checks passed'
}

# Every queue pair that the component connects by itself is made as the parameters say; the connection manager makes those of iWARP.
case_queue_pairs_are_as_set() {
  [ "$link" != iwarp ] || { echo 'SKIP iWARP has no OOB'; exit 77; }
  local settings=(mtu=2 min_rnr_timer=20 timeout=16 retry_count=5 rnr_retry=6 service_level=3 traffic_class=104) options=() one
  local rtr='mtu 2 min_rnr_timer 20 sl 3 traffic_class 104 pkey 0xffff' rts='timeout 16 retry_count 5 rnr_retry 6'
  # Packets of InfiniBand have no global header, and so no traffic class, within a subnet; softhca's second partition is 0x8001.
  [ "$link" != ib ] || rtr=${rtr/traffic_class 104/traffic_class 0}
  case $link,$dev_a in
    ib,softhca*) settings+=(pkey=1) rtr=${rtr/0xffff/0x8001} ;;
    *) settings+=(pkey=0x7fff) ;; # the first of the table, whose bit of full membership does not count
  esac
  for one in "${settings[@]}"; do
    options+=(--mca "btl_fabric_${one%%=*}" "${one#*=}")
  done
  # More receives than there are messages: no receiver is ever not ready. (Senders to P queues do not try again.)
  watched 2 --mca btl_fabric_cpc_include oob --mca btl_fabric_receive_queues S,4096,4096,3072,64,4096:S,65536,256,192,16,256 \
    "${options[@]}" "$check" $small && says 'checks passed' || return 1
  grep -q 'to rtr' verbs.0 && ! grep 'to rtr' verbs.* | grep -v " $rtr\$" && ! grep 'to rts' verbs.* | grep -v " $rts\$"
}
# ways FIELD : the different values that all queue pairs of the last job have, in order.
ways() { sed -nE "s/^to rtr: .*\b$1 ([0-9]+) .*/\1/p" "$work"/verbs.* | sort -nu | tr '\n' ' '; }
# have FIELD VALUES
have() { [ "$(ways "$1")" = "$2 " ] || { echo "$1 is not $2: $(ways "$1")"; return 1; }; }
# The kernel keeps it, where somebody has given a port one. Without RDMA devices there is no such folder, so another is put over it.
case_traffic_class_of_the_administrator() {
  [ "$link" = roce ] || { echo 'SKIP only RoCE ports have one'; exit 77; }
  [ "$(id -u)" -eq 0 ] || { echo 'SKIP only root may mount'; exit 77; }
  local folder=/sys/kernel/config/rdma_cm kind=configfs over=/sys/kernel/config method status=0
  case $dev_a in softhca*) kind=tmpfs over=/sys/kernel ;; esac
  # shellcheck disable=SC2016 # for the other bash
  launcher=(unshare -m bash -c 'set -e; mount -t "$1" none "$2"
    for device in $4; do mkdir -p "$3/$device/ports/1"; echo 104 > "$3/$device/ports/1/default_roce_tos"; done
    exec "${@:5}"' administrator $kind $over $folder "$dev_a $dev_b")
  for method in $(methods); do
    watched 2 --mca btl_fabric_cpc_include "$method" "$check" $small && says 'checks passed' && have traffic_class 104 || status=1
    watched 2 --mca btl_fabric_cpc_include "$method" --mca btl_fabric_traffic_class 8 "$check" $small && says 'checks passed' &&
      have traffic_class 8 || status=1
  done
  [ $kind = tmpfs ] || unshare -m bash -c 'mount -t configfs none "$1" && rmdir "${@:2}"' sh $over $folder/"$dev_a" $folder/"$dev_b"
  return $status
}
# What the subnet manager says of paths, for queue pairs of one process to another and shared ones.
case_path_records() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has a subnet administrator'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a subnet manager that can be told what to say'; exit 77 ;; esac
  local on='--mca btl_fabric_path_records 1' queues dlid
  new_fabric --devices 2 --set sm_sl=5 --set lmc=1 --set sm_path=1
  for queues in P,4096,64:S,65536,256 X,4096,256:X,65536,64; do
    watched 2 --mca btl_fabric_receive_queues $queues "$check" $small && says 'checks passed' && have sl 0 && have path_bits 0 || return 1
    watched 4 $on --mca btl_fabric_receive_queues $queues --mca btl_base_verbose 5 "$check" $small && says 'checks passed' &&
      says_not 'subnet administrator' && have sl 5 && have path_bits 1 || return 1
    for dlid in $(ways dlid); do
      [ $((dlid % 2)) -eq 1 ] || { echo "LIDs of peers: $(ways dlid)"; return 1; }
    done
  done
  watched 2 $on --mca btl_fabric_service_level 3 "$check" $small && says 'checks passed' && have sl 3 && have path_bits 1 || return 1
  watched 2 $on --mca btl_fabric_paths 2 "$check" $small && says 'checks passed' && have sl 5 && have path_bits '0 1'
}
# Only one process has asked: its service level and its LID are others than its peer's, and each sends to where the other sends from.
case_path_records_on_one_side() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has a subnet administrator'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a subnet manager that can be told what to say'; exit 77 ;; esac
  new_fabric --devices 1 --set sm_sl=5 --set lmc=1 --set sm_path=1
  stock watch_verbs.so || return 1
  rm -f verbs.*
  # shellcheck disable=SC2016 # for the other bash
  fabric 2 bash -c 'export LD_PRELOAD=$0${LD_PRELOAD:+:$LD_PRELOAD} WATCH_VERBS=$1 OMPI_MCA_btl_fabric_path_records=$OMPI_COMM_WORLD_RANK
    exec "${@:2}"' "$programs/watch_verbs.so" "$work/verbs" "$check" $small && says 'checks passed' || return 1
  # The two ports are one.
  [ "$(sed -nE 's/^to rtr: .*path_bits ([0-9]) .* sl ([0-9]+) .*/\1 \2/p' verbs.0 | sort -u)" = '0 0' ] &&
    [ "$(sed -nE 's/^to rtr: .*path_bits ([0-9]) .* sl ([0-9]+) .*/\1 \2/p' verbs.1 | sort -u)" = '1 5' ] &&
    [ "$(sed -nE 's/^to rtr: .*dlid ([0-9]+) .*/\1/p' verbs.0 | sort -u)" -eq $(($(sed -nE 's/^to rtr: .*dlid ([0-9]+) .*/\1/p' verbs.1 | sort -u) + 1)) ] ||
    { grep 'to rtr' verbs.*; return 1; }
}
case_path_records_elsewhere() {
  [ "$link" != ib ] || { echo 'SKIP on InfiniBand somebody is asked'; exit 77; }
  watched 2 --mca btl_fabric_path_records 1 --mca btl_base_verbose 5 "$check" $small && says 'checks passed' &&
    says_not 'subnet administrator' || return 1
  [ "$link" = iwarp ] || have sl 0
}
# There is no communication manager, no AF_IB, or no answer, at once or after some time: connections come about as they did.
case_path_records_without_an_answer() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has a subnet administrator'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has faults by rule'; exit 77 ;; esac
  local on='--mca btl_fabric_path_records 1 --mca btl_fabric_cpc_include oob' why call
  for why in 'rdma_create_event_channel ENODEV' 'rdma_resolve_addr EAFNOSUPPORT' 'rdma_resolve_route ETIMEDOUT'; do
    read -r call why <<< "$why"
    echo "fail call=$call errno=$why" > faults
    new_fabric --devices 1 --set sm_sl=5 --faults faults
    watched 4 $on "$check" $small && says 'checks passed' && have sl 0 || return 1
    says 'the subnet administrator gives no path to a peer' || return 1
    [ "$(grep -c 'the subnet administrator gives no path' out)" -eq 1 ] || { echo 'not said once'; return 1; }
  done
  new_fabric --devices 1 --set sm_sl=5 --set sm_us=10000000
  watched 4 $on --mca btl_fabric_rdmacm_resolve_timeout 300 "$check" $small && says 'checks passed' && have sl 0 &&
    says 'the subnet administrator gives no path to a peer (RDMA_CM_EVENT_ROUTE_ERROR'
}
# While an answer takes its time, processes fork, and jobs end.
case_path_records_slowly() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has a subnet administrator'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has a subnet manager that can be told what to say'; exit 77 ;; esac
  new_fabric --devices 2 --set sm_sl=5 --set sm_us=200000
  export OMPI_MCA_btl_fabric_path_records=1
  watched 8 "$check" --max 4096 --flood 100 && says 'checks passed' && have sl 5 && forks exec && leaves abort 5 && leaves exit 5
}
# registered MASK [MASK] : regions that have one of the first flags, and then all of the second.
registered() {
  cat verbs.* | awk '$1 == "mr:" { print $3 }' | while read -r access; do
    (((access & $1) == 0 || (access & ${2:-0}) != ${2:-0})) || echo "$access"
  done | wc -l
}
# Relaxed ordering is 0x100000, on demand 0x40, remote write 2, remote atomic 8.
case_relaxed_ordering() {
  watched 2 --mca btl_fabric_eager_rdma 1 "$check" $small && says 'checks passed' || return 1
  [ "$(registered 0x100000)" -gt 0 ] || { echo 'no memory has relaxed ordering'; return 1; }
  [ "$(registered 2)" -gt 0 ] || { echo 'no memory is for peers to write to'; return 1; }
  # An iWARP device writes what was read as a peer's write: that memory has an order only where peers write by themselves.
  [ "$link" = iwarp ] || [ "$(registered 0xa 0x100000)" -eq 0 ] || { echo 'what peers write has no order'; return 1; }
  watched 2 --mca btl_fabric_eager_rdma 1 --mca btl_fabric_relaxed_ordering 0 "$check" $small && says 'checks passed' || return 1
  [ "$(registered 0x100000)" -eq 0 ] || { echo 'with relaxed_ordering 0 some memory has it'; return 1; }
}
case_memory_on_demand() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca can be told to have on-demand paging'; exit 77 ;; esac
  local on='on-demand paging'
  watched 2 --mca btl_fabric_odp 1 "$check" $small && says 'checks passed' && says "btl_fabric_odp: $dev_a has no $on" &&
    [ "$(registered 0x40)" -eq 0 ] || { echo 'of a device that has none'; return 1; }
  new_fabric --devices 2 --set odp=yes
  watched 2 "$check" --max 3000000 --flood 100 && says 'checks passed' && [ "$(registered 0x40)" -eq 0 ] ||
    { echo 'memory is on demand, and nobody has asked for it'; return 1; }
  # Large messages are read into memory that is, and rings and buffers are not.
  watched 2 --mca btl_fabric_odp 1 --mca btl_fabric_read_windows 0 --mca btl_fabric_eager_rdma 1 "$check" --max 3000000 --flood 100 &&
    says 'checks passed' && says_not "$on" || return 1
  [ "$(registered 0x40)" -gt 0 ] || { echo 'no memory is on demand'; return 1; }
  [ "$(registered 0xffffff)" -gt "$(registered 0x40)" ] || { echo 'all memory is on demand'; return 1; }
  [ "$link" = iwarp ] || fabric 4 --mca osc rdma --mca btl_fabric_odp 1 "$check" --rma --max 65536 && says 'checks passed'
}
case_completions_at_once() {
  local most
  for most in 1 200; do
    watched 2 --mca btl_fabric_cq_poll_batch $most "$check" $small && says 'checks passed' || return 1
    sed -n 's/^polled: .* //p' verbs.* | sort -u | grep -qx $most || { echo "not $most at once:"; grep polled: verbs.*; return 1; }
  done
}
# A GID of a link-local address and one of an IPv4 address are of two subnets, which the user may know to be connected.
case_different_subnets_are_paired_if_allowed() {
  [ "$link" = roce ] || { echo 'SKIP only RoCE ports have several GIDs'; exit 77; }
  case $dev_a in softhca*) ;; *) echo 'SKIP there is no route between the subnets'; exit 77 ;; esac
  OMPI_MCA_btl_fabric_allow_different_subnets=1 fabric_pair gid_index=1 gid_index="$FABRIC_IPV4_GID" $small && says 'checks passed'
}
# Open MPI sends by those BTLs alone that have the highest exclusivity: tcp has 100, and this one 1024 if nothing is set.
case_exclusivity() {
  local above=(--mca btl_fabric_exclusivity 101) below=(--mca btl_fabric_exclusivity 99) rest=(--mca btl_tcp_if_include lo "$check" $small)
  BTLS=fabric,tcp,self watched 2 "${above[@]}" "${rest[@]}" && says 'checks passed' && carries "$dev_a" || return 1
  BTLS=fabric,tcp,self watched 2 "${below[@]}" "${rest[@]}" && says 'checks passed' && carries_not "$dev_a"
}
# Two devices, each near to a processor, in a fabric that has such, and a process bound to each processor.
case_near_devices() {
  case $dev_a in softhca*) ;; *) echo 'SKIP only softhca has devices whose place can be chosen'; exit 77 ;; esac
  local cpus=() cpu ignored rank
  for ((cpu = 0; cpu < 32 && ${#cpus[@]} < 2; cpu++)); do
    ! taskset -c $cpu true 2> /dev/null || cpus+=($cpu)
  done
  [ ${#cpus[@]} -eq 2 ] || { echo 'SKIP there are no two processors'; exit 77; }
  new_fabric --devices 2 --fs
  # shellcheck disable=SC2016 # for the other bash
  launcher+=(bash -c 'for device in 0 1; do
      place=$SOFTHCA_DIR/sys/class/infiniband/softhca$device/device
      printf "%x\n" $((1 << ${@:1 + device:1})) > "$place/local_cpus" || exit
    done; exec "${@:3}"' - "${cpus[@]}")
  for ignored in 0 1; do
    # shellcheck disable=SC2016 # for the other bash
    watched 2 --mca btl_fabric_ignore_locality $ignored bash -c 'cpus=("${@:1:2}")
        exec taskset -c ${cpus[OMPI_COMM_WORLD_RANK]} "${@:3}"' - "${cpus[@]}" "$check" $small && says 'checks passed' || return 1
    for rank in 0 1; do
      carries softhca$rank verbs.$rank &&
        if [ $ignored = 1 ]; then carries softhca$((!rank)) verbs.$rank; else carries_not softhca$((!rank)) verbs.$rank; fi ||
        { echo "rank $rank, ignore_locality $ignored"; return 1; }
    done
  done
}

case_parameters_are_documented() {
  ompi_info --param btl fabric --level 9 > out 2>&1
  local name names
  names=$(parameters numbers | cut -d' ' -f1; parameters texts) # of the README, which a static check compares with the table
  [ "$(wc -w <<< "$names")" -gt 30 ] || { echo "the README has only these parameters: $names"; return 1; }
  for name in $names eager_limit max_send_size; do
    says "\"btl_fabric_$name\"" || return 1
  done
}

case_max_send_size_without_room() { # for anything behind Open MPI's header
  fabric 2 --mca btl_fabric_flags 1 --mca btl_fabric_max_send_size 32 "$check" --max 30000
  refuses $? && says 'btl_fabric_max_send_size is 32' && says 'at least 64'
  fabric 2 --mca btl_fabric_flags 1 --mca btl_fabric_max_send_size 64 "$check" --max 30000 && says 'checks passed'
}

# Help files of Open MPI that are missing are not looked for in our folder, or it would be ours that users are told of.
case_missing_help_file() {
  btl_user check_help || return 1
  fabric 1 "$programs/check_help"
  says 'help-that-is-not-there.txt' && says_not btl_fabric
}

# parameters KIND : those of the README's table, as lines "name min max" of numbers (max is - if there is none), or names of texts.
parameters() {
  sed -n '/^| `receive_queues`/,/^$/s/^| `\([a-z_]*\)` | [^|]* | \([^|]*\) |.*/\1 \2/p' "$here/../../README.md" |
    awk -v kind="$1" '$2 == "text" && kind == "texts" { print $1 }
      $2 != "text" && kind == "numbers" { print $1, $2, $3 == "to" ? $4 : "-" }'
}
# all_wrong : a job with all parameters of the file `settings`, lines of NAME, VALUE, and what is to be said of it.
all_wrong() {
  local name value expected options=()
  while read -r name value expected; do
    options+=(--mca "btl_fabric_$name" "$value")
  done < settings
  fabric 1 "${options[@]}" "$check" --max 100 --flood 10
  while read -r name value expected; do
    grep -F "btl_fabric_$name" out | grep -qF -- "$expected" || { echo "of $name = $value: $expected"; return 1; }
  done < settings
}
# bad_numbers below|above|no_number : such lines, for every number.
bad_numbers() {
  parameters numbers > numbers
  [ "$(wc -l < numbers)" -gt 20 ] || { echo 'there are no parameters in the README'; return 1; }
  awk -v how="$1" '
    how == "below" {
      range = $3 == "-" ? "at least " $2 : "between " $2 " and " $3
      print $1, $2 - 1, "is " $2 - 1 ", but must be " range
    }
    how == "above" && $3 != "-" { print $1, $3 + 1, "is " $3 + 1 ", but must be between " $2 " and " $3 }
    how == "no_number" { print $1, $2 "x", "is \"" $2 "x\", but must be a number " }' numbers > settings
}
# bad_texts include|exclude : such lines, for the texts that may be set together.
bad_texts() {
  if [ "$1" = include ]; then
    cat << 'EOF'
receive_queues P,128,x rd_num must be a decimal number
if_include mlx5_0:x "mlx5_0:x" has no port number after the colon: ports are 1 to 255
subnets 10.1.0.0/16,10/8 "10/8" has no IP address before the slash
rails mlx5_0=1,mlx5_1=0 "mlx5_1=0" has no rail after the equals sign: rails are 1 to 255
cpc_include oob,ob "ob" is no connection method
oob_if_include 10.0.0.0/33 "10.0.0.0/33" has no prefix length after the slash
queue_costs 1,2 "1,2" is not op_size,iov_size,alignment
rx_steering tag=match rule "tag=match": no :CONTEXT follows
EOF
  else
    cat << 'EOF'
if_exclude /dev/mlx5_0 "/dev/mlx5_0" has a blank or a slash in it
cpc_exclude oob,,rdmacm "" is no connection method
oob_if_exclude eth0,,eth1 "" is neither an interface nor a network
report 3 is "3", but must be 0, 1, 2 or the name of a file that ends in .json
EOF
  fi > settings
}
# Whatever is wrong is told in one message: which parameter, what the user wrote, and the rule.
case_every_bad_number() {
  local how
  for how in below above no_number; do
    bad_numbers $how && all_wrong || return 1
  done
}
case_every_bad_text() {
  parameters texts | sort > texts
  bad_texts include && all_wrong || return 1
  cp settings tried
  bad_texts exclude && all_wrong || return 1
  cat settings >> tried
  echo 'trace /nowhere/trace /nowhere/trace.0: No such file or directory' > settings
  all_wrong && says 'checks passed' || return 1  # the job does not need it
  cat settings >> tried
  awk '{ print $1 }' tried | sort | diff - texts || { echo 'another parameter is a text'; return 1; }
}
