// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The operations that verbs/context.cc puts into a context and that programs reach through inline functions of
// infiniband/verbs.h. Those of the data path are in transport/transport.h.
//
// Who defines what else of verbs/objects.h: verbs/context.cc has Context::of and for_each_context; verbs/async_events.cc has
// the raise functions, ibv_get_async_event and ibv_ack_async_event.
#include <infiniband/verbs.h>

#include <functional>

#include "verbs/objects.h"

namespace softhca {

// verbs/context.cc. A context of that device, whose descriptor becomes the context's; nullptr and errno: the caller keeps it.
ibv_context* make_context(Device& device, int cmd_fd);

// verbs/pd.cc. The domain of that number for which `is_it` holds, with one user more; nullptr: there is none.
Pd* hold_domain(uint32_t handle, const std::function<bool(const Pd&)>& is_it);

// verbs/import.cc. Gives a handle of a domain back (nullptr: none), and those that were given back while something used them.
void drop_domain(Pd* handle);

// verbs/memory_window.cc
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

// verbs/device_memory.cc
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access);

// verbs/flow.cc
ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr);
int destroy_flow(ibv_flow* flow);

// verbs/on_demand.cc
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count);

// verbs/parent_domain.cc
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// verbs/cq_ex.cc
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);

// verbs/srq.cc
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, uint32_t* srqn);

// verbs/qp_create.cc
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);

// verbs/xrcd.cc
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);

// verbs/query.cc, also as ibv_query_device and ibv_query_port: the context's own idea of its limits.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t size);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

}  // namespace softhca
