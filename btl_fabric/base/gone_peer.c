// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/gone_peer.h"

#include <stddef.h>

#include "opal_config.h"

#if OPAL_ENABLE_FT_MPI

#include "ompi/mca/bml/bml.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/proc/proc.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/btl/btl.h"

// ob1's MCA_PML_OB1_HDR_TYPE_..., whose header is not installed: the messages whose callback data are a send request. With kCid go first
// fragments too, as long as the peer's number of a communicator is not known; the message that tells the number is shorter than any of
// those, and has none.
enum { kMatch = MCA_BTL_TAG_PML + 1, kRndv, kRget, kFrag = MCA_BTL_TAG_PML + 6, kCid = MCA_BTL_TAG_PML + 10 };
enum { kCidBytes = 32 };

static bool is_of_send(unsigned tag, const struct mca_btl_base_descriptor_t* message) {
  return tag == kMatch || tag == kRndv || tag == kRget || tag == kFrag ||
         (tag == kCid && message->des_segments[0].seg_len > kCidBytes);
}

bool fabric_goes_on_without(const struct opal_proc_t* proc) {
  if (((const ompi_proc_t*)proc)->proc_active) return false;
  const bool* is_enabled = NULL;
  const int variable = mca_base_var_find("ompi", "mpi", "ft", "enable");
  return variable >= 0 && mca_base_var_get_value(variable, &is_enabled, NULL, NULL) == OPAL_SUCCESS && *is_enabled;
}

bool fabric_awaits_message(const struct opal_proc_t* gone, unsigned tag,
                           const struct mca_btl_base_descriptor_t* message, int* status) {
  if (!is_of_send(tag, message) || message->des_cbdata == NULL) return true;
  const mca_pml_base_request_t* const request = message->des_cbdata;  // which a send request begins with
  // In this order: who uses it again says of which process it is before it waits.
  const bool is_complete = REQUEST_COMPLETE(&request->req_ompi);
  opal_atomic_rmb();
  *status = OPAL_SUCCESS;
  return &request->req_proc->super == gone && (!is_complete || request->req_free_called);
}

// Also of a way that ob1 has given up since.
static bool is_in(const mca_bml_base_btl_array_t* list, const void* context) {
  const mca_bml_base_btl_t* const way = context;
  return way >= list->bml_btls && way < list->bml_btls + list->arr_reserve;
}

bool fabric_awaits_rdma(const struct opal_proc_t* gone, const void* context) {
  const mca_bml_base_endpoint_t* const ways = ((const ompi_proc_t*)gone)->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML];
  return ways == NULL ||
         !(is_in(&ways->btl_eager, context) || is_in(&ways->btl_send, context) || is_in(&ways->btl_rdma, context));
}

#else

bool fabric_goes_on_without(const struct opal_proc_t* proc) {
  (void)proc;
  return false;
}

bool fabric_awaits_message(const struct opal_proc_t* gone, unsigned tag,
                           const struct mca_btl_base_descriptor_t* message, int* status) {
  (void)gone, (void)tag, (void)message, (void)status;
  return true;
}

bool fabric_awaits_rdma(const struct opal_proc_t* gone, const void* context) {
  (void)gone, (void)context;
  return true;
}

#endif
