// SPDX-License-Identifier: BSD-3-Clause
//
// Gets verbs and the connection manager as NCCL and others do: dlopen of the library, dlvsym of each function with the version
// that it has there. It is linked with neither. Says what the device is called.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdio>
#include <cstdlib>

namespace {

void require(bool good, const char* what, int line) {
  if (good) return;
  const char* error = dlerror();
  fprintf(stderr, "line %d: not so: %s (%s)\n", line, what, error != nullptr ? error : "no error of dlopen");
  exit(1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

template <typename F>
F* function(void* library, F*, const char* name, const char* version) {
  void* found = dlvsym(library, name, version);
  require(found != nullptr, name, __LINE__);
  return reinterpret_cast<F*>(found);
}
#define FUNCTION(library, name, version) function(library, name, #name, version)

void use_verbs(void* verbs) {
  const auto get_list = FUNCTION(verbs, ibv_get_device_list, "IBVERBS_1.1");
  const auto free_list = FUNCTION(verbs, ibv_free_device_list, "IBVERBS_1.1");
  const auto get_name = FUNCTION(verbs, ibv_get_device_name, "IBVERBS_1.1");
  const auto open = FUNCTION(verbs, ibv_open_device, "IBVERBS_1.1");
  const auto close = FUNCTION(verbs, ibv_close_device, "IBVERBS_1.1");
  const auto alloc_pd = FUNCTION(verbs, ibv_alloc_pd, "IBVERBS_1.1");
  const auto dealloc_pd = FUNCTION(verbs, ibv_dealloc_pd, "IBVERBS_1.1");
  const auto reg_mr = FUNCTION(verbs, ibv_reg_mr_iova2, "IBVERBS_1.8");
  const auto dereg_mr = FUNCTION(verbs, ibv_dereg_mr, "IBVERBS_1.1");
  (void)FUNCTION(verbs, ibv_rate_to_mult, "IBVERBS_1.0");
  (void)FUNCTION(verbs, ibv_query_ece, "IBVERBS_1.10");
  (void)FUNCTION(verbs, ibv_reg_dmabuf_mr, "IBVERBS_1.12");
  REQUIRE(dlsym(verbs, "ibv_open_device") == reinterpret_cast<void*>(open));
  REQUIRE(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.14") == nullptr);

  int count = 0;
  ibv_device** list = get_list(&count);
  REQUIRE(list != nullptr && count == 1);
  puts(get_name(list[0]));
  ibv_context* context = open(list[0]);
  REQUIRE(context != nullptr);
  ibv_pd* pd = alloc_pd(context);
  char memory[4096];
  ibv_mr* mr = reg_mr(pd, memory, sizeof memory, reinterpret_cast<uint64_t>(memory), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(pd != nullptr && mr != nullptr);
  REQUIRE(dereg_mr(mr) == 0 && dealloc_pd(pd) == 0 && close(context) == 0);
  free_list(list);
}

// It finds the same device, for it is the same library behind both.
void use_cm(void* cm) {
  const auto create_channel = FUNCTION(cm, rdma_create_event_channel, "RDMACM_1.0");
  const auto destroy_channel = FUNCTION(cm, rdma_destroy_event_channel, "RDMACM_1.0");
  const auto create_id = FUNCTION(cm, rdma_create_id, "RDMACM_1.0");
  const auto destroy_id = FUNCTION(cm, rdma_destroy_id, "RDMACM_1.0");
  const auto get_devices = FUNCTION(cm, rdma_get_devices, "RDMACM_1.0");
  const auto free_devices = FUNCTION(cm, rdma_free_devices, "RDMACM_1.0");
  (void)FUNCTION(cm, rdma_establish, "RDMACM_1.2");

  rdma_event_channel* channel = create_channel();
  rdma_cm_id* id = nullptr;
  REQUIRE(channel != nullptr && create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  int count = 0;
  ibv_context** devices = get_devices(&count);
  REQUIRE(devices != nullptr && count == 1);
  puts(devices[0]->device->name);
  free_devices(devices);
  REQUIRE(destroy_id(id) == 0);
  destroy_channel(channel);
}

}  // namespace

int main() {
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(verbs != nullptr);
  void* cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(cm != nullptr);
  use_verbs(verbs);
  use_cm(cm);
  return 0;
}
