# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The memory of accelerators, of which there is a fake (test/stock/fake_device.h).

# on_accelerator COMMAND... : with the fake one.
on_accelerator() {
  [[ $(mpirun --version) != *' 4.1'* ]] || { echo 'SKIP this Open MPI has no framework for accelerators'; exit 77; }
  stock check_device_memory && stock mca_accelerator_fake.so || return 1
  OMPI_MCA_mca_base_component_path="$programs:$OMPI_MCA_mca_base_component_path" "$@"
}
# staged [MPIRUN ARGUMENT...] : all messages, some of which are read into the accelerator's memory.
staged() { on_accelerator fabric 2 "$@" "$programs/check_device_memory" && says 'all checks passed'; }
case_device_memory() {
  staged --mca btl_base_verbose 5 && says 'Open MPI has found an accelerator (fake)' && says_not ' 0 reads and writes staged'
}
# As a dma-buf, which softhca takes; then with an accelerator that has none, and with a device that takes none.
case_device_memory_direct() {
  staged --mca btl_fabric_device_memory_direct 1 && says ' 0 reads and writes staged' && says_not ' 0 regions by dma-buf' || return 1
  NO_DMABUF=1 staged --mca btl_fabric_device_memory_direct 1 -x NO_DMABUF && says_not ' 0 reads and writes staged' &&
    says ' 0 regions by dma-buf' || return 1
  case $dev_a in softhca*) ;; *) return 0 ;; esac
  echo 'fail call=ibv_reg_dmabuf_mr errno=EOPNOTSUPP' > faults
  new_fabric --devices 2 --faults faults
  staged --mca btl_fabric_device_memory_direct 1 --mca btl_base_verbose 5 && says_not ' 0 reads and writes staged' &&
    says ' 0 regions by dma-buf' && says 'cannot be registered with softhca'
}
# By writes of the sender's, and in fragments.
case_device_memory_without_reads() {
  staged --mca btl_fabric_flags 0xB && staged --mca btl_fabric_flags 1 && says ' 0 reads and writes staged'
}
case_device_memory_by_x_queues() {
  [ "$link" = ib ] || { echo 'SKIP only InfiniBand has XRC'; exit 77; }
  staged --mca btl_fabric_receive_queues X,4096,256:X,65536,64
}
