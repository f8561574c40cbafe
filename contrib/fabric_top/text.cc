// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_top/text.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/counted.h"
#include "contrib/fabric_top/nic_counters.h"

namespace fabric::top {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t number(const Json& of, const char* name) {
  return of.value(name, std::uint64_t{0});
}
std::string text(const Json& of, const char* name) {
  return of.value(name, std::string());
}

/// A column: negative widths are of text, which begins at the left and is cut.
struct Column {
  const char* head;
  int width;
};

template <std::size_t kCount>
std::string line(const std::array<Column, kCount>& columns, const std::array<std::string, kCount>& values) {
  std::ostringstream out;
  for (std::size_t i = 0; i < kCount; ++i) {
    const int width = columns[i].width;
    out << (i > 0 ? " " : "") << (width < 0 ? std::left : std::right) << std::setw(std::abs(width))
        << (width < 0 ? values[i].substr(0, static_cast<std::size_t>(-width)) : values[i]);
  }
  std::string whole = out.str();
  whole.erase(whole.find_last_not_of(' ') + 1);
  return whole;
}

template <std::size_t kCount>
std::string head(const std::array<Column, kCount>& columns) {
  std::array<std::string, kCount> names;
  std::transform(columns.begin(), columns.end(), names.begin(), [](const Column& column) { return column.head; });
  return line(columns, names);
}

/// Lines, of which those with the largest numbers come first.
struct Table {
  std::string head;
  std::vector<std::pair<std::uint64_t, std::string>> lines;

  void append_to(std::vector<std::string>& page, std::size_t most) {
    std::stable_sort(lines.begin(), lines.end(),
                     [](const auto& one, const auto& other) { return one.first > other.first; });
    if (lines.empty() || most < 2) {
      return;
    }
    page.push_back(head);
    const std::size_t shown = lines.size() < most ? lines.size() : most - 2;
    for (std::size_t i = 0; i < shown; ++i) {
      page.push_back(lines[i].second);
    }
    if (shown < lines.size()) {
      page.push_back("  and " + std::to_string(lines.size() - shown) + " more");
    }
  }
};

std::string rate(const Json& of, const char* name) {
  return short_number(number(of, name));
}

/// What most wait for, of the rates of a process.
std::string what_is_waited_for(const Json& rates) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kWaits = {{{"waits_for_credit", "credit"},
                                                                          {"waits_for_slot", "slot"},
                                                                          {"waits_for_buffer", "buffer"},
                                                                          {"waits_for_connection", "connection"}}};
  const auto most = std::max_element(kWaits.begin(), kWaits.end(), [&](const auto& one, const auto& other) {
    return number(rates, one.first) < number(rates, other.first);
  });
  return number(rates, most->first) > 0 ? rate(rates, most->first) + "/s " + most->second : "-";
}

constexpr std::array<Column, 14> kProcess = {{{"RANK", 6},
                                              {"PID", 8},
                                              {"PROGRAM", -15},
                                              {"STATE", -11},
                                              {"MSG/S", 7},
                                              {"B/S", 7},
                                              {"MSG/S IN", 8},
                                              {"B/S IN", 7},
                                              {"RDMA/S", 7},
                                              {"B/S", 7},
                                              {"MEMORY", 7},
                                              {"WAITS FOR", -18},
                                              {"HEALED", 6},
                                              {"RESENT", 6}}};
constexpr std::array<Column, 15> kPeer = {{{"RANK", 6},
                                           {"PEER", 6},
                                           {"PORT", -14},
                                           {"METHOD", -7},
                                           {"STATE", -10},
                                           {"MSG/S", 7},
                                           {"B/S", 7},
                                           {"PKT/S IN", 8},
                                           {"RDMA/S", 7},
                                           {"B/S", 7},
                                           {"CREDITS", 7},
                                           {"WAITING", 7},
                                           {"OPEN", 5},
                                           {"HEALED", 6},
                                           {"RESENT", 6}}};

void add_process(Table& table, const Json& process) {
  const Json& rates = process["per_s"];
  table.lines.emplace_back(
      number(rates, "bytes_sent") + number(rates, "bytes_received") + number(rates, "rdma_bytes") +
          number(rates, "messages_sent"),
      line(kProcess,
           {std::to_string(number(process, "rank")), std::to_string(number(process, "pid")), text(process, "program"),
            text(process, "state"), rate(rates, "messages_sent"), rate(rates, "bytes_sent"),
            rate(rates, "messages_received"), rate(rates, "bytes_received"), rate(rates, "rdma"),
            rate(rates, "rdma_bytes"), short_number(number(process, "connection_memory")), what_is_waited_for(rates),
            short_number(number(process["counters"], "connections_healed")),
            short_number(number(process, "packets_resent"))}));
}

