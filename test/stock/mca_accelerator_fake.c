// SPDX-License-Identifier: BSD-3-Clause
//
// A component of Open MPI 5.0's framework for accelerators, of the memory that a program shows as `fake_device` (fake_device.h). In a
// process without that it is not there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "fake_device.h"
#include "opal_config.h"
//
#include "opal/constants.h"
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/base/base.h"

static struct fake_device* device;

static int is_here(const void* address) {
  const unsigned char* byte = address;
  return byte >= device->base && byte < device->base + device->size;
}

static void* view_of(const void* address) {
  return is_here(address) ? device->view + ((const unsigned char*)address - device->base) : (void*)address;
}

static int check_addr(const void* address, int* id, uint64_t* flags) {
  *flags = 0;
  *id = is_here(address) ? 0 : MCA_ACCELERATOR_NO_DEVICE_ID;
  return is_here(address);
}

static int mem_copy(int to_id, int from_id, void* to, const void* from, size_t size,
                    opal_accelerator_transfer_type_t type) {
  (void)to_id, (void)from_id, (void)type;
  __atomic_fetch_add(&device->copies, 1, __ATOMIC_RELAXED);
  memmove(view_of(to), view_of(from), size);
  return OPAL_SUCCESS;
}

static int mem_copy_async(int to_id, int from_id, void* to, const void* from, size_t size,
                          opal_accelerator_stream_t* stream, opal_accelerator_transfer_type_t type) {
  (void)stream;
  return mem_copy(to_id, from_id, to, from, size, type);
}

static int create_stream(int id, opal_accelerator_stream_t** stream) {
  (void)id;
  *stream = OBJ_NEW(opal_accelerator_stream_t);
  return OPAL_SUCCESS;
}

static int create_event(int id, opal_accelerator_event_t** event) {
  (void)id;
  *event = OBJ_NEW(opal_accelerator_event_t);
  return OPAL_SUCCESS;
}

static int record_event(int id, opal_accelerator_event_t* event, opal_accelerator_stream_t* stream) {
  (void)id, (void)event, (void)stream;
  return OPAL_SUCCESS;
}

static int query_event(int id, opal_accelerator_event_t* event) {
  (void)id, (void)event;
  return OPAL_SUCCESS;
}

static int mem_alloc(int id, void** address, size_t size) {
  (void)id, (void)address, (void)size;
  return OPAL_ERR_NOT_IMPLEMENTED;
}

static int mem_release(int id, void* address) {
  (void)id, (void)address;
  return OPAL_ERR_NOT_IMPLEMENTED;
}

static int get_address_range(int id, const void* address, void** base, size_t* size) {
  (void)id, (void)address;
  *base = device->base;
  *size = device->size;
  return OPAL_SUCCESS;
}

static int host_register(int id, void* address, size_t size) {
  (void)id, (void)address, (void)size;
  return OPAL_SUCCESS;
}

static int host_unregister(int id, void* address) {
  (void)id, (void)address;
  return OPAL_SUCCESS;
}

static int get_device(int* id) {
  *id = 0;
  return OPAL_SUCCESS;
}

static int get_device_pci_attr(int id, opal_accelerator_pci_attr_t* attributes) {
  (void)id, (void)attributes;
  return OPAL_ERR_NOT_IMPLEMENTED;
}

static int device_can_access_peer(int* access, int one, int other) {
  (void)one, (void)other;
  *access = 0;
  return OPAL_SUCCESS;
}

static int get_buffer_id(int id, const void* address, opal_accelerator_buffer_id_t* buffer) {
  (void)id, (void)address;
  *buffer = 1;
  return OPAL_SUCCESS;
}

static opal_accelerator_base_module_t module = {
    .check_addr = check_addr,
    .create_stream = create_stream,
    .create_event = create_event,
    .record_event = record_event,
    .query_event = query_event,
    .mem_copy_async = mem_copy_async,
    .mem_copy = mem_copy,
    .mem_move = mem_copy,
    .mem_alloc = mem_alloc,
    .mem_release = mem_release,
    .get_address_range = get_address_range,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .get_device = get_device,
    .get_device_pci_attr = get_device_pci_attr,
    .device_can_access_peer = device_can_access_peer,
    .get_buffer_id = get_buffer_id,
};

static opal_accelerator_base_module_t* init(void) {
  device = dlsym(RTLD_DEFAULT, "fake_device");
  return device != NULL ? &module : NULL;
}

static void finalize(opal_accelerator_base_module_t* unused) {
  (void)unused;
}

opal_accelerator_base_component_t mca_accelerator_fake_component = {
    .base_version =
        {
            OPAL_ACCELERATOR_BASE_VERSION_1_0_0,
            .mca_component_name = "fake",
            MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, OPAL_RELEASE_VERSION),
        },
    .accelerator_init = init,
    .accelerator_finalize = finalize,
};
