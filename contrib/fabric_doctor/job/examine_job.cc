// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/examine_job.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "common/base/host_name.h"
#include "common/ports/port_pairing.h"
#include "contrib/fabric_doctor/checks/check_list.h"
#include "contrib/fabric_doctor/host.h"
#include "contrib/fabric_doctor/job/connector.h"
#include "contrib/fabric_doctor/job/rounds.h"
#include "contrib/fabric_doctor/job/tcp.h"
#include "contrib/fabric_doctor/port_text.h"
#include "cpc/core/choose.h"
#include "cpc/oob/oob.h"
#include "cpc/registry/registry.h"

namespace fabric::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// What each process knows of every other one.
struct Member {
  std::string host;
  std::vector<std::string> ports;  ///< their names
  ProcessInfo info;                ///< without ports if it has none that it can use
  std::string why_no_ports;
};

/// What a device, a parameter or a peer says need be no UTF-8.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json as_json(const Member& member) {
  Json json = {{"host", member.host}, {"ports", member.ports}, {"why", member.why_no_ports}};
  if (!member.info.ports.empty()) {
    json["info"] = encode(member.info);
  }
  return json;
}

Member member_of(const std::string& text) {
  Member member;
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    member.host = "?";
    member.why_no_ports = "it has said nothing";
    return member;
  }
  member.host = json.at("host").get<std::string>();
  member.ports = json.at("ports").get<std::vector<std::string>>();
  member.why_no_ports = json.at("why").get<std::string>();
  if (!json.contains("info")) {
    return member;
  }
  const auto bytes = json.at("info").get<std::vector<std::byte>>();
  if (auto info = decode_process_info(bytes, cpc::is_registered); info) {
    member.info = std::move(*info);
  } else if (member.why_no_ports.empty()) {
    member.why_no_ports = info.error().text;
  }
  return member;
}

/// The methods by which a port of one process is connected with one of another, that first which Open MPI would choose. Both processes
/// come to the same list.
std::vector<const CpcOffer*> methods_between(const Member& self, std::uint16_t ours, const Member& peer,
                                             std::uint16_t theirs) {
  std::vector<cpc::CpcTraits> left;
  for (const cpc::CpcTraits& one : cpc::kCpcTraits) {
    if (!one.one_way) {  // X queues are for what they are asked for by name
      left.push_back(one);
    }
  }
  std::vector<const CpcOffer*> methods;
  for (;;) {
    const CpcOffer* const chosen = cpc::choose_cpc(left, self.info, ours, peer.info, theirs);
    if (chosen == nullptr) {
      return methods;
    }
    methods.push_back(chosen);
    std::erase_if(left, [chosen](const cpc::CpcTraits& one) { return one.kind == chosen->kind; });
  }
}

class Examination {
 public:
  Examination(Job& job, const Host& host) : job_(job), host_(host) {
    Member self;
    self.host = host_name();
    if (host.scan.ports.empty()) {
      self.why_no_ports = "it has no port that can be used";
    } else if (auto made = Connector::make(job.rank(), host.scan.ports, host.parameters); !made) {
      self.why_no_ports = made.error().text;
    } else {
      connector_ = std::move(*made);
      self.info = connector_->info();
      for (const UsablePort& port : host.scan.ports) {
        self.ports.push_back(port.name());
      }
    }
    for (const std::string& text : job.tell_all("doctor.member", dump(as_json(self)))) {
      members_.push_back(member_of(text));
    }
  }

  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }

  [[nodiscard]] JobShape shape() const {
    std::map<std::string, std::int64_t> hosts;
    JobShape shape{0, 1};
    for (const Member& member : members_) {
      shape.processes = std::max(shape.processes, ++hosts[member.host]);
    }
    shape.hosts = static_cast<std::int64_t>(hosts.size());
    return shape;
  }
  /// The lowest rank of its host.
  [[nodiscard]] bool speaks_for_host() const {
    const Member& self = members_[job_.rank()];
    return &*std::find_if(members_.begin(), members_.end(),
                          [&self](const Member& one) { return one.host == self.host; }) == &self;
  }

  void try_partners(std::uint32_t rounds) {
    for (std::uint32_t round = 0; round < std::min(rounds, rounds_for_all(job_.size())); ++round) {
      job_.meet_all();
      const auto partner = partner_of(job_.rank(), job_.size(), round);
      if (partner) {
        try_partner(*partner);
      }
      if (!job_.pairs_can_meet()) {
        wait_for_others(round, partner ? meetings_of(job_.rank(), *partner) : 0);
      }
    }
  }
  [[nodiscard]] const std::vector<PairResult>& pairs() const noexcept { return pairs_; }
  /// Those of this process.
  [[nodiscard]] std::vector<LostDevice> lost_devices() const {
    std::vector<LostDevice> lost;
    for (const std::string& name : connector_ ? connector_->lost_devices() : std::vector<std::string>()) {
      lost.push_back({job_.rank(), members_[job_.rank()].host, name});
    }
    return lost;
  }

 private:
  [[nodiscard]] std::size_t meetings_of(std::uint32_t a, std::uint32_t b) const;
  void wait_for_others(std::uint32_t round, std::size_t had) const;
  void try_partner(std::uint32_t partner);
  void try_tcp(const Member& peer, PairResult& pair);
  void try_ports(std::uint32_t partner, std::uint16_t ours, std::uint16_t theirs, PairResult& pair);
  [[nodiscard]] ConnectionResult try_method(const Connector::Attempt& attempt, const ProcessInfo& peer, bool is_first,
                                            bool measures);

  Job& job_;
  const Host& host_;
  std::unique_ptr<Connector> connector_;
  std::vector<Member> members_;
  std::vector<PairResult> pairs_;
};

