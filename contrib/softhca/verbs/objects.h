// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The private halves of verbs objects. Each begins with the public struct of infiniband/verbs.h that the user holds, so that
// a pointer to one is a pointer to the other. What peers need to see of an object is in its owner's slot (fabric/layout.h).
//
// Locks, in this order: Cq::mutex (pollers; of two CQs that of the lower address first, transport/polling_stopped.h), Qp::sq_mutex
// (the requester), then RobustLocks of a destination (QpShared, then RecvRing, then CqShared). A thread has the first from
// ibv_start_poll to ibv_end_poll, when it may make other calls as well: nobody waits for it with any other lock held. Never two
// QpShared locks at once, except that a QP may send to itself (the requester then holds only the one).
// Context::mutex guards creation and destruction and is never held while any of these is taken, except in that order.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/fabric.h"
#include "transport/mutex.h"
#include "transport/send_queue.h"
#include "verbs/event_fd.h"

namespace softhca {

// What get_device_list returns. Programs and provider libraries look at the word after ibv_device: it has to be zero.
struct Device {
  ibv_device device;
  uint64_t zeros[16];
  unsigned index;
};

struct Dm;  // verbs/device_memory.h

struct Context {
  Device* device;
  Fabric* fabric;  // of who opened it: a child has another, or none
  // Of cmd_fd: contexts with the same file were imported from each other.
  ino_t file = 0;
  dev_t file_system = 0;
  std::mutex mutex;
  std::atomic<uint32_t> objects{0};  // PDs, CQs, channels, XRC domains: what keeps close_device from succeeding
  EventFd<ibv_async_event> async;
  std::atomic<bool> fatal{false};  // IBV_EVENT_DEVICE_FATAL was raised: everything fails with EIO from now on
  verbs_context vctx;              // last: its `context` is what the user has (container_of counts from its end)

  static Context* of(ibv_context* context);
};

struct Pd : ibv_pd {
  uint32_t id;  // unique in the process, never 0; a parent domain has that of the domain inside
  std::atomic<uint32_t> users{0};
  bool is_parent{false};  // it is a ParentDomain (verbs/parent_domain.h)
  Pd* imported{nullptr};  // this is another handle of that (verbs/import.cc)
};

struct Mr : ibv_mr {
  uint32_t index;  // of its MrEntry
  std::atomic<uint32_t> users{0};
  void* mapping = nullptr;  // of a dma-buf's file, page by page
  size_t mapped_bytes = 0;
  Dm* device_memory = nullptr;  // whose bytes these are
  bool imported = false;        // another handle of a region (verbs/import.cc)
};

struct Mw : ibv_mw {
  uint32_t index;
};

struct Ah : ibv_ah {
  ibv_ah_attr attr;
  uint32_t port_id;       // of this side
  uint32_t dest_port_id;  // 0: nobody has that address; messages are lost
};

struct Xrcd : ibv_xrcd {
  uint32_t index;  // in the hub
  std::atomic<uint32_t> users{0};
};

struct CompChannel : ibv_comp_channel {
  EventFd<ibv_cq*> events;
};

struct Cq : ibv_cq_ex {
  uint32_t index;
  CqShared* shared;
  Mutex mutex;                     // consumers
  Mutex landing_mutex;             // who puts payloads in place; taken after `mutex` and before the shared lock
  std::atomic<uint32_t> users{0};  // QPs and SRQs
  // Completion events and async events raised and not withdrawn, ever: counted before they are pushed. destroy_cq waits until
  // comp_events_completed and async_events_completed, which count acks, are equal to them.
  std::atomic<uint32_t> unacked{0};
  std::atomic<uint32_t> unacked_async{0};
  // The entry that is polled next, whose turn is in the lowest byte: for whoever looks without `mutex`, under which it changes. Kept
  // here, and not beside the tail, so that who polls waits for no line but the entry's own.
  std::atomic<uintptr_t> next{0};
  CqEntry* entries{nullptr};
  uint32_t capacity{0};
  std::atomic<const uint8_t*> landings{nullptr};  // the ring of payloads; nullptr: there is none
  // ibv_start_poll: the entry that read_* look at.
  CqEntry* current{nullptr};
  bool polling_locked{false};
  uint32_t wc_flags{0};  // of create_cq_ex
  Pd* domain{nullptr};   // the parent domain that it was created with

  // The ring begins there. Then go_to() says where to poll.
  void poll_in(CqEntry* first, uint32_t count) {
    entries = first;
    capacity = count;
  }
  CqEntry& entry(uint32_t number) const { return entries[number & (capacity - 1)]; }
  // All before this number is polled.
  void go_to(uint32_t number) {
    shared->head.store(number, std::memory_order_release);
    next.store(reinterpret_cast<uintptr_t>(&entry(number)) | turn_of(number, capacity), std::memory_order_release);
  }
  // Whether the next entry may be there; under `mutex`: is there. False only when the queue was empty at a moment of the call: where
  // another thread has polled meanwhile, nobody knows.
  bool may_have_next() const {
    constexpr uintptr_t kTurn = 0xff;
    static_assert(sizeof(CqEntry) > kTurn);
    const uintptr_t looked_at = next.load(std::memory_order_acquire);
    const auto* at = reinterpret_cast<const CqEntry*>(looked_at & ~kTurn);
    return at->turn.load(std::memory_order_acquire) == static_cast<uint8_t>(looked_at) ||
           next.load(std::memory_order_acquire) != looked_at;
  }

