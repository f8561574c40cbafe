// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The private half of rdma_cm_id, events and event channels, and what all calls of the connection manager have in
// common.
//
// One lock, Manager::mutex, guards all of it: user threads and the engine take it for steps that never wait. The order
// is: Manager::mutex, lookup_mutex(), then the locks of verbs/objects.h. The engine calls mail, death and timer
// functions without any lock.
#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "cm/wire.h"
#include "fabric/fabric.h"
#include "faults/faults.h"
#include "verbs/event_fd.h"
#include "verbs/export.h"

namespace softhca::cm {

// Events that rdma_cma.h has since rdma-core 57.
constexpr int kAddrInfoResolved = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1;
constexpr int kAddrInfoError = RDMA_CM_EVENT_TIMEWAIT_EXIT + 2;
constexpr int kUserEvent = RDMA_CM_EVENT_TIMEWAIT_EXIT + 3;

enum class State : uint8_t {
  Idle,
  Bound,
  AddrQuery,
  AddrResolved,
  RouteQuery,
  RouteResolved,
  Listening,
  Connecting,  // active: the request is out
  Responded,   // active: it was accepted; the program has to take the event for the connection to stand
  Requested,   // passive: the program has to accept or reject
  Accepted,    // passive: the acceptance is out
  Connected,
  Disconnecting,  // our DREQ is out
  Disconnected,   // the peer's DREQ has come, the program knows it; rdma_disconnect will send DREP
  Closed,
  Failed,  // rejected, unreachable: it can only be destroyed
};

struct Id;

struct Event : rdma_cm_event {
  Id* owner;        // destroying it waits for the acknowledgement: `id`, or the listener of a request
  uint32_t number;  // of `id`, which the program may destroy before it acknowledges a request: find_id says
  bool response;    // the peer has accepted: rdma_get_cm_event connects the QP
  uint8_t data[kMaxPrivate];
};

struct Channel : rdma_event_channel {
  EventFd<Event*> queue;
  Fabric* fabric = Fabric::get();  // of who made it: a child has another, or none
};

// Who a peer is: slot << 48 | 16 bits of incarnation << 32 | number of its id.
constexpr uint64_t peer_key(unsigned slot, uint32_t incarnation, uint32_t id) {
  return uint64_t{slot} << 48 | uint64_t{incarnation & 0xffff} << 32 | id;
}

// Of a multicast group.
struct Membership {
  sockaddr_storage address;
  ibv_gid group;
  bool attached;  // the queue pair of the id is
};

struct Id : rdma_cm_id {
  // librdmacm's own functions (rsocket) look for their device in the word after rdma_cm_id. There is none.
  void* nothing;
  uint32_t number;  // never 0, never used again by this process
  Fabric* fabric;   // as of a channel
  State state;
  bool sync;    // `own_channel` is its channel, and calls wait for their event
  Channel* on;  // where its events go; nullptr: the channel was destroyed
  std::unique_ptr<Channel> own_channel;
  uint32_t unacked;    // events in the channel or with the user
  uint32_t delivered;  // of these, with the user

  uint32_t port_id;  // the local port; 0: not bound to one
  uint32_t peer_port_id;
  uint16_t service_space;  // port space of the service, which AF_IB addresses can change
  int listener;            // index of our entry in Hub::listeners, -1: none
  uint16_t listen_flags;   // ListenerFlags
  int backlog;
  int requests;  // that nobody has read
  uint8_t tos;
  uint8_t ack_timeout;  // 0: the default

  unsigned peer_slot;  // 0: no peer yet
  uint32_t peer_incarnation;
  uint32_t peer_id;
  uint32_t local_qpn, remote_qpn;
  uint32_t local_psn, remote_psn;
  uint8_t path_mtu;
  uint8_t responder_resources;  // of this side, as given to the QP
  uint8_t initiator_depth;
  uint8_t retry_count, rnr_retry_count;
  uint32_t qkey;

  Message sent;  // what is repeated until it is answered
  unsigned tries;
  unsigned looks;       // for a listener
  uint64_t timer;       // of engine::call_at, 0: none
  uint32_t timer_turn;  // timers of earlier turns are void

  ibv_sa_path_rec path;
  bool default_xrcd;
  // rdma_create_ep on the passive side: the QP of each request.
  std::unique_ptr<ibv_qp_init_attr> request_qp;
  std::vector<uint8_t> connect_data;  // rdma_addrinfo::ai_connect: goes before the user's private data
  rdma_addrinfo* resolved;            // rdma_resolve_addrinfo
  ibv_ece local_ece;
  std::vector<Membership> memberships;

