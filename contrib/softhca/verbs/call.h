// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What all calls that create and destroy objects have in common.
#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <new>

#include "device/attributes.h"
#include "faults/faults.h"
#include "verbs/export.h"
#include "verbs/objects.h"

namespace softhca {

// Why a call cannot be made at all, or 0: this is a child of the process that opened the device (its shared memory is not
// here), or the device has failed. Destroying objects and taking events works on a failed device.
inline int in_child(const Context& context) {
  return context.fabric != Fabric::get() ? EPERM : 0;
}
inline int in_child(ibv_context* context) {
  return in_child(*Context::of(context));
}
inline int cannot_use(const Context& context) {
  if (in_child(context) != 0) return EPERM;
  return context.fatal.load(std::memory_order_relaxed) ? EIO : 0;
}

// For calls that give a pointer.
inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}

template <typename T>
std::unique_ptr<T> make() {
  try {
    return std::make_unique<T>();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

inline ibv_device_attr limits_of(const Context& context) {
  Fabric& fabric = *Fabric::get();
  return device_attributes(fabric.config(), fabric.node(), context.device->index);
}

inline uint32_t port_id_on(const Context& context, unsigned port) {
  return port_id_of(Fabric::get()->node(), context.device->index, port);
}
inline bool valid_port(unsigned port) {
  return port >= 1 && port <= Fabric::get()->config().ports;
}

inline bool is_iwarp() {
  return Fabric::get()->config().personality == Personality::Iwarp;
}

// The short form of what a QP shall be as the long one.
inline ibv_qp_init_attr_ex extended(const ibv_qp_init_attr& attr, ibv_pd* pd) {
  ibv_qp_init_attr_ex ex{};
  ex.qp_context = attr.qp_context;
  ex.send_cq = attr.send_cq;
  ex.recv_cq = attr.recv_cq;
  ex.srq = attr.srq;
  ex.cap = attr.cap;
  ex.qp_type = attr.qp_type;
  ex.sq_sig_all = attr.sq_sig_all;
  ex.comp_mask = pd != nullptr ? IBV_QP_INIT_ATTR_PD : 0;
  ex.pd = pd;
  return ex;
}

// Waits until every event of an object that was raised and not withdrawn has been acknowledged: `acked` is the public
// struct's counter, which ibv_ack_* advance under its mutex.
inline void wait_for_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& acked,
                          const std::atomic<uint32_t>& raised) {
  pthread_mutex_lock(&mutex);
  while (acked != raised.load(std::memory_order_acquire)) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}
inline void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& acked, uint32_t count) {
  pthread_mutex_lock(&mutex);
  acked += count;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

// Withdraws the events of an object that goes away, and waits for those that the user has taken (verbs/async_events.cc).
void settle_async_events(Qp& qp);
void settle_async_events(Cq& cq);
void settle_async_events(Srq& srq);

}  // namespace softhca
