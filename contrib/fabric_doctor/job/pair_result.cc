// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/pair_result.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "contrib/fabric_doctor/job/outliers.h"

namespace fabric::doctor {
namespace {

using Json = nlohmann::ordered_json;

std::string with_unit(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : "%.0f %s", value, unit);
  return text;
}

/// A connection between two processes, as both have seen it.
struct Tried {
  const PairResult* pair = nullptr;
  ConnectionResult result;
  bool is_chosen = false;  ///< of the methods of its ports the one that Open MPI would choose
  std::string lost;        ///< "n1: softhca0", if that has failed; empty: both devices are there
  [[nodiscard]] std::string where() const { return pair->names + " (" + result.ports + ")"; }
};

std::string text_of(const LostDevice& lost) {
  return lost.host + ": " + lost.device;
}

/// Which device of these ports, "softhca0:1 - softhca1:1", is lost; empty: none.
std::string lost_of(const PairResult& pair, const std::string& ports, const std::vector<LostDevice>& lost) {
  const std::size_t middle = ports.find(" - ");
  const std::string_view first = std::string_view(ports).substr(0, middle);
  const std::string_view second = middle == std::string::npos ? "" : std::string_view(ports).substr(middle + 3);
  for (const LostDevice& one : lost) {
    const std::string begin = one.device + ":";
    if ((one.rank == pair.a && first.starts_with(begin)) || (one.rank == pair.b && second.starts_with(begin))) {
      return text_of(one);
    }
  }
  return {};
}

/// The lower rank's results; where it has seen no error, those that the other one has.
std::vector<Tried> merged(const std::vector<PairResult>& pairs, const std::vector<LostDevice>& lost) {
  std::vector<Tried> all;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string, std::string>, std::size_t> places;
  for (const PairResult& pair : pairs) {
    std::set<std::string> ports;
    for (const ConnectionResult& one : pair.connections) {
      const bool is_chosen = ports.insert(one.ports).second;
      const auto [place, is_new] = places.try_emplace({pair.a, pair.b, one.ports, one.cpc}, all.size());
      if (is_new) {
        all.push_back({&pair, one, is_chosen, lost_of(pair, one.ports, lost)});
        continue;
      }
      ConnectionResult& known = all[place->second].result;
      const auto complete = [](std::string& into, const std::string& from) { into = into.empty() ? from : into; };
      complete(known.error, one.error);
      complete(known.message_error, one.message_error);
      complete(known.mtu_error, one.mtu_error);
      complete(known.stream_error, one.stream_error);
      known.latency_us = std::max(known.latency_us, one.latency_us);
      known.mb_per_s = std::max(known.mb_per_s, one.mb_per_s);
    }
  }
  return all;
}

std::string remedy_of(const std::string& cpc) {
  const std::string other = "; or leave it out: --mca btl_fabric_cpc_exclude " + cpc;
  if (cpc == "oob") {
    return "let TCP through between the hosts (see tcp), or name interfaces by btl_fabric_oob_if_include" + other;
  }
  if (cpc == "rdmacm") {
    return "the IP addresses of both ports' interfaces must reach each other (ping, rping), on RoCE by UDP port 4791" +
           other;
  }
  return "the subnet manager must know both ports (ibping)" + other;
}

/// The way between two ports is not to blame where a device has failed.
Finding by_device(Level level, const std::string& what, const Tried& tried) {
  return {level, what + ": see devices, " + tried.lost, {}};
}

Findings judge_devices(const std::vector<LostDevice>& lost) {
  Findings findings;
  std::set<std::string> told;  // by several processes of a host
  for (const LostDevice& one : lost) {
    if (told.insert(text_of(one)).second) {
      findings.push_back(fail(text_of(one) + " failed while it was tried",
                              "see what the kernel of that host says of it (dmesg); reset it, or leave it out: --mca "
                              "btl_fabric_if_exclude " +
                                  one.device));
    }
  }
  return findings;
}

Findings judge_reach(const std::vector<PairResult>& pairs) {
  Findings findings;
  std::set<std::string> told;
  for (const PairResult& pair : pairs) {
    if (!pair.no_ports.empty() && told.insert(pair.names).second) {
      findings.push_back(fail(pair.names + ": " + pair.no_ports,
                              "give ports that are to talk addresses of one subnet and GIDs of one version of RoCE; or "
                              "--mca btl_fabric_allow_different_subnets 1, if a router is between them"));
    }
  }
  return findings;
}

/// Where rdmacm connects, nobody needs TCP.
Findings judge_tcp(const std::vector<PairResult>& pairs, const std::vector<Tried>& tried) {
  Findings findings;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> blocked;
  std::size_t good = 0;
  for (const PairResult& pair : pairs) {
    good += pair.tcp.empty() ? 0U : 1U;
    blocked[{pair.a, pair.b}] += pair.tcp_error.empty() ? 0 : 1;
  }
  for (const PairResult& pair : pairs) {
    if (pair.tcp_error.empty()) {
      continue;
    }
    const bool works = std::any_of(tried.begin(), tried.end(), [&pair](const Tried& one) {
      return one.pair->a == pair.a && one.pair->b == pair.b && one.is_chosen && one.result.error.empty();
    });
    const bool is_both = blocked[{pair.a, pair.b}] > 1;
    findings.push_back((works ? warn : fail)(
        "TCP does not come through from " + pair.tcp_way + ": " + pair.tcp_error +
            (is_both ? "" : " (the other way it does; that is enough only where both have something to send)"),
        "open the firewall between the hosts of the job (nft list ruleset, iptables -L shows it) for all ports of TCP, or "
        "choose another interface by btl_fabric_oob_if_include"));
  }
  if (good > 0) {
    findings.insert(findings.begin(), ok("comes through, one way each: " + std::to_string(good)));
  }
  return findings;
}

Findings judge_connections(const std::vector<Tried>& tried) {
  Findings findings;
  std::map<std::string, std::tuple<std::size_t, std::size_t, double>> methods;  // good, all, slowest
  for (const Tried& one : tried) {
    auto& [good, all, slowest] = methods[one.result.cpc];
    ++all;
    if (one.result.error.empty()) {
      ++good;
      slowest = std::max(slowest, one.result.connect_ms);
      continue;
    }
    const std::string where = one.result.cpc + " does not connect " + one.where();
    if (!one.lost.empty()) {
      findings.push_back(by_device(one.is_chosen ? Level::kFail : Level::kWarn, where, one));
      continue;
    }
    const std::string what = where + ": " + one.result.error;
    findings.push_back(one.is_chosen
                           ? fail(what + "; Open MPI would choose it", remedy_of(one.result.cpc))
                           : warn(what + "; Open MPI would choose another method", remedy_of(one.result.cpc)));
  }
  Findings good_ones;
  for (const auto& [cpc, counts] : methods) {
    if (const auto& [good, all, slowest] = counts; good > 0) {
      good_ones.push_back(ok(cpc + ": " + std::to_string(good) + " of " + std::to_string(all) +
                             " connections, the slowest " + with_unit(slowest, "ms")));
    }
  }
  findings.insert(findings.begin(), good_ones.begin(), good_ones.end());
  return findings;
}

Findings judge_packets(const std::vector<Tried>& tried) {
  Findings findings;
  std::map<std::uint32_t, std::size_t> good;
  for (const Tried& one : tried) {
    const std::string by = one.where() + " by " + one.result.cpc;
    const bool is_good =
        one.result.message_error.empty() && one.result.mtu_error.empty() && one.result.stream_error.empty();
    if (!is_good && !one.lost.empty()) {
      findings.push_back(by_device(Level::kFail, "messages do not come through, " + by, one));
    } else if (!one.result.message_error.empty()) {
      findings.push_back(
          fail("connected, but no message of 8 bytes comes through, " + by + ": " + one.result.message_error,
               "on RoCE v2 open UDP port 4791 between the hosts, and compare VLANs, GIDs and flow control of "
               "both ports; on InfiniBand look at the path (ibdiagnet)"));
    } else if (!one.result.mtu_error.empty()) {
      findings.push_back(fail("packets of " + std::to_string(one.result.mtu) +
                                  " bytes do not come through, though short ones "
                                  "do, " +
                                  by + ": " + one.result.mtu_error,
                              "raise the MTU of the switches between them, or --mca btl_fabric_mtu 1024"));
    } else if (!one.result.stream_error.empty()) {
      findings.push_back(
          fail("short and full packets come through, but not many messages, " + by + ": " + one.result.stream_error,
               "look whether the peer was stopped or has ended, or its device is gone (dmesg); then at flow "
               "control of both ports and the switches between them (ethtool -S, perfquery)"));
    } else if (one.result.error.empty()) {
      ++good[one.result.mtu];
    }
  }
  for (const auto& [mtu, count] : good) {
    findings.insert(findings.begin(), ok("of " + std::to_string(mtu) + " bytes came through both ways over " +
                                         std::to_string(count) + (count == 1 ? " connection" : " connections")));
  }
  return findings;
}

/// Of pairs of one host, or of pairs of two.
void judge_figures(const std::vector<Tried>& tried, bool is_same_host, double ConnectionResult::*figure,
                   const char* unit, Findings& findings) {
  const bool more_is_better = figure == &ConnectionResult::mb_per_s;
  std::vector<double> figures;
  std::vector<const Tried*> owners;
  for (const Tried& one : tried) {
    if (one.pair->is_same_host == is_same_host && one.result.*figure > 0) {
      figures.push_back(one.result.*figure);
      owners.push_back(&one);
    }
  }
  if (figures.empty()) {
    return;
  }
  const double middle = median(figures);
  const auto [least, most] = std::minmax_element(figures.begin(), figures.end());
  findings.push_back(ok(std::string(is_same_host ? "within a host" : "between hosts") + ": median " +
                        with_unit(middle, unit) + ", from " + with_unit(*least, unit) + " to " +
                        with_unit(*most, unit)));
  if (is_same_host) {
    return;  // MPI has shared memory there, and the processes of a host disturb each other
  }
  for (const std::size_t i : outliers(figures, more_is_better)) {
    findings.push_back(
        warn(owners[i]->where() + ": " + with_unit(figures[i], unit) + ", far from the median",
             "look at that host and that path: other load, a link of lower speed or width (ibstatus), power "
             "saving, a device far from the processor"));
  }
}

Findings judge_figures(const std::vector<Tried>& tried, double ConnectionResult::*figure, const char* unit) {
  Findings findings;
  for (const bool is_same_host : {false, true}) {
    judge_figures(tried, is_same_host, figure, unit, findings);
  }
  return findings;
}

}  // namespace

