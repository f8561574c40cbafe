# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# fabric_doctor: each check, with what it looks at broken.

doctor=$FABRIC_BUILD/contrib/fabric_doctor/fabric_doctor
needs_doctor() { [ -x "$doctor" ] || { echo 'SKIP FABRIC_BUILD has no fabric_doctor'; exit 77; }; }
needs_softhca() { case $dev_a in softhca*) ;; *) echo "SKIP only softhca $1"; exit 77 ;; esac; }

# alone ARGUMENT... : on this host; jobs over hosts are started by fabric.
alone() { needs_doctor; runs "${launcher[@]}" "$doctor" "$@"; }
# finds LEVEL CHECK TEXT : a line of the report, TEXT being a pattern of grep -E.
finds() { grep -qE "^$1 +$2 +.*$3" out || { echo "not found: $1 $2 $3"; return 1; }; }
finds_no() { ! grep -E "^$1 " out || { echo "unexpected: $1"; return 1; }; }
# fails STATUS : a check has failed, and the last line, but for what mpirun says, tells so.
fails() { [ "$1" -eq 1 ] && says 'MPI over the fabric BTL will not work here' || { echo "status $1"; return 1; }; }

case_doctor_finds_nothing_wrong() {
  local name
  alone --mca btl fabric,self && says 'MPI over the fabric BTL will work here' && finds_no FAIL || return 1
  for name in parameters devices kernel ports memlock fit component selection; do
    finds ok $name . || return 1
  done
  finds ok devices "$dev_a" && finds ok ports "$dev_a:1: active" && finds ok selection 'ob1 wins.*fabric' || return 1
  alone --json --mca btl fabric,self && says '"verdict": "ok"' && says '"check": "selection"' || return 1
  alone --json report.json --mca btl fabric,self && says 'will work here' && python3 -m json.tool report.json > /dev/null || return 1
  alone --help && says 'memlock     the limit of locked memory' || return 1
  # Its manual page has all that the help has.
  for name in $(grep -oE '(^|[ ,])--[a-z]+' out; sed -n 's/^  \([a-z]*\)  .*/\1/p' out); do
    sed 's/\\-/-/g' "$here/../../contrib/fabric_doctor/fabric_doctor.1" | grep -qE -- "(^|[^a-z-])${name#,}([^a-z-]|\$)" ||
      { echo "fabric_doctor.1 lacks $name"; return 1; }
  done
  alone --no-such-option
  [ $? -eq 2 ] || { echo 'bad usage has another status'; return 1; }
}

case_doctor_in_a_job() {
  local method methods=rdmacm
  needs_doctor
  case $link in
    ib) methods='oob rdmacm ibcm' ;;
    roce) methods='oob rdmacm' ;;
  esac
  fabric 3 --mca btl_fabric_if_include "$dev_a" "$doctor" --json report.json || return 1
  says 'will work here' && finds_no FAIL && finds ok pairs '3 of 3' && finds ok packets 'came through both ways' &&
    finds ok latency 'median' && finds ok bandwidth 'median' || return 1
  for method in $methods; do
    finds ok connect "$method: 3 of 3" || return 1
  done
  [ "$link" = iwarp ] || finds ok tcp 'one way each: 6' || return 1
  grep -q '"latency_us"' report.json || return 1
  fabric 3 --mca btl_fabric_if_include "$dev_a" "$doctor" --rounds 1 && finds ok pairs '1 of 3' || return 1
  fabric 2 --mca btl_fabric_oob_if_include $'10.0.0.0/\377' "$doctor" # no UTF-8
  fails $? && finds FAIL parameters btl_fabric_oob_if_include
}

case_doctor_sees_a_port_that_is_down() {
  needs_softhca 'has a port that goes down when it is told to'
  local status
  trap 'ctl port-up 0 0 1' EXIT
  ctl port-down 0 0 1
  alone --mca btl_fabric_if_include "$dev_a"
  status=$?
  fails $status && finds FAIL ports "$dev_a:1: .*not active" && says 'ip link set NETDEV up' || return 1
  alone && finds WARN ports "$dev_a:1" && finds ok ports "$dev_b:1: active" # the other one does
}

