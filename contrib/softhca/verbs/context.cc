// SPDX-License-Identifier: BSD-3-Clause
// Opening and closing devices. The first open makes this process a member of the fabric.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "fabric/of_member.h"
#include "faults/faults.h"
#include "transport/engine.h"
#include "transport/transport.h"
#include "verbs/export.h"
#include "verbs/port_events.h"
#include "verbs/verbs_ops.h"

#undef ibv_query_port

namespace softhca {
namespace {

struct Contexts {
  std::mutex mutex;  // held while a context is visited: a context that is closing waits for that
  std::vector<Context*> all;
};

struct Start {
  std::mutex mutex;
  bool done = false;
};

// What every process does once. 0 or an errno.
int start_process(Fabric& fabric) {
  Start& start = of_member<Start>();
  std::lock_guard guard(start.mutex);
  if (start.done) return 0;
  if (const std::string errors = faults::load(fabric); !errors.empty())
    fprintf(stderr, "softhca: %s/faults: %s", fabric.directory().c_str(), errors.c_str());
  port_events::start(fabric);
  const int error = engine::start();
  start.done = error == 0;
  return error;
}

void set_operations(verbs_context& vctx) {
  ibv_context_ops& ops = vctx.context.ops;
  ops._compat_query_device = ibv_query_device;
  ops._compat_query_port = ibv_query_port;
  ops.alloc_mw = alloc_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.bind_mw = bind_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;

  vctx.query_port = query_port;
  vctx.query_device_ex = query_device_ex;
  vctx.query_rt_values = query_rt_values;
  vctx.ibv_create_flow = create_flow;
  vctx.ibv_destroy_flow = destroy_flow;
  vctx.advise_mr = advise_mr;
  vctx.alloc_dm = alloc_dm;
  vctx.alloc_parent_domain = alloc_parent_domain;
  vctx.alloc_td = alloc_td;
  vctx.dealloc_td = dealloc_td;
  vctx.free_dm = free_dm;
  vctx.reg_dm_mr = reg_dm_mr;
  vctx.create_cq_ex = create_cq_ex;
  vctx.modify_cq = modify_cq;
  vctx.create_qp_ex = create_qp_ex;
  vctx.open_qp = open_qp;
  vctx.create_srq_ex = create_srq_ex;
  vctx.get_srq_num = get_srq_num;
  vctx.open_xrcd = open_xrcd;
  vctx.close_xrcd = close_xrcd;
}

ibv_context* open_device(Device& device) {
  Fabric* fabric = Fabric::join();
  if (fabric == nullptr) return nullptr;
  int error = start_process(*fabric);
  if (error == 0) error = SOFTHCA_FAULTY("ibv_open_device");
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  const int file = memfd_create(device.device.name, MFD_CLOEXEC);
  if (file < 0) return nullptr;
  ibv_context* context = make_context(device, file);
  if (context == nullptr) close(file);
  return context;
}

}  // namespace

ibv_context* make_context(Device& device, int cmd_fd) {
  struct stat file {};
  auto context = std::make_unique<Context>();
  if (context->async.fd() < 0 || fstat(cmd_fd, &file) != 0) return nullptr;
  context->device = &device;
  context->fabric = Fabric::get();
  context->file = file.st_ino;
  context->file_system = file.st_dev;

  verbs_context& vctx = context->vctx;
  vctx.priv = reinterpret_cast<verbs_ex_private*>(context.get());
  vctx.sz = sizeof vctx;
  vctx.context.device = &device.device;
  vctx.context.cmd_fd = cmd_fd;
  vctx.context.async_fd = context->async.fd();
  vctx.context.num_comp_vectors = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&vctx.context.mutex, nullptr);
  set_operations(vctx);

  auto& contexts = of_member<Contexts>();
  std::lock_guard guard(contexts.mutex);
  contexts.all.push_back(context.get());
  return &context.release()->vctx.context;
}

// libibverbs keeps a pointer of its own there.
Context* Context::of(ibv_context* context) {
  return reinterpret_cast<Context*>(verbs_get_ctx(context)->priv);
}

void for_each_context(void (*each)(Context& context, void* argument), void* argument) {
  auto& contexts = of_member<Contexts>();
  std::lock_guard guard(contexts.mutex);
  for (Context* context : contexts.all) each(*context, argument);
}

}  // namespace softhca

SOFTHCA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  try {
    return softhca::open_device(*reinterpret_cast<softhca::Device*>(device));
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

// While there are objects their users may still call into the context: it stays.
SOFTHCA_EXPORT int ibv_close_device(ibv_context* context) {
  softhca::Context* own = softhca::Context::of(context);
  {
    auto& contexts = softhca::of_member<softhca::Contexts>();
    std::lock_guard guard(contexts.mutex);
    if (own->objects.load() != 0) return 0;  // as with kernel drivers; what is left goes with the process
    std::erase(contexts.all, own);
  }
  pthread_mutex_destroy(&context->mutex);
  close(context->cmd_fd);
  delete own;
  return 0;
}
