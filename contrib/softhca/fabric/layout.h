// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What lies in the shared file: one file per fabric, divided into slots of equal size. Slot 0, the hub, belongs to nobody: it
// has what outlives a process. Every other slot belongs to one process at a time, its owner, and has the objects that others
// reach over the "wire": queue pairs, completion queues, receive queues, memory regions, mail.
//
// Rules that keep every process safe from the death of any other, at any instant:
//  - Who writes a field is said beside it. "peers" are processes that send to the owner.
//  - What a RobustLock guards becomes valid with one store, the last one. Who takes a lock over from a dead holder therefore
//    finds a consistent object and at worst misses that holder's last step.
//  - Offsets, never pointers. Whoever reads an index or an offset of another process checks it (Fabric::at).
//
// Nothing here has a constructor that runs: all of it is valid when it is zero.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/qp_state.h"
#include "fabric/robust_lock.h"
#include "fabric/traffic.h"

namespace softhca {

static_assert(sizeof(void*) == 8,
              "softhca needs 64 bits: every process maps slots of 256 MiB, as many as it has peers");

// A QP number has 24 bits: the slot above, the index in the slot's table below.
constexpr unsigned kSlots = 1024;
constexpr unsigned kQpIndexBits = 14;
constexpr unsigned kQpsPerSlot = 1U << kQpIndexBits;
constexpr unsigned kCqsPerSlot = 4096;
constexpr unsigned kSrqsPerSlot = 4096;
constexpr unsigned kMrIndexBits = 18;  // a key is the index << 8 | 8 variable bits
constexpr unsigned kMrsPerSlot = 1U << kMrIndexBits;
constexpr size_t kSlotBytes = size_t{256} << 20;
constexpr unsigned kHubSlot = 0;

constexpr uint32_t qpn_of(unsigned slot, unsigned index) {
  return slot << kQpIndexBits | index;
}
constexpr unsigned slot_of_qpn(uint32_t qpn) {
  return (qpn & 0xffffff) >> kQpIndexBits;
}
constexpr unsigned index_of_qpn(uint32_t qpn) {
  return qpn & (kQpsPerSlot - 1);
}
// To whom messages for a multicast group are addressed: no queue pair has it.
constexpr uint32_t kMulticastQpn = 0xffffff;
// An SRQ number (XRC) likewise, with its own table.
constexpr uint32_t srqn_of(unsigned slot, unsigned index) {
  return qpn_of(slot, index);
}

// A set of small numbers that any process may add to and the owner empties.
template <unsigned kCount>
struct PendingSet {
  std::atomic<uint64_t> words[kCount / 64];

  void add(unsigned n) { words[n / 64].fetch_or(uint64_t{1} << n % 64, std::memory_order_seq_cst); }

