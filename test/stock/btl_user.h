// SPDX-License-Identifier: BSD-3-Clause
//
// For programs that use the BTL as the PML does, through Open MPI's internal headers (of 4.1).
#pragma once

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/proc.h"
#include "opal_config.h"

static void fail(const char* what) {
  fprintf(stderr, "this process fails: %s\n", what);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static mca_btl_base_module_t* fabric_module(void) {
  mca_btl_base_selected_module_t* selected;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
  if (strcmp(selected->btl_component->btl_version.mca_component_name, "fabric") == 0) return selected->btl_module;
  fail("there is no module of btl/fabric");
  return NULL;
}

static opal_proc_t* process_of(uint32_t rank) {
  opal_process_name_t name = OPAL_PROC_MY_NAME;
  name.vpid = rank;
  return opal_proc_for_name(name);
}

static struct mca_btl_base_endpoint_t* endpoint_of(mca_btl_base_module_t* btl, uint32_t rank) {
  struct mca_btl_base_endpoint_t* endpoint = NULL;
  opal_proc_t* peer = process_of(rank);
  if (peer == NULL || btl->btl_add_procs(btl, 1, &peer, &endpoint, NULL) != 0 || endpoint == NULL)
    fail("the peer cannot be reached");
  return endpoint;
}
