// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/analysis.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/counted.h"
#include "contrib/fabric_hang/wait_graph.h"

namespace fabric::hang {
namespace {

using Json = nlohmann::ordered_json;

/// What has been seen at one look only is not waiting yet.
constexpr std::uint64_t kLeastStillMs = 50;

std::uint64_t number(const Json& of, const char* name) {
  return of.value(name, std::uint64_t{0});
}

/// A process by its name in Open MPI.
struct Name {
  std::uint64_t job = 0;
  std::uint64_t rank = 0;
  auto operator<=>(const Name&) const = default;
};

/// A peer of a process through a port of it, with what the process has told of that.
struct Way {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string port;
  const Json* told = nullptr;
};

class Analysis {
 public:
  explicit Analysis(const Json& processes);
  [[nodiscard]] Json findings();

 private:
  [[nodiscard]] std::size_t place_of(const Name& name);
  void take(const Json& process, std::size_t place);
  [[nodiscard]] const Way* other_end(const Way& way) const;
  [[nodiscard]] bool is_silent(std::size_t place) const { return silent_.contains(place); }

  void find_waits();
  void find_losses();
  [[nodiscard]] Json names() const;
  [[nodiscard]] Json ends(const WaitGraph& graph) const;
  [[nodiscard]] Json silent() const;

