# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the host-side scripts of contrib/vm share: messages, checks, the choice of the kernel.

vm_name=${0##*/}

say() { printf '%s: %s\n' "$vm_name" "$*" >&2; }

# 125 is "the runner failed", as opposed to any status of the command in the guest.
die() {
	say "$*"
	exit 125
}

# need PROGRAM PACKAGE: one sentence for a missing program. The sbin directories count: a user's PATH may lack them.
need() {
	PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null || die "$1 is missing: install the Debian package $2."
}

# newest_kernel [ROOT]: the newest one installed there that also has its modules: one without them cannot mount the root.
newest_kernel() {
	local image version newest=
	for image in "${1-}"/boot/vmlinuz-*; do
		version=${image#"${1-}"/boot/vmlinuz-}
		[[ -r $image && -f ${1-}/lib/modules/$version/modules.dep ]] || continue
		newest=$(printf '%s\n' "$newest" "$version" | sort -V | tail -n 1)
	done
	printf '%s' "$newest"
}

cache_dir() { printf '%s/btl_fabric/vm/%s' "${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}" "$1"; }