std::vector<CheckResult> judge_pairs(const std::vector<PairResult>& pairs, std::uint64_t all_pairs,
                                     const std::vector<LostDevice>& lost) {
  const std::vector<Tried> tried = merged(pairs, lost);
  std::set<std::pair<std::uint32_t, std::uint32_t>> different;
  for (const PairResult& pair : pairs) {
    different.insert({pair.a, pair.b});
  }
  std::vector<CheckResult> results;
  results.push_back(
      {"pairs",
       {ok(std::to_string(different.size()) + " of " + std::to_string(all_pairs) + " pairs of processes tried")}});
  results.push_back({"devices", judge_devices(lost)});
  results.push_back({"reach", judge_reach(pairs)});
  results.push_back({"tcp", judge_tcp(pairs, tried)});
  results.push_back({"connect", judge_connections(tried)});
  results.push_back({"packets", judge_packets(tried)});
  results.push_back({"latency", judge_figures(tried, &ConnectionResult::latency_us, "us")});
  results.push_back({"bandwidth", judge_figures(tried, &ConnectionResult::mb_per_s, "MB/s")});
  return results;
}

void to_json(Json& json, const PairResult& pair) {
  Json connections = Json::array();
  for (const ConnectionResult& one : pair.connections) {
    connections.push_back({{"ports", one.ports},
                           {"cpc", one.cpc},
                           {"error", one.error},
                           {"connect_ms", one.connect_ms},
                           {"message_error", one.message_error},
                           {"mtu", one.mtu},
                           {"mtu_error", one.mtu_error},
                           {"stream_error", one.stream_error},
                           {"latency_us", one.latency_us},
                           {"mb_per_s", one.mb_per_s}});
  }
  json = {{"a", pair.a},
          {"b", pair.b},
          {"names", pair.names},
          {"is_same_host", pair.is_same_host},
          {"no_ports", pair.no_ports},
          {"tcp", pair.tcp},
          {"tcp_error", pair.tcp_error},
          {"tcp_way", pair.tcp_way},
          {"connections", std::move(connections)}};
}

