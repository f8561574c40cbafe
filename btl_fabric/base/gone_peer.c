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

// Of ob1's messages (MCA_PML_OB1_HDR_TYPE_..., whose header is not installed): those whose callback data are a send request. Of others
// they are not set.
enum {
  kMatch = MCA_BTL_TAG_PML + 1,
  kRndv = MCA_BTL_TAG_PML + 2,
  kRget = MCA_BTL_TAG_PML + 3,
  kFrag = MCA_BTL_TAG_PML + 6
};

bool fabric_goes_on_without(const struct opal_proc_t* proc) {
  if (((const ompi_proc_t*)proc)->proc_active) return false;
  const bool* is_enabled = NULL;
  const int variable = mca_base_var_find("ompi", "mpi", "ft", "enable");
  return variable >= 0 && mca_base_var_get_value(variable, &is_enabled, NULL, NULL) == OPAL_SUCCESS && *is_enabled;
}

bool fabric_awaits_message(const struct opal_proc_t* gone, unsigned tag,
                           const struct mca_btl_base_descriptor_t* message) {
  const bool is_of_send = tag == kMatch || tag == kRndv || tag == kRget || tag == kFrag;
  if (!is_of_send || message->des_cbdata == NULL) return true;
  const mca_pml_base_request_t* const request = message->des_cbdata;  // which a send request begins with
  return &request->req_proc->super == gone && (!REQUEST_COMPLETE(&request->req_ompi) || request->req_free_called);
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
                           const struct mca_btl_base_descriptor_t* message) {
  (void)gone, (void)tag, (void)message;
  return true;
}

bool fabric_awaits_rdma(const struct opal_proc_t* gone, const void* context) {
  (void)gone, (void)context;
  return true;
}

#endif