/// How often two processes meet in their round: once for each connection.
std::size_t Examination::meetings_of(std::uint32_t a, std::uint32_t b) const {
  const Member& self = members_[a];
  const Member& peer = members_[b];
  const bool any_subnet = host_.parameters.values().allow_different_subnets != 0;
  std::size_t meetings = 0;
  const auto partners = pair_ports(self.info.ports, peer.info.ports, any_subnet);
  for (std::uint16_t ours = 0; ours < partners.size(); ++ours) {
    meetings += partners[ours] ? methods_between(self, ours, peer, *partners[ours]).size() : 0;
  }
  return meetings;
}

/// Meets as often as the pair that does so most in this round, where all must.
void Examination::wait_for_others(std::uint32_t round, std::size_t had) const {
  std::size_t most = 0;
  for (std::uint32_t rank = 0; rank < job_.size(); ++rank) {
    if (const auto partner = partner_of(rank, job_.size(), round); partner) {
      most = std::max(most, meetings_of(rank, *partner));
    }
  }
  for (; had < most; ++had) {
    job_.meet_all();
  }
}

void Examination::try_partner(std::uint32_t partner) {
  const Member& self = members_[job_.rank()];
  const Member& peer = members_[partner];
  PairResult pair;
  pair.a = std::min(job_.rank(), partner);
  pair.b = std::max(job_.rank(), partner);
  pair.is_same_host = self.host == peer.host;
  const auto name = [this, &pair](std::uint32_t rank) {
    return pair.is_same_host ? "rank " + std::to_string(rank) + " on " + members_[rank].host : members_[rank].host;
  };
  pair.names = name(pair.a) + " - " + name(pair.b);
  pair.tcp_way = name(job_.rank()) + " to " + name(partner);
  if (self.info.ports.empty() || peer.info.ports.empty()) {
    const Member& lacking = self.info.ports.empty() ? self : peer;
    pair.no_ports = lacking.host + ": " + lacking.why_no_ports;
    pairs_.push_back(std::move(pair));
    return;
  }
  try_tcp(peer, pair);
  const bool any_subnet = host_.parameters.values().allow_different_subnets != 0;
  const auto partners = pair_ports(self.info.ports, peer.info.ports, any_subnet);
  for (std::uint16_t ours = 0; ours < partners.size(); ++ours) {
    if (partners[ours]) {
      try_ports(partner, ours, *partners[ours], pair);
    }
  }
  if (std::none_of(partners.begin(), partners.end(), [](const auto& one) { return one.has_value(); })) {
    const PortAddress& our = self.info.ports.front();
    const PortAddress& their = peer.info.ports.front();
    pair.no_ports = "no port of " + self.host + " (" + link_text(our) + " on " + to_string(our.subnet) +
                    ") reaches one of " + peer.host + " (" + link_text(their) + " on " + to_string(their.subnet) + ")";
  }
  pairs_.push_back(std::move(pair));
}

