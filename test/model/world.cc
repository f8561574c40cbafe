// SPDX-License-Identifier: BSD-3-Clause
#include "test/model/world.h"

#include <utility>

namespace fabric::model {

World::World(const Options& options, event_base* loop)
    : options_(options),
      loop_(loop),
      fabric_(fault_, options.processes, options.transport == Transport::kIwarp),
      ledger_(fault_, options.queues, !options.other_way),
      network_(fault_, options.dials,
               [this](std::uint8_t process, std::unique_ptr<cpc::Channel> channel, cpc::Message request) {
                 if (at(process) != nullptr) {
                   at(process)->on_request(std::move(channel), std::move(request));
                 }
               }),
      left_(options.plans),
      losses_(options.losses),
      breaks_(options.breaks),
      failures_(options.failures),
      yields_(options.yields) {
  for (std::uint8_t rank = 0; rank < options.processes; ++rank) {
    processes_[rank] = std::make_unique<Process>(rank, options, loop, fabric_, network_, ledger_, fault_);
  }
  fabric_.claims_to_know = options.mistake == Mistake::kClaimsToKnow;
  for (std::uint8_t rank = 1; rank < options.processes && options.other_way; ++rank) {
    connect_other_way(0, rank);
  }
}

void World::connect_other_way(std::uint8_t rank, std::uint8_t peer) {
  std::vector<ibv_qp*> ours;
  std::vector<ibv_qp*> theirs;
  for (std::uint8_t i = 0; i < options_.queues; ++i) {
    const auto [our, their] = fabric_.make_other_way(rank, peer, i == 0 && options_.first_queue_is_shared);
    ours.push_back(our);
    theirs.push_back(their);
  }
  at(rank)->main().connect_other_way(peer, std::move(ours));
  at(peer)->main().connect_other_way(rank, std::move(theirs));
}

// ---- What may happen next

/// A timer that makes us try again is short; one that waits for the peer is long.
bool is_late(const cpc::Connection& connection) {
  return timer_event_of(connection) == cpc::Event::kHandshakeTimer;
}

const std::vector<Choice>& World::choices() {
  choices_.clear();
  due_ = 0;
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    if (at(rank) == nullptr) {
      continue;
    }
    if (!at(rank)->main().has_left()) {
      offer_application(rank);
    } else if (!at(rank)->main().is_leaving()) {
      offer({Kind::kExit, rank, 0, 0});
    }
    offer_threads(rank);
  }
  offer_network();
  offer_packets();
  if (options_.hasty_timers || due_ == 0) {
    const std::size_t others = choices_.size();
    offer_late_timers();
    check_waits(others);
  }
  if (due_ == 0) {
    check_quiet();
  }
  return choices_;
}

/// `is_due`: it will happen, sooner or later.
void World::offer(Choice choice, bool is_due) {
  due_ += is_due ? 1 : 0;
  choices_.push_back(choice);
  const bool may_fail = choice.kind == Kind::kMessage || choice.kind == Kind::kUpcall || choice.kind == Kind::kTimer ||
                        choice.kind == Kind::kSend;
  if (failures_ > 0 && may_fail) {
    choice.c |= kFails;
    choices_.push_back(choice);
  }
}

bool World::is_at_rest(std::uint8_t rank, std::uint8_t peer) const {
  return !ledger_.has_pending(rank, peer) && !ledger_.has_pending(peer, rank);
}

/// Nobody will send to it or wait for it, or find out that it is gone because queue pairs are short.
bool World::has_done_all(std::uint8_t rank) const {
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    if (!is_at_rest(rank, peer) || left_[rank].sends[peer] > 0 || left_[peer].sends[rank] > 0 ||
        left_[rank].rests[peer] > 0 || left_[peer].rests[rank] > 0 ||
        (at(peer) != nullptr && at(peer)->main().is_resting(rank))) {
      return false;
    }
  }
  return true;
}

