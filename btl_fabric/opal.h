// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI's internal interfaces, as this component uses them. No other file includes an Open MPI header, and every
// difference between Open MPI series belongs here.
#pragma once

extern "C" {
#include "opal/class/opal_bitmap.h"
#include "opal/class/opal_free_list.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/base.h"
#include "opal/mca/base/mca_base_framework.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/hwloc/base/base.h"
#include "opal/mca/mpool/base/base.h"
#include "opal/mca/mpool/mpool.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/runtime/opal_progress.h"
#include "opal/threads/thread_usage.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"
#include "opal/util/show_help.h"
#include "opal_config.h"
}

#if OPAL_MAJOR_VERSION != 4
#error "btl_fabric is written for Open MPI 4.1"
#endif

// Open MPI declares its endpoint type and leaves it to the component; fabric::Endpoint derives from it.
struct mca_btl_base_endpoint_t {};