  sockaddr* src() { return &route.addr.src_addr; }
  sockaddr* dst() { return &route.addr.dst_addr; }
  static Id* of(rdma_cm_id* id) { return static_cast<Id*>(id); }
};

struct Manager {
  std::mutex mutex;
  std::condition_variable acked;
  std::unordered_map<uint32_t, Id*> ids;      // by number
  std::unordered_map<uint64_t, Id*> by_peer;  // by peer_key, from the moment that the peer's id is known
  uint32_t next_number = 1;
  struct OpenDevice {
    ibv_context* context;
    ibv_pd* pd;  // the default ones: the PD made with the first id that is bound, the domain on first need
    ibv_xrcd* xrcd;
    uint8_t max_rd_atom, max_init_rd_atom;
  };
  std::vector<OpenDevice> devices;  // by index; never closed
};
Manager& manager();
using Lock = std::unique_lock<std::mutex>;

// Joins the fabric and opens the devices, on the first call. 0 or an errno.
int start();
inline Fabric& fabric() {
  return *Fabric::get();
}
inline bool iwarp() {
  return fabric().config().personality == Personality::Iwarp;
}
inline bool datagram(const Id& id) {
  return id.qp_type == IBV_QPT_UD;
}
Manager::OpenDevice* device_of(const Id& id);  // nullptr: it is not bound to one

// The process that an object belongs to, if there is one.
inline Fabric* owner_of(const rdma_cm_id* id) {
  return id != nullptr ? static_cast<const Id*>(id)->fabric : Fabric::get();
}
inline Fabric* owner_of(const rdma_event_channel* channel) {
  return channel != nullptr ? static_cast<const Channel*>(channel)->fabric : Fabric::get();
}
// Whether it may be used: not in a child.
template <typename Object>
bool is_own(const Object* object) {
  return Fabric::get() != nullptr && owner_of(object) == Fabric::get();
}

// The frame of all exported functions that are about an object: `call` gives 0 or an errno.
template <typename Object, typename F>
int api(const char* name, const Object* object, F call) {
  int error = is_own(object) ? 0 : EPERM;
  if (error == 0) error = SOFTHCA_FAULTY(name);
  if (error == 0) {
    try {
      error = call();
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  }
  if (error == 0) return 0;
  errno = error;
  return -1;
}
// The same of others.
template <typename F>
int api(const char* name, F call) {
  return api(name, static_cast<const rdma_cm_id*>(nullptr), call);
}

// --- Ids (the lock is held, except where said otherwise)

// On `channel`, or with nullptr on one of its own (synchronous). nullptr, errno EMFILE: there is no descriptor;
// bad_alloc.
Id* make_id(Channel* channel, void* context, rdma_port_space ps, ibv_qp_type type);
// Not held: it waits for the acknowledgement of events.
void destroy_id(Id& id);
// Tells the peer that this id goes away, whatever state it is in.
void say_goodbye(Id& id);
Id* find_id(uint32_t number);
Id* find_peer(unsigned slot, uint32_t incarnation, uint32_t number);
void set_peer(Id& id, unsigned slot, uint32_t incarnation, uint32_t number);
// The protection domain that ids have which were given none. nullptr, errno: there is no more.
ibv_pd* default_pd(Manager::OpenDevice& device);
// Binds it to a port of the fabric: verbs, PD, port_num, GID.
void bind_to_port(Id& id, uint32_t port_id);
uint32_t random_psn();

// --- Timers: one per id (held)

void arm(Id& id, uint64_t after_ns, void (*expired)(Id& id));
void disarm(Id& id);

// --- Events

std::unique_ptr<Event> make_event(Id& id, int type, int status = 0);
void push(std::unique_ptr<Event> event);  // held
void push(Id& id, int type, int status = 0);
// Not held: waits for the next event of a channel. 0 or an errno.
int next_event(Channel& channel, Event** event);
void acknowledge(Event* event);
// Takes the events of an id that nobody has read out of its channel (held).
std::vector<std::unique_ptr<Event>> withdraw(Id& id);
// A synchronous id waits for the event of the call that was just made; for others, 0. Not held.
int complete(Id& id);

// --- Messages (held)

Message message_to_peer(Id& id, Kind kind);
void send_to(unsigned slot, uint32_t incarnation, const Message& m);
inline void send_to_peer(Id& id, const Message& m) {
  send_to(id.peer_slot, id.peer_incarnation, m);
}
void set_private_data(Message& m, const void* data, size_t length);
// Sends it again and again, until disarm() or the last try, which ends in timed_out().
void send_and_repeat(Id& id, const Message& m);
void expect_answer(Id& id);  // or send it again, after a while
void reject_request(Fabric& fabric, const Message& request, unsigned slot, uint16_t reason);

// What the engine calls.
void on_mail();
void on_death(unsigned slot, uint32_t incarnation);
void handle(Fabric& fabric, const Message& m, unsigned slot, uint32_t incarnation);
void handle_request(Fabric& fabric, const Message& m, unsigned slot, uint32_t incarnation);
void handle_sidr_reply(Id& id, const Message& m);

// --- Connections (held)

void send_request(Id& id);                // Req or SidrReq, `id.sent`, to who listens there
void timed_out(Id& id);                   // the last try was not answered
void end_connection(Id& id, int status);  // DISCONNECTED, once
void fail_connection(Id& id, rdma_cm_event_type type, int status, const Message* m = nullptr);
void enter_timewait(Id& id);
int accept_datagram(Id& id, const rdma_conn_param* param);

// --- QPs (held)

// As rdma_init_qp_attr.
int init_qp_attr(Id& id, ibv_qp_attr* attr, int* mask);
void fill_address_vector(Id& id, ibv_ah_attr* ah);
// Moves the connected QP, if there is one that is ours to move, to RTS; or to ERR. 0 or an errno.
int connect_qp(Id& id);
void fail_qp(Id& id);
// Not held. What rdma_create_qp does.
int create_qp(Id& id, ibv_pd* pd, ibv_qp_init_attr* attr);
int create_qp_ex(Id& id, ibv_qp_init_attr_ex* attr);
void destroy_qp(Id& id);

// --- Steps that calls share. bind, resolve: 0 or an errno; not held, and they wait for nothing.

int bind_address(Id& id, const sockaddr* address);
int resolve_address(Id& id, const sockaddr* src, const sockaddr* dst, int timeout_ms);
int resolve_route(Id& id, int timeout_ms);

}  // namespace softhca::cm