  ibv_cq* base() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }
  static Cq* of(ibv_cq* cq) { return static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
};

struct Srq : ibv_srq {
  uint32_t index;
  SrqShared* shared;
  Mutex post_mutex;
  ibv_srq_type type;
  Cq* cq{nullptr};      // XRC
  Xrcd* xrcd{nullptr};  // XRC
  std::atomic<uint32_t> users{0};
  std::atomic<uint32_t> unacked_async{0};  // as in Cq; events_completed counts acks
  static Srq* of(ibv_srq* srq) { return static_cast<Srq*>(srq); }
};

struct Qp : ibv_qp_ex {
  uint32_t index;
  QpShared* shared;  // XRC target: in the hub
  Context* owner;
  Srq* own_srq{nullptr};
  Xrcd* xrcd{nullptr};  // XRC target
  ibv_qp_cap cap;
  bool sq_sig_all{false};
  bool target{false};  // XRC target, perhaps opened by ibv_open_qp
  ibv_qp_attr attr{};  // as last set: ibv_query_qp gives it back
  Mutex post_mutex;    // posters of receives
  Mutex sq_mutex;      // everything of the requester below
  SendQueue sq;
  // qp_ex: work requests between wr_start and wr_complete.
  std::mutex batch_mutex;  // from wr_start to wr_complete or wr_abort; taken before sq_mutex
  std::vector<std::byte> batch;
  size_t batch_last{0};  // where in it the last request begins
  int batch_error{0};
  std::atomic<uint32_t> unacked_async{0};  // as in Cq; events_completed counts acks
  void* given_ring{nullptr};               // of the send queue: its parent domain's allocator has it
  std::atomic<uint32_t> flows{0};          // rules of flow steering that name it
  // Of a target, under lookup_mutex(): the next handle of the same in this process, and what this one has seen of QpShared::events.
  Qp* next_handle{nullptr};
  uint32_t events_seen{0};

  ibv_qp* base() { return &qp_base; }
  static Qp* of(ibv_qp* qp) { return static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
};

// Tables of this process: from an index in shared memory to the object. Who looks one up and is not in a call of the user's
// on that very object (the engine does this) holds lookup_mutex() for as long as it uses the object. Pollers may instead look
// up QPs and SRQs under the Cq::mutex of a CQ that these complete to.
struct Tables {
  std::atomic<Qp*> qps[kQpsPerSlot];
  std::atomic<Cq*> cqs[kCqsPerSlot];
  std::atomic<Srq*> srqs[kSrqsPerSlot];
  // XRC targets that this process created or opened, by index in the hub: the first handle (Qp::next_handle).
  std::atomic<Qp*> targets[kQpsPerSlot];
  // QPs, CQs and SRQs have only ever been below these: who goes through all of them stops there.
  std::atomic<unsigned> qps_end;
  std::atomic<unsigned> cqs_end;
  std::atomic<unsigned> srqs_end;
};
Tables& tables();
// Adds a handle of a target to the table, behind those that are there; and takes it out.
void add_handle(Qp& target);
void remove_handle(Qp& target);
// Of a child that joins: the objects are its parent's.
void forget_tables();
// Makes `end` at least index + 1.
void reach(std::atomic<unsigned>& end, unsigned index);
std::mutex& lookup_mutex();

// Executes a request to bind a memory window (IBV_WR_BIND_MW). An ibv_wc_status. SendEntry::rkey is the lkey that the region
// to bind to had when the request was posted (0 without one): its ibv_mr may be gone by now and is not touched.
int bind_window(Qp& qp, const SendEntry& entry);
// Ends a type 2 window of that slot's owner: SEND with invalidate. `qpn` is the QP of the owner through which it is asked for; it
// has to be the one that the window was bound through. 0 or an errno.
int invalidate_key(Slot& slot, uint32_t pd, uint32_t qpn, uint32_t key);
// The same for a window of this process (IBV_WR_LOCAL_INV): no peer uses it any more when this returns.
int invalidate_own_key(const Qp& qp, uint32_t key);

// Raises an event on the QP's, CQ's, SRQ's, port's or device's context.
void raise(Qp& qp, ibv_event_type type);
void raise(Cq& cq, ibv_event_type type);
void raise(Srq& srq, ibv_event_type type);
void raise_port(Context& context, ibv_event_type type, unsigned port);
// All open contexts of this process.
void for_each_context(void (*each)(Context& context, void* argument), void* argument);

// Moves a QP along the state table, without the checks that keep users of an iWARP device from doing it themselves: the
// connection manager's way. 0 or an errno.
int modify_qp_internal(Qp& qp, const ibv_qp_attr& attr, int mask);

}  // namespace softhca
