# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Functions for scripts that build the component out of tree and run it without installing it:
#
#   install_packages PACKAGE...         Debian packages; "${build_packages[@]}" are those that a build needs
#   install_vm_packages                 what contrib/vm needs
#   build_component DIR [ARGUMENT...]   builds in DIR and installs below it; ARGUMENTs are for configure
#   build_pingpong DIR                  contrib/bench/pingpong.c, as DIR/pingpong
#   clean_tree DIR                      copies the repository there, without what was built
#   component_environment DIR           sets this shell's environment so that mpirun finds DIR's component
#   use_ccache                          compilers of this shell and its children go through ccache, if it is installed
#
# Each prints a line per step, and returns nonzero when one failed, after the end of its output. build_log, if set before,
# is the file that has all of the output.

source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_log=${build_log:-$source_root/build/log}

# shellcheck disable=SC2034 # for those who source this
build_packages=(
	autoconf automake libtool pkg-config g++ make                   # the build
	check libexpected-dev libevent-dev libsodium-dev                # libraries
	libhwloc-dev libpmix-dev
	libcli11-dev nlohmann-json3-dev xz-utils
	libibverbs-dev librdmacm-dev ibverbs-utils                      # RDMA
	libopenmpi-dev openmpi-bin                                      # Open MPI, with its internal headers
)

# step TEXT COMMAND...: shows TEXT and how long COMMAND took. What it printed goes to the log.
step() {
	local text=$1 start=$SECONDS from status=0
	shift
	mkdir -p "$(dirname "$build_log")" || return
	printf '%-62s' "$text ..."
	printf '\n== %s: %s\n' "$text" "$*" >>"$build_log"
	from=$(wc -l <"$build_log")
	"$@" >>"$build_log" 2>&1 </dev/null || status=$?
	if ((status == 0)); then
		printf '%4d s\n' $((SECONDS - start))
		return
	fi
	printf 'failed\n\n'
	tail -n "+$((from + 1))" "$build_log" | tail -n 20 >&2
	printf '\nAll of its output is in %s\n' "$build_log" >&2
	return $status
}

# as_root COMMAND...: sudo asks for its password on the terminal, whatever stdin is.
as_root() {
	if [[ $(id -u) == 0 ]]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "This needs root, and there is no sudo: $*" >&2
		return 1
	fi
}

install_packages() {
	local package missing=()
	for package in "$@"; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
	done
	((${#missing[@]})) || return 0
	echo "Debian packages to install: ${missing[*]}"
	[[ $(id -u) == 0 ]] || command -v sudo >/dev/null || {
		echo 'This needs root, and there is no sudo. As root: apt-get install --no-install-recommends and these names.' >&2
		return 1
	}
	step 'installing them' apt_install "${missing[@]}"
}

apt_install() {
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
	# The package lists may be old, or absent as in a container.
	as_root "${apt[@]}" install -y --no-install-recommends "$@" ||
		{ as_root "${apt[@]}" update && as_root "${apt[@]}" install -y --no-install-recommends "$@"; }
}

install_vm_packages() {
	# It says nothing, and needs no root, when nothing is missing.
	step 'packages for the virtual machine' install_vm_packages_quietly
}

install_vm_packages_quietly() {
	local installer=$source_root/contrib/vm/install-packages
	{ [[ $(id -u) != 0 ]] && "$installer" 2>/dev/null; } || as_root "$installer"
}

build_component() {
	local dir=$1 arguments
	shift
	use_ccache
	mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || return
	set -- --prefix="$dir/install" --with-component-dir="$dir/component" "$@"
	if openmpi_lacks_headers; then
		[[ -e $dir/openmpi-source/opal ]] ||
			step "headers that Debian's Open MPI lacks, from its source" \
				"$source_root/contrib/lib/openmpi-source" "$dir/openmpi-source" || return
		set -- --with-openmpi-source="$dir/openmpi-source" "$@"
	fi

	if [[ ! -e $source_root/configure || $source_root/configure.ac -nt $source_root/configure ]]; then
		step 'making configure' autoreconf -fi "$source_root" || return
	fi
	# Configured already, with the same arguments?
	arguments=$(printf '%q ' "$source_root" "$@")
	if [[ ! -e $dir/Makefile || $source_root/configure -nt $dir/config.status ||
		$(cat "$dir/arguments" 2>/dev/null) != "$arguments" ]]; then
		rm -f "$dir/arguments"
		step 'configuring' in_directory "$dir" "$source_root/configure" "$@" || return
		printf '%s\n' "$arguments" >"$dir/arguments"
	fi
	step 'building btl_fabric' make -C "$dir" -j"$(nproc)" &&
		step 'installing it below the build directory' make -C "$dir" install
}

# Debian's package of Open MPI 5.0 leaves out some internal headers; others are there, or it is another Open MPI's affair.
openmpi_lacks_headers() {
	local headers
	headers=$(ompi_info --parsable --path pkgincludedir 2>/dev/null | sed -n 's/^path:pkgincludedir://p')/opal/mca/threads
	[[ -e $headers/threads.h && ! -e $headers/pthreads/threads_pthreads_threads.h ]]
}

# use_ccache: paths below the source tree count as relative ones, so that clones of it share what they have compiled. Who has
# set up ccache otherwise keeps that.
use_ccache() {
	local wrappers=/usr/lib/ccache
	[[ -x $wrappers/g++ ]] || return 0
	[[ :$PATH: == *:$wrappers:* ]] || PATH=$wrappers:$PATH
	export PATH CCACHE_BASEDIR=${CCACHE_BASEDIR:-$source_root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
	# Where it is now, also for those who find another HOME.
	CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} && export CCACHE_DIR
}

in_directory() (
	cd "$1" && shift && "$@"
)

# clean_tree DIR: what belongs to the repository, with what has changed in it, and nothing that was built.
clean_tree() {
	mkdir -p "$1" || return
	if git -C "$source_root" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$source_root" ls-files -z --cached --others --exclude-standard |
			tar -C "$source_root" --null --verbatim-files-from --files-from - --ignore-failed-read -cf - 2>/dev/null
	else # a release
		tar -C "$source_root" --exclude=./build -cf - .
	fi | tar -C "$1" -xf -
}

build_pingpong() {
	local source=$source_root/contrib/bench/pingpong.c
	[[ $1/pingpong -nt $source ]] ||
		step 'building the ping-pong program' mpicc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -o "$1/pingpong" "$source"
}

component_environment() {
	local dir system pmix
	dir=$(cd "$1" && pwd) && system=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p') || return
	[[ -e $dir/component/mca_btl_fabric.so && -n $system ]] || return
	export OMPI_MCA_mca_base_component_path=$dir/component:$system
	# 5.0's mpirun tells its PMIx the same, which complains of every file there that is not its own, unless it knows better.
	pmix=$(pkg-config --variable=libdir pmix 2>/dev/null)/pmix
	[[ $(ompi_info --version 2>/dev/null) != *'Open MPI v5'* || ! -d $pmix ]] ||
		export PMIX_MCA_mca_base_component_path=$pmix PRTE_MCA_mca_base_component_path=$pmix
	# mpirun refuses root otherwise. Everything above runs as root too, in containers.
	[[ $(id -u) != 0 ]] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