  std::vector<Name> names_;
  std::map<Name, std::size_t> places_;
  std::map<std::size_t, const Json*> told_by_;
  std::map<std::size_t, const Json*> silent_;
  std::vector<Way> ways_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint64_t, std::uint64_t>, std::size_t> way_by_ports_;
  std::vector<std::size_t> moving_;
  Json waits_ = Json::array();
  Json losses_ = Json::array();
};

Analysis::Analysis(const Json& processes) {
  for (const Json& process : processes) {
    take(process, place_of({number(process, "job"), number(process, "rank")}));
  }
}

std::size_t Analysis::place_of(const Name& name) {
  const auto [found, is_new] = places_.try_emplace(name, names_.size());
  if (is_new) {
    names_.push_back(name);
  }
  return found->second;
}

void Analysis::take(const Json& process, std::size_t place) {
  if (const auto told = told_by_.find(place); told != told_by_.end()) {
    // A forked child has its parent's name, and answers nothing: whoever answers is the process itself. More than one answer is of one
    // that was named twice: the first counts.
    if (process.contains("silent") || !is_silent(place)) {
      return;
    }
    silent_.erase(place);
  }
  told_by_[place] = &process;
  if (process.contains("silent")) {
    silent_[place] = &process["silent"];
  }
  if (process.value("is_moving", false)) {
    moving_.push_back(place);
  }
  const auto answer = process.find("answer");
  if (answer == process.end() || !answer->contains("ports")) {
    return;
  }
  for (const Json& port : answer->at("ports")) {
    for (const Json& peer : port.at("peers")) {
      const std::size_t to = place_of({number(peer, "job"), number(peer, "rank")});
      way_by_ports_[{place, to, number(peer, "local_port"), number(peer, "remote_port")}] = ways_.size();
      ways_.push_back({place, to, port.value("port", ""), &peer});
    }
  }
}

/// What the peer tells of the same connection; null if it has told nothing.
const Way* Analysis::other_end(const Way& way) const {
  const auto found =
      way_by_ports_.find({way.to, way.from, number(*way.told, "remote_port"), number(*way.told, "local_port")});
  return found == way_by_ports_.end() || is_silent(way.to) || is_silent(way.from) ? nullptr : &ways_[found->second];
}

/// What a peer's queue is called: "queue P,128".
std::string name_of_queue(const Json& queue) {
  return "queue " + queue.value("kind", "") + ',' + std::to_string(number(queue, "size"));
}

std::vector<std::string> reasons(const Json& peer) {
  std::vector<std::string> all;
  if (const auto broken = peer.find("broken"); broken != peer.end()) {
    all.push_back("the connection has broken " + std::to_string(number(*broken, "for_ms") / 1000) + " s ago (" +
                  broken->value("why", "") + "), and " + counted(number(*broken, "attempts"), "attempt", "attempts") +
                  " to make it anew have failed or are under way");
  }
  if (peer.contains("waits")) {
    all.push_back(peer.value("waits", "") + ", in state " + peer.value("state", "") + " (" +
                  peer.value("transitions", "") + ")");
  }
  if (peer.contains("waiting")) {
    all.push_back(counted(number(peer, "waiting"), "message waits", "messages wait") + " for the connection, and " +
                  counted(number(peer, "waiting_rdma"), "read or write", "reads and writes"));
  }
  for (const Json& queue : peer.value("queues", Json::array())) {
    if (const std::uint64_t waiting = number(queue, "waiting"); waiting > 0) {
      all.push_back(counted(waiting, "message waits", "messages wait") + " on " + name_of_queue(queue) +
                    (queue.value("waits_for", "") == "credit"
                         ? " for a credit: the peer has not taken what it was sent, or not said so"
                         : " for room in the send queue, behind what is under way"));
    }
    if (const std::uint64_t under_way = number(queue, "under_way"); under_way > 0) {
      all.push_back(counted(under_way, "message is", "messages are") + " under way on " + name_of_queue(queue) +
                    ", and the peer's adapter has not acknowledged " + (under_way == 1 ? "it" : "them") +
                    ": it has no buffer for more, or cannot be reached");
    }
  }
  if (const auto rdma = peer.find("rdma"); rdma != peer.end()) {
    if (const std::uint64_t unanswered = number(*rdma, "unanswered"); unanswered > 0) {
      all.push_back(counted(unanswered, "atomic operation", "atomic operations") +
                    " that the peer's main thread has not answered");
    }
    if (const std::uint64_t under_way = number(*rdma, "under_way"); under_way > 0) {
      all.push_back(counted(under_way, "read, write or atomic is", "reads, writes and atomics are") +
                    " under way, which the peer's adapter has not answered");
    }
  }
  return all;
}

/// A connection, and a peer through a port. A file may leave names out.
bool is_of(const Json& connection, const Json& peer) {
  return connection.contains("rank") && number(connection, "rank") == number(peer, "rank") &&
         number(connection, "job") == number(peer, "job") &&
         number(connection, "local_port") == number(peer, "local_port");
}

/// Nothing has moved between two looks, one at least.
void Analysis::find_waits() {
  for (const Way& way : ways_) {
    const Json& peer = *way.told;
    std::vector<std::string> why = reasons(peer);
    if (number(peer, "still_ms") < kLeastStillMs || peer.value("is_moving", false) || why.empty()) {
      continue;
    }
    const Json& process = *told_by_[way.from];
    for (const Json& connection : process.value("connections", Json::array())) {
      if (is_of(connection, peer)) {
        why.push_back("its progress thread: " + connection.value("state", "") +
                      (connection.contains("transitions") ? " (" + connection.value("transitions", "") + ")" : ""));
      }
    }
    waits_.push_back(
        {{"from", way.from}, {"to", way.to}, {"port", way.port}, {"still_ms", peer["still_ms"]}, {"reasons", why}});
  }
}

/// Messages that have left one side and not come to the other, and credits that neither has, where nothing moves. Two looks at both
/// sides say so, not one: they are not asked at the same moment.
void Analysis::find_losses() {
  for (const Way& way : ways_) {
    const Way* const there = other_end(way);
    const auto is_in_doubt = [](const Json& peer) {
      return peer.value("is_moving", false) || peer.value("is_new", false) || !peer.contains("queues");
    };
    if (there == nullptr || is_in_doubt(*way.told) || is_in_doubt(*there->told)) {
      continue;
    }
    const Json& ours = way.told->at("queues");
    const Json& theirs = there->told->at("queues");
    for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      const auto unseen = static_cast<std::uint32_t>(number(ours[i], "sent") - number(theirs[i], "taken"));
      const std::uint64_t under_way = number(ours[i], "under_way");
      const bool is_possible = unseen < 1U << 31;
      const std::uint64_t messages = is_possible && unseen > under_way ? unseen - under_way : 0;
      std::vector<std::string> lost;
      if (messages > 0) {
        lost.push_back(counted(messages, "message", "messages") + " on " + name_of_queue(ours[i]) +
                       (messages == 1 ? " has" : " have") + " been sent and not arrived");
      }
      if (theirs[i].contains("depth") && is_possible) {
        const std::int64_t credits = static_cast<std::int64_t>(number(theirs[i], "depth")) -
                                     static_cast<std::int64_t>(number(ours[i], "credits")) -
                                     static_cast<std::int64_t>(number(theirs[i], "missing")) -
                                     static_cast<std::int64_t>(number(theirs[i], "owed")) - unseen;
        if (credits > 0) {
          lost.push_back(counted(static_cast<std::uint64_t>(credits), "credit", "credits") + " of " +
                         std::to_string(number(theirs[i], "depth")) + " on " + name_of_queue(ours[i]) +
                         (credits == 1 ? " has" : " have") +
                         " been given back by the receiver and not arrived at the sender");
        }
      }
      for (std::string& text : lost) {
        losses_.push_back({{"from", way.from}, {"to", way.to}, {"port", way.port}, {"text", std::move(text)}});
      }
    }
  }
}

Json Analysis::names() const {
  std::set<std::uint64_t> jobs;
  for (const Name& name : names_) {
    jobs.insert(name.job);
  }
  Json all = Json::array();
  for (const Name& name : names_) {
    all.push_back((jobs.size() > 1 ? "job " + std::to_string(name.job) + " " : "") + "rank " +
                  std::to_string(name.rank));
  }
  return all;
}

Json Analysis::ends(const WaitGraph& graph) const {
  Json all = Json::array();
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::vector<std::size_t> held_up = graph.held_up_by(i);
    if (!held_up.empty() && !graph.waits(i)) {
      all.push_back({{"process", i}, {"held_up", held_up}});
    }
  }
  return all;
}

