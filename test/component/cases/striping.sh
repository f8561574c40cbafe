# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Large reads and writes over several ports at once.

# The receiver reads 8 messages of 1 MiB, half of each over either device.
case_striped_reads() { counts -- rdma_striped=8-8 gets=16-16 get_bytes=8388608-8388608; }
case_striped_writes() { counts --mca btl_fabric_flags 0x3 -- rdma_striped=8 puts=16 put_bytes=1-8388608; }
case_striped_from_a_size_on() { # which the messages have, and have not
  counts --mca btl_fabric_stripe_size 1m -- rdma_striped=8-8 &&
    counts --mca btl_fabric_stripe_size 1048577 -- rdma_striped=0-0 gets=8-8 &&
    counts --mca btl_fabric_stripe_size 0 -- rdma_striped=0-0 gets=8-8 
}