  template <typename F>
  void drain(F&& each) {
    for (unsigned w = 0; w < kCount / 64; ++w) {
      if (words[w].load(std::memory_order_relaxed) == 0) continue;
      for (uint64_t bits = words[w].exchange(0, std::memory_order_seq_cst); bits != 0; bits &= bits - 1)
        each(w * 64 + static_cast<unsigned>(__builtin_ctzll(bits)));
    }
  }
};

// --- Receive queues: the RQ of a QP, or an SRQ

// Work requests lie in a ring: `posted` and `taken` only grow, the entry of n is n & (capacity - 1). Between them is what a
// sender can take. The owner posts (under a lock of its own process); who takes holds `lock`.
struct RecvRing {
  alignas(64) std::atomic<uint32_t> posted;  // owner
  uint32_t capacity;                         // entries, a power of two; 0: there is no queue
  uint32_t max_wr;                           // what the user was given: at most so many posted and not taken
  uint32_t max_sge;
  uint32_t stride;  // bytes of an entry: sizeof(RecvEntry) + max_sge * sizeof(Sge), a multiple of 16
  // A `taken` of before, by which the owner posts, so that the takers' line is seldom looked at. Who puts a request back (who holds
  // `lock`) corrects it.
  std::atomic<uint32_t> taken_seen;
  uint64_t offset;  // of the ring, in the owner's slot
  alignas(64) RobustLock lock;
  std::atomic<uint32_t> taken;  // who holds `lock`
  // Of an SRQ: who holds the lock, while it takes a request for a QP of this slot or puts it back: the request's number << 32 |
  // that QP's index + 1; else 0. If it dies, the next to hold the lock sees from `taken` whether the QP has it.
  std::atomic<uint64_t> taking;
};

struct Sge {  // as ibv_sge
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct RecvEntry {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;
  Sge sge[];
};

// --- Completion queues

// Payload of up to kLandingBytes travels inside the completion, and of up to kMostLanded through a ring of the completion
// queue (transport/landing.h) while there is room. It is copied into the receive buffer when it is polled, or when the buffer
// is deregistered before: that costs no system call.
constexpr unsigned kLandingBytes = 192;
constexpr unsigned kMostLanded = 8192 + 256;  // a message of 8 KiB, with the headers of who sends it
constexpr uint64_t kLandingRingBytes = 256 << 10;
constexpr uint64_t kLandingLine = 64;  // payloads begin at multiples of it
static_assert(kMostLanded / kLandingLine < UINT8_MAX);

struct LandingRing {
  uint64_t offset;      // in the owner's slot; 0: there is no ring
  uint64_t end;         // who holds the queue's lock: the next payload's position, which only grows
  uint64_t freed_seen;  // who holds the lock: a CqShared::landings_freed of before
};

struct CqEntry {
  uint64_t wr_id;
  uint64_t landing_addr;  // where the payload in `landing` belongs, in the owner's memory
  uint64_t timestamp_ns;  // CLOCK_MONOTONIC
  uint32_t byte_len;
  uint32_t qp_num;
  uint32_t src_qp;
  uint32_t imm_or_rkey;  // immediate data in network order, or the invalidated key
  uint32_t srqn;         // XRC: whose request this completes
  uint16_t landing_len;
  uint16_t slid;
  uint16_t pkey_index;
  uint16_t retires;  // entries of the send queue that are free again when this is polled; 0 on receive completions
  uint8_t status;    // ibv_wc_status
  uint8_t opcode;    // ibv_wc_opcode (its receive bit is kept as kRecvOpcode below)
  uint8_t wc_flags;
  uint8_t sl;
  uint32_t
      line;  // of the ring, if the payload is there: where it begins, as a position (transport/landing.h) / kLandingLine
  uint8_t lines;  // that it takes there; 0: it is in `landing`
  uint8_t solicited;
  uint8_t reserved;
  std::atomic<uint8_t> turn;  // last: whose turn it is (turn_of)
  alignas(64) uint8_t landing[kLandingBytes];
};
static_assert(sizeof(CqEntry) == 256);
// Entries are numbered, and that of number n lies in the ring at n & (capacity - 1). It is there when `turn` says so: who polls looks
// at nothing else, so that one cache line travels, and all that a message needs is in it or behind it. Every time round the ring
// is another turn, with 128 of them; 0 is what memory begins with, and nobody's. A ring has at most 2^24 entries, so that numbers
// may wrap.
constexpr uint8_t turn_of(uint32_t number, uint32_t capacity) {
  return static_cast<uint8_t>(number >> __builtin_ctz(capacity) | 0x80);
}
constexpr uint8_t kRecvOpcode = 0x80;  // IBV_WC_RECV is 1 << 7: opcodes of receive completions have this bit

enum CqArm : uint32_t { kCqIdle = 0, kCqArmedSolicited = 1, kCqArmed = 2, kCqFired = 3 };  // fired: the event is due

constexpr uint32_t kNoQp = kQpsPerSlot + 1;  // in CqShared::adding
// But for the last line, all of it is for those who add entries: the owner has what it polls by in its own memory (struct Cq).
struct alignas(128) CqShared {
  RobustLock lock;  // held to add an entry, to resize, to destroy
  // Who holds the lock, while it adds the entry of a request that it has taken: `tail` of before << 32 | the index + 1 of the QP of
  // this slot that the request was taken from, or kNoQp if that is in the hub; else 0. If it dies, the next to hold the lock sees from
  // this, and from the entry's turn, whether the entry is there.
  std::atomic<uint64_t> adding;
  std::atomic<uint32_t> overrun;  // 1: an entry was lost; 2: and the owner was told
  uint32_t head_seen;             // who holds the lock: a head of before, so that the owner's is seldom looked at
  // Who holds the lock: the number of the next entry. `head` may be one more for a moment, when an entry that is there has been
  // polled already.
  std::atomic<uint32_t> tail;
  alignas(64) std::atomic<uint32_t> in_use;  // owner; who adds an entry checks it under the lock
  uint32_t capacity;                         // entries of the ring, a power of two
  uint32_t cqe;                              // what the user was given: more entries than this is an overrun
  uint64_t offset;                           // of the ring, in the owner's slot
  std::atomic<uint32_t> armed;               // CqArm: owner sets, who adds an entry fires it
  uint32_t stamped;                          // owner: 1: entries have a time
  alignas(64) LandingRing landings;
  alignas(64) std::atomic<uint32_t> head;  // owner
  std::atomic<uint64_t> landings_freed;    // owner: the position up to which the ring is free again
};

// --- Queue pairs

enum QpEventBits : uint32_t {  // what peers, or this process's own data path, want the owner's engine to do
  kQpFlush = 1 << 0,           // the responder failed: `state` is IBV_QPS_ERR already; flush both queues
  kQpAccessErr = 1 << 1,       // raise IBV_EVENT_QP_ACCESS_ERR
  kQpReqErr = 1 << 2,          // raise IBV_EVENT_QP_REQ_ERR
  kQpFatal = 1 << 3,           // raise IBV_EVENT_QP_FATAL
  kQpCommEst = 1 << 4,         // raise IBV_EVENT_COMM_EST: a message came in RTR
  kQpKick = 1 << 5,            // look at the send queue again
};
// An XRC target has many owners, and every handle of it is to raise its events: so its bits stay until it is reset. Above them is how
// often that has happened, by which a handle knows whether it has seen these.
constexpr uint32_t kQpEventMask = 0xff;

// The half of a QP that peers see. The owner writes all of it under `lock`, which a peer holds while it executes one
// message: to hold it is to have the QP stand still.
// First what seldom changes, then what peers write with every message, then the RQ: no cache line is written by both sides.
struct alignas(256) QpShared {
  std::atomic<uint32_t> qp_num;  // 0: no such QP
  uint32_t type;                 // ibv_qp_type
  // A peer that meets an error writes IBV_QPS_ERR. The owner changes what is above and below, to `srq`, before a store to this, all
  // under `lock`.
  QpState state;
  uint32_t port_id;       // PortId, where this QP is reachable (from INIT on)
  uint32_t dest_port_id;  // connected types: where it accepts messages from (from RTR on)
  uint32_t dest_qpn;      // connected types: from whom
  uint32_t pd;
  uint32_t access;  // ibv_access_flags of qp_access_flags
  uint32_t qkey;    // UD
  uint16_t pkey_index;
  uint16_t pkey;
  uint8_t min_rnr_timer;
  uint8_t max_dest_rd_atomic;
  uint8_t path_mtu;              // ibv_mtu
  uint8_t comm_established;      // peers: a message has arrived
  uint32_t recv_cq;              // index in the slot
  uint32_t srq;                  // index in the slot + 1; 0: it has an RQ of its own
  std::atomic<uint32_t> events;  // QpEventBits
  // iWARP: 1 on the passive side until something has arrived: it must not send before. Written by both.
  std::atomic<uint32_t> must_wait;
  alignas(64) RobustLock lock;
  std::atomic<uint32_t> expected_psn;  // peers, 24 bits: the next packet's
  Traffic arrived;                     // peers, under the lock: messages executed, ever
  // A receive request that a peer has taken and not completed: its number in the ring << 1 | 1; 0: none. It is flushed with
  // the rest when that peer dies.
  std::atomic<uint32_t> taken_valid;
  uint64_t taken_wr_id;
  uint32_t creator;  // XRC target: slot | incarnation << 16 of who made it
  uint32_t xrcd;     // XRC target: index in the hub
  RecvRing rq;
};
static_assert(sizeof(QpShared) == 256);

// Of a limit: fewer are left, and the owner is to raise the event. One store says so, or that there is another limit.
constexpr uint32_t kLimitFired = 1U << 31;
struct alignas(128) SrqShared {
  std::atomic<uint32_t> in_use;  // owner
  uint32_t pd;
  uint32_t xrcd;                // hub index + 1, 0: basic
  uint32_t cq;                  // XRC: index in the slot + 1
  std::atomic<uint32_t> limit;  // raise the event when fewer are left: who takes adds kLimitFired, the owner stores 0
  std::atomic<uint32_t> error;
  RecvRing ring;
};

// --- Memory regions and windows

// `key` is written last when one is made and cleared first when it goes. A peer reads the rest only under the lock of one of
// the owner's QPs, and the owner waits for every such lock to be released once before memory may be used otherwise. Mostly that
// is the lock of no QP or of one: `users` says which (transport/keys.h).
constexpr uint32_t kManyQps = UINT32_MAX;
struct alignas(64) MrEntry {  // by a power of two, its place takes fewer steps to find
  std::atomic<uint32_t> key;  // 0: none
  uint32_t pd;
  uint32_t access;  // ibv_access_flags
  uint32_t qpn;     // type 2B window: the only QP that may use it; 0: any
  uint64_t iova;    // the address that remote work requests give for `addr`
  uint64_t length;
  uint64_t addr;
  std::atomic<uint32_t> users;  // peers: index + 1 of the owner's QP that they came through; kManyQps; 0: none has come
  std::atomic<uint32_t> windows;  // region: windows that the owner has bound to it and not unbound
  uint32_t region;                // window: index of its region, which counts it; 0: it is not bound, or a region
};
static_assert(sizeof(MrEntry) == 64);

// --- Mail: what the connection managers say to each other

constexpr unsigned kMailSlots = 256;
constexpr unsigned kMailBytes = 480;

struct Mail {
  uint32_t length;
  uint16_t from_slot;
  uint16_t from_incarnation;
  uint8_t bytes[kMailBytes];
};

// A full box loses mail, as a network does: senders repeat.
struct Mailbox {
  RobustLock lock;             // senders
  std::atomic<uint32_t> head;  // owner
  std::atomic<uint32_t> tail;  // who holds the lock
  Mail mail[kMailSlots];
};

// --- Copies by the target, where process_vm_readv is forbidden

enum CopyState : uint32_t { kCopyFree = 0, kCopyFilling, kCopyAsked, kCopyRunning, kCopyDone, kCopyFault };

struct CopyRequest {
  std::atomic<uint32_t> state;  // CopyState
  RobustLock lock;              // the initiator, as long as the request is its
  RobustLock::Stamp asker;      // the initiator: what it has asked for when it died is not done
  uint32_t to_target;           // 1: from the file into the target's memory
  uint32_t length;
  uint64_t file_offset;  // the initiator's bounce buffer
  uint64_t addr;         // in the target
};
constexpr unsigned kCopyRequests = 64;
enum CopierState : uint32_t { kNoCopier = 0, kCopierAwake, kCopierAsleep };

// --- Slots

enum AttentionBits : uint32_t {  // what the owner's engine shall look at
  kLookCqs = 1 << 0,
  kLookQps = 1 << 1,
  kLookSrqs = 1 << 2,
  kLookMail = 1 << 3,
  kLookCopies = 1 << 4,
  kLookPorts = 1 << 5,   // the hub's port table changed
  kLookFaults = 1 << 6,  // the fault rules changed
  kLookVisitors = 1 << 7,
};

struct SlotHeader {
  std::atomic<uint64_t> magic;          // kLayoutMagic (fabric/layout_magic.h)
  std::atomic<uint64_t> pid_namespace;  // of all owners; in slot 0
  std::atomic<uint32_t> incarnation;    // 16 bits, grows with every owner
  std::atomic<uint32_t> in_use;         // 1 from join to leave
  std::atomic<int32_t> pid;
  uint32_t node;                           // virtual node
  std::atomic<uint32_t> dead;              // = incarnation once someone has seen that the owner died
  std::atomic<uint32_t> can_copy;          // 1: process_vm_* works on this process; 2: it does not; 0: not tried
  std::atomic<uint32_t> life;              // the kernel marks it when the owner ends (fabric/life_mark.h)
  std::atomic<uint32_t> counted;           // 1: Hub::live has it in its number
  alignas(64) std::atomic<uint32_t> bell;  // futex: the engine sleeps on it
  std::atomic<uint32_t> asleep;            // the engine is about to sleep, or does
  std::atomic<uint32_t> attention;         // AttentionBits
  alignas(64) RobustLock atomics;          // atomic operations on the owner's memory
  alignas(64) std::atomic<uint32_t> copies_asked;  // grows with every CopyRequest; futex of the thread that serves them
  std::atomic<uint32_t> copier;                    // CopierState of that thread
  Traffic past;                                    // owner: QpShared::arrived of queue pairs that were destroyed
};

struct Slot {
  SlotHeader header;
  PendingSet<kCqsPerSlot> cq_events;
  PendingSet<kQpsPerSlot> qp_events;
  PendingSet<kSrqsPerSlot> srq_events;
  PendingSet<kSlots> visitors;  // who sends here without a connection: the owner is to watch them
  CopyRequest copies[kCopyRequests];
  Mailbox mailbox;
  alignas(4096) CqShared cqs[kCqsPerSlot];
  alignas(4096) SrqShared srqs[kSrqsPerSlot];
  alignas(4096) QpShared qps[kQpsPerSlot];
  alignas(4096)
      OwnTraffic sent[kQpsPerSlot];  // owner: what requests of these queue pairs have moved, and earlier ones'
  alignas(4096) MrEntry mrs[kMrsPerSlot];
  alignas(4096) uint8_t arena[];  // up to kSlotBytes
};
static_assert(offsetof(Slot, arena) < kSlotBytes / 2);

// --- The hub: in the arena of slot 0, which is a slot without an owner; XRC target QPs are in its QP table

constexpr unsigned kMaxNodes = 64;
constexpr unsigned kMaxDevices = 4;
constexpr unsigned kMaxPorts = 2;
constexpr unsigned kMaxXrcds = 256;
constexpr unsigned kMaxTargets = 4096;
constexpr unsigned kMaxListeners = 32768;

// A port of a device of a node, as one number that is never 0.
constexpr uint32_t port_id_of(unsigned node, unsigned device, unsigned port) {
  return 1 + (node * kMaxDevices + device) * kMaxPorts + (port - 1);
}
constexpr unsigned kPortIds = 1 + kMaxNodes * kMaxDevices * kMaxPorts;
constexpr unsigned node_of_port_id(uint32_t id) {
  return (id - 1) / (kMaxDevices * kMaxPorts);
}
constexpr unsigned device_of_port_id(uint32_t id) {
  return (id - 1) / kMaxPorts % kMaxDevices;
}
constexpr unsigned port_of_port_id(uint32_t id) {
  return (id - 1) % kMaxPorts + 1;
}

// What softhca-ctl changes while programs run. `changes` grows last; an engine compares it with what it saw before and raises
// the events.
struct alignas(64) PortShared {
  std::atomic<uint32_t> changes;
  std::atomic<uint32_t> down;          // 1: the link is down
  std::atomic<uint32_t> lid_offset;    // added to the LID
  std::atomic<uint32_t> gid_salt;      // mixed into the GIDs
  std::atomic<uint32_t> device_fatal;  // grows with every fatal error of the device
  // The link (link/wire.h), where it has a bandwidth: until when each direction is taken. Fabric::now_ns.
  std::atomic<uint64_t> sends_until_ns;
  std::atomic<uint64_t> receives_until_ns;
};

struct XrcdShared {
  RobustLock lock;
  uint64_t device;  // st_dev, st_ino of its file; 0, 0 and `anonymous` for a domain without one
  uint64_t inode;
  uint32_t anonymous;
  uint32_t port_device;                     // node * kMaxDevices + device
  std::atomic<uint64_t> open[kSlots / 64];  // slots that have it open
  std::atomic<uint32_t> incarnations[kSlots];
  std::atomic<uint32_t> in_use;
};

// A port number that somebody has bound. The connection manager guards the table with `listeners_lock`.
struct CmListener {
  std::atomic<uint32_t> in_use;  // 0 free, 1 bound, 2 listening
  uint32_t slot;                 // the owner, and its incarnation
  uint32_t incarnation;
  uint32_t id;       // of the owner's rdma_cm_id, in its own table
  uint32_t port_id;  // 0: any port of the node
  uint32_t node;
  uint16_t port_space;
  uint16_t port;        // host order; sib_sid's low bits for AF_IB
  uint16_t flags;       // cm/listeners.h
  uint8_t address[16];  // bound IP address or GID; zero: any
};

// --- Flow steering: which frames raw packet QPs get (transport/raw_packet.cc)

// What a rule can look at, as it is on the wire. Only bytes: two are compared through a third, the mask.
struct PacketKey {
  uint8_t dst_mac[6];
  uint8_t src_mac[6];
  uint8_t ether_type[2];  // behind a VLAN tag
  uint8_t vlan[2];        // 0: no tag
  uint8_t ip;             // 4, 6, or 0
  uint8_t src_ip[16];     // of IPv4 the first four bytes
  uint8_t dst_ip[16];
  uint8_t flow_label[4];
  uint8_t protocol;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t transport;  // IPPROTO_TCP, IPPROTO_UDP, or 0
  uint8_t src_port[2];
  uint8_t dst_port[2];
};

// A rule of a port. The lowest rank that matches a frame decides who gets it, sniffers get it too.
constexpr uint32_t kRankOfSniffers = UINT32_MAX;
struct FlowShared {
  std::atomic<uint32_t> in_use;
  uint32_t slot;  // the owner, and its incarnation
  uint32_t incarnation;
  uint32_t qpn;  // 0: nobody gets it
  uint32_t port_id;
  uint32_t rank;
  PacketKey value;
  PacketKey mask;
};
constexpr unsigned kMaxFlows = 1024;

// --- Multicast: a datagram QP that is attached to a group (transport/multicast.cc)

struct GroupMember {
  std::atomic<uint32_t> in_use;
  uint32_t slot;  // the owner, and its incarnation
  uint32_t incarnation;
  uint32_t qpn;
  uint8_t group[16];  // its GID
};
constexpr unsigned kMaxGroupMembers = 4096;

struct Hub {
  std::atomic<uint32_t> next_slot;       // where to begin the search for a free slot
  std::atomic<uint32_t> live;            // processes that have joined: how soon an idle poll yields
  std::atomic<uint32_t> faults_version;  // grows when the file `faults` was rewritten
  std::atomic<uint32_t> next_cm_port;
  PortShared ports[kPortIds];
  RobustLock xrcds_lock;
  XrcdShared xrcds[kMaxXrcds];
  // Who has each XRC target QP open, by its index in slot 0's QP table.
  RobustLock targets_lock;
  std::atomic<uint32_t> targets_end;  // targets below this index have been made, ever
  struct TargetUsers {
    std::atomic<uint64_t> open[kSlots / 64];
  } target_users[kMaxTargets];
  RobustLock listeners_lock;
  std::atomic<uint32_t> listeners_end;  // entries from here on have never been used
  CmListener listeners[kMaxListeners];
  RobustLock flows_lock;
  std::atomic<uint32_t> flows_end;  // as of listeners
  FlowShared flows[kMaxFlows];
  RobustLock groups_lock;
  std::atomic<uint32_t> groups_end;  // as of listeners
  GroupMember groups[kMaxGroupMembers];
};
static_assert(offsetof(Slot, arena) + sizeof(Hub) < kSlotBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace softhca