/// Other jobs' peers are told with their job. A path of a port is told where there are several.
void add_peer(Table& table, const Json& process, const Json& peer) {
  const Json& rates = peer["per_s"];
  const Json& waiting = peer["waiting"];
  const std::uint64_t waits = number(waiting, "connection") + number(waiting, "credit") + number(waiting, "room");
  const std::uint64_t rdma_bytes = number(rates, "put_bytes") + number(rates, "get_bytes");
  const std::string job = peer["job"] == process["job"] ? "" : std::to_string(number(peer, "job")) + '.';
  const std::string path = number(peer, "path") > 0 ? '/' + std::to_string(number(peer, "path")) : "";
  std::string why;
  if (waits > 0) {
    why = number(waiting, "credit") > 0 ? "c" : number(waiting, "room") > 0 ? "r" : "-";
  }
  table.lines.emplace_back(
      number(rates, "bytes_sent") + rdma_bytes + number(rates, "messages_sent") + number(rates, "packets_received"),
      line(kPeer, {std::to_string(number(process, "rank")), job + std::to_string(number(peer, "rank")),
                   text(peer, "port") + path, text(peer, "method"), text(peer, "state"), rate(rates, "messages_sent"),
                   rate(rates, "bytes_sent"), rate(rates, "packets_received"),
                   short_number(number(rates, "puts") + number(rates, "gets") + number(rates, "atomics")),
                   short_number(rdma_bytes), peer.contains("credits") ? std::to_string(number(peer, "credits")) : "-",
                   short_number(waits) + why, short_number(number(peer, "under_way") + number(peer, "rdma_open")),
                   short_number(number(peer, "heals")), short_number(number(peer, "packets_resent"))}));
}

/// InfiniBand counts data in words of four bytes, whatever the link.
std::string line_of_nic(const Json& nic) {
  std::string told = text(nic, "port") + ':';
  const Json& counters = nic["counters"];
  if (counters.empty()) {
    return told + " the device counts nothing";
  }
  const Json& rates = nic["per_s"];
  if (counters.contains("port_xmit_data")) {
    told += ' ' + short_number(4 * std::min(number(rates, "port_xmit_data"), UINT64_MAX / 4)) + "B/s out, " +
            short_number(4 * std::min(number(rates, "port_rcv_data"), UINT64_MAX / 4)) + "B/s in;";
  }
  std::string trouble;
  for (const auto& [name, value] : counters.items()) {
    if (counts_trouble(name) && value != 0) {
      const std::uint64_t now = number(rates, name.c_str());
      trouble += (trouble.empty() ? " " : ", ") + name + ' ' + std::to_string(value.get<std::uint64_t>()) +
                 (now > 0 ? " (" + short_number(now) + "/s)" : "");
    }
  }
  return told + (trouble.empty() ? " nothing lost or sent again" : trouble);
}

std::string first_line(const Json& view) {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  for (const Json& process : view["processes"]) {
    messages += number(process["per_s"], "messages_sent");
    bytes += number(process["per_s"], "bytes_sent") + number(process["per_s"], "rdma_bytes");
  }
  return text(view, "host") + ": " + counted(view["processes"].size(), "process", "processes") + ", " +
         short_number(messages) + " messages/s and " + short_number(bytes) + "B/s sent, read and written";
}

}  // namespace

std::string short_number(std::uint64_t value) {
  constexpr std::array<const char*, 7> kUnits = {"", "k", "M", "G", "T", "P", "E"};
  if (value < 10000) {
    return std::to_string(value);
  }
  std::size_t unit = 0;
  std::uint64_t rest = 0;
  for (; value >= 1000; value /= 1000) {
    rest = value % 1000;
    ++unit;
  }
  return std::to_string(value) + (value < 100 ? '.' + std::to_string(rest / 100) : "") + kUnits[unit];
}

std::string as_text(const Json& view, const Place& place) {
  Table processes{head(kProcess), {}};
  Table peers{head(kPeer), {}};
  std::uint64_t cut = 0;
  for (const Json& process : view["processes"]) {
    add_process(processes, process);
    for (const Json& peer : process["peers"]) {
      add_peer(peers, process, peer);
    }
    cut += number(process, "known_peers") - process["peers"].size();
  }
  std::vector<std::string> last;
  if (cut > 0) {
    last.push_back(counted(cut, "peer", "peers") + " with less traffic: not in the pages of the processes");
  }
  for (const Json& nic : view["ports"]) {
    last.push_back(line_of_nic(nic));
  }
  for (const Json& page : view["not_shown"]) {
    last.push_back(text(page, "page") + " is not shown: " + text(page, "why"));
  }
  const std::size_t most_last = place.lines == SIZE_MAX ? last.size() : std::min(last.size(), place.lines / 4);
  const std::size_t room = place.lines == SIZE_MAX ? SIZE_MAX : place.lines - std::min(place.lines, 1 + most_last);
  std::vector<std::string> page{first_line(view)};
  processes.append_to(page, room == SIZE_MAX ? room : room / 2);
  peers.append_to(page, room == SIZE_MAX ? room : room - std::min(room, page.size() - 1));
  page.insert(page.end(), last.begin(), last.begin() + static_cast<std::ptrdiff_t>(most_last));
  std::string all;
  for (const std::string& one : page) {
    all += one.substr(0, place.columns) + '\n';
  }
  return all;
}

}  // namespace fabric::top
