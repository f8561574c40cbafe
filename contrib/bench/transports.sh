# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The transports that Open MPI programs are measured over.

# transport_options TRANSPORT DEVICE NP : mpirun's options for it.
transport_options() {
	local chosen
	case $1 in
	fabric) chosen="--mca pml ob1 --mca osc rdma --mca btl fabric,self --mca btl_fabric_if_include $2" ;;
	openib) chosen="--mca pml ob1 --mca osc rdma --mca btl openib,self --mca btl_openib_allow_ib 1 --mca btl_openib_if_include $2 --mca btl_openib_warn_no_device_params_found 0" ;;
	ucx) chosen="--mca pml ucx --mca osc ucx -x UCX_TLS=rc_verbs,ud_verbs,self -x UCX_NET_DEVICES=$2:1" ;;
	ofi) chosen='--mca pml cm --mca mtl ofi --mca osc pt2pt --mca mtl_ofi_provider_include verbs;ofi_rxm' ;;
	tcp) chosen='--mca pml ob1 --mca osc pt2pt --mca btl tcp,self --mca btl_tcp_if_include lo' ;;
	vader) chosen='--mca pml ob1 --mca osc rdma --mca btl vader,self' ;;
	esac
	[[ $3 -le $(nproc) ]] || chosen+=' --mca mpi_yield_when_idle 1'
	printf '%s' "$chosen"
}

# present_transports NAME... : those that this machine has. Status 2: a name is none.
present_transports() {
	local components transport
	components=$(ompi_info --path pkglibdir --parsable | cut -d : -f 3)
	for transport in "$@"; do
		case $transport in
		fabric | verbs) ;;
		openib | tcp | vader) [[ -e $components/mca_btl_$transport.so ]] || continue ;;
		ucx) [[ -e $components/mca_pml_ucx.so ]] || continue ;;
		ofi) [[ -e $components/mca_mtl_ofi.so ]] || continue ;;
		*) echo "There is no transport $transport." >&2 && return 2 ;;
		esac
		printf '%s ' "$transport"
	done
}