/// To where the peer's oob listens, if it has one.
void Examination::try_tcp(const Member& peer, PairResult& pair) {
  const auto offer = std::find_if(peer.info.offers.begin(), peer.info.offers.end(),
                                  [](const CpcOffer& one) { return one.kind == cpc::kOob.kind && one.ports != 0; });
  if (offer == peer.info.offers.end()) {
    return;
  }
  const auto decoded = cpc::decode_oob_offer(offer->blob);
  if (!decoded) {
    pair.tcp_error = decoded.error().text;
    return;
  }
  std::vector<cpc::HostAddress> ours;
  if (const auto local = cpc::local_addresses(); local) {
    for (const cpc::LocalAddress& one : *local) {
      ours.push_back(one.host);
    }
  }
  if (auto reached = reach_by_tcp(addresses_to_try(*decoded, ours, pair.is_same_host)); reached) {
    pair.tcp = *reached;
  } else {
    pair.tcp_error = reached.error().text;
  }
}

/// Each method that both offer for these ports.
void Examination::try_ports(std::uint32_t partner, std::uint16_t ours, std::uint16_t theirs, PairResult& pair) {
  const Member& self = members_[job_.rank()];
  const Member& peer = members_[partner];
  const bool is_first = job_.rank() < partner;
  const std::string our_name = self.ports[ours];
  const std::string their_name = peer.ports[theirs];
  const std::string names = is_first ? our_name + " - " + their_name : their_name + " - " + our_name;
  bool measures = true;
  for (const CpcOffer* const method : methods_between(self, ours, peer, theirs)) {
    job_.meet(partner);
    const Connector::Attempt attempt{partner, ours, theirs, method->kind, true, pair.is_same_host};
    ConnectionResult result = try_method(attempt, peer.info, is_first, measures);
    result.ports = names;
    measures = measures && result.latency_us == 0 && !result.error.empty();
    pair.connections.push_back(std::move(result));
  }
  if (pair.connections.empty()) {
    pair.no_ports = "no connection method for " + names + ": " +
                    cpc::why_no_cpc(cpc::kCpcTraits, self.info, ours, peer.info, theirs);
  }
}

ConnectionResult Examination::try_method(const Connector::Attempt& attempt, const ProcessInfo& peer, bool is_first,
                                         bool measures) {
  ConnectionResult result;
  result.cpc = cpc::cpc_name(attempt.kind);
  result.mtu = mtu_bytes(std::min(connector_->info().ports[attempt.our_port].mtu, peer.ports[attempt.their_port].mtu));
  const auto begin = Clock::now();
  const Result<Wire*> wire = connector_->connect(attempt, peer);
  result.connect_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  if (!wire) {
    result.error = wire.error().text;
    return result;
  }
  constexpr std::uint32_t kShort = 8;
  if (const Status went = (*wire)->exchange(kShort, is_first); !went) {
    result.message_error = went.error().text;
  } else if (const Status full = (*wire)->exchange(result.mtu, is_first); !full) {
    result.mtu_error = full.error().text;
  } else if (measures) {
    if (const Result<Figures> figures = (*wire)->measure(is_first); figures) {
      result.latency_us = figures->latency_us;
      result.mb_per_s = figures->mb_per_s;
    } else {
      result.stream_error = figures.error().text;
    }
  }
  connector_->close(**wire);
  return result;
}

Section check_host(Host& host, const JobShape& shape, const std::string& name) {
  host.job = shape;
  Section section{"host " + name, {}};
  for (const Check& check : kChecks) {
    section.results.push_back({std::string(check.name), check.run(host)});
  }
  return section;
}

}  // namespace

JobReport examine_job(Job& job, std::uint32_t rounds) {
  Host host = look_at_host({});
  Examination examination(job, host);
  Json mine = {{"hosts", Json::array()}, {"pairs", Json::array()}};
  if (examination.speaks_for_host()) {
    mine["hosts"].push_back(check_host(host, examination.shape(), examination.members()[job.rank()].host));
  }
  examination.try_partners(rounds);
  mine["pairs"] = examination.pairs();
  mine["lost"] = examination.lost_devices();
  JobReport report;
  std::vector<LostDevice> lost;
  for (const std::string& text : job.tell_all("doctor.result", dump(mine))) {
    const Json said = Json::parse(text, nullptr, false);
    if (said.is_discarded()) {
      continue;
    }
    for (const Json& one : said.at("hosts")) {
      report.sections.push_back(one.get<Section>());
    }
    for (const Json& one : said.at("pairs")) {
      report.pairs.push_back(one.get<PairResult>());
    }
    for (const Json& one : said.at("lost")) {
      lost.push_back(one.get<LostDevice>());
    }
  }
  const std::uint64_t size = job.size();
  report.sections.push_back({"between them", judge_pairs(report.pairs, size * (size - 1) / 2, lost)});
  return report;
}

}  // namespace fabric::doctor
