// SPDX-License-Identifier: BSD-3-Clause
//
// The functions that Open MPI calls a module by: each is a line or two into C++, and lets no exception out.
// What they promise is in Open MPI's opal/mca/btl/btl.h.
#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/rdma.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/mca/staged_transfers.h"
#include "btl_fabric/path/immediate_sends.h"

namespace fabric {

namespace {

Module& module_of(mca_btl_base_module_t* btl) noexcept {
  return *static_cast<Module*>(btl);
}

/// Runs a function that may allocate; memory that is not there becomes Open MPI's error code. In a forked child, where there
/// is no component, nothing is done.
template <class Function>
int boundary(Function function) noexcept {
  if (!Component::started()) [[unlikely]] {
    return OPAL_ERR_NOT_AVAILABLE;
  }
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  } catch (...) {
    return OPAL_ERROR;
  }
}

/// Without any context's lock: Open MPI may hold one of its own (mca_bml_lock, when a process is first spoken to), for which
/// a thread may wait in a callback, with the context's.
int add_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t** procs, mca_btl_base_endpoint_t** endpoints,
              opal_bitmap_t* reachable) noexcept {
  return boundary([&] {
    Module& module = module_of(btl);
    for (size_t i = 0; i < count; ++i) {
      endpoints[i] = nullptr;
      if (procs[i] == opal_proc_local_get()) {
        // Messages to ourselves are btl/self's, and so is memory, unless atomics must go through the device.
        endpoints[i] = module.self_endpoint(procs[i]);
        if (endpoints[i] != nullptr && reachable != nullptr) {
          opal_bitmap_set_bit(reachable, static_cast<int>(i));
        }
        continue;
      }
      const Peer* peer = Component::get().peer_of(*procs[i]);
      std::string why_not = "it does not run btl_fabric, or has no RDMA device that can be used";
      Endpoint* endpoint = peer != nullptr ? module.endpoints().endpoint_for(procs[i], *peer, why_not) : nullptr;
      if (endpoint == nullptr) {
        report_unreachable(module, *procs[i], why_not);
        const auto& pairs = peer != nullptr ? peer->pairs : std::vector<std::optional<std::uint16_t>>();
        if ((peer == nullptr || peer->refusal.empty()) &&
            std::none_of(pairs.begin(), pairs.end(), [](const auto& one) { return one.has_value(); })) {
          report_not_reached(*procs[i], why_not);
        }
        continue;
      }
      endpoints[i] = endpoint;
      if (reachable != nullptr) {
        opal_bitmap_set_bit(reachable, static_cast<int>(i));
      }
    }
    return OPAL_SUCCESS;
  });
}

int del_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t** /*procs*/,
              mca_btl_base_endpoint_t** endpoints) noexcept {
  return boundary([&] {
    const auto guard = Component::get().locks().lock_all();
    Component::get().directed_sends().send_all_left();  // they name endpoints
    for (size_t i = 0; i < count; ++i) {
      if (endpoints[i] != nullptr && !static_cast<Endpoint*>(endpoints[i])->is_self()) {
        if (staged_transfers != nullptr) {
          staged_transfers->forget(endpoints[i]);
        }
        module_of(btl).endpoints().remove(static_cast<Endpoint*>(endpoints[i]));
      }
    }
    Component::get().wait_for_goodbyes();  // now: later, upper layers whose callbacks are due may be gone
    return OPAL_SUCCESS;
  });
}

/// Open MPI keeps the callbacks in a table of its own (mca_btl_base_active_message_trigger), which messages are
/// delivered by; a module has nothing to add.
int register_callback(mca_btl_base_module_t* /*btl*/, mca_btl_base_tag_t /*tag*/,
                      mca_btl_base_module_recv_cb_fn_t /*callback*/, void* /*data*/) noexcept {
  return OPAL_SUCCESS;
}

int register_error(mca_btl_base_module_t* btl, mca_btl_base_module_error_cb_fn_t callback) noexcept {
  module_of(btl).error_callback = callback;
  return OPAL_SUCCESS;
}

/// The PML asks, for its own dump of a communicator: what there is with a peer in the first context, or with all (null).
void dump(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, int /*verbose*/) noexcept {
  const auto guard = Component::get().locks().lock_all();
  Module& module = module_of(btl);
  if (endpoint == nullptr) {
    report_state(module);
    return;
  }
  report_state(module, *static_cast<Endpoint*>(endpoint));
}

