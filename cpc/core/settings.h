// SPDX-License-Identifier: BSD-3-Clause
//
// Settings of connection set-up that all CPCs share. What only one of them knows is in its folder.
#pragma once

#include <cstddef>
#include <functional>

#include "common/base/identity.h"
#include "cpc/core/cpc_traits.h"

namespace fabric::cpc {

class Trace;

/// Limits and settings of connection set-up, from MCA parameters.
struct ConnectionSettings {
  ProcessName self;
  JobToken token{};                       ///< ours: what peers must present
  unsigned retry_time_ms = 60000;         ///< for further attempts after the first, each over all addresses of the peer
  unsigned connect_timeout_ms = 10000;    ///< for a TCP connection to be accepted, and for a peer to say who it is
  unsigned handshake_timeout_ms = 60000;  ///< for a peer that broke off after our reply to come back
  unsigned stream_idle_ms = 1000;         ///< oob: for which a TCP connection that no link needs now is kept
  unsigned keepalive_ms = 0;              ///< between two KeepAliveDue; 0: none is said
  std::size_t connect_limit = 128;        ///< connections that a process opens at once; oob: and lets peers open
  unsigned look_ms = 0;                   ///< between two of ConnectionManager::take_look(); 0: there is none
  bool takes_questions = false;           ///< of other programs: what the process waits for (question_socket.h)
  CpcSet cpcs = kEveryCpc;                ///< those that the user lets be used
  /// Called on the progress thread every tick_ms after ConnectionManager::start_ticks(), until it says false.
  std::function<bool()> tick;
  unsigned tick_ms = 2;
  Trace* trace = nullptr;  ///< hears of every transition; outlives the manager. Null: none is kept
};

}  // namespace fabric::cpc
