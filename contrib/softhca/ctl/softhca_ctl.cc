// SPDX-License-Identifier: BSD-3-Clause
// softhca-ctl: looks at a running fabric, and breaks it. See softhca-ctl(1).
#include <infiniband/verbs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "ctl/fabric_view.h"
#include "ctl/files.h"
#include "ctl/find_fabric.h"
#include "ctl/start.h"
#include "ctl/top.h"
#include "fabric/nearest.h"
#include "faults/rules.h"

namespace softhca {
namespace {

using Arguments = std::span<char* const>;

unsigned number(const char* text, unsigned least, unsigned most, const char* what) {
  unsigned n = 0;
  const char* end = text + std::strlen(text);
  const bool hex = std::strncmp(text, "0x", 2) == 0;
  const auto [stop, error] = hex ? std::from_chars(text + 2, end, n, 16) : std::from_chars(text, end, n);
  if (error != std::errc{} || stop != end || n < least || n > most)
    give_up(std::string(what) + " is a number from " + std::to_string(least) + " to " + std::to_string(most) +
            ", not \"" + text + "\"");
  return n;
}

void ring_all(FabricView& fabric, uint32_t attention) {
  fabric.for_each_live([&](unsigned, Slot& slot) { FabricView::ring(slot, attention); });
}

Slot& live(FabricView& fabric, unsigned number) {
  Slot* slot = fabric.live_slot(number);
  if (slot == nullptr) {
    std::string all;
    fabric.for_each_live([&](unsigned there, Slot&) { all += " " + std::to_string(there); });
    give_up("no process has slot " + std::to_string(number) +
            (all.empty() ? "; there is no process in the fabric" : "; there are" + all));
  }
  return *slot;
}

// --- Ports and devices

void change_port(Arguments arguments, void (*change)(PortShared& port)) {
  FabricView fabric;
  const unsigned node = number(arguments[0], 0, fabric.config().nodes - 1, "NODE");
  const unsigned device = number(arguments[1], 0, fabric.config().devices - 1, "DEVICE");
  const unsigned port = arguments.size() > 2 ? number(arguments[2], 1, fabric.config().ports, "PORT") : 1;
  PortShared& shared = fabric.hub().ports[port_id_of(node, device, port)];
  change(shared);
  shared.changes.fetch_add(1);
  ring_all(fabric, kLookPorts);
}

void port_down(Arguments a) {
  change_port(a, [](PortShared& port) { port.down.store(1); });
}
void port_up(Arguments a) {
  change_port(a, [](PortShared& port) { port.down.store(0); });
}
void lid_change(Arguments a) {
  change_port(a, [](PortShared& port) { port.lid_offset.fetch_add(1024); });  // device/port.cc: kLidStep
}
void gid_change(Arguments a) {
  change_port(a, [](PortShared& port) { port.gid_salt.fetch_add(1); });
}
void device_fatal(Arguments a) {
  change_port(a, [](PortShared& port) { port.device_fatal.fetch_add(1); });
}

// --- Queues and processes

void fail_qp(const char* qp_num, uint32_t event) {
  FabricView fabric;
  const unsigned qpn = number(qp_num, 1, 0xffffff, "QPN");
  Slot& slot = live(fabric, slot_of_qpn(qpn));
  QpShared& qp = slot.qps[index_of_qpn(qpn)];
  if (qp.qp_num.load() != qpn)
    give_up(std::string("there is no queue pair ") + qp_num + " (softhca-ctl list shows those that there are)");
  qp.state.store(IBV_QPS_ERR);
  qp.events.fetch_or(kQpFlush | event);
  slot.qp_events.add(index_of_qpn(qpn));
  FabricView::ring(slot, kLookQps);
}
void qp_fatal(Arguments arguments) {
  fail_qp(arguments[0], kQpFatal);
}
void qp_access(Arguments arguments) {
  fail_qp(arguments[0], kQpAccessErr);
}

void cq_error(Arguments arguments) {
  FabricView fabric;
  Slot& slot = live(fabric, number(arguments[0], 1, kSlots - 1, "SLOT"));
  const unsigned cq = number(arguments[1], 0, kCqsPerSlot - 1, "CQ");
  if (slot.cqs[cq].in_use.load() == 0)
    give_up("there is no completion queue " + std::to_string(cq) + " in slot " + arguments[0] +
            " (softhca-ctl list shows them)");
  slot.cqs[cq].overrun.store(1);
  slot.cq_events.add(cq);
  FabricView::ring(slot, kLookCqs);
}

void kill_process(Arguments arguments) {
  FabricView fabric;
  const unsigned slot = number(arguments[0], 1, kSlots - 1, "SLOT");
  (void)live(fabric, slot);
  const pid_t pid = fabric.owner_of(slot);
  if (pid == 0) give_up("that process is not seen from here: it has ended, or is in another PID namespace");
  if (kill(pid, SIGKILL) != 0) give_up(std::string("kill: ") + strerror(errno));
}

void list(Arguments) {
  static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  FabricView fabric;
  fabric.for_each_live([&](unsigned number, Slot& slot) {
    printf("slot %u pid %d node %u\n", number, slot.header.pid.load(), slot.header.node);
    for (unsigned i = 0; i < kCqsPerSlot; ++i) {
      const CqShared& cq = slot.cqs[i];
      if (cq.in_use.load() == 0) continue;
      const auto waiting = static_cast<int32_t>(cq.tail.load() - cq.head.load());
      printf("  cq %u: %d of %u\n", i, std::max(waiting, 0), cq.cqe);
    }
    for (const QpShared& qp : slot.qps) {
      const uint32_t qpn = qp.qp_num.load(), state = qp.state.load();
      if (qpn == 0) continue;
      printf("  qp 0x%06x: %s, to 0x%06x, %u messages in, %u receives posted\n", qpn,
             state < std::size(kStates) ? kStates[state] : "?", qp.dest_qpn,
             static_cast<unsigned>(qp.arrived.messages.load()), qp.rq.posted.load() - qp.rq.taken.load());
    }
    for (unsigned i = 0; i < kSrqsPerSlot; ++i)
      if (slot.srqs[i].in_use.load() != 0) printf("  srq %u\n", i);
    if (const size_t regions = fabric.memory_regions(number); regions != 0) printf("  %zu memory regions\n", regions);
  });
  for (unsigned i = 0; i < fabric.hub().targets_end.load(); ++i)
    if (const uint32_t qpn = fabric.xrc_target(i).qp_num.load(); qpn != 0) printf("xrc target 0x%06x\n", qpn);
  for (const CmListener& listener : fabric.hub().listeners)
    if (listener.in_use.load(std::memory_order_acquire) == 2 && fabric.live_slot(listener.slot) != nullptr)
      printf("slot %u listens on port %u of port space 0x%x\n", listener.slot, listener.port, listener.port_space);
}

// --- Rules and options

void set_faults(Arguments arguments) {
  FabricView fabric;
  const std::string path = arguments[0], text = text_of(path);
  std::vector<faults::Rule> rules;
  if (const std::string errors = faults::parse_rules(text, rules); !errors.empty())
    give_up(in_each_line(path == "-" ? "" : path + ", ", errors) +
            "the old rules hold; softhca-ctl options has the grammar");

  // In one step: nobody reads half of it.
  const std::string installed = fabric.directory() + "/faults";
  std::ofstream(installed + ".new") << text;
  if (rename((installed + ".new").c_str(), installed.c_str()) != 0) give_up("the rules cannot be written");
  fabric.hub().faults_version.fetch_add(1);
  ring_all(fabric, kLookFaults);
}

void options(Arguments) {
  printf("%s%s", config_help().c_str(), faults::grammar().c_str());
}

// --- What softhca-run needs

void suggest(Arguments arguments) {
  printf("%s\n", suggestion(arguments[0], {arguments.begin() + 1, arguments.end()}).c_str());
}

bool signal_all(FabricView& fabric, int signal) {
  bool any = false;
  fabric.for_each_live([&](unsigned slot, Slot&) {
    any = true;
    if (const pid_t pid = fabric.owner_of(slot); pid != 0) kill(pid, signal);
  });
  return any;
}

void members(Arguments) {
  const char* directory = getenv("SOFTHCA_DIR");
  exit(directory != nullptr && FabricView::has_members(directory) ? 0 : 1);
}

void end(Arguments) {
  FabricView fabric;
  if (!signal_all(fabric, SIGTERM)) return;
  for (int i = 0; i < 100 && signal_all(fabric, 0); ++i) usleep(10000);
  for (int i = 0; i < 100 && signal_all(fabric, SIGKILL); ++i) usleep(10000);
}

constexpr size_t kAnyCount = SIZE_MAX;

struct Command {
  const char* name;
  const char* arguments;
  size_t least;
  size_t most;
  void (*run)(Arguments arguments);
  const char* help;  // nullptr: it is for softhca-run alone
};
constexpr Command kCommands[] = {
    {"list", "", 0, 0, list, "the processes of the fabric with what they have made, and who listens for connections"},
    {"top", "[--once [--json]]", 0, 2, top, "who uses the fabric and how much, each second"},
    {"faults", "FILE|-", 1, 1, set_faults, "these fault rules hold from now on"},
    {"port-down", "NODE DEVICE PORT", 3, 3, port_down, "the link of a port goes down"},
    {"port-up", "NODE DEVICE PORT", 3, 3, port_up, "and comes up again"},
    {"lid-change", "NODE DEVICE PORT", 3, 3, lid_change, "a port gets another LID"},
    {"gid-change", "NODE DEVICE PORT", 3, 3, gid_change, "a port gets other GIDs (those of an IP address stay)"},
    {"device-fatal", "NODE DEVICE", 2, 2, device_fatal, "all open contexts of a device fail, and are cut off"},
    {"qp-fatal", "QPN", 1, 1, qp_fatal, "a queue pair fails"},
    {"qp-access", "QPN", 1, 1, qp_access, "a queue pair fails, since the peer has asked for what it may not have"},
    {"cq-error", "SLOT CQ", 2, 2, cq_error, "a completion queue fails"},
    {"kill", "SLOT", 1, 1, kill_process, "SIGKILL for a process"},
    {"options", "", 0, 0, options, "all options of softhca-run --set, and the grammar of fault rules"},
    {"members", "", 0, 0, members, "status 0: some process of the fabric lives"},
    {"end", "", 0, 0, end, "ends all processes of the fabric"},
    {"start", "", 1, kAnyCount, start, nullptr},
    {"suggest", "", 1, kAnyCount, suggest, nullptr},
};

void print_help() {
  printf(
      "usage: softhca-ctl [--join NAME] COMMAND [ARGUMENT]...\n"
      "Looks at a running fabric and breaks it: that of softhca-run --join NAME; else, below softhca-run, its own; else the only\n"
      "one that this user has.\n");
  for (const Command& command : kCommands)
    if (command.help != nullptr) printf("  %-13s %-17s %s\n", command.name, command.arguments, command.help);
  printf("  --help, --version\n");
}

const Command& find_command(const char* name) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (std::strcmp(name, command.name) == 0) return command;
    if (command.help != nullptr) names.emplace_back(command.name);
  }
  give_up("there is no command " + quoted(name) + suggestion(name, names) + " (--help)");
}

int run(Arguments arguments) {
  while (!arguments.empty() && arguments[0][0] == '-') {
    const std::string option = arguments[0];
    if (option == "--help" || option == "-h") return print_help(), 0;
    if (option == "--version") return puts("softhca-ctl " SOFTHCA_VERSION), 0;
    if (option != "--join")
      give_up("there is no option " + quoted(option) + suggestion(option, {"--join", "--help", "--version"}));
    if (arguments.size() < 2) give_up("--join needs the NAME of a fabric");
    setenv("SOFTHCA_DIR", find_fabric(arguments[1]).c_str(), 1);
    arguments = arguments.subspan(2);
  }
  if (arguments.empty()) return print_help(), 2;
  const Command& command = find_command(arguments[0]);
  arguments = arguments.subspan(1);
  if (arguments.size() < command.least || arguments.size() > command.most)
    give_up(std::string(command.name) +
            (command.most == 0 ? " takes no argument" : std::string(" takes ") + command.arguments) +
            ", and was given " + (arguments.empty() ? "nothing" : std::to_string(arguments.size())));
  command.run(arguments);
  return 0;
}

}  // namespace
}  // namespace softhca

int main(int argc, char** argv) {
  return softhca::run({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)});
}
