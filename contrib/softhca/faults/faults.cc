// SPDX-License-Identifier: BSD-3-Clause
// Which rule applies when. Rules are read in faults/rules.cc.
#include "faults/faults.h"

#include <fstream>
#include <iterator>
#include <mutex>
#include <vector>

#include "fabric/of_member.h"
#include "faults/rules.h"

namespace softhca::faults {

std::atomic<bool> active{false};

namespace {

struct State {
  std::mutex mutex;
  std::vector<Rule> rules;
  uint64_t seed = 1;
  unsigned node = 0;
  unsigned slot = 0;
};
State& state() {
  return of_member<State>();
}

// The same inputs give the same 64 bits.
uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x632be59bd9b4e019U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

uint8_t op_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return kOpSend;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return kOpWrite;
    case IBV_WR_RDMA_READ:
      return kOpRead;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_WRITE:
      return kOpAtomic;
    default:
      return 0;  // nothing that goes over the wire
  }
}

// What does not change while this process runs.
bool is_here(const Rule& rule, const State& s) {
  return (rule.node == kAny || rule.node == s.node) && (rule.slot == kAny || rule.slot == s.slot);
}

// The rule matches once more: does it strike? `order` is the order of this operation among its like.
bool strikes(Rule& rule, const State& s, uint64_t order) {
  const uint64_t n = ++rule.matches;
  if (rule.nth != 0 && n != rule.nth) return false;
  if (rule.every != 0 && n % rule.every != 0) return false;
  if (rule.count != 0 && rule.struck >= rule.count) return false;
  if (rule.prob < 1) {
    const uint64_t seed = rule.has_seed ? rule.seed : s.seed;
    if (static_cast<double>(mix(mix(seed, rule.line), order) >> 11) * 0x1p-53 >= rule.prob) return false;
  }
  ++rule.struck;
  return true;
}

// The place of this try of an operation in its QP's history. Slots, and with them QP numbers, depend on who starts first, so
// they are not in it.
uint64_t order_of(const Qp& qp, const SendEntry& entry) {
  return mix(uint64_t{qp.index} << 32 | qp.sq.operations, uint64_t{entry.attempts} << 32 | entry.rnr_attempts);
}

// What a port loses by its settings, as rules behind all others.
void add_losses(const PerPort& loss, std::vector<Rule>& rules) {
  uint32_t line = kAny;  // of none in the file
  for (unsigned device = 0; device < kMaxDevices; ++device)
    for (unsigned port = 1; port <= kMaxPorts; ++port, --line) {
      const uint64_t share = loss.values[device][port - 1];
      if (share == 0) continue;
      Rule& rule = rules.emplace_back();
      rule.line = line;
      rule.device = device;
      rule.port = port;
      rule.prob = static_cast<double>(share) / kWhole;
    }
}

}  // namespace

Verdict on_request(Qp& qp, const SendEntry& entry) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  const uint64_t order = order_of(qp, entry);
  const uint8_t op = op_of(entry.opcode);
  for (Rule& rule : s.rules) {
    if (rule.action >= kFirstCallAction || (rule.ops & op) == 0 || !is_here(rule, s)) continue;
    if (rule.qpn != kAny && rule.qpn != qp.qp_base.qp_num) continue;
    if (rule.device != kAny && rule.device != qp.owner->device->index) continue;
    if (rule.port != kAny && rule.port != port_of_port_id(qp.shared->port_id)) continue;
    if (entry.length < rule.min_bytes) continue;
    if (!strikes(rule, s, order)) continue;
    switch (rule.action) {
      case Action::Drop:
        return {.action = Verdict::Drop};
      case Action::Lose:
        return {.action = Verdict::Lose};
      case Action::Delay:
        return {.action = Verdict::Delay, .delay_us = rule.us};
      case Action::Rnr:
        return {.action = Verdict::Rnr};
      case Action::Error:
        return {.action = Verdict::Error, .status = rule.status, .executed = rule.executed};
      case Action::Kill:
        return {.action = Verdict::Kill, .kill_at = rule.kill_at};
      default:
        break;
    }
  }
  return {};
}

int on_call(const char* name) {
  State& s = state();
  std::lock_guard guard(s.mutex);
  for (Rule& rule : s.rules)
    if (rule.action == Action::Fail && rule.call == name && is_here(rule, s) && strikes(rule, s, rule.matches))
      return rule.error;
  return 0;
}

CmVerdict on_connect_request() {
  State& s = state();
  std::lock_guard guard(s.mutex);
  for (Rule& rule : s.rules)
    if (rule.action == Action::Cm && is_here(rule, s) && strikes(rule, s, rule.matches))
      return rule.silent ? CmVerdict::Silence : CmVerdict::Reject;
  return CmVerdict::None;
}

std::string load(Fabric& fabric) {
  std::ifstream file(fabric.directory() + "/faults");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Rule> rules;
  const std::string errors = parse_rules(text, rules);
  if (!errors.empty()) return errors;  // the old rules stay
  add_losses(fabric.config().loss, rules);

  State& s = state();
  std::lock_guard guard(s.mutex);
  s.rules = std::move(rules);
  s.seed = fabric.config().seed;
  s.node = fabric.node();
  s.slot = fabric.slot();
  active.store(!s.rules.empty(), std::memory_order_relaxed);
  return {};
}

std::string check(const std::string& text) {
  std::vector<Rule> rules;
  return parse_rules(text, rules);
}

}  // namespace softhca::faults
