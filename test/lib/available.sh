# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Which cases there are, whoever runs them.
#
# Wants here, build, softhca_run and the functions of parts.sh; of part unit, a configured build.

# available PART : lines KIND CASE that must all be in the manifest. A part or kind that is not here has what the manifest chooses.
available() {
  local kind runner
  case $1 in
    unit) made "$build/plain" TESTS | sed 's|^test/|plain |' ;;
    fuzz) (cd "$here/fuzz" && printf 'fuzz %s\n' fuzz_*.cc | sed 's/\.cc$//') ;;
    nodevice) "$here/component/no-device" --list | sed 's/^/nodevice /' ;;
    slurm) "$here/slurm/run" --list | sed 's/^/slurm /' ;;
    softhca)
      for kind in ib roce iwarp; do
        "$here/component/run" --list | sed "s/^/$kind /"
      done ;;
    limits | matrix | programs)
      case $1 in
        programs) runner=$here/softhca/run-programs ;;
        *) runner=$here/component/$1 ;;
      esac
      for kind in ib roce iwarp; do
        SOFTHCA_RUN=$softhca_run "$runner" --list --personality "$kind" | sed "s|^|$1/$kind |"
      done ;;
  esac
}

# chosen_from KIND : the cases that a kind whose cases the manifest chooses can have; nothing if that is not known.
chosen_from() {
  case $1 in
    late | no-cma | link/?* | asan/?* | tsan/?* | ledger/?* | kernel | debian13vm | debian13/ib | debian13/roce | debian13/iwarp) "$here/component/run" --list ;;
    debian13/unit) made "$build/plain" TESTS | sed -n "s|^test/unit/||p" ;;
    ledger) echo build ;;
    asan | tsan) made "$build/plain" TESTS | sed 's|^test/||'; echo build ;;
    stock | stock-x | */stock) "$here/stock/run-stock" --list ;;
  esac
}

# unlisted PART... : the cases that have no line in the manifest, and lines for which there is no case.
unlisted() {
  local part kind all
  for part in "$@"; do
    all=$(available "$part")
    if [[ -n $all ]]; then
      comm -23 <(sort -u <<< "$all") <(entries "$part" | awk '{ print $2, $3 }' | sort -u) | sed "s|^|+ $part |"
    fi
    for kind in $(entries "$part" | awk '!seen[$2]++ { print $2 }'); do
      if grep -q "^$kind " <<< "$all"; then
        comm -13 <(sort -u <<< "$all") <(entries "$part" | awk -v kind="$kind" '$2 == kind { print $2, $3 }' | sort -u)
      elif [[ -n $(chosen_from "$kind") ]]; then
        comm -13 <(chosen_from "$kind" | sort -u) <(entries "$part" | awk -v kind="$kind" '$2 == kind { print $3 }' | sort -u) |
          sed "s|^|$kind |"
      fi | sed "s|^|- $part |"
    done
  done
}
