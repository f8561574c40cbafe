# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A run that was ended can be gone on with: what has run is not run again, as long as it is the same commit. What has failed stays
# a failure, or a case that fails now and then would pass in the end.
#
# Wants the variables here (the folder test), results and earlier (files). $earlier has the verdicts of earlier runs, lines like those of
# $results, and $earlier.commit says what they are of.

# begin_results : the next verdicts are those of a new run.
begin_results() {
  : > "$earlier"
  commit_here > "$earlier.commit"
  : > "$results"
}

# continue_results : the verdicts of the last run are earlier ones now. Says why if that cannot be.
continue_results() {
  local commit
  commit=$(commit_here)
  [[ -n $commit ]] || { echo 'it takes a clone in which nothing is changed (git status)'; return 1; }
  [[ $commit == "$(cat "$earlier.commit" 2> /dev/null)" ]] || { echo 'no run of this commit has begun here'; return 1; }
  # A part's build is done again, and judged again.
  cat "$earlier" "$results" | awk '{ last[$1 " " $2] = $0 } END { for (name in last) print last[name] }' > "$earlier.new" &&
    mv "$earlier.new" "$earlier" && : > "$results"
}

# with_earlier PART... : the verdicts of this run, and of the earlier ones what these parts have and this run has not.
with_earlier() {
  cat "$results"
  awk '{ name = $1 " " $2 }
    from == "manifest" { listed[$2 " " $3]; next }
    from == "results" { ran[name]; next }
    name in listed && !(name in ran)' from=manifest <(entries "$@") from=results "$results" from=earlier "$earlier"
}

# said_earlier PART... : what of that there is.
said_earlier() {
  comm -13 <(sort "$results") <(with_earlier "$@" | sort) | awk '
    { count++ }
    $3 == "FAIL" { print "FAIL " $1 " " $2 ": in an earlier run of this commit" }
    END { if (count) printf "    (%d cases ran earlier)\n", count }'
}

# commit_here : what is checked out; nothing if files differ from it, or without git.
commit_here() {
  local changed
  changed=$(git -C "$here" status --porcelain 2> /dev/null) && [[ -z $changed ]] && git -C "$here" rev-parse HEAD
}
