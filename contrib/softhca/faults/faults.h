// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Faults by rule. The file `faults` in $SOFTHCA_DIR has one rule a line; softhca-ctl rewrites it while programs run (the
// hub's faults_version then grows, and engines reread it). Its grammar is in faults.cc, once, as a table.
//
//   drop   [match...]              the message is lost; the transport tries again, and a try may be lost again
//   lose   [match...]              the message is lost, and completes as if it had arrived: as by a device with a fault
//   delay  us=N [match...]         it is executed N microseconds later
//   rnr    [match...]              the responder says "not ready"
//   error  status=NAME [match...]  the request completes with this ibv_wc_status, and the QP fails; with executed=yes the peer has it
//   fail   call=NAME errno=NAME [match...]   a verbs or rdma_cm call fails (ibv_create_qp, ibv_reg_mr, rdma_connect, ...)
//   cm     action=reject|silence [match...]  connection requests
//   kill   [at=WHEN] [match...]    the process that executes it dies (SIGKILL): before it, in the middle of it, or while it
//                                  completes the receive request (at=completing: the completion is not there yet; at=completed)
// match: op=send|write|read|atomic|any qpn=N node=N device=N port=N slot=N nth=N (only the n-th match, from 1) every=N
//        count=N prob=P (0..1, seeded by seed=N and the order of operations, so that a run can be repeated) min_bytes=N
#include <cstdint>
#include <string>

#include "faults/kill_at.h"
#include "verbs/objects.h"

namespace softhca::faults {

struct Verdict {
  enum Action : uint8_t { None, Drop, Lose, Delay, Rnr, Error, Kill } action = None;
  uint32_t delay_us = 0;
  KillAt kill_at = KillAt::Nowhere;
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool executed = false;  // of Error: it was, and only the answer is lost
};

// Whether there is any rule: one load on the packet path.
extern std::atomic<bool> active;

// Asked for every work request when it is first looked at, and again for every further try of one that was lost or not
// received because of a rule.
Verdict on_request(Qp& qp, const SendEntry& entry);

// 0, or the errno with which this call shall fail.
int on_call(const char* name);
#define SOFTHCA_FAULTY(name) \
  (::softhca::faults::active.load(std::memory_order_relaxed) ? ::softhca::faults::on_call(name) : 0)

enum class CmVerdict : uint8_t { None, Reject, Silence };
CmVerdict on_connect_request();

// Reads the rules; Config::loss is as many more of them. Errors are one line each, "line N: ..."; empty when all is well. At join, and when the version has grown.
std::string load(Fabric& fabric);
// The same for a text, without a fabric: for tests and softhca-ctl, which refuses to install bad rules.
std::string check(const std::string& text);

}  // namespace softhca::faults