void World::offer_application(std::uint8_t rank) {
  const Plan& left = left_[rank];
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    const int closes_ahead = closes(rank, peer) - closes(peer, rank);
    if (left.sends[peer] > 0 && !at(rank)->main().has_failed(peer) && (closes_ahead == 0 || !options_.closes_agreed)) {
      offer({Kind::kSend, rank, peer, 0});
    }
    if (left.closes[peer] > 0 && at(rank)->main().can_close(peer) &&
        (!options_.closes_agreed || (closes_ahead <= 0 && is_at_rest(rank, peer)))) {
      offer({Kind::kClose, rank, peer, 0}, options_.closes_agreed && closes_ahead < 0);
    }
    if (left.rests[peer] > 0 && at(rank)->main().can_rest(peer)) {
      offer({Kind::kRest, rank, peer, 0}, false);
    }
  }
  if (left.leaves > 0 && has_done_all(rank)) {
    offer({Kind::kLeave, rank, 0, 0}, false);
  }
  if (left.exits > 0) {
    offer({Kind::kExit, rank, 0, 0}, false);
  }
  if (left.dies > 0) {
    offer({Kind::kDie, rank, 0, 0}, false);
  }
}

void World::offer_threads(std::uint8_t rank) {
  if (at(rank)->has_upcall() && !at(rank)->main().has_left()) {
    offer({Kind::kUpcall, rank, 0, 0});
  }
  if (at(rank)->has_command()) {
    offer({Kind::kCommand, rank, 0, 0});
  }
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    for (const cpc::Direction direction : Process::kDirections) {
      const cpc::Connection* const connection = at(rank)->connection(peer, direction);
      if (connection == nullptr) {
        continue;
      }
      if (timer_of(*connection).running() && !is_late(*connection)) {
        offer({Kind::kTimer, rank, peer, static_cast<std::uint8_t>(direction)});
      }
      if (const cpc::Timer* turn = turn_of(*connection); turn != nullptr && turn->running()) {
        offer({Kind::kTurn, rank, peer, 0});
      }
    }
  }
}

void World::offer_late_timers() {
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    if (at(rank) != nullptr && at(rank)->main().is_leaving()) {
      offer({Kind::kGoodbyeTimer, rank, 0, 0});
    }
    for (std::uint8_t peer = 0; peer < options_.processes && at(rank) != nullptr; ++peer) {
      for (const cpc::Direction direction : Process::kDirections) {
        const cpc::Connection* const connection = at(rank)->connection(peer, direction);
        if (connection != nullptr && timer_of(*connection).running() && is_late(*connection)) {
          offer({Kind::kTimer, rank, peer, static_cast<std::uint8_t>(direction)});
        }
      }
    }
  }
}

/// Where nothing goes wrong nobody waits for a limit in time, which takes a minute. `others`: what may happen beside.
void World::check_waits(std::size_t others) {
  const bool is_good = options_.losses == 0 && options_.failures == 0 && options_.breaks == 0 &&
                       !options_.hasty_timers && !options_.openers_go;
  const auto is_wait = [](const Choice& choice) { return choice.kind == Kind::kTimer; };
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    if (!is_good || at(rank) == nullptr || at(rank)->main().has_left()) {
      return;
    }
  }
  if (std::any_of(choices_.begin() + static_cast<std::ptrdiff_t>(others), choices_.end(), is_wait)) {
    fault_.add("everybody waits for a limit in time");
  }
}

void World::offer_network() {
  for (const auto& wire : network_.wires()) {
    for (std::uint8_t side = 0; side < 2; ++side) {
      if (network_.has_message(*wire, side)) {
        offer({Kind::kMessage, wire->number, side, 0});
      } else if (Network::has_end(*wire, side)) {
        offer({Kind::kLost, wire->number, side, 0});
      }
    }
    if (wire->is_dialing && !wire->sides[kOpener].is_closed && !wire->sides[kOpener].is_lost) {
      offer({Kind::kLeaves, wire->number, 0, 0});
    }
    if (yields_ > 0 && Network::can_yield(*wire)) {
      offer({Kind::kYield, wire->number, 0, 0}, false);
    }
    if (losses_ > 0 && Network::can_break(*wire) && !(options_.breaks_until_reply && wire->is_answered)) {
      for (std::uint8_t kept = 0; kept < (options_.breaks_until_reply ? 1 : 4); ++kept) {
        const bool keeps_nothing_there = ((kept & 1U) != 0 && wire->sides[0].incoming.empty()) ||
                                         ((kept & 2U) != 0 && wire->sides[1].incoming.empty());
        if (!keeps_nothing_there) {
          offer({Kind::kBreak, wire->number, kept, 0}, false);
        }
      }
    }
  }
}

