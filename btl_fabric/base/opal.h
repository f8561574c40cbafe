// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI's internal interfaces, as this component uses them. No other file includes an Open MPI header, and every
// difference between Open MPI 4.1 and 5.0 is here: nothing else of this component asks for the version, but job_notes.cc, where every
// function differs, and gone_peer.c, whose headers are only C.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "opal_config.h"

#if !(OPAL_MAJOR_VERSION == 4 && OPAL_MINOR_VERSION == 1) && !(OPAL_MAJOR_VERSION == 5 && OPAL_MINOR_VERSION == 0)
#error "btl_fabric is written for Open MPI 4.1 and 5.0"
#endif

// The headers below are included as C. Two of 5.0's begin that by themselves and never end it.
#undef BEGIN_C_DECLS
#undef END_C_DECLS
#define BEGIN_C_DECLS
#define END_C_DECLS

extern "C" {
#include "opal/class/opal_bitmap.h"
#include "opal/class/opal_free_list.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/base.h"
#include "opal/mca/base/mca_base_framework.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_vari.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/hwloc/base/base.h"
#include "opal/mca/installdirs/installdirs.h"
#include "opal/mca/mpool/base/base.h"
#include "opal/mca/mpool/mpool.h"
#include "opal/mca/patcher/patcher.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"
#include "opal/util/show_help.h"
#if OPAL_MAJOR_VERSION == 4
#include "opal/mca/pmix/pmix.h"
#include "opal/threads/thread_usage.h"
#else
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/mca/threads/thread_usage.h"
#endif
}