case_doctor_sees_subnets_with_one_prefix() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has subnet managers'; exit 77; }
  new_fabric --devices 2 --set sm_lid=1,1:1=9
  alone && finds WARN ports 'softhca0:1 and softhca1:1 have GIDs of one prefix, fe80::/64, but are on different subnets' || return 1
  new_fabric --devices 2
  alone && finds_no WARN
}

case_doctor_sees_devices_that_are_left_out() {
  alone --mca btl_fabric_if_include nosuch
  fails $? && finds FAIL devices 'nosuch: this host has no device of that name' || return 1
  alone --mca btl_fabric_if_exclude "$dev_a,$dev_b"
  fails $? && finds FAIL devices "$dev_a: .*leaves it out" || return 1
  alone --mca btl_fabric_if_include "$dev_a" && finds ok devices "$dev_b: .*leaves it out" || return 1
  alone --mca btl fabric,self --mca btl_fabric_if_exclude nosuch && finds_no WARN && says_not nosuch: # other hosts may have it
}

# tells_each : of the parameters of the file `settings`, all at once (settings.sh).
tells_each() {
  local name value expected options=()
  while read -r name value expected; do
    options+=(--mca "btl_fabric_$name" "$value")
  done < settings
  alone "${options[@]}"
  fails $? || return 1
  while read -r name value expected; do
    grep -E "^FAIL +parameters +btl_fabric_$name\b" out | grep -qF -- "$expected" || { echo "of $name = $value: $expected"; return 1; }
  done < settings
}
# What the component does not start with, the doctor tells.
case_doctor_sees_every_wrong_value() {
  local how
  for how in 'numbers below' 'numbers above' 'numbers no_number' 'texts include' 'texts exclude'; do
    # shellcheck disable=SC2086 # two words
    bad_$how && tells_each || return 1
  done
  cat > settings << 'EOF'
tx_contexts 0 an endpoint needs at least 1
max_ports 0 a process needs at least 1
pkey 0x8000 membership without a partition
eager_limit 70000
EOF
  tells_each || return 1
  alone --mca btl_fabric_report "$PWD/report.txt" # the child is given none
  fails $? && finds FAIL parameters "btl_fabric_report is \"$PWD/report.txt\", but must be" || return 1
  alone --mca btl_fabric_cpc_include oob --mca btl_fabric_cpc_exclude rdmacm --mca btl_fabric_oob_if_include lo --mca btl_fabric_oob_if_exclude eth0
  fails $? && finds FAIL parameters 'btl_fabric_cpc_include .* are both set' &&
    finds FAIL parameters 'btl_fabric_oob_if_include .* are both set' && finds FAIL selection 'btl_fabric_cpc_include'
}

