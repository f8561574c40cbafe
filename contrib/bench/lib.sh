# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Running what is measured: a program that fails is told, and its figures do not count, whatever it has printed.

# told STATUS TEXT [FILE]... : on stderr, with what is in these files.
told() {
	printf '%s: exit status %s of: %s\n' "${0##*/}" "$1" "$2" >&2
	cat "${@:3}" >&2
	return "$1"
}

# measured COMMAND... : prints what it prints. What it has said on stderr comes out only if it fails. Status: the command's.
measured() {
	local output errors status=0
	errors=$(mktemp) || return
	output=$("$@" 2>"$errors" </dev/null) || status=$?
	[[ -z $output ]] || printf '%s\n' "$output"
	((status == 0)) || told $status "$*" - "$errors" <<<"$output"
	rm -f "$errors"
	return $status
}

# pair COMMAND... : a program of perftest as a server and, once that listens, as its client. Prints what the client prints. `client`,
# if it is set, is run instead of `measured`.
pair() {
	local port status=0 server server_status=0 said
	until port=$((20000 + RANDOM % 10000)) && ! listens $port; do :; done
	said=$(mktemp) || return
	timeout 200 "$@" -p $port >"$said" 2>&1 &
	server=$!
	until listens $port; do
		sleep 0.02
		kill -0 $server 2>/dev/null || break
	done
	"${client:-measured}" timeout 200 "$@" -p $port 127.0.0.1 || {
		status=$?
		kill $server 2>/dev/null
	}
	wait $server || server_status=$?
	((status)) || ((server_status == 0)) || told $server_status "$* (the server)" "$said" || status=$?
	rm -f "$said"
	return $status
}
# listens PORT : of TCP, or of softhca's connection manager if `ctl` names softhca-ctl.
listens() {
	grep -qi ": [0-9A-F]*:$(printf '%04X' "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 ||
		{ [[ -n ${ctl-} ]] && "$ctl" list | grep -q "listens on port $1 "; }
}