// Open MPI declares its endpoint type and leaves it to the component; fabric::Endpoint derives from it.
struct mca_btl_base_endpoint_t {};

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace fabric {

// Open MPI's free lists and its registration cache hand objects from thread to thread by fences, and in code that is not
// built with ThreadSanitizer, which therefore has to be told: gives_away() before an object goes, takes_over() when it
// has come. In other builds these are nothing.
#ifdef __SANITIZE_THREAD__
inline void gives_away(void* object) noexcept {
  __tsan_release(object);
}
inline void takes_over(void* object) noexcept {
  __tsan_acquire(object);
}
#else
inline void gives_away(void* /*object*/) noexcept {}
inline void takes_over(void* /*object*/) noexcept {}
#endif

#if OPAL_MAJOR_VERSION == 4

/// Initializers: the interface of BTLs that a component is written for.
#define FABRIC_BTL_INTERFACE MCA_BTL_BASE_VERSION_3_1_0

/// What a process publishes is for all processes of its job, on any host.
inline constexpr auto kModexScope = OPAL_PMIX_GLOBAL;

/// The key and the type of the number of processes in a job.
inline constexpr const char* kJobSizeKey = OPAL_PMIX_JOB_SIZE;
inline constexpr auto kJobSizeType = OPAL_UINT32;

/// The flags of a convertor whose data lie in the memory of an accelerator, or in memory that moves between it and the processor's.
inline constexpr std::uint32_t kOnAccelerator = CONVERTOR_CUDA | CONVERTOR_CUDA_UNIFIED;

/// 4.1 has no flag for what it keeps from BTLs; see below.
inline constexpr std::uint32_t kAcceleratorGet = 0;
inline constexpr std::uint32_t kRegistrationOnAccelerator = 0;

/// 4.1 knows of accelerators where it is built for CUDA, and then ob1 keeps their memory from BTLs that have not asked for it.
inline const char* accelerator_name() noexcept {
  return "null";
}
inline bool has_accelerator() noexcept {
  return false;
}
inline bool is_on_accelerator(const void* /*address*/) noexcept {
  return false;
}
inline bool accelerator_copy(void* to, const void* from, std::size_t size) noexcept {
  std::memcpy(to, from, size);
  return true;
}

/// 4.1 takes for granted what this flag says in 5.0; see below.
inline constexpr std::uint32_t kRemoteCompletion = 0;

/// Calls the upper layer's function for a message. `descriptor` and its bytes are ours again when this returns.
inline void hand_over(const mca_btl_active_message_callback_t& receiver, mca_btl_base_module_t* module,
                      mca_btl_base_endpoint_t* /*sender*/, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t& descriptor) noexcept {
  receiver.cbfunc(module, tag, &descriptor, receiver.cbdata);
}

/// The name of a process's host, as far as it is known.
inline std::string host_name(const opal_proc_t& proc) {
  const char* name = opal_get_proc_hostname(&proc);
  return name != nullptr ? name : "unknown host";
}

#else

#define FABRIC_BTL_INTERFACE MCA_BTL_BASE_VERSION_3_3_0

inline constexpr pmix_scope_t kModexScope = PMIX_GLOBAL;
inline constexpr const char* kJobSizeKey = PMIX_JOB_SIZE;
inline constexpr pmix_data_type_t kJobSizeType = PMIX_UINT32;
inline constexpr std::uint32_t kOnAccelerator = CONVERTOR_ACCELERATOR | CONVERTOR_ACCELERATOR_UNIFIED;

/// The flag of a module that reads from and into an accelerator's memory by itself.
inline constexpr std::uint32_t kAcceleratorGet = MCA_BTL_FLAGS_ACCELERATOR_GET;

/// The flag of a registration of such memory: Open MPI's cache registers the whole of what the program has allocated, and asks the
/// accelerator whether that is what was registered, or has been freed since.
inline constexpr std::uint32_t kRegistrationOnAccelerator = MCA_RCACHE_FLAGS_ACCELERATOR_MEM;

/// Open MPI's name of the kind of accelerator: "cuda", "rocm"; "null" if there is none.
inline const char* accelerator_name() noexcept {
  return opal_accelerator_base_selected_component.base_version.mca_component_name;
}

/// True if Open MPI has found an accelerator.
inline bool has_accelerator() noexcept {
  return opal_accelerator.check_addr != nullptr && std::strcmp(accelerator_name(), "null") != 0;
}

/// True if memory is an accelerator's, or moves between it and the processor's (CUDA calls that managed memory): a device that had
/// the one place registered would not see the other. Only if there is an accelerator.
inline bool is_on_accelerator(const void* address) noexcept {
  int device = MCA_ACCELERATOR_NO_DEVICE_ID;
  std::uint64_t flags = 0;
  return opal_accelerator.check_addr(address, &device, &flags) > 0 ||
         (flags & MCA_ACCELERATOR_FLAGS_UNIFIED_MEMORY) != 0;
}

/// As memcpy, from and to any memory; returns when it is done. False if the accelerator refuses.
inline bool accelerator_copy(void* to, const void* from, std::size_t size) noexcept {
  return opal_accelerator.mem_copy(MCA_ACCELERATOR_NO_DEVICE_ID, MCA_ACCELERATOR_NO_DEVICE_ID, to, from, size,
                                   MCA_ACCELERATOR_TRANSFER_UNSPEC) == OPAL_SUCCESS;
}

/// 5.0's osc/rdma uses a BTL's put, get and atomics itself only if the BTL says so that they have reached the target's
/// memory when they are reported complete; otherwise it sends messages instead. Ours have:
/// - InfiniBand and RoCE: a reliable connection reports a write or an atomic when the target's adapter has acknowledged
///   it. What the target learns of afterwards, by whatever message, comes to it after these bytes have come, since its
///   adapter writes to memory in order (we never ask for relaxed ordering). UCX relies on the same.
/// - iWARP reports a write when it has left. There each operation ends with a read of its last byte, and is complete
///   when that has come back: a read does not overtake the writes before it on its connection (rdma_planner.h).
inline constexpr std::uint32_t kRemoteCompletion = MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION;

inline void hand_over(const mca_btl_active_message_callback_t& receiver, mca_btl_base_module_t* module,
                      mca_btl_base_endpoint_t* sender, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t& descriptor) noexcept {
  const mca_btl_base_receive_descriptor_t message{sender, descriptor.des_segments, descriptor.des_segment_count, tag,
                                                  receiver.cbdata};
  receiver.cbfunc(module, &message);
}

inline std::string host_name(const opal_proc_t& proc) {
  char* name = opal_get_proc_hostname(&proc);
  std::string copy = name != nullptr ? name : "unknown host";
  std::free(name);  // its comment says that it must not be freed, but it is a copy in all of 5.0
  return copy;
}

#endif

/// True if data have to be packed into a buffer: they are not one block, are converted, or lie in the memory of an
/// accelerator, which is not ours to register. opal_convertor_need_buffers() tells the last in 4.1 only, and if that is
/// built for CUDA.
[[nodiscard]] inline bool needs_packing(const opal_convertor_t& convertor) noexcept {
  return (convertor.flags & kOnAccelerator) != 0 || opal_convertor_need_buffers(&convertor) != 0;
}

/// Packs the next `to.size()` bytes, which must be there.
inline void pack_all(opal_convertor_t& convertor, std::span<std::byte> to) noexcept {
  iovec data{to.data(), to.size()};
  std::uint32_t count = 1;
  std::size_t packed = to.size();
  opal_convertor_pack(&convertor, &data, &count, &packed);
  assert(packed == to.size());
}

/// The same, but the convertor may stay where it is.
inline void copy_all(opal_convertor_t& convertor, std::span<std::byte> to) noexcept {
  if (needs_packing(convertor)) [[unlikely]] {
    pack_all(convertor, to);
    return;
  }
  void* start = nullptr;
  opal_convertor_get_current_pointer(&convertor, &start);
  std::memcpy(to.data(), start, to.size());
}

}  // namespace fabric
