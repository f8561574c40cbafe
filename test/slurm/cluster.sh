# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A Slurm of its own, of the hosts n1 and n2, which are this machine under two names. It uses nothing of a Slurm that the machine may
# have: munged, slurmctld and the two slurmd are processes of this test on free ports, with all their files in one folder.
#
#   cluster_start DIR        returns when both hosts take jobs; sets SLURM_CONF for this shell and its children
#   cluster_ends             ends the daemons, and returns when they are gone
#   cluster_reads_settings   once more, after $SLURM_CONF has been changed
#   cluster_logs             what the daemons have complained of
#
# Wants root, for the names of the hosts (UTS namespaces) and for slurmd, and the packages slurmctld, slurmd, slurm-client and munge.

cluster_pids=()

cluster_start() {
  local ports
  cluster=$1
  # For both hosts: where PMIx keeps its files, and where slurmd keeps those of jobs.
  mkdir -p "$cluster"/{state,spool,tmp/n1,tmp/n2} || return
  read -ra ports < <(cluster_free_ports)
  cluster_settings "${ports[@]}" > "$cluster/slurm.conf"
  export SLURM_CONF=$cluster/slurm.conf
  (umask 077 && head -c 1024 /dev/urandom > "$cluster/munge.key")
  cluster_daemon munged --foreground --force --num-threads=2 --socket="$cluster/munge.sock" --key-file="$cluster/munge.key" \
    --pid-file="$cluster/munged.pid" --seed-file="$cluster/munge.seed" --log-file="$cluster/munged.log"
  cluster_waits_for [ -S "$cluster/munge.sock" ] || return
  cluster_daemon slurmctld -D -c -f "$SLURM_CONF"
  for host in n1 n2; do
    # shellcheck disable=SC2016 # for the other bash
    cluster_daemon unshare --uts bash -c 'hostname "$1" && exec slurmd -D -f "$SLURM_CONF"' - $host
  done
  cluster_waits_for cluster_is_idle
}

cluster_settings() { # PORT OF THE CONTROLLER, OF n1, OF n2
  cat << END
ClusterName=btl_fabric_test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.sock
CredType=cred/munge
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool/%n
TmpFS=$cluster/tmp/%n
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.%n.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=5
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port=$2 CPUs=8
NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port=$3 CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
END
}

cluster_free_ports() {
  perl -MIO::Socket::INET -e 'my @sockets = map { IO::Socket::INET->new(Proto => "tcp", LocalAddr => "127.0.0.1", Listen => 1) } 1 .. 3;
    print join(" ", map { $_->sockport } @sockets), "\n"'
}

# A daemon writes nothing before it has opened its log.
cluster_daemon() {
  "$@" > "$cluster/out.${#cluster_pids[@]}" 2>&1 < /dev/null &
  cluster_pids+=($!)
}

# cluster_waits_for COMMAND... : until it succeeds, but not for ever, and not when a daemon has ended.
cluster_waits_for() {
  local try pid
  for ((try = 0; try < 600; try++)); do
    ! "$@" > "$cluster/answer" 2>&1 || return 0
    for pid in "${cluster_pids[@]}"; do
      kill -0 "$pid" 2> /dev/null || { echo 'a daemon has ended:'; tail -n 5 "$cluster"/out.*; return 1; }
    done
    sleep 0.1
  done
  echo "$* does not come true; it says:"
  cat "$cluster/answer"
  return 1
}
cluster_is_idle() { [ "$(timeout 20 sinfo --noheader --Node --format=%T | sort | uniq -c | tr -s ' ')" = ' 2 idle' ]; }

cluster_reads_settings() { scontrol reconfigure && cluster_waits_for cluster_is_idle; }

cluster_ends() {
  local pid
  ((${#cluster_pids[@]})) || return 0
  # The controller first: jobs that are left end with it.
  [ -z "${SLURM_CONF-}" ] || timeout 20 scancel --quiet --user root > "$cluster/answer" 2>&1
  ! kill -TERM "${cluster_pids[@]}" 2> "$cluster/answer"
  for pid in "${cluster_pids[@]}"; do
    ( sleep 20; kill -KILL "$pid" ) > /dev/null 2>&1 &
    local watcher=$!
    wait "$pid"
    kill $watcher 2> /dev/null
  done
  cluster_pids=()
}

# Not what each says at its first start.
cluster_logs() {
  grep -hE 'error|fatal' "$cluster"/*.log | grep -vE 'state file|MailProg|xcpuinfo_hwloc|Domain socket directory' | tail -n "${1:-20}"
}
