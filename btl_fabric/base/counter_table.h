// SPDX-License-Identifier: BSD-3-Clause
//
// Every counter and level of the component, declared here and nowhere else. The table registers them with MPI_T (counters.cc) and
// generates the counter tables of the README and the manual page (contrib/docs/).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "btl_fabric/base/connection_memory.h"
#include "btl_fabric/base/job_tally.h"
#include "btl_fabric/base/peer_room.h"
#include "common/accounting/region_budget.h"
#include "cpc/core/unknown_peers.h"
#include "cpc/oob/tcp_connections.h"
#include "cpc/queue_pairs/xrc_counts.h"

namespace fabric {

/// What this process has done in one transmit context. A plain increment each, by whoever holds its lock.
struct alignas(64) Counters {  // cache lines that no other context writes to
  std::uint64_t messages_sent_inline = 0;
  std::uint64_t messages_sent_copied = 0;
  std::uint64_t messages_sent_in_place = 0;
  std::uint64_t messages_coalesced = 0;
  std::uint64_t packets_coalesced = 0;
  std::uint64_t packets_resent = 0;
  std::uint64_t carried_by_other_ports = 0;
  std::uint64_t messages_by_eager_rdma = 0;
  std::uint64_t eager_rdma_rings = 0;
  std::uint64_t messages_directed_by_index = 0;
  std::uint64_t messages_directed_by_rule = 0;
  std::uint64_t messages_left_to_a_context = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t credit_messages = 0;
  std::uint64_t keepalives = 0;
  std::uint64_t cts_messages = 0;
  std::uint64_t waits_for_connection = 0;
  std::uint64_t waits_for_credit = 0;
  std::uint64_t waits_for_slot = 0;
  std::uint64_t waits_for_buffer = 0;
  std::uint64_t receive_queues_grown = 0;
  std::uint64_t completions_borrowed = 0;
  std::uint64_t puts = 0;
  std::uint64_t put_bytes = 0;
  std::uint64_t gets = 0;
  std::uint64_t get_bytes = 0;
  std::uint64_t atomics_by_device = 0;
  std::uint64_t atomics_by_message = 0;
  std::uint64_t atomics_executed = 0;
  std::uint64_t rdma_queued = 0;
  std::uint64_t rdma_held = 0;
  std::uint64_t rdma_striped = 0;
  std::uint64_t windows_bound = 0;
  std::uint64_t windows_invalidated = 0;
  std::uint64_t srq_limit_events = 0;
  std::uint64_t connections_made = 0;
  std::uint64_t connections_failed = 0;
  std::uint64_t connections_healed = 0;
  std::uint64_t connections_rested = 0;
  std::uint64_t xrc_senders = 0;
  JobTally tally;  ///< not of MPI_T
};

/// Open MPI's registration cache does so for whatever thread asks.
inline std::atomic<std::uint64_t> registrations = 0;

/// Reads and writes of an accelerator's memory, by whatever thread.
inline std::atomic<std::uint64_t> transfers_staged = 0;

struct CounterSpec {
  const char* name;                ///< without the btl_fabric_ in front
  std::uint64_t Counters::*value;  ///< null for one that several threads write
  const char* help;
  const std::atomic<std::uint64_t>* shared = nullptr;  ///< that one
};

inline constexpr std::array kCounterTable = {
    CounterSpec{"messages_sent_inline", &Counters::messages_sent_inline,
                "Messages that the device copied as it took them"},
    CounterSpec{"messages_sent_copied", &Counters::messages_sent_copied, "Messages sent from a buffer of ours"},
    CounterSpec{"messages_sent_in_place", &Counters::messages_sent_in_place, "Messages sent from the user's memory"},
    CounterSpec{"messages_coalesced", &Counters::messages_coalesced, "Messages sent in packets with others"},
    CounterSpec{"packets_coalesced", &Counters::packets_coalesced, "Those packets"},
    CounterSpec{"packets_resent", &Counters::packets_resent,
                "Packets sent again, because the connection that they were sent over had broken"},
    CounterSpec{
        "carried_by_other_ports", &Counters::carried_by_other_ports,
        "Messages, reads and writes of connections that had broken, or messages of those not made yet, that went by another port"},
    CounterSpec{"messages_by_eager_rdma", &Counters::messages_by_eager_rdma,
                "Of the messages that the device copied: those written into a ring of the peer's"},
    CounterSpec{"eager_rdma_rings", &Counters::eager_rdma_rings, "Rings given to peers that talk much"},
    CounterSpec{"messages_directed_by_index", &Counters::messages_directed_by_index,
                "Messages whose sender named a receive context of the peer"},
    CounterSpec{"messages_directed_by_rule", &Counters::messages_directed_by_rule,
                "Messages sent to the receive context that a steering rule of the peer names"},
    CounterSpec{"messages_left_to_a_context", &Counters::messages_left_to_a_context,
                "Messages among these that were sent in a callback, and waited for the lock of another context"},
    CounterSpec{"bytes_sent", &Counters::bytes_sent, "Bytes in all these, headers of the PML included"},
    CounterSpec{"messages_received", &Counters::messages_received, "Messages received"},
    CounterSpec{"bytes_received", &Counters::bytes_received, "Bytes in these"},
    CounterSpec{"credit_messages", &Counters::credit_messages, "Messages sent only to give credits back"},
    CounterSpec{"keepalives", &Counters::keepalives, "Times that a silent peer was asked whether it is there"},
    CounterSpec{"cts_messages", &Counters::cts_messages, "CTS messages sent in connection set-up"},
    CounterSpec{"waits_for_connection", &Counters::waits_for_connection, "Messages that waited for their connection"},
    CounterSpec{"waits_for_credit", &Counters::waits_for_credit,
                "Messages that waited for a credit: more rd_num, or a larger rd_low, may help"},
    CounterSpec{"waits_for_slot", &Counters::waits_for_slot,
                "Messages that waited for room in the send queue: a larger sd_max may help"},
    CounterSpec{"waits_for_buffer", &Counters::waits_for_buffer,
                "Times that a message found no send buffer, and waited in Open MPI: a larger free_list_max may help"},
    CounterSpec{"receive_queues_grown", &Counters::receive_queues_grown,
                "Times that a P queue got more receive buffers because its peer had run out of credits"},
    CounterSpec{"completions_borrowed", &Counters::completions_borrowed,
                "Times that a send queue took more of the completion queue's entries that all share"},
    CounterSpec{"puts", &Counters::puts, "RDMA writes"},
    CounterSpec{"put_bytes", &Counters::put_bytes, "Bytes written"},
    CounterSpec{"gets", &Counters::gets, "RDMA reads"},
    CounterSpec{"get_bytes", &Counters::get_bytes, "Bytes read"},
    CounterSpec{"atomics_by_device", &Counters::atomics_by_device, "Atomics given to the device"},
    CounterSpec{"atomics_by_message", &Counters::atomics_by_message, "Atomics sent to the target's processor"},
    CounterSpec{"atomics_executed", &Counters::atomics_executed, "Atomics of peers executed by this process"},
    CounterSpec{"rdma_queued", &Counters::rdma_queued, "RDMA operations that waited for a connection, room or memory"},
    CounterSpec{"rdma_held", &Counters::rdma_held,
                "RDMA operations whose end was told later, because no message could have followed them"},
    CounterSpec{"rdma_striped", &Counters::rdma_striped,
                "RDMA reads and writes divided among several ports; puts and gets count each piece"},
    CounterSpec{"rdma_staged", nullptr,
                "RDMA reads and writes from and to a GPU's memory, that went through buffers in the processor's",
                &transfers_staged},
    CounterSpec{"windows_bound", &Counters::windows_bound,
                "Memory windows bound for RDMA reads, into memory that no peer may write to otherwise"},
    CounterSpec{"windows_invalidated", &Counters::windows_invalidated, "Those that were closed when the data had come"},
    CounterSpec{"registrations", nullptr, "Memory regions registered", &registrations},
    CounterSpec{
        "registrations_at_limit", nullptr,
        "Times that this process's part of a device's memory regions was in use when one more was wanted: memory "
        "that nobody used was deregistered for it, or data was copied, or waited",
        &regions_at_limit},
    CounterSpec{"srq_limit_events", &Counters::srq_limit_events,
                "Times a shared queue ran low and got more buffers: a larger rd_init avoids it"},
    CounterSpec{"connections_made", &Counters::connections_made, "Connections made"},
    CounterSpec{"connections_healed", &Counters::connections_healed,
                "Connections that had broken and were made anew, with nothing lost"},
    CounterSpec{"connections_rested", &Counters::connections_rested,
                "Idle connections whose peers were asked whether they may go, so that others have queue pairs"},
    CounterSpec{"connections_failed", &Counters::connections_failed,
                "Connections that could not be made, or were lost"},
    CounterSpec{"xrc_senders", &Counters::xrc_senders,
                "Queue pairs that X queues send through, each to all processes behind a port of a host"},
    CounterSpec{"xrc_targets_made", nullptr, "Queue pairs made that receive for all processes of the host",
                &cpc::xrc_targets_made},
    CounterSpec{"xrc_targets_opened", nullptr, "Those that another process had made before, and this one uses too",
                &cpc::xrc_targets_opened},
    CounterSpec{"tcp_connections_opened", nullptr,
                "TCP connections opened to set up connections: links of one pair of processes share one",
                &cpc::tcp_connections_opened},
    CounterSpec{"unknown_peers_refused", nullptr,
                "Connections refused because whoever asked for them was not of this job, or made no sense",
                &cpc::unknown_peers_refused},
};

/// What is not counted, but told as it is now: a number for each process of the job, in the order of MPI_COMM_WORLD, or one number.
struct LevelSpec {
  const char* name;                                       ///< without the btl_fabric_ in front
  std::uint64_t (RoomSource::*of_peer)() const noexcept;  ///< summed over all connections with it; null for one number
  const char* help;
  const std::atomic<std::uint64_t>* own = nullptr;  ///< that one
};

inline constexpr std::array kLevelTable = {
    LevelSpec{"tx_size_left", &RoomSource::tx_size_left,
              "Of each peer: sends, reads and writes of the largest size that can be posted now, without waiting for a "
              "completion"},
    LevelSpec{
        "rx_size_left", &RoomSource::rx_size_left,
        "Of each peer: receives that can be posted now, since their buffers are in use or are to be posted again. "
        "Those of shared queues are counted for every peer"},
    LevelSpec{
        "connection_memory", nullptr,
        "Bytes that the connections of this process have now: receive buffers of P queues, entries of queues (64 bytes "
        "each, used or not) and objects. What S and X queues share is not among them",
        &connection_memory_now},
    LevelSpec{"memory_regions", nullptr, "Memory regions registered now", &regions_now},
    LevelSpec{"memory_regions_most", nullptr, "Most memory regions that were registered with a device at any time",
              &regions_most},
};

}  // namespace fabric
