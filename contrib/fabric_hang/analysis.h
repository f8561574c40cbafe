// SPDX-License-Identifier: BSD-3-Clause
//
// Who waits for whom, from what the processes of a job have told.
#pragma once

#include <nlohmann/json.hpp>

namespace fabric::hang {

/// `processes`: an array, of gather(), of one job (or of jobs that know each other) from all hosts. Gives an object:
///   "jobs"     how many there are
///   "waits"    [{"from", "to", "still_ms", "reasons": ["3 messages wait for a credit ..."]}]
///   "cycles"   [[process, ...]], each waits for the next one, and the last for the first
///   "ends"     [{"process", "held_up": [process, ...]}]: for whom others wait, directly or not, and who waits for nobody
///   "losses"   [{"from", "to", "text"}]
///   "silent"   [{"process", "text", "is_fault"}], those that do not answer
///   "moving"   [process, ...], between which messages go
///   "at_rest"  [{"process", "call", "caller"}], of which nothing waits in the transport
///   "strangers" [process, ...], of which others tell and nobody has asked
/// A process is named by a number: its place in "names", which has "rank 3" for each, or "job J rank 3" if there are several jobs.
[[nodiscard]] nlohmann::ordered_json analyse(const nlohmann::ordered_json& processes);

/// Somebody waits for somebody, something is lost, or a process is in no state to answer.
[[nodiscard]] bool is_something_wrong(const nlohmann::ordered_json& findings);

}  // namespace fabric::hang
