# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What a run of test/run-all is to do, and what it did. test/manifest/README.md says how to read the manifest.
#
# Wants the variables here (the folder test), tier (quick, default or all), and, of who runs cases, results and earlier (continued.sh).

manifest=$here/manifest
# shellcheck disable=SC2016 # for awk
ranks='BEGIN { rank["quick"] = 0; rank["default"] = 1; rank["all"] = 2 }'

# entries PART... : their lines, of all tiers, without comments.
entries() {
  local part
  for part in "$@"; do
    [[ ! -e $manifest/$part ]] || sed -E '/^ *(#|$)/d' "$manifest/$part"
  done
}

# kinds PART : those that have cases in this tier, in the order of the file.
kinds() {
  entries "$1" | awk -v tier="$tier" "$ranks"' rank[$1] <= rank[tier] && !seen[$2]++ { print $2 }'
}

# wanted PART KIND : the names of its cases in this tier, without those that an earlier run has judged.
wanted() {
  entries "$1" | awk -v kind="$2" -v tier="$tier" "$ranks"'
    from == "earlier" { judged[$1 " " $2]; next }
    $2 == kind && rank[$1] <= rank[tier] && !(kind " " $3 in judged) { print $3 }' from=earlier "${earlier:-/dev/null}" from=manifest -
}

# left PART : lines KIND CASE, of all its kinds.
left() {
  local kind
  for kind in $(kinds "$1"); do
    wanted "$1" "$kind" | sed "s|^|$kind |"
  done
}

# recorded [KIND] : reads what a runner prints, lines "ok   CASE ...", "FAIL CASE ...", "SKIP CASE: REASON" and details below each,
# and prints it with KIND in front of CASE, a case and its details at once, as others print at the same time. Each verdict
# becomes a line of $results: KIND CASE ok|FAIL|SKIP REASON. Without KIND the lines have it already.
recorded() {
  local line block='' verdict='^(ok  |FAIL|SKIP) '
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line =~ $verdict ]]; then
      [[ -z ${1-} ]] || line="${line:0:4} $1 ${line:5}"
      if [[ $line =~ $verdict([^ ]+)\ ([^ :]+)(: (.*))? ]]; then
        printf '%s %s %s %s\n' "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" "${line%% *}" "${BASH_REMATCH[5]}" >> "$results"
      fi
      printf '%s' "$block"
      block=$line$'\n'
    elif [[ ! $line =~ ^[0-9]+\ passed,\ [0-9]+\ failed,\ [0-9]+\ skipped$ ]]; then
      block+=$line$'\n'
    fi
  done
  printf '%s' "$block"
}

# verdict STATUS KIND CASE [FILE] : for what has no runner. The end of FILE says why it failed. Returns STATUS.
verdict() {
  if (($1 == 0)); then
    echo "ok   $2 $3"
  else
    echo "FAIL $2 $3"
    [[ -z ${4-} ]] || tail -n 30 "$4" | sed 's/^/     | /'
  fi | recorded
  return "$1"
}

# judged PART... : compares the verdicts with what the manifest has of these parts. Prints a FAIL line for everything that is otherwise,
# and the counts. Status 1 if anything failed.
judged() {
  entries "$@" | awk -v tier="$tier" "$ranks"'
    function bad(text) { print "FAIL " text; failed++ }
    function words_after(n,   text) { text = $0; while (n-- > 0) sub(/^ *[^ ]+ */, "", text); return text }
    from == "manifest" {
      name = $2 " " $3
      if (!($1 in rank) || NF < 3 || (NF > 3 && $4 != "SKIP") || NF == 4) bad("line of the manifest: " $0)
      if (name in named) bad(name " is in the manifest twice")
      named[name] = 1
      order[++count] = name
      due[name] = rank[$1] <= rank[tier]
      if ($4 == "SKIP") skips[name] = words_after(4)
      next
    }
    {
      name = $1 " " $2
      reason = words_after(3)
      if (name in ran) bad(name " ran twice")
      ran[name] = 1
      if ($3 == "FAIL") failed++ # that has been printed
      else if (!(name in named)) bad(name " is not in the manifest")
      else if ($3 == "SKIP" && !(name in skips)) bad(name " was skipped, which the manifest does not expect: " reason)
      else if ($3 == "SKIP" && skips[name] != reason) bad(name " was skipped for another reason than the manifest has: " reason)
      else if ($3 == "ok" && name in skips) bad(name " was not skipped, as the manifest expects it")
      else if ($3 == "SKIP") skipped++
      else passed++
    }
    END {
      for (i = 1; i <= count; i++) if (due[order[i]] && !(order[i] in ran)) bad(order[i] " is in the manifest and did not run")
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
      exit failed > 0
    }' from=manifest - from=results <(with_earlier "$@")
}