void World::offer_packets() {
  for (const auto& one : fabric_.all()) {
    if (fabric_.can_go(*one)) {
      offer({Kind::kPacket, static_cast<std::uint8_t>(one->number), 0, 0});
    }
    if (fabric_.can_break(*one)) {
      offer({Kind::kHangup, static_cast<std::uint8_t>(one->number), 0, 0});
    }
    for (std::uint8_t arrives = 0; arrives < 2 && breaks_ > 0; ++arrives) {
      if (fabric_.can_fail(*one, arrives != 0)) {
        offer({Kind::kFailure, static_cast<std::uint8_t>(one->number), arrives, 0}, false);
      }
    }
  }
}

// ---- What happens

void World::settle() {
  for (int i = 0; i < 4; ++i) {  // what is polled may lead to more that completes at once
    fabric_.settle();
    for (const auto& process : processes_) {
      if (process) {
        process->main().progress();
      }
    }
  }
}

void World::take(const Choice& choice) {
  if ((choice.c & kFails) != 0) {
    fabric_.next_fails = true;
  }
  switch (choice.kind) {
    case Kind::kSend:
      --left_[choice.a].sends[choice.b];
      at(choice.a)->main().send(choice.b);
      break;
    case Kind::kClose:
      check_told(choice.a, choice.b);  // after this its upper layer has forgotten it
      --left_[choice.a].closes[choice.b];
      at(choice.a)->main().close(choice.b);
      break;
    case Kind::kRest:
      --left_[choice.a].rests[choice.b];
      at(choice.a)->main().rest(choice.b);
      break;
    case Kind::kLeave:
      --left_[choice.a].leaves;
      at(choice.a)->main().leave();
      break;
    case Kind::kGoodbyeTimer:
      at(choice.a)->main().end_goodbyes();
      break;
    case Kind::kExit:
      end_process(choice.a, false);
      break;
    case Kind::kDie:
      end_process(choice.a, true);
      break;
    case Kind::kUpcall:
      at(choice.a)->take_upcall();
      break;
    case Kind::kCommand:
      at(choice.a)->take_command();
      break;
    case Kind::kTimer:
      fire(timer_of(*at(choice.a)->connection(choice.b, static_cast<cpc::Direction>(choice.c & ~kFails))));
      break;
    case Kind::kTurn:
      fire(*turn_of(*at(choice.a)->connection(choice.b, cpc::Direction::kOutgoing)));
      break;
    case Kind::kLeaves:
      network_.leaves(network_.wire(choice.a));
      break;
    case Kind::kMessage:
      network_.deliver(network_.wire(choice.a), choice.b);
      break;
    case Kind::kLost:
      network_.end(network_.wire(choice.a), choice.b);
      break;
    case Kind::kYield:
      --yields_;
      network_.yield(network_.wire(choice.a));
      break;
    case Kind::kBreak:
      --losses_;
      Network::break_down(network_.wire(choice.a), choice.b);
      break;
    case Kind::kPacket:
      fabric_.go(*fabric_.find(choice.a), options_.mistake == Mistake::kSentTwice);
      break;
    case Kind::kHangup:
      fabric_.break_down(*fabric_.find(choice.a));
      break;
    case Kind::kFailure: {
      --breaks_;
      QueuePair& pair = *fabric_.find(choice.a);
      if (fabric_.fail(pair, choice.b != 0) && at(pair.process) != nullptr) {
        at(pair.process)->main().queue_pair_failed(pair.posted->verbs.qp_num);
      }
      break;
    }
  }
  settle();
  if ((choice.c & kFails) != 0 && !std::exchange(fabric_.next_fails, false)) {
    --failures_;
  }
  for (std::uint8_t rank = 0; rank < options_.processes && options_.cpc.one_way; ++rank) {
    if (at(rank) != nullptr && !at(rank)->senders_know_the_living()) {
      fault_.add("a shared sender knows a connection that has left it");
    }
  }
}

void World::end_process(std::uint8_t rank, bool with_its_host) {
  left_[rank] = {};
  said_goodbye_[rank] = at(rank)->main().has_left();
  if (with_its_host) {
    network_.dies(rank);
  }
  for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
    ledger_.drop_all(rank, peer);
  }
  processes_[rank].reset();
  fabric_.forget_process(rank);
  network_.forget_process(rank);
  if (fabric_.has_queue_pairs(rank)) {
    fault_.add("a process has ended, and its queue pairs have not");
  }
}

void World::end() {
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    if (at(rank) != nullptr) {
      end_process(rank, false);
    }
  }
  if (fabric_.has_queue_pairs(kMostProcesses)) {
    fault_.add("targets outlive all processes");
  }
}

// ---- What it looks like

