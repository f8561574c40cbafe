# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The parts of test/run-all: a function each, part_NAME, which starts what the manifest's file NAME has in this tier. Those that
# take longest come first.

parts=(storm debian13 kernel debian13vm asan tsan ledger unit fuzz matrix softhca programs limits nodevice slurm dist nodes packages)

# --- What they are made of

packages_for() { # PART...
  local packages=("${build_packages[@]}" ccache) part vm=no
  for part in "$@"; do
    case $part in
      unit) packages+=(rpm clang-format-14 python3 valgrind) ;;
      asan | dist) packages+=(gcc xz-utils) ;;
      fuzz) packages+=(clang libclang-rt-14-dev) ;;
      softhca) packages+=(valgrind iproute2 elfutils python3-matplotlib "${stock_packages[@]}") ;;
      programs) packages+=(ibverbs-utils perftest rdmacm-utils libfabric-bin ucx-utils netpipe-openmpi) ;;
      debian13) packages+=(debootstrap) ;;
      packages) packages+=(debootstrap rpm) ;;
      slurm) packages+=(slurmctld slurmd slurm-client munge perl) ;;
      debian13vm) packages+=(debootstrap) vm=yes ;;
      kernel) packages+=("${stock_packages[@]}") vm=yes ;;
      nodes) vm=yes ;;
    esac
  done
  install_packages "${packages[@]}" && { [[ $vm == no ]] || install_vm_packages; }
}
stock_packages=(netpipe-openmpi python3-mpi4py scalapack-mpi-test mumps-test)

is_due() { [[ " ${due[*]} " == *" $1 "* ]]; }

# build_plain : the component, softhca, the programs of test/stock, and that test of make check which is a component case too.
build_plain() {
  build_component "$build/plain" --enable-werror CFLAGS=-O2 CXXFLAGS=-O2 && component_environment "$build/plain" || return
  export CHECK_PROGRAMS=$build/stock CHECK_MPI=$build/stock/check_mpi
  step 'building the programs of test/stock' "$here/stock/build" "$CHECK_PROGRAMS" &&
    step 'building test_cpc_verbs' make -C "$build/plain" -j"$(nproc)" test/unit/test_cpc_verbs
}

# made DIR VARIABLE... : the words of these variables of DIR's Makefile.
made() {
  local dir=$1 names
  shift
  printf -v names '$(%s) ' "$@"
  printf 'include Makefile\nwords: ; @echo %s\n' "$names" | make -C "$dir" --no-print-directory -s -f - words | tr ' ' '\n'
}

# configured DIR COMMAND... : runs configure, as COMMAND says, in DIR, unless it has been.
configured() (
  mkdir -p "$1" && cd "$1" || return
  [[ -e Makefile && $(cat arguments 2> /dev/null) == "${*:2}" && ! $2 -nt config.status ]] && return
  "${@:2}" && printf '%s\n' "${*:2}" > arguments
)