Json Analysis::silent() const {
  Json all = Json::array();
  for (const auto& [place, silence] : silent_) {
    const std::string why = silence->value("why", "");
    const std::string in =
        silence->contains("in_kernel") ? " (in the kernel: " + silence->value("in_kernel", "") + ")" : "";
    const std::string pid = std::to_string(number(*told_by_.at(place), "pid"));
    std::string text;
    bool is_fault = true;
    if (why == "stopped") {
      text = "is stopped, by SIGSTOP or a debugger: kill -CONT " + pid + " lets it go on";
    } else if (why == "computes") {
      text = "computes outside MPI, or in a call of MPI that lets nothing else happen";
      is_fault = false;
    } else if (why == "sleeps") {
      text = "sleeps outside MPI, or in a call of MPI that lets nothing else happen" + in;
      is_fault = false;
    } else if (why == "gone") {
      text = "has ended while it was asked";
    } else if (why == "closed") {
      text = "takes no questions: it begins or ends, or has btl_fabric_hang_socket 0";
      is_fault = false;
    } else if (why == "unasked") {
      text = "was not asked: fabric_hang has no file descriptor left for it (ulimit -n)";
      is_fault = false;
    } else if (why == "impostor") {
      text = "was not asked: another process has taken its address";
      is_fault = false;
    } else if (why == "nonsense") {
      text = "says what is no answer of btl_fabric";
      is_fault = false;
    } else if (why == "refused") {
      text = "answers its own user only, or is asked by too many at once";
      is_fault = false;
    } else {
      text = "does not answer at all, in state " + silence->value("state", "?") + in;
    }
    all.push_back({{"process", place}, {"text", std::move(text)}, {"is_fault", is_fault}});
  }
  return all;
}

Json Analysis::findings() {
  find_waits();
  find_losses();
  WaitGraph graph(names_.size());
  std::set<std::size_t> waiting;
  for (const Json& wait : waits_) {
    graph.add(wait["from"], wait["to"]);
    waiting.insert(wait["from"].get<std::size_t>());
  }
  Json at_rest = Json::array();
  Json strangers = Json::array();
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (const auto told = told_by_.find(i); told == told_by_.end()) {
      strangers.push_back(i);
    } else if (!is_silent(i) && !waiting.contains(i) && !told->second->value("is_moving", false)) {
      const Json& answer = told->second->value("answer", Json::object());
      at_rest.push_back({{"process", i}, {"call", answer.value("call", "")}, {"caller", answer.value("caller", "")}});
    }
  }
  std::set<std::uint64_t> jobs;
  for (const Name& name : names_) {
    jobs.insert(name.job);
  }
  return {{"names", names()},    {"jobs", jobs.size()},   {"waits", waits_},    {"cycles", graph.cycles()},
          {"ends", ends(graph)}, {"losses", losses_},     {"silent", silent()}, {"moving", moving_},
          {"at_rest", at_rest},  {"strangers", strangers}};
}

}  // namespace

Json analyse(const Json& processes) {
  return Analysis(processes).findings();
}

bool is_something_wrong(const Json& findings) {
  return !findings["waits"].empty() || !findings["losses"].empty() ||
         std::any_of(findings["silent"].begin(), findings["silent"].end(),
                     [](const Json& one) { return one["is_fault"].template get<bool>(); });
}

}  // namespace fabric::hang
