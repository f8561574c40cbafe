// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The send queue of a QP, in its owner's private memory: a ring of work requests, executed in order by whoever holds
// Qp::sq_mutex: the thread that posts them, or the engine when one has to wait.
#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/layout.h"
#include "faults/kill_at.h"
#include "transport/send_ring.h"
#include "transport/short_route.h"

namespace softhca {

// Whether, and why, a request may not start yet.
enum : uint32_t {
  kNotDelayed = 0,
  kDelayed,  // Config::async_us
  kOnLink,   // link/link.h: it has not arrived, or its answer has not
};

// What a fault rule has decided about a request that is executed. It holds for every further try.
struct Fate {
  KillAt kill_at;  // where this process dies
  ibv_wc_status
      lost;  // how the request completes, since the responder's last answer does not arrive; IBV_WC_SUCCESS: it does
};

struct SendEntry {
  uint64_t wr_id;
  ibv_wr_opcode opcode;
  unsigned flags;        // ibv_send_flags
  uint32_t imm_or_rkey;  // immediate data in network order, or the key to invalidate
  uint32_t rkey;
  uint64_t remote_addr;
  uint64_t compare_add;
  uint64_t swap;
  uint32_t length;       // of all of `sge`, or inline bytes
  uint32_t remote_srqn;  // XRC
  // UD
  ibv_ah* ah;  // it exists until the request has completed
  uint32_t dest_port_id;
  uint32_t remote_qpn;
  uint32_t remote_qkey;
  uint16_t dlid_path_bits;
  uint8_t sl;
  uint8_t grh;  // 1: the message has a global header
  // IBV_WR_BIND_MW
  ibv_mw* mw;
  uint32_t mw_rkey;
  ibv_mw_bind_info bind;
  uint32_t num_sge;   // 0 with inline data
  uint32_t attempts;  // transport retries so far
  uint32_t rnr_attempts;
  uint32_t started;  // it was looked at before: delays and faults are decided once
  Fate fate;
  uint32_t delayed;  // kDelayed or kOnLink: it may not start, or complete, before `start_ns`
  uint64_t start_ns;
  uint64_t data[];  // num_sge x Sge, or inline bytes
};

// Why the first entry waits; the engine looks again at `wake_ns`.
enum class SendWait : uint8_t { None, Delayed, Rnr, Transport, Drained };

struct SendQueue {
  SendRing ring;
  uint32_t capacity{0};  // entries, a power of two
  uint32_t stride{0};    // bytes of an entry
  uint32_t max_inline{0};
  uint32_t max_sge{0};
  // Each only grows. [head, tail) is not executed yet; [reaped, head) is executed and still occupies an entry, until a
  // completion that retires it has been polled.
  uint32_t tail{0};
  uint32_t head{0};
  uint32_t unretired{0};            // executed without a completion since the last completion
  std::atomic<uint32_t> reaped{0};  // written by who polls
  uint32_t psn{0};
  SendWait wait{SendWait::None};
  uint64_t wake_ns{0};
  uint64_t scheduled_ns{UINT64_MAX};  // the engine's earliest timer for it
  bool flushed{false};                // entered ERR: IBV_EVENT_QP_LAST_WQE_REACHED was raised
  uint32_t posted{0};                 // posted: input of seeded delays
  // The destination, found when the QP was connected.
  Slot* peer{nullptr};
  unsigned peer_slot{0};
  uint32_t peer_incarnation{0};
  // Bits of opcodes that may take the short way (short_send.cc): none where something is set or done that is not for it.
  uint32_t short_opcodes{0};
  uint32_t short_bytes{0};  // the most of their payload
  ShortRoute route;
  uint32_t operations{0};  // executed: input of seeded decisions
  // The link (link/link.h). Of [reaped, head) the last `unanswered` are executed and not completed.
  bool linked{false};
  uint32_t unanswered{0};
  uint32_t departed{0};     // before it: they are on their way, or have been
  uint64_t arrives_ns{0};   // when the latest of them arrives
  uint64_t answered_ns{0};  // when the latest answer comes

  SendEntry& at(uint32_t n) { return *reinterpret_cast<SendEntry*>(ring.get() + size_t{n & (capacity - 1)} * stride); }
};

}  // namespace softhca