# checked PART KIND DIR : those tests of make check that are wanted, and the programs that they run.
checked() {
  local kind=$2 dir=$3 tests targets result name
  mapfile -t tests < <(wanted "$1" "$kind")
  ((${#tests[@]})) || return 0
  mapfile -t targets < <(cd "$root" && made "$dir" check_PROGRAMS | grep -xF "$(
    for name in "${tests[@]}"; do
      echo "test/$name"
      [[ $name != *.test ]] || grep -ohE '(test|contrib)/[a-z]+/[a-z_]+' "test/$name"
    done)")
  make -C "$dir" -k -j"$(nproc)" "${targets[@]}" > "$dir/check-build.log" 2>&1 || tail -n 30 "$dir/check-build.log"
  # Tests wait more than the compiler does, so more of them run at once.
  make -C "$dir" -k -j$((2 * $(nproc))) check-TESTS TESTS="${tests[*]/#/test/}" > "$dir/check.log" 2>&1
  while IFS=': ' read -r result name; do
    name=${name#test/}
    case $result in
      PASS) echo "ok   $name" ;;
      SKIP) echo "SKIP $name: $(grep -v '^SKIP .*exit status' "$dir/test/${name%.test}.log" | tail -n 1)" ;;
      *) echo "FAIL $name"; tail -n 30 "$dir/test/${name%.test}.log" | sed 's/^/     | /' ;;
    esac
  done < <(grep -E '^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): ' "$dir/check.log") | recorded "$kind"
}

softhca_run=$build/plain/install/bin/softhca-run
# on_softhca OPTION... -- COMMAND... : on devices in userspace.
on_softhca() {
  FABRIC_BUILD=$build/plain FABRIC_DEVICE_A=softhca0 FABRIC_DEVICE_B=softhca1 FABRIC_IPV4_GID=3 timeout 2400 "$softhca_run" "$@" 2>&1
}

# joined SEPARATOR : the lines of its input as one.
joined() { paste -sd "$1"; }

# in_chunks COUNT PART KIND COMMAND... : COMMAND --only PATTERN for each few of the wanted cases, in lanes.
in_chunks() {
  local count=$1 part=$2 kind=$3 cases=()
  shift 3
  mapfile -t cases < <(wanted "$part" "$kind")
  while ((${#cases[@]})); do
    lane recorded_run "$kind" "$@" --only "@($(printf '%s\n' "${cases[@]:0:count}" | joined '|'))"
    cases=("${cases[@]:count}")
  done
}
recorded_run() { # KIND COMMAND...
  "${@:2}" 2>&1 | recorded "$1"
}
# at_once PART KIND COMMAND... : the same, with all of them together.
at_once() { in_chunks 1000000 "$@"; }

# --- Builds and unit tests

part_unit() {
  # With the RDMA planner's random operations on every kind of device, ten times as many as make check does otherwise.
  # And with all the worlds of the model checker, which takes it minutes, and a million schedules of links that break.
  [[ $tier != all ]] || export PLANNER_OPERATIONS=200000 FABRIC_MODEL=deep FABRIC_SEEDS=1000000
  lane checked unit plain "$build/plain"
}

# With AddressSanitizer, UBSan and the ledger of credits, which ends a process when a credit has no owner. It is
# built from what `make dist` packs, read-only, so it is make distcheck's build too (part_dist).
part_asan() {
  step 'packing the sources' pack_sources &&
    step 'building that with -fsanitize=address,undefined' build_sanitized
  verdict $? asan build "$build_log" || return
  lane checked asan asan "$build/asan"
  local kind
  export FABRIC_SANITIZED=$build/asan/.libs
  for kind in asan/leaks/{ib,roce,iwarp}; do
    at_once asan $kind on_softhca --personality ${kind##*/} --devices 2 -- "$here/component/run"
  done
  for kind in asan/ib asan/iwarp; do
    in_chunks 8 asan $kind on_softhca --personality ${kind#*/} --devices 2 -- "$here/component/run" --sanitizers
  done
  export -n FABRIC_SANITIZED
}
pack_sources() {
  [[ ! -e $build/source ]] || chmod -R u+w "$build/source"
  rm -rf "$build/source" "$build"/plain/btl_fabric-*/ && make -C "$build/plain" distdir &&
    mv "$build"/plain/btl_fabric-*/ "$build/source" && nothing_built "$build/source" && chmod -R a-w "$build/source"
}
nothing_built() { # DIR
  ! find "$1" -name '*.o' -o -name '*.lo' -o -name .libs | grep .
}
build_sanitized() {
  local what=(mca_btl_fabric.la install-dist_pkgdataDATA contrib/softhca/{libsofthca.la,libsofthca_fs.la,softhca-ctl,softhca-run})
  ! is_due dist || what=(install)
  configured "$build/asan" "$build/source/configure" --prefix="$build/asan/install" \
    --with-component-dir="$build/asan/install/lib/openmpi" --enable-werror --enable-debug \
    --with-sanitizer=address,undefined CFLAGS='-g1 -O1' CXXFLAGS='-g1 -O1' &&
    make -C "$build/asan" -j"$(nproc)" "${what[@]}"
}

# ThreadSanitizer says something of programs that have threads: these, and the component under MPI_THREAD_MULTIPLE.
part_tsan() {
  step 'building what has threads with -fsanitize=thread' build_for_threads
  verdict $? tsan build "$build_log" || return
  lane checked tsan tsan "$build/tsan"
  local kind
  for kind in tsan/{ib,roce,iwarp}; do
    FABRIC_THREAD_SANITIZED=$build/tsan/.libs \
      at_once tsan $kind on_softhca --personality ${kind#*/} --devices 2 -- "$here/component/run"
  done
}
build_for_threads() {
  configured "$build/tsan" "$root/configure" --with-sanitizer=thread --enable-werror --enable-debug CFLAGS='-g1 -O1' \
    CXXFLAGS='-g1 -O1' && make -C "$build/tsan" -j"$(nproc)" mca_btl_fabric.la \
    contrib/softhca/{libsofthca.la,libsofthca_fs.la,softhca-ctl,softhca-run}
}

# With the ledger of credits, and otherwise as users have it: what takes too long with sanitizers.
part_ledger() {
  step 'building the component with its ledger' build_with_ledger
  verdict $? ledger build "$build_log" || return
  local kind
  for kind in ledger/{ib,roce,iwarp}; do
    FABRIC_WITH_LEDGER=$build/ledger/.libs \
      in_chunks 1 ledger $kind on_softhca --personality ${kind#*/} --devices 2 -- "$here/component/run"
  done
}
build_with_ledger() {
  configured "$build/ledger" "$root/configure" --enable-werror --enable-debug CFLAGS=-O2 CXXFLAGS=-O2 &&
    make -C "$build/ledger" -j"$(nproc)" mca_btl_fabric.la
}

# The README's first command, in a clean clone; and the rest of what make distcheck does: the packed sources, which are read-only,
# were built by part_asan out of their tree. Installs below another root, uninstalls, cleans, and nothing is left behind.
part_dist() {
  local name
  for name in $(wanted dist clone); do
    lane first_command "$name"
  done
  all_lanes_done # that use the build
  [[ -n $(wanted dist dist) ]] || return 0
  if ! is_due asan; then
    step 'packing the sources' pack_sources && step 'building that with -fsanitize=address,undefined' build_sanitized ||
      { verdict 1 dist dist "$build_log"; return; }
  fi
  step 'installing, uninstalling, cleaning' leaves_nothing "$build/asan"
  verdict $? dist dist "$build_log"
}
first_command() { # NAME
  first_command_prints_table > "$build/first-command.log" 2>&1
  verdict $? clone "$1" "$build/first-command.log"
}
# A row for each size that the README's table has, and more.
first_command_prints_table() (
  command=$(sed -n 's/^    \([^ ]*\)  *# installs what is missing.*/\1/p' "$root/README.md")
  [[ -n $command ]] || { echo 'README.md names no command'; exit 1; }
  rm -rf "$build/clone" && clean_tree "$build/clone" && cd "$build/clone" || exit
  unset CCACHE_BASEDIR OMPI_MCA_mca_base_component_path # those of the other build
  "$command" | tee said || exit
  awk '/^ *bytes +latency us +MB\/s$/ { table = 1; files++; next }
       !NF { table = 0 }
       table && FNR == NR { wanted[$1] }
       table && FNR < NR && NF == 3 && $2 > 0 && ($3 > 0 || $1 == 0) { delete wanted[$1]; rows++ }
       END { for (size in wanted) print "no row for " size; print rows " rows"; exit length(wanted) > 0 || files != 2 || rows < 10 }' \
    "$root/README.md" said
)
leaves_nothing() {
  local dir=$1 root=$1/root copy=$build/distclean
  rm -rf "$root" "$copy"
  make -C "$dir" install DESTDIR="$root" && [[ -e $root$dir/install/lib/openmpi/mca_btl_fabric.so ]] &&
    make -C "$dir" uninstall DESTDIR="$root" && no_files "$root" &&
    rm -rf "$root" && cp -a "$dir" "$copy" && rm -rf "$copy"/{check.log,check-build.log,arguments,install} &&
    make -C "$copy" distclean && no_files "$copy" && rm -rf "$copy"
}
no_files() { # DIR
  ! find "$1" -type f | grep .
}

# Each fuzzer for a bounded time, from the corpus in the repository.
part_fuzz() {
  local name
  for name in $(wanted fuzz fuzz); do
    lane fuzzed "$name"
  done
}
fuzzed() { # NAME
  local seconds=3
  [[ $tier != all ]] || seconds=15
  "$here/fuzz/run" "$1" "$build/fuzz" "${FUZZ_SECONDS:-$seconds}" > "$build/$1.log" 2>&1 && grep -q 'Done [0-9]* runs' "$build/$1.log"
  verdict $? fuzz "$1" "$build/$1.log"
}

# --- The component and softhca

part_nodevice() { at_once nodevice nodevice "$here/component/no-device"; }

part_softhca() {
  local kind options command
  for kind in $(kinds softhca); do
    options=(--devices 2) command=("$here/component/run")
    case $kind in
      ib | roce | iwarp) options+=(--personality "$kind") ;;
      late) options+=(--async 200) ;;  # completions
      link/*) options+=(--personality "${kind#*/}" --set latency=100us --set bandwidth=10G) ;;
      no-cma) options+=(--no-cma) ;;   # copies without CMA
      stock) command=("$here/stock/run-stock" --quick) ;;
      stock-x) options+=(--personality ib --nodes 2) command=("$here/stock/run-stock" --quick) ;;
    esac
    case $kind in
      stock) at_once softhca "$kind" stock_on_softhca "${options[@]}" -- --mca btl fabric,self ;;
      stock-x)
        at_once softhca "$kind" stock_on_softhca "${options[@]}" -- --mca btl fabric,self \
          --mca btl_fabric_receive_queues X,256,512:X,4096,512:X,65536,128 ;;
      *) in_chunks 8 softhca "$kind" on_softhca "${options[@]}" -- "$here/component/run" ;;
    esac
  done
}