void from_json(const Json& json, PairResult& pair) {
  const auto text = [](const Json& from, const char* name) { return from.at(name).get<std::string>(); };
  pair.a = json.at("a").get<std::uint32_t>();
  pair.b = json.at("b").get<std::uint32_t>();
  pair.names = text(json, "names");
  pair.is_same_host = json.at("is_same_host").get<bool>();
  pair.no_ports = text(json, "no_ports");
  pair.tcp = text(json, "tcp");
  pair.tcp_error = text(json, "tcp_error");
  pair.tcp_way = text(json, "tcp_way");
  for (const Json& one : json.at("connections")) {
    pair.connections.push_back({text(one, "ports"), text(one, "cpc"), text(one, "error"),
                                one.at("connect_ms").get<double>(), text(one, "message_error"),
                                one.at("mtu").get<std::uint32_t>(), text(one, "mtu_error"), text(one, "stream_error"),
                                one.at("latency_us").get<double>(), one.at("mb_per_s").get<double>()});
  }
}

void to_json(Json& json, const LostDevice& lost) {
  json = {{"rank", lost.rank}, {"host", lost.host}, {"device", lost.device}};
}

void from_json(const Json& json, LostDevice& lost) {
  lost = {json.at("rank").get<std::uint32_t>(), json.at("host").get<std::string>(),
          json.at("device").get<std::string>()};
}

}  // namespace fabric::doctor
