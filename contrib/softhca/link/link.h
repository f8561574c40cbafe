// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The link that Config::bandwidth, latency and jitter describe. A request leaves when it is posted: then it is computed when it
// arrives, from the time at which the port of the sender is free again, which all processes share. It waits in the send queue
// until then, and is executed: only now is anything seen at the other side, in memory or in a queue. A request of an acknowledged
// transport completes when the answer is back. So several are on their way at a time, and no two use a port at once.
//
// All with Qp::sq_mutex held, and only for queues with SendQueue::linked.
#include "verbs/objects.h"

namespace softhca::link {

// Whether there is anything to do here at all.
bool is_set(const Config& config);

// The requests that were posted since leave now: sets when each arrives.
void depart(Fabric& fabric, Qp& qp, uint64_t now_ns);
// The first request has arrived: true if it has to wait for others before the port lets it in. SendEntry::start_ns is when.
bool queues_at_port(Fabric& fabric, const Qp& qp, SendEntry& entry, uint64_t now_ns);
// The first request is executed, and leaves the queue: completes it, or lets it wait for the answer.
void await_answer(Fabric& fabric, Qp& qp, bool acknowledged);
// Completes what has been answered. When to look again; 0: nothing waits for an answer.
uint64_t take_answers(Fabric& fabric, Qp& qp, uint64_t now_ns);
// Completes all that waits for an answer: the queue pair is about to fail, or does not wait any longer.
void take_all_answers(Qp& qp);
// From a responder that was not ready to the next try's arrival, besides what it asks for.
uint64_t round_trip_ns(Fabric& fabric, const Qp& qp, const SendEntry& entry);

}  // namespace softhca::link
