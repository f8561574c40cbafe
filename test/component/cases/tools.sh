# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The component under valgrind and the sanitizers; its connection manager without MPI.

# Frames of the component in valgrind's reports: lost memory, and use of memory that is not ours. (What a device writes is
# undefined in valgrind's eyes, so it is not asked about that.)
case_valgrind() {
  [ $sanitized = no ] || { echo 'SKIP the sanitizers are at work in every case'; exit 77; }
  need valgrind 'valgrind is not installed'
  LIMIT=900 fabric 2 --mca btl_fabric_if_include "$dev_a" valgrind --quiet --leak-check=full --keep-debuginfo=yes \
    --undef-value-errors=no \
    --errors-for-leak-kinds=definite --show-leak-kinds=definite --log-file="$work/valgrind.%p" \
    "$check" --max 16384 --flood 100 || return 1
  says 'checks passed' || return 1
  # Open MPI loses a few bytes for each framework that it opens, and it opens the registration caches for us.
  awk '/^==[0-9]+== *$/ {
         if (record ~ /fabric::|fabric_(init|close|register)/ && record !~ /mca_base_component_repository_open/) { print record; found = 1 }
         record = ""; next }
       { record = record $0 "\n" }
       END { exit found }' "$work"/valgrind.*
}

# The component built with AddressSanitizer, LeakSanitizer and UBSan. It is preloaded too, so that it is still there, with its
# symbols, when leaks are looked for at the end; only reports with its functions in them count. What was preloaded before
# (softhca) has to stay.
case_sanitizers() {
  [ $sanitized = no ] || { echo 'SKIP the sanitizers are at work in every case'; exit 77; }
  local component=${FABRIC_SANITIZED-}/mca_btl_fabric.so
  [ -f "$component" ] || { echo 'SKIP FABRIC_SANITIZED has no component'; exit 77; }
  built_with asan "$component" && built_with ubsan "$component" || return 1
  LIMIT=900 fabric 2 --mca mca_base_component_path "$FABRIC_SANITIZED:${OMPI_MCA_mca_base_component_path#*:}" \
    env LD_PRELOAD="$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so):$component${LD_PRELOAD:+:$LD_PRELOAD}" \
    ASAN_OPTIONS="detect_leaks=1:exitcode=0:log_path=$work/asan" UBSAN_OPTIONS="print_stacktrace=1:log_path=$work/asan" \
    "$check" --max 32768 --flood 100 || return 1
  says 'checks passed' || return 1
  [ -n "$(ls "$work"/asan.* 2> /dev/null)" ] || { echo 'no reports: are the sanitizers at work?'; return 1; }
  our_reports "$work"/asan.*
}

# The component built with ThreadSanitizer, with several threads, in one transmit context and in two. Open MPI is not built
# with it, so what it does by itself, and what only its lock-free lists do on our behalf, says nothing: races count whose
# both sides begin in a line of ours. Without Open MPI's memory hooks: a thread that ends gives its stack back behind
# ThreadSanitizer's back, and one that then locks a mutex of ours crashes it (GCC 12). test_cache_guard is what hooks are tested by.
case_thread_sanitizer() {
  local component=${FABRIC_THREAD_SANITIZED-}/mca_btl_fabric.so contexts
  [ -f "$component" ] || { echo 'SKIP FABRIC_THREAD_SANITIZED has no component'; exit 77; }
  built_with tsan "$component" || return 1
  for contexts in 1 2; do
    LIMIT=900 fabric 2 --mca mca_base_component_path "$FABRIC_THREAD_SANITIZED:${OMPI_MCA_mca_base_component_path#*:}" \
      --mca memory ^patcher --mca btl_fabric_tx_contexts "$contexts" --mca btl_fabric_top 1 env LD_PRELOAD="$(gcc -print-file-name=libtsan.so)${LD_PRELOAD:+:$LD_PRELOAD}" \
      TSAN_OPTIONS="verbosity=1:detect_deadlocks=0:exitcode=0:log_path=$work/tsan:suppressions=$here/tsan.supp" "$check" --threads 3 --max 32768 || return 1
    says 'checks passed' || return 1
  done
  cat "$work"/tsan.* > "$work/races"
  [ "$(grep -c 'Running under ThreadSanitizer' "$work/races")" -eq 4 ] || { echo 'it has not watched every process'; return 1; }
  awk "$our_races" "$work/races"
}
# shellcheck disable=SC2016 # for awk
our_races='
  /^=====/ { if (ours >= 2) { print report; found = 1 } report = ""; ours = 0; looking = 0 }
  { report = report $0 "\n" }
  /^  (Previous )?(atomic |Atomic )?([Rr]ead|[Ww]rite) of size/ { looking = 1; next }
  looking && /libsanitizer/ { next }
  looking && /^    #/ { if (/ (\.\.\/)*(btl_fabric|cpc|common)\//) ours++; looking = 0 }
  END { exit found }'

case_real_queue_pairs() { # the connection manager with verbs below it and no MPI above
  [ -x "$FABRIC_BUILD/test/unit/test_cpc_verbs" ] || { echo 'SKIP FABRIC_BUILD has no test_cpc_verbs'; exit 77; }
  "$FABRIC_BUILD/test/unit/test_cpc_verbs" > out 2>&1
}

# configure.ac names the version, and everything tells that.
case_versions() {
  local version
  version=$(sed -n 's/^AC_INIT(\[btl_fabric\], \[\(.*\)\])$/\1/p' "$here/../../configure.ac")
  ompi_info --parsable | grep '^mca:btl:fabric:' > out
  grep -qE "version:\"?component:$version\"?\$" out || { cat out; return 1; }
  "$FABRIC_BUILD/contrib/fabric_info/fabric_info" --version > out && says "fabric_info $version" || return 1
  "$FABRIC_BUILD/contrib/softhca/softhca-run" --version > out && says "softhca-run $version"
}