int finalize(mca_btl_base_module_t* btl) noexcept {
  if (Component::started()) {
    Component::get().finalize_module(&module_of(btl));
  }
  return OPAL_SUCCESS;
}

/// The largest message that a connection with the peer takes, bytes: less than others, if the peer has fewer queues.
size_t largest_message(const mca_btl_base_endpoint_t* endpoint) noexcept {
  return static_cast<const Endpoint*>(endpoint)->subset.largest();
}

/// Atomically: whoever asks for a buffer has no lock.
[[gnu::cold]] void count_missing_buffer(Counters& sums, std::size_t queue) noexcept {
  std::atomic_ref(sums.waits_for_buffer).fetch_add(1, std::memory_order_relaxed);
  std::atomic_ref(sums.tally.queues[queue].for_buffer).fetch_add(1, std::memory_order_relaxed);
}

/// ob1's ACKs, PUTs and FINs. It sends these while it is told of a message or of an end. For want of a buffer it keeps them, and may
/// never look at them again; and Open MPI 5.0 forgets how long an ACK is (MCA_PML_OB1_ADD_ACK_TO_PENDING). Nothing else has these flags,
/// and of what has those of FINs nothing is as short.
bool is_control(std::size_t size, std::uint32_t flags) noexcept {
  constexpr std::uint32_t kOfAcks = MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  constexpr std::uint32_t kOfFins = MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_SIGNAL;
  constexpr std::size_t kFin = 24;  // bytes: mca_pml_ob1_fin_hdr_t
  return (size <= kMostControl && (flags & kOfAcks) == kOfAcks) || (size <= kFin && (flags & kOfFins) == kOfFins);
}

/// A send buffer for `size` bytes, or null. It can be sent in any context; those of the thread's come first.
Fragment* allocate(Module& module, std::uint8_t order, size_t size, std::uint32_t flags) noexcept {
  PacketPath& path = module.in_context(Component::get().locks().current()).path();
  const size_t queue = path.queue_for(size);
  if (queue == path.receive_queues().count()) [[unlikely]] {
    return nullptr;
  }
  Fragment* fragment = path.get_send(queue);
  if (fragment == nullptr) [[unlikely]] {
    fragment = is_control(size, flags) ? get_unlimited(path.queues(), queue) : nullptr;
    if (fragment == nullptr) {
      count_missing_buffer(path.counters(), queue);
      return nullptr;
    }
  }
  fragment->order = order;
  fragment->segments[0].seg_len = size;
  fragment->des_flags = flags;
  fragment->callback_due = false;
  return fragment;
}

mca_btl_base_descriptor_t* alloc(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, std::uint8_t order,
                                 size_t size, std::uint32_t flags) noexcept {
  if (endpoint != nullptr && size > largest_message(endpoint)) [[unlikely]] {
    return nullptr;
  }
  return allocate(module_of(btl), order, size, flags);
}

int free_descriptor(mca_btl_base_module_t* /*btl*/, mca_btl_base_descriptor_t* descriptor) noexcept {
  put_back(static_cast<Fragment*>(descriptor));
  return OPAL_SUCCESS;
}

/// How much of `size` bytes at the convertor's position goes into one fragment. Where the data are one block, a
/// fragment would end inside an element, and Open MPI 4.1's receiving convertor, when it then has to jump to a fragment
/// that came early (over another port or queue), puts that one element too low
/// (opal_convertor_generic_simple_position() forgets the element). So fragments but the last end on multiples of the
/// largest element. Other data Open MPI itself cuts at elements.
size_t whole_elements(const opal_convertor_t& convertor, size_t size) noexcept {
  constexpr size_t kLargestElement = 32;  // long double complex
  if (convertor.bConverted + size >= convertor.local_size) {
    return size;
  }
  const size_t beyond = (convertor.bConverted + size) % kLargestElement;
  return size > beyond ? size - beyond : size;
}

/// Large blocks of data go out from where they are.
bool wants_in_place(const Module& module, const opal_convertor_t& convertor, size_t size) noexcept {
  return module.sends_in_place(size) && !needs_packing(convertor);
}

