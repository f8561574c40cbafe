# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# fabric_info --fit: whether a job fits the devices of this host.

# fit_of [ARGUMENT...] : the verdict, in the file out
fit_of() { runs "${launcher[@]}" "$FABRIC_BUILD/contrib/fabric_info/fabric_info" --fit "$@"; }

case_fit_of_queues_that_cannot_be_run() {
  has_fabric_info
  new_fabric --set max_wr=64
  fit_of --receive-queues P,128,256
  [ $? -eq 1 ] && says 'this device cannot be used' && says 'it does not fit' && says_not 'it fits' || return 1
  fit_of --receive-queues P,128,16 && says 'it fits'
}
