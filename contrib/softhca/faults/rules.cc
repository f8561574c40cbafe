// SPDX-License-Identifier: BSD-3-Clause
#include "faults/rules.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "fabric/nearest.h"

namespace softhca::faults {
namespace {

constexpr unsigned bit(Action action) {
  return 1U << static_cast<unsigned>(action);
}
constexpr unsigned kRequests = bit(Action::Drop) | bit(Action::Lose) | bit(Action::Delay) | bit(Action::Rnr) |
                               bit(Action::Error) | bit(Action::Kill);
constexpr unsigned kAll = kRequests | bit(Action::Fail) | bit(Action::Cm);

struct ActionName {
  const char* name;
  Action action;
  const char* help;
};
constexpr ActionName kActions[] = {
    {"drop", Action::Drop, "the message is lost, and tried again"},
    {"lose", Action::Lose, "the message is lost, and its sender told that it has arrived"},
    {"delay", Action::Delay, "it is executed later"},
    {"rnr", Action::Rnr, "the responder says that it is not ready"},
    {"error", Action::Error, "the request completes with an error, and the QP fails"},
    {"kill", Action::Kill, "the process that executes it is killed"},
    {"fail", Action::Fail, "a call fails"},
    {"cm", Action::Cm, "a connection request is refused, or gets no answer"},
};

std::optional<uint64_t> number(std::string_view text, uint64_t most) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || n > most) return std::nullopt;
  return n;
}

template <auto kMember, uint64_t kLeast = 0>
bool set_number(Rule& rule, std::string_view value) {
  using Value = std::remove_reference_t<decltype(rule.*kMember)>;
  const auto n = number(value, static_cast<Value>(-1));
  if (!n || *n < kLeast) return false;
  rule.*kMember = static_cast<Value>(*n);
  return true;
}

bool set_seed(Rule& rule, std::string_view value) {
  rule.has_seed = true;
  return set_number<&Rule::seed>(rule, value);
}

bool set_prob(Rule& rule, std::string_view value) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), rule.prob);
  return error == std::errc{} && end == value.data() + value.size() && rule.prob >= 0 && rule.prob <= 1;
}

struct OpName {
  std::string_view name;
  uint8_t bits;
};
constexpr OpName kOps[] = {
    {"send", kOpSend}, {"write", kOpWrite}, {"read", kOpRead}, {"atomic", kOpAtomic}, {"any", kOpAny}};

bool set_op(Rule& rule, std::string_view value) {
  const auto* op = std::ranges::find(kOps, value, &OpName::name);
  if (op == std::end(kOps)) return false;
  rule.ops = op->bits;
  return true;
}