Fingerprint World::fingerprint() const {
  AllNumbers numbers;
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    for (std::uint8_t peer = rank + 1; peer < options_.processes; ++peer) {
      PairNumbers& both = numbers[rank][peer];
      if (at(rank) != nullptr) {
        at(rank)->see(both, peer);
      }
      if (at(peer) != nullptr) {
        at(peer)->see(both, rank);
      }
      network_.see(both, rank, peer);
      fabric_.see(both, rank, peer);
      numbers[peer][rank] = both;
    }
  }
  Digest digest;
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    digest.add(at(rank) != nullptr ? 1 : 0);
    if (at(rank) != nullptr) {
      at(rank)->add_to(digest, numbers[rank]);
    }
    const Plan& left = left_[rank];
    for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
      digest.add(left.sends[peer] | left.closes[peer] << 8U | left.rests[peer] << 16U);
    }
    digest.add(left.leaves | left.exits << 8U | left.dies << 16U | (said_goodbye_[rank] ? 1U << 24U : 0U));
  }
  network_.add_to(digest, numbers);
  fabric_.add_to(digest, numbers);
  ledger_.add_to(digest);
  digest.add(losses_ | failures_ << 8U | yields_ << 16U | breaks_ << 24U);
  return digest.value();
}

/// Whether an application has done something that lets the connection fail.
bool World::is_excused(std::uint8_t rank, std::uint8_t peer) const {
  if (at(peer) == nullptr) {
    return !said_goodbye_[peer];
  }
  if (options_.closes_agreed) {
    return false;
  }
  // Who closes and sends again is told of a failure only if the peer was, who may have sent when it closed.
  return closes(peer, rank) > 0 || (closes(rank, peer) > 0 && at(peer)->main().has_failed(rank));
}

void World::check_told(std::uint8_t rank, std::uint8_t peer) {
  if (at(rank)->main().has_failed(peer) && options_.nothing_fails && !is_excused(rank, peer)) {
    fault_.add("an upper layer is told that a peer cannot be reached, although nothing went wrong");
  }
}

void World::check_quiet() {
  bool has_connections = false;
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    if (at(rank) == nullptr) {
      continue;
    }
    bool has_failed = false;
    for (std::uint8_t peer = 0; peer < options_.processes; ++peer) {
      check_quiet(rank, peer);
      has_failed = has_failed || at(rank)->main().has_failed(peer);
    }
    has_connections = has_connections || at(rank)->connections() > 0;
    if (at(rank)->connections() == 0 && fabric_.has_queue_pairs(rank)) {
      fault_.add("queue pairs are left over");
    }
    // The queue pairs of an endpoint that has failed go with it.
    if (!has_failed && !at(rank)->main().has_left() && at(rank)->main().remembers_unknown()) {
      fault_.add("a main thread remembers queue pairs that are gone");
    }
  }
  if (!has_connections && fabric_.has_queue_pairs()) {
    fault_.add("targets are left over");
  }
  if (options_.one_target && fabric_.targets_made() > 1) {
    fault_.add("several targets are made for one sender");
  }
}

void World::check_quiet(std::uint8_t rank, std::uint8_t peer) {
  check_told(rank, peer);
  const MainHalf& main = at(rank)->main();
  if (at(peer) == nullptr && !said_goodbye_[peer] && options_.cpc.exchanges_cts && main.is_connected(peer)) {
    fault_.add("nobody is told of a peer that has gone without a goodbye");
  }
  if (main.messages_under_way(peer) > 0) {
    fault_.add("the callback of a message never comes");
  }
  // Who shares a queue pair with others is not told that one of its peers reads no more, but for a goodbye of a peer that sends
  // too, which messages can cross. A peer that only receives goes on to.
  const bool only_receives = options_.receivers_stay && at(peer) != nullptr && options_.plans[peer].sends[rank] == 0;
  const bool may_be_lost = options_.cpc.one_way && is_excused(rank, peer) && !only_receives;
  if (ledger_.has_pending(rank, peer) && !may_be_lost) {
    fault_.add("a message is lost");
  }
  for (const cpc::Direction direction : Process::kDirections) {
    for (const cpc::Connection* one : at(rank)->connections(peer, direction)) {
      if (one == nullptr || one->state() == cpc::State::kConnected) {
        continue;
      }
      if (one->state() != cpc::State::kClosing || !main.has_failed(peer)) {
        fault_.add("stuck: a connection in state " + std::string(to_string(one->state())));
      }
    }
  }
}

}  // namespace fabric::model