# stock_on_softhca OPTION... -- MPIRUN-ARG... --only "@(NAME/NP|...)" : MPI programs of others, each with as many processes.
stock_on_softhca() {
  local options=() names np
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  names=${!#}
  names=$(tr '|' '\n' <<< "${names//[@()]/}")
  for np in $(sed 's|.*/||' <<< "$names" | sort -nu); do
    on_softhca "${options[@]}" -- "$here/stock/run-stock" --quick --np "$np" \
      --only "$(sed -n "s|/$np\$||p" <<< "$names" | joined ,)" -- "${@:1:$#-2}"
  done
}

# An hour of processes that are killed, beside all others.
part_storm() {
  local name
  for name in $(wanted storm storm); do
    step "building test_softhca_storm" make -C "$build/plain" test/softhca/test_softhca_storm
    beside stormed "$name"
  done
}
stormed() { # NAME
  (cd "$build/plain" && SOFTHCA_STORM_SECONDS=${SOFTHCA_STORM_SECONDS:-3600} nice -n 15 "$here/$1") > "$build/storm.log" 2>&1
  verdict $? storm "$1" "$build/storm.log"
}

# On devices that have less than the component wants.
part_limits() {
  local kind
  for kind in $(kinds limits); do
    at_once limits "$kind" env SOFTHCA_RUN="$softhca_run" "$here/component/limits" --personality "${kind#*/}"
  done
}

# Every connection method with every device and kind of queue.
part_matrix() {
  local kind
  for kind in $(kinds matrix); do
    at_once matrix "$kind" env SOFTHCA_RUN="$softhca_run" "$here/component/matrix" --personality "${kind#*/}"
  done
}

# Other people's verbs programs on softhca.
part_programs() {
  local kind
  for kind in $(kinds programs); do
    at_once programs "$kind" env SOFTHCA_RUN="$softhca_run" "$here/softhca/run-programs" --personality "${kind#*/}"
  done
}

# --- Open MPI 5.0, the kernel's devices, more than one machine

# Debian 13 is fetched while the rest is built.
ready_chroot() {
  "$here/debian13" --prepare > "$build/chroot.log" 2>&1 &
  chroot_pid=$!
}
part_debian13() { lane debian13; }
debian13() {
  [[ -z ${chroot_pid-} ]] || while kill -0 "$chroot_pid" 2> /dev/null; do sleep 0.5; done
  FABRIC_BUILD=$build/plain "$here/debian13" --tier "$tier" --keep "$build/debian13" 2>&1 | recorded
}

# Open MPI 5.0 on Debian 13's kernel.
part_debian13vm() {
  all_lanes_done # one of which may use the same folder
  at_once debian13vm debian13vm "$here/debian13-vm" --keep "$build/debian13"
}

# The kernel's RoCE and iWARP, in one run of the VM: what depends on the device, jobs over two hosts, and stock MPI programs.
part_kernel() { lane kernel; }
kernel() {
  local cases stock hosts
  cases=$(wanted kernel kernel | joined '|') stock=$(wanted kernel kernel/stock | joined ,)
  hosts=$(wanted kernel kernel/hosts | joined '|')
  # shellcheck disable=SC2016 # for the other bash
  "$root/contrib/vm/run" --need-siw --timeout 2400 ${VM_CPUS:+--cpus "$VM_CPUS"} --env OMPI_MCA_mca_base_component_path \
    --env CHECK_MPI --env CHECK_PROGRAMS --env FABRIC_BUILD="$build/plain" -- bash -c '
      of_kind() { sed -uE "s|^(ok  \|FAIL\|SKIP) |\\1 $1 |"; }
      [[ -z $2 ]] || "$1/component/run" --only "@($2)" 2>&1 | of_kind kernel
      [[ -z $3 ]] || "$1/../contrib/vm/two-hosts" --only "@($3)" 2>&1 | of_kind kernel/hosts
      [[ -z $4 ]] || "$1/stock/run-stock" --quick --only "$4" -- --mca btl fabric,self 2>&1 | of_kind kernel/stock' - \
    "$here" "$cases" "$hosts" "$stock" 2>&1 | recorded
}

# Jobs over two guests.
part_nodes() { at_once nodes nodes "$root/contrib/vm/two-guests"; }

# Jobs that Slurm starts, on two hosts that are this machine.
part_slurm() { at_once slurm slurm env SOFTHCA_RUN="$softhca_run" FABRIC_BUILD="$build/plain" "$here/slurm/run"; }

# Debian packages, for two releases: nearly all of the time it takes is to build everything twice. RPM packages, for this machine.
part_packages() {
  lane recorded_run packages "$root/contrib/packaging/build-debs"
  lane recorded_run packages "$root/contrib/packaging/build-rpms" "$build/plain"
}