# is_alive PID : and no zombie.
is_alive() { grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"; }
case_doctor_takes_its_child_along() {
  needs_doctor
  local doctors child='' try
  mkdir -p home/.openmpi && mkfifo home/.openmpi/mca-params.conf # MPI_Init waits there for ever
  HOME=$PWD/home "${launcher[@]}" "$doctor" > out 2>&1 &
  doctors=$!
  until child=$(pgrep -P "$doctors" -f -- answer-for-open-mpi) && grep -qs libmpi "/proc/$child/maps"; do
    is_alive "$doctors" || { cat out; return 1; }
    sleep 0.1
  done
  kill -TERM "$doctors"
  wait "$doctors"
  for try in {1..50}; do
    is_alive "$child" || return 0
    sleep 0.1
  done
  echo "its child is there after $try tenths of a second"
  kill -KILL "$child"
  return 1
}

# Whoever looks for the cause of a failure does not lose what the job has left, whichever way it was told to write it.
case_doctor_leaves_files_alone() {
  mkdir -p home/.openmpi && echo 'of the last job' > kept && cp kept report.json && cp kept trace.0
  printf 'btl_fabric_%s\n' "report = $PWD/report.json" "trace = $PWD/trace.%r" > home/.openmpi/mca-params.conf
  HOME=$PWD/home alone --mca btl fabric,self && finds_no FAIL && cmp kept report.json && cmp kept trace.0 || return 1
  alone --mca btl fabric,self --mca btl_fabric_report "$PWD/report.json" --mca btl_fabric_trace "$PWD/trace.%r" && finds_no FAIL &&
    finds ok parameters "btl_fabric_report $PWD/report.json" && cmp kept report.json && cmp kept trace.0
}

# An empty text is none, but for the receive queues.
case_doctor_takes_empty_for_not_set() {
  local name options=()
  for name in if_include if_exclude subnets rails cpc_include cpc_exclude oob_if_include oob_if_exclude queue_costs rx_steering trace report; do
    options+=(--mca "btl_fabric_$name" '')
  done
  alone --mca btl fabric,self "${options[@]}" && finds_no FAIL && finds_no WARN || return 1
  alone --mca btl_fabric_receive_queues ''
  fails $? && finds FAIL parameters btl_fabric_receive_queues && finds FAIL selection btl_fabric_receive_queues
}

# Open MPI takes words and units of time for other numbers.
case_doctor_shows_what_was_written() {
  alone --mca btl fabric,self --mca btl_fabric_max_ports auto --mca btl_fabric_heal_timeout 2min &&
    finds ok parameters 'btl_fabric_heal_timeout 2min, btl_fabric_max_ports auto' && finds_no FAIL || return 1
  alone --mca btl_fabric_retry_count abc
  fails $? && finds FAIL parameters 'btl_fabric_retry_count is "abc", but must be a number' || return 1
  mkdir -p home/.openmpi && echo 'btl_fabric_retry_count = seven' > home/.openmpi/mca-params.conf
  HOME=$PWD/home alone
  fails $? && finds FAIL parameters 'btl_fabric_retry_count is "seven", but must be a number' || return 1
  HOME=$PWD/home alone --mca btl_fabric_retry_count 3 && finds ok parameters 'btl_fabric_retry_count 3' || return 1
  # Of every BTL, as Open MPI itself reads them: both are no limit.
  alone --mca btl fabric,self --mca btl_fabric_get_limit 18446744073709551615 --mca btl_fabric_put_limit -1 && finds_no FAIL
}

# Open MPI says nothing of lines that no component knows.
case_doctor_reads_files_of_parameters() {
  local file=home/.openmpi/mca-params.conf
  mkdir -p home/.openmpi
  printf '%s\n' '# btl_fabric_commented = 1' ' btl_fabric_eager_limt=4096' 'btl_fabric_timeout = 17' 'btl_fabric_report = nowhere' > "$file"
  HOME=$PWD/home alone
  fails $? && finds WARN parameters "btl_fabric_eager_limt, which is in $PWD/$file; is btl_fabric_eager_limit meant" &&
    finds FAIL parameters 'btl_fabric_report is "nowhere"' && says_not commented || return 1
  # Of several files the first counts, and in it the last line; the environment is stronger.
  printf 'btl_fabric_report = %s\n' one 2 > "$file" && echo 'btl_fabric_report = three' > other.conf
  alone --mca btl fabric,self --mca mca_base_param_files "$PWD/$file,$PWD/other.conf" && finds ok parameters 'btl_fabric_report 2' || return 1
  HOME=$PWD/home alone --mca btl fabric,self --mca btl_fabric_report 1 && finds ok parameters 'btl_fabric_report 1'
}

case_doctor_sees_wrong_parameters() {
  alone --mca btl_fabric_nosuch 1 && finds WARN parameters btl_fabric_nosuch || return 1
  alone --mca btl_fabric_retry_cout 1 && finds WARN parameters 'btl_fabric_retry_cout; is btl_fabric_retry_count meant' || return 1
  alone --mca btl_fabric_retry_count 8
  fails $? && finds FAIL parameters 'btl_fabric_retry_count is 8' || return 1
  alone --mca btl_fabric_cpc_include nosuch
  fails $? && finds FAIL parameters 'btl_fabric_cpc_include.*nosuch' || return 1
  mkdir -p home/.openmpi && echo 'btl_fabric_receive_queues = P,1' > home/.openmpi/mca-params.conf
  HOME=$PWD/home alone
  fails $? && finds FAIL parameters btl_fabric_receive_queues
}

# As root one may lock any amount, so that is given up first.
case_doctor_sees_memlock() {
  needs_doctor
  new_fabric
  need setpriv 'setpriv is not installed'
  # shellcheck disable=SC2016 # for the other bash
  runs setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock bash -c 'ulimit -l 64; exec "$@"' - "${launcher[@]}" "$doctor" &&
    finds WARN memlock '64 KiB' && says 'ulimit -l unlimited' || return 1
  echo 'fail call=ibv_reg_mr errno=ENOMEM' > rules
  new_fabric --faults "$PWD/rules"
  # shellcheck disable=SC2016 # for the other bash
  runs bash -c 'ulimit -l 64; exec "$@"' - "${launcher[@]}" "$doctor"
  fails $? && finds FAIL memlock '32 MiB cannot be registered' && says 'memlock unlimited' || return 1
  # Where there is no limit, or the device fails, the limit is not to blame.
  if (ulimit -l unlimited) 2> /dev/null; then
    # shellcheck disable=SC2016 # for the other bash
    runs bash -c 'ulimit -l unlimited; exec "$@"' - "${launcher[@]}" "$doctor"
    fails $? && finds FAIL memlock '32 MiB cannot be registered' && says 'dmesg' && says_not 'ulimit' || return 1
  fi
  echo 'fail call=ibv_reg_mr errno=EIO' > rules
  # shellcheck disable=SC2016 # for the other bash
  runs bash -c 'ulimit -l 64; exec "$@"' - "${launcher[@]}" "$doctor"
  fails $? && finds FAIL memlock '32 MiB cannot be registered: Input/output error' && says 'dmesg' && says_not 'ulimit'
}

# Its connections fail, and neither the methods nor the network are to blame.
case_doctor_sees_a_device_that_fails() {
  needs_doctor
  needs_softhca 'has a device that fails when it is told to'
  local pid status
  for _ in {1..10}; do
    (
      until ctl list | grep -q '^  qp .*: RTS'; do sleep 0.02; done
      ctl device-fatal 0 0
    ) &
    pid=$!
    fabric 5 --mca btl_fabric_if_include "$dev_a" "$doctor"
    status=$?
    kill $pid 2> /dev/null
    wait $pid 2> /dev/null
    ! grep -qE '^(FAIL|WARN) ' out || break # else it has ended before
  done
  fails $status && finds FAIL devices "[^ ]*: $dev_a failed while it was tried" && says 'btl_fabric_if_exclude' &&
    finds FAIL '(connect|packets)' "see devices, .*: $dev_a" && says_not 'UDP port 4791' && says_not 'let TCP through'
}

case_doctor_sees_too_few_queue_pairs() {
  new_fabric --set max_qps=40
  alone --hosts 4 --processes 16 && finds WARN fit 'queue pairs on each host, and the device has 40' || return 1
  new_fabric --set max_wr=64
  alone --mca btl_fabric_receive_queues P,128,256
  fails $? && finds FAIL fit 'the device takes 64 work requests' && says 'shorten btl_fabric_receive_queues'
}

case_doctor_says_who_wins() {
  ompi_info --parsable | grep -q '^mca:pml:ucx:' || { echo 'SKIP Open MPI has no pml/ucx'; exit 77; }
  needs_doctor
  mkdir -p home/.openmpi && echo 'pml = ucx' > home/.openmpi/mca-params.conf
  HOME=$PWD/home alone
  fails $? && says '--mca pml ob1' || return 1
  if [ "$link" = iwarp ]; then # UCX knows no iWARP, and may have nothing else
    finds FAIL selection '(MPI_Init fails|the PML ucx wins)' || return 1
  else
    finds FAIL selection "the PML ucx wins .*$PWD/home/.openmpi/mca-params.conf" || return 1
  fi
  HOME=$PWD/home alone --mca pml ob1 && finds ok selection 'ob1 wins.*fabric' || return 1
  alone --mca btl tcp,self
  fails $? && finds FAIL selection 'fabric is not among.*btl = tcp,self, by the environment' && says '--mca btl fabric,self'
}

case_doctor_sees_a_component_that_is_missing() {
  needs_doctor
  mkdir none broken && echo 'no library' > broken/mca_btl_fabric.so
  local components=${OMPI_MCA_mca_base_component_path#*:}
  alone --mca mca_base_component_path "$PWD/none:$components"
  fails $? && finds FAIL component 'in none of the folders' || return 1
  alone --mca mca_base_component_path "$PWD/broken:$components"
  fails $? && finds FAIL component 'broken/mca_btl_fabric.so cannot be loaded'
}

# a_bad_fabric RULE [OPTION...] : two processes on devices with this fault.
a_bad_fabric() {
  needs_doctor
  echo "$1" > rules
  shift
  new_fabric --faults "$PWD/rules" "$@"
  fabric 2 "$doctor"
}
case_doctor_sees_large_packets_get_lost() {
  a_bad_fabric 'drop op=send min_bytes=2048'
  fails $? && finds FAIL packets 'of 4096 bytes do not come through, though short ones do' && says 'raise the MTU'
}
case_doctor_sees_all_packets_get_lost() {
  a_bad_fabric 'drop op=send'
  fails $? && says 'UDP port 4791' || return 1
  if [ "$link" = iwarp ]; then
    finds FAIL connect 'rdmacm does not connect.*the first message does not come through'
  else
    finds FAIL packets 'no message of 8 bytes comes through'
  fi
}
case_doctor_sees_a_method_that_does_not_connect() {
  a_bad_fabric 'cm action=reject'
  local status=$?
  if [ "$link" = iwarp ]; then
    fails $status && finds FAIL connect 'rdmacm does not connect.*would choose it'
  else
    [ $status -eq 0 ] && finds WARN connect 'rdmacm does not connect.*would choose another' && finds ok connect 'oob: 1 of 1'
  fi
}

case_doctor_sees_ports_that_do_not_reach_each_other() {
  needs_doctor
  [ "$link" = roce ] && needs_softhca 'has the same GIDs everywhere' || { echo 'SKIP only RoCE ports have several GIDs'; exit 77; }
  # shellcheck disable=SC2016 # for the other bash
  fabric 2 bash -c 'export OMPI_MCA_btl_fabric_gid_index=$((1 + 2 * OMPI_COMM_WORLD_RANK)); exec "$0"' "$doctor"
  fails $? && finds FAIL reach 'no port of .* reaches one of' && says 'addresses of one subnet'
}

# A host whose messages take 60 ms longer, which is more than any load adds, of five: with fewer nobody knows which of them is usual.
case_doctor_sees_a_slow_host() {
  needs_doctor
  local method=rdmacm
  echo 'delay us=60000 op=send node=4' > rules
  new_fabric --nodes 5 --set node_from=OMPI_COMM_WORLD_RANK --faults "$PWD/rules"
  [ "$link" = iwarp ] || method=oob # enough, and faster
  on_nodes n1,n2,n3,n4,n5 --mca btl_fabric_cpc_include $method "$doctor" || return 1
  finds ok pairs '10 of 10' && finds WARN latency 'far from the median' &&
    [ "$(grep -cE '^WARN +latency .*n[0-9] - n[0-9]' out)" -eq 4 ] || return 1
}
# on_nodes HOST,... COMMAND... : a process on each of these hosts, which contrib/vm/two-nodes makes.
on_nodes() {
  local hosts=$1 agent=$here/../../contrib/vm/two-nodes
  shift
  unshare --uts true 2> /dev/null || { echo 'SKIP no namespaces'; exit 77; }
  [[ $(mpirun --version) == *' 4.1'* ]] || { echo 'SKIP the agent is for mpirun of 4.1'; exit 77; }
  fabric "$(tr ',' '\n' <<< "$hosts" | wc -l)" --mca plm rsh --mca plm_rsh_agent "$agent" --mca plm_rsh_no_tree_spawn 1 \
    --map-by node --host "$hosts" "$@"
}

case_doctor_hears_of_srun_without_pmix() {
  SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 alone
  fails $? && finds FAIL job 'srun --mpi=pmix'
}

# Two hosts with a network each, and the test between them as a router.
case_doctor_sees_a_firewall() {
  needs_doctor
  [ "$link" != iwarp ] || { echo 'SKIP only oob needs TCP'; exit 77; }
  needs_softhca 'has its devices in every network'
  local pid
  unshare -n -m sleep 300 &
  pid=$!
  # shellcheck disable=SC2064 # now
  trap "kill $pid" EXIT
  sleep 0.2
  launcher=(nsenter -t "$pid" -n -m)
  # shellcheck disable=SC2016 # for the other bash
  "${launcher[@]}" bash -c '
    host() {
      ip netns add "$1" && ip link add "to_$1" type veth peer name eth0 netns "$1" && ip addr add "10.79.$2.1/24" dev "to_$1" &&
        ip link set "to_$1" up && ip -n "$1" link set lo up && ip -n "$1" addr add "10.79.$2.2/24" dev eth0 &&
        ip -n "$1" link set eth0 up && ip -n "$1" route add default via "10.79.$2.1"
    }
    ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns && host n1 1 && host n2 2 &&
      echo 1 > /proc/sys/net/ipv4/ip_forward && ip -n n1 addr add 10.80.0.1/32 dev eth0 && ip route add 10.80.0.1 via 10.79.1.2' > said_of_networks 2>&1 ||
    { echo 'SKIP no network namespaces'; exit 77; }
  on_nodes n1,n2 --mca btl_fabric_if_include "$dev_a" "$doctor" && finds ok tcp 'one way each: 2' && finds ok connect 'oob: 1 of 1' || return 1
  # n1 is to be reached by an address that n2 has no way to.
  "${launcher[@]}" ip -n n2 route add blackhole 10.80.0.1
  # shellcheck disable=SC2016 # for the other bash
  on_nodes n1,n2 --mca btl_fabric_if_include "$dev_a" \
    bash -c '[ "$(hostname)" != n1 ] || export OMPI_MCA_btl_fabric_oob_if_include=10.80.0.0/24; exec "$0"' "$doctor" || return 1
  finds WARN tcp 'from n2 to n1: 10.80.0.1.*the other way it does' && finds ok connect 'oob: 1 of 1' || return 1
  "${launcher[@]}" ip -n n1 route add blackhole 10.79.2.2
  on_nodes n1,n2 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_cpc_include oob "$doctor"
  fails $? && finds FAIL tcp 'from n1 to n2' && finds FAIL tcp 'from n2 to n1' && says 'open the firewall' &&
    finds FAIL connect 'oob does not connect n1 - n2'
}

case_doctor_sees_no_device_nodes() {
  needs_doctor
  case $dev_a in softhca*) echo 'SKIP only a device of the kernel has device nodes'; exit 77 ;; esac
  runs unshare -m bash -c 'mount -t tmpfs none /dev/infiniband && exec "$0"' "$doctor"
  fails $? && finds FAIL kernel '/dev/infiniband/uverbs0: No such file' && says 'modprobe ib_uverbs'
}