/// Makes `size` bytes at the convertor's position the second segment of a fragment, and moves the convertor on. False,
/// and nothing has happened, if their memory cannot be registered.
bool put_in_place(Module& module, Fragment& fragment, opal_convertor_t& convertor, size_t reserve,
                  size_t size) noexcept {
  // Registrations are cached, so larger ones serve more fragments; but one should not pin gigabytes at once.
  constexpr size_t kWindow = 4 * 1024 * 1024;
  void* data = nullptr;
  opal_convertor_get_current_pointer(&convertor, &data);
  const size_t before = convertor.bConverted % kWindow;
  const size_t after = std::min(std::max(kWindow - before, size), convertor.local_size - convertor.bConverted);
  auto* registration = module.cache().hold(static_cast<std::byte*>(data) - before, before + after, fragment.user_lkey);
  if (registration == nullptr) {
    return false;
  }
  iovec block{nullptr, size};
  std::uint32_t count = 1;
  opal_convertor_pack(&convertor, &block, &count, &size);  // without buffers it only tells the place, and moves on
  fragment.user_memory = registration;
  fragment.segments[0].seg_len = reserve;
  fragment.segments[1].seg_addr.pval = block.iov_base;
  fragment.segments[1].seg_len = size;
  fragment.des_segment_count = 2;
  return true;
}

mca_btl_base_descriptor_t* prepare_src(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
                                       opal_convertor_t* convertor, std::uint8_t order, size_t reserve, size_t* size,
                                       std::uint32_t flags) noexcept {
  Module& module = module_of(btl);
  const size_t most = std::min<size_t>(module.btl_max_send_size, largest_message(endpoint));
  size_t packed = std::min(*size, most - std::min(reserve, most));
  packed = whole_elements(*convertor, packed);
  Fragment* fragment = allocate(module, order, reserve + packed, flags);
  if (fragment == nullptr) [[unlikely]] {
    return nullptr;
  }
  if (wants_in_place(module, *convertor, packed) && put_in_place(module, *fragment, *convertor, reserve, packed)) {
    *size = packed;
    return fragment;
  }
  iovec data{static_cast<std::byte*>(fragment->segments[0].seg_addr.pval) + reserve, packed};
  std::uint32_t count = 1;
  if (opal_convertor_pack(convertor, &data, &count, &packed) < 0) [[unlikely]] {
    put_back(fragment);
    return nullptr;
  }
  *size = packed;
  fragment->segments[0].seg_len = reserve + packed;
  return fragment;
}

int send(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
         mca_btl_base_tag_t tag) noexcept {
  auto* fragment = static_cast<Fragment*>(descriptor);
  auto& first = *static_cast<Endpoint*>(endpoint);
  fragment->tag = tag;
  if (first.is_directed(fragment->order, tag)) [[unlikely]] {
    return Component::get().directed_sends().send(first, *fragment);
  }
  const Component::Entered entered = Component::get().enter(first, MCA_BTL_NO_ORDER);
  if (entered.endpoint == nullptr) [[unlikely]] {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  return entered.endpoint->send(*fragment);
}

/// Under the lock that is due, and wherever the message may have to go.
[[gnu::noinline]] bool send_locked(Endpoint& first, ImmediateMessage message, std::uint8_t order) noexcept {
  if (first.is_directed(order, message.tag)) {
    return Component::get().directed_sends().send_immediately(first, message, order);
  }
  const Component::Entered entered = Component::get().enter(first, MCA_BTL_NO_ORDER);
  return entered.endpoint != nullptr && entered.endpoint->send_immediately(message);
}

int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor, void* header,
          size_t header_size, size_t payload_size, std::uint8_t order, std::uint32_t flags, mca_btl_base_tag_t tag,
          mca_btl_base_descriptor_t** descriptor) noexcept {
  auto& first = *static_cast<Endpoint*>(endpoint);
  const ImmediateMessage message{convertor, header, header_size, payload_size, tag};
  if (!opal_uses_threads && first.contexts() == 1) [[likely]] {
    Link* const link = first.carrier();
    if (link != nullptr && link->send_immediately(message)) [[likely]] {
      return OPAL_SUCCESS;
    }
  } else if (send_locked(first, message, order)) {
    return OPAL_SUCCESS;
  }
  if (descriptor != nullptr) {
    *descriptor = alloc(btl, endpoint, order, header_size + payload_size, flags);
  }
  return OPAL_ERR_RESOURCE_BUSY;
}

}  // namespace

void set_btl_functions(mca_btl_base_module_t& module) noexcept {
  module.btl_add_procs = add_procs;
  module.btl_del_procs = del_procs;
  module.btl_register = register_callback;
  module.btl_register_error = register_error;
  module.btl_dump = dump;
  module.btl_finalize = finalize;
  module.btl_alloc = alloc;
  module.btl_free = free_descriptor;
  module.btl_prepare_src = prepare_src;
  module.btl_send = send;
  module.btl_sendi = sendi;
  set_rdma_functions(module);
}

}  // namespace fabric
