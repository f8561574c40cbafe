// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_top/view.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/host_name.h"
#include "common/base/printable.h"

namespace fabric::top {
namespace {

using Json = nlohmann::ordered_json;

/// Of a counter, per second, without fractions of one. What has not grown has no rate: a page may say anything.
class Interval {
 public:
  explicit Interval(double seconds) noexcept : seconds_(seconds) {}
  [[nodiscard]] std::uint64_t rate(std::uint64_t before, std::uint64_t now) const noexcept {
    constexpr double kMost = 1e18;
    return now > before && seconds_ > 0
               ? static_cast<std::uint64_t>(std::min(std::round(static_cast<double>(now - before) / seconds_), kMost))
               : 0;
  }

 private:
  double seconds_;
};

struct FlowName {
  const char* name;
  std::uint64_t Flow::*value;
};
constexpr std::array<FlowName, 9> kFlow = {{{"messages_sent", &Flow::messages_sent},
                                            {"bytes_sent", &Flow::bytes_sent},
                                            {"packets_received", &Flow::packets_received},
                                            {"puts", &Flow::puts},
                                            {"put_bytes", &Flow::put_bytes},
                                            {"gets", &Flow::gets},
                                            {"get_bytes", &Flow::get_bytes},
                                            {"atomics", &Flow::atomics},
                                            {"packets_resent", &Flow::packets_resent}}};

std::string name_of(const Port& port) {
  return port.device.get() + ':' + std::to_string(port.number);
}

Json peer_of(const Peer& peer, const Image& image, const Interval& interval) {
  const Port& port = image.ports[peer.port];
  Json told{{"rank", peer.rank},           {"job", peer.job},          {"port", name_of(port)},
            {"path", port.path},           {"link", port.link.get()},  {"remote_port", peer.remote_port},
            {"method", peer.method.get()}, {"state", peer.state.get()}};
  Json rates = Json::object();
  for (const auto& [name, value] : kFlow) {
    told[name] = peer.now.*value;
    rates[name] = interval.rate(peer.before.*value, peer.now.*value);
  }
  told["heals"] = peer.heals;
  told["waiting"] = {
      {"connection", peer.wait_for_connection}, {"credit", peer.wait_for_credit}, {"room", peer.wait_for_room}};
  told["under_way"] = peer.under_way;
  told["rdma_open"] = peer.rdma_open;
  if (peer.credits != Peer::kNone) {
    told["credits"] = peer.credits;
    told["credits_queue"] = peer.credits_queue;
  }
  told["per_s"] = std::move(rates);
  return told;
}

std::uint64_t number(const Json& of, const char* name) {
  return of.value(name, std::uint64_t{0});
}

/// What the process has sent and taken altogether, of its counters: peers beyond the table are in it.
Json sums_of(const Json& counters) {
  return {{"messages_sent", number(counters, "messages_sent_inline") + number(counters, "messages_sent_copied") +
                                number(counters, "messages_sent_in_place") + number(counters, "messages_coalesced")},
          {"bytes_sent", number(counters, "bytes_sent")},
          {"messages_received", number(counters, "messages_received")},
          {"bytes_received", number(counters, "bytes_received")},
          {"rdma", number(counters, "puts") + number(counters, "gets") + number(counters, "atomics_by_device") +
                       number(counters, "atomics_by_message")},
          {"rdma_bytes", number(counters, "put_bytes") + number(counters, "get_bytes")},
          {"waits_for_connection", number(counters, "waits_for_connection")},
          {"waits_for_credit", number(counters, "waits_for_credit")},
          {"waits_for_slot", number(counters, "waits_for_slot")},
          {"waits_for_buffer", number(counters, "waits_for_buffer")},
          {"packets_resent", number(counters, "packets_resent")}};
}

/// Whoever is idle comes to MPI to wait. Who has not for a while is told of as such, and has no rates.
const char* state_of(const Shown& shown, bool is_stale) {
  if (shown.state == 'T' || shown.state == 't') {
    return "stopped";
  }
  return is_stale ? "outside MPI" : "in MPI";
}

Json process_of(const Shown& shown, std::uint64_t now_ns) {
  const Image& image = *shown.page.image;
  const Process& process = image.process;
  const std::uint64_t age = now_ns > process.now_ns ? now_ns - process.now_ns : 0;
  const bool is_stale = age > kStale;
  const std::uint64_t took = process.now_ns > process.before_ns ? process.now_ns - process.before_ns : 0;
  const Interval interval(is_stale ? 0 : static_cast<double>(took) / 1e9);
  Json counters = Json::object();
  Json rates = Json::object();
  for (const Counter& counter : std::span(image.counters).first(process.counters)) {
    const std::string name = counter.name.get();
    counters[name] = counter.now;
    rates[name] = interval.rate(counter.before, counter.now);
  }
  Json told{{"rank", process.rank},
            {"job", process.job},
            {"pid", shown.page.pid > 0 ? shown.page.pid : static_cast<pid_t>(process.pid)},
            {"user", shown.page.user},
            {"program", process.program.get()},
            {"version", process.version.get()},
            {"state", state_of(shown, is_stale)},
            {"age_ms", age / 1'000'000},
            {"interval_ms", took / 1'000'000}};
  told.update(sums_of(counters));
  told["per_s"] = sums_of(rates);
  Json peers = Json::array();
  for (const Peer& peer : std::span(image.peers).first(process.peers)) {
    peers.push_back(peer_of(peer, image, interval));
  }
  told["connection_memory"] = process.connection_memory;
  told["known_peers"] = process.known_peers;
  told["peers"] = std::move(peers);
  told["counters"] = std::move(counters);
  return told;
}

Json nic_of(const NicName& nic, const NicLook& look, const Nics& before) {
  Json counters = Json::object();
  Json rates = Json::object();
  const auto last = before.find(nic);
  for (const auto& [name, value] : look.counters) {
    counters[name] = value;
    if (last == before.end()) {
      continue;
    }
    const Interval interval(std::chrono::duration<double>(look.when - last->second.when).count());
    if (const auto then = last->second.counters.find(name); then != last->second.counters.end()) {
      rates[name] = interval.rate(then->second, value);
    }
  }
  return {{"port", nic.device + ':' + std::to_string(nic.port)},
          {"counters", std::move(counters)},
          {"per_s", std::move(rates)}};
}

}  // namespace

Nics look_at_nics(const std::vector<Shown>& processes, const std::string& sysfs) {
  Nics nics;
  for (const Shown& shown : processes) {
    for (std::uint32_t i = 0; shown.page.image != nullptr && i < shown.page.image->process.ports; ++i) {
      const Port& port = shown.page.image->ports[i];
      const NicName name{port.device.get(), port.number};
      if (!nics.contains(name)) {
        nics.emplace(name, look_at_nic(name, sysfs));
      }
    }
  }
  return nics;
}

Json view_of(const std::vector<Shown>& processes, const Nics& nics, const Nics& before, std::uint64_t now_ns) {
  Json told{
      {"host", host_name()}, {"processes", Json::array()}, {"ports", Json::array()}, {"not_shown", Json::array()}};
  for (const Shown& shown : processes) {
    if (shown.page.image != nullptr) {
      told["processes"].push_back(process_of(shown, now_ns));
    } else if (!shown.page.is_stale) {
      told["not_shown"].push_back({{"page", printable(shown.page.path)}, {"why", shown.page.why_not}});
    }
  }
  std::sort(told["processes"].begin(), told["processes"].end(), [](const Json& one, const Json& other) {
    return std::tuple(number(one, "job"), number(one, "rank")) <
           std::tuple(number(other, "job"), number(other, "rank"));
  });
  for (const auto& [name, look] : nics) {
    told["ports"].push_back(nic_of(name, look, before));
  }
  return told;
}

}  // namespace fabric::top