constexpr std::string_view kStatuses[] = {
    "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
    "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
    "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
static_assert(std::size(kStatuses) == IBV_WC_GENERAL_ERR + 1);

// As in ibv_wc_status, with or without IBV_WC_; but success is no error.
std::vector<std::string_view> statuses() {
  return {std::begin(kStatuses) + 1, std::end(kStatuses)};
}
bool set_status(Rule& rule, std::string_view value) {
  constexpr std::string_view kPrefix = "IBV_WC_";
  if (value.substr(0, kPrefix.size()) == kPrefix) value.remove_prefix(kPrefix.size());
  const auto* status = std::find(std::begin(kStatuses) + 1, std::end(kStatuses), value);
  if (status == std::end(kStatuses)) return false;
  rule.status = static_cast<ibv_wc_status>(status - std::begin(kStatuses));
  return true;
}

bool set_executed(Rule& rule, std::string_view value) {
  rule.executed = value == "yes";
  return rule.executed || value == "no";
}

// The calls that ask for rules. (test/softhca/messages.test compares it with those that do.)
constexpr std::string_view kCalls[] = {"ibv_alloc_mw",         "ibv_alloc_pd",
                                       "ibv_create_ah",        "ibv_create_comp_channel",
                                       "ibv_create_cq",        "ibv_create_qp",
                                       "ibv_create_srq",       "ibv_modify_qp",
                                       "ibv_modify_srq",       "ibv_open_device",
                                       "ibv_open_qp",          "ibv_open_xrcd",
                                       "ibv_query_qp",         "ibv_reg_dmabuf_mr",
                                       "ibv_reg_mr",           "ibv_resize_cq",
                                       "rdma_accept",          "rdma_ack_cm_event",
                                       "rdma_bind_addr",       "rdma_connect",
                                       "rdma_create_ep",       "rdma_create_event_channel",
                                       "rdma_create_id",       "rdma_create_qp",
                                       "rdma_create_srq",      "rdma_destroy_id",
                                       "rdma_disconnect",      "rdma_establish",
                                       "rdma_get_cm_event",    "rdma_get_remote_ece",
                                       "rdma_get_request",     "rdma_init_qp_attr",
                                       "rdma_join_multicast",  "rdma_join_multicast_ex",
                                       "rdma_leave_multicast", "rdma_listen",
                                       "rdma_migrate_id",      "rdma_notify",
                                       "rdma_query_addrinfo",  "rdma_reject",
                                       "rdma_resolve_addr",    "rdma_resolve_addrinfo",
                                       "rdma_resolve_route",   "rdma_set_local_ece",
                                       "rdma_set_option",      "rdma_write_cm_event"};
std::vector<std::string_view> calls() {
  return {std::begin(kCalls), std::end(kCalls)};
}
bool set_call(Rule& rule, std::string_view value) {
  rule.call = value;
  return std::ranges::find(kCalls, value) != std::end(kCalls);
}

constexpr int kLastErrno = 133;
std::vector<std::string_view> errnos() {
  std::vector<std::string_view> names;
  for (int error = 1; error <= kLastErrno; ++error)
    if (const char* name = strerrorname_np(error); name != nullptr) names.emplace_back(name);
  return names;
}
bool set_errno(Rule& rule, std::string_view value) {
  for (int error = 1; error <= kLastErrno; ++error)
    if (const char* name = strerrorname_np(error); name != nullptr && value == name) {
      rule.error = error;
      return true;
    }
  return false;
}

bool set_cm(Rule& rule, std::string_view value) {
  rule.silent = value == "silence";
  return rule.silent || value == "reject";
}
bool set_at(Rule& rule, std::string_view value) {
  constexpr std::pair<std::string_view, KillAt> kPlaces[] = {{"before", KillAt::Before},
                                                             {"middle", KillAt::Middle},
                                                             {"completing", KillAt::Completing},
                                                             {"completed", KillAt::Completed}};
  const auto* place = std::ranges::find(kPlaces, value, &std::pair<std::string_view, KillAt>::first);
  if (place == std::end(kPlaces)) return false;
  rule.kill_at = place->second;
  return true;
}

using Words = std::vector<std::string_view>;

struct Key {
  const char* name;
  const char* values;
  unsigned actions;   // that may have it
  unsigned required;  // that must
  bool (*set)(Rule& rule, std::string_view value);
  Words (*words)() = nullptr;  // what its value may be, where `values` does not list it
};
#define SOFTHCA_32 "0..4294967295"
#define SOFTHCA_64 "18446744073709551615"
constexpr Key kKeys[] = {
    {"us", SOFTHCA_32, bit(Action::Delay), bit(Action::Delay), set_number<&Rule::us>},
    {"status", "the name of an ibv_wc_status", bit(Action::Error), bit(Action::Error), set_status, statuses},
    {"executed", "yes|no, whether the peer has it and only the answer is lost (no)", bit(Action::Error), 0,
     set_executed},
    {"call", "ibv_... or rdma_...", bit(Action::Fail), bit(Action::Fail), set_call, calls},
    {"errno", "the name of an errno", bit(Action::Fail), bit(Action::Fail), set_errno, errnos},
    {"action", "reject|silence", bit(Action::Cm), bit(Action::Cm), set_cm},
    {"at", "before|middle|completing|completed", bit(Action::Kill), 0, set_at},
    {"op", "send|write|read|atomic|any", kRequests, 0, set_op},
    {"qpn", SOFTHCA_32, kRequests, 0, set_number<&Rule::qpn>},
    {"device", SOFTHCA_32, kRequests, 0, set_number<&Rule::device>},
    {"port", SOFTHCA_32, kRequests, 0, set_number<&Rule::port>},
    {"min_bytes", SOFTHCA_32, kRequests, 0, set_number<&Rule::min_bytes>},
    {"node", SOFTHCA_32, kAll, 0, set_number<&Rule::node>},
    {"slot", SOFTHCA_32, kAll, 0, set_number<&Rule::slot>},
    {"nth", "1.." SOFTHCA_64, kAll, 0, set_number<&Rule::nth, 1>},
    {"every", "1.." SOFTHCA_64, kAll, 0, set_number<&Rule::every, 1>},
    {"count", "1.." SOFTHCA_64, kAll, 0, set_number<&Rule::count, 1>},
    {"prob", "0..1", kAll, 0, set_prob},
    {"seed", "0.." SOFTHCA_64, kAll, 0, set_seed},
};
#undef SOFTHCA_32
#undef SOFTHCA_64

Words action_names() {
  Words names;
  for (const ActionName& action : kActions) names.emplace_back(action.name);
  return names;
}

const char* name_of(Action action) {
  return std::ranges::find(kActions, action, &ActionName::action)->name;
}

// Of the rules that may have a key: "drop, delay and rnr".
std::string actions_of(const Key& key) {
  Words names;
  for (const ActionName& action : kActions)
    if ((key.actions & bit(action.action)) != 0) names.emplace_back(action.name);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + std::string(names[i]);
  return text;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Takes the next word off the line; empty: there is none.
std::string_view next_word(std::string_view& line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  line.remove_prefix(first);
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

// What is wrong with a value of that key.
std::string wrong_value(const Key& key, std::string_view value) {
  std::string error = std::string(key.name) + " is " + key.values + ", not " + quoted(value);
  if (key.words == nullptr) return error;
  const Words words = key.words();
  const std::string_view meant = nearest(value, words);
  if (!meant.empty()) return error + "; did you mean " + quoted(meant) + "?";
  return error + ", for example " + std::string(words[words.size() / 2]);
}

// What is wrong with "name=value"; empty: nothing. `given` collects which keys there were.
std::string parse_key(std::string_view word, Rule& rule, uint32_t& given) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  Words names;
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    const Key& key = kKeys[i];
    if ((key.actions & bit(rule.action)) != 0) names.emplace_back(key.name);
    if (name != key.name) continue;
    if (equals == std::string_view::npos) return quoted(word) + " needs a value: " + key.name + "=" + key.values;
    if ((key.actions & bit(rule.action)) == 0)
      return std::string(name) + " has no meaning in a rule with " + name_of(rule.action) + ", only with " +
             actions_of(key);
    if ((given & 1U << i) != 0) return std::string(name) + " is there twice";
    given |= 1U << i;
    const std::string_view value = word.substr(equals + 1);
    return key.set(rule, value) ? std::string() : wrong_value(key, value);
  }
  if (equals == std::string_view::npos) return quoted(word) + " is not NAME=VALUE" + suggestion(word, names);
  return std::string(name_of(rule.action)) + " has no " + quoted(name) + suggestion(name, names);
}

std::string parse_rule(std::string_view line, Rule& rule) {
  const std::string_view first = next_word(line);
  const auto* found = std::ranges::find_if(kActions, [&](const ActionName& name) { return first == name.name; });
  if (found == std::end(kActions)) return "there is no action " + quoted(first) + suggestion(first, action_names());
  rule.action = found->action;

  uint32_t given = 0;
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line))
    if (std::string error = parse_key(word, rule, given); !error.empty()) return error;
  for (size_t i = 0; i < std::size(kKeys); ++i)
    if ((kKeys[i].required & bit(rule.action)) != 0 && (given & 1U << i) == 0)
      return std::string(found->name) + " needs " + kKeys[i].name + "=" + kKeys[i].values;
  return {};
}

}  // namespace

std::string parse_rules(const std::string& text, std::vector<Rule>& rules) {
  std::string errors;
  std::string_view rest = text;
  for (uint32_t n = 1; !rest.empty(); ++n) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Rule rule;
    rule.line = n;
    if (const std::string error = parse_rule(line, rule); error.empty())
      rules.push_back(std::move(rule));
    else
      errors += "line " + std::to_string(n) + ", " + quoted(trimmed(line)) + ": " + error + "\n";
  }
  return errors;
}

std::string grammar() {
  std::string text = "Rules: ACTION [NAME=VALUE]..., one a line, '#' comments\n";
  for (const ActionName& action : kActions) {
    text += std::string("  ") + action.name;
    text.append(10 - std::strlen(action.name), ' ');
    text += action.help;
    for (const Key& key : kKeys)
      if (key.actions == bit(action.action)) text += std::string(", ") + key.name + "=" + key.values;
    text += "\n";
  }
  text += "Any of these:\n";
  for (const Key& key : kKeys) {
    if (key.actions != kRequests && key.actions != kAll) continue;
    text += std::string("  ") + key.name + "=" + key.values;
    if (key.actions == kRequests) text += " (not in fail and cm)";
    text += "\n";
  }
  return text;
}

}  // namespace softhca::faults
