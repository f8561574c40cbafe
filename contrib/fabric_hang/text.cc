// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fabric::hang {
namespace {

using Json = nlohmann::ordered_json;
using Places = std::vector<std::size_t>;

/// Of a large job not every pair or process is listed.
constexpr std::size_t kMost = 16;

class Text {
 public:
  Text(const Json& processes, const Json& findings) : processes_(processes), findings_(findings) {}
  std::string all();

 private:
  void heading(const char* text) { text_ += std::string(text) + '\n'; }
  void line(const std::string& text) { text_ += "  " + text + '\n'; }
  [[nodiscard]] std::string name(std::size_t place) const { return findings_["names"][place].get<std::string>(); }
  [[nodiscard]] std::string names(const Places& places) const;
  [[nodiscard]] std::string where(std::size_t place) const;
  [[nodiscard]] static std::string seconds(const Json& milliseconds);
  [[nodiscard]] std::string what_of(std::size_t place) const;
  void add_wait(std::size_t from, std::size_t to);
  void add_head();
  void add_cycles();
  void add_ends();
  void add_losses();
  void add_silent();
  void add_moving();
  void add_at_rest();
  void add_counts();
  void add_strangers();

  const Json& processes_;
  const Json& findings_;
  std::set<std::pair<std::size_t, std::size_t>> told_;
  std::string text_;
};

/// "ranks 0-3, 7", or one by one where there are several jobs.
std::string Text::names(const Places& places) const {
  if (places.size() == 1 || findings_["jobs"].get<std::size_t>() > 1) {
    std::string all;
    for (const std::size_t place : places) {
      all += (all.empty() ? "" : ", ") + name(place);
    }
    return all;
  }
  std::vector<std::uint64_t> ranks;
  for (const std::size_t place : places) {
    ranks.push_back(std::stoull(name(place).substr(5)));
  }
  std::sort(ranks.begin(), ranks.end());
  std::string all;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    all += (all.empty() ? "ranks " : ", ") + std::to_string(ranks[i]);
    if (last > i) {
      all += (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]);
    }
    i = last + 1;
  }
  return all;
}

std::string Text::seconds(const Json& milliseconds) {
  const auto all = milliseconds.get<std::uint64_t>();
  return std::to_string(all / 1000) + '.' + std::to_string(all / 100 % 10) + " s";
}

/// "pid 4711 on node3"; nothing of those that nobody has asked.
std::string Text::where(std::size_t place) const {
  const std::string wanted = name(place);
  for (const Json& process : processes_) {
    const std::string rank = "rank " + std::to_string(process.value("rank", std::uint64_t{0}));
    if (wanted == rank || wanted == "job " + std::to_string(process.value("job", std::uint64_t{0})) + ' ' + rank) {
      return "pid " + std::to_string(process.value("pid", 0)) + " on " + process.value("host", "?");
    }
  }
  return "";
}

/// Of one for whom others wait.
std::string Text::what_of(std::size_t place) const {
  for (const Json& one : findings_["silent"]) {
    if (one["process"] == place) {
      return name(place) + " (" + where(place) + ") " + one["text"].get<std::string>();
    }
  }
  for (const Json& one : findings_["at_rest"]) {
    if (one["process"] == place) {
      const std::string call = one["call"];
      return name(place) + " (" + where(place) + ") is " + (call.empty() ? "inside MPI" : "in " + call) +
             ", and nothing of its own waits: " +
             (findings_["losses"].empty() ? "its adapter, or the way to it, is to blame"
                                          : "what is lost is to blame, see below");
    }
  }
  for (const Json& moving : findings_["moving"]) {
    if (moving == place) {
      return name(place) + " (" + where(place) + ") is at work with others";
    }
  }
  return name(place) + " has not been asked: it runs on another host, has ended, or belongs to somebody else";
}

void Text::add_wait(std::size_t from, std::size_t to) {
  if (!told_.emplace(from, to).second) {
    return;
  }
  for (const Json& wait : findings_["waits"]) {
    if (wait["from"] == from && wait["to"] == to) {
      line(name(from) + " (" + where(from) + ") waits for " + name(to) + "; nothing has moved for at least " +
           seconds(wait["still_ms"]) + " on " + wait["port"].get<std::string>() + ":");
      for (const Json& reason : wait["reasons"]) {
        line("    " + reason.get<std::string>());
      }
    }
  }
}

void Text::add_cycles() {
  for (const Json& cycle : findings_["cycles"]) {
    const auto places = cycle.get<Places>();
    std::string round;
    for (const std::size_t place : places) {
      round += name(place) + " -> ";
    }
    line("cycle: " + round + name(places.front()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      add_wait(places[i], places[(i + 1) % places.size()]);
    }
  }
}

void Text::add_ends() {
  for (const Json& end : findings_["ends"]) {
    const auto held_up = end["held_up"].get<Places>();
    line(what_of(end["process"]));
    line("  it holds up " + names(held_up));
  }
}

void Text::add_losses() {
  if (findings_["losses"].empty()) {
    return;
  }
  heading("LOST, OR STUCK ON THE WAY (both sides have been asked twice, and nothing has moved)");
  for (const Json& loss : findings_["losses"]) {
    line(name(loss["from"]) + " to " + name(loss["to"]) + " on " + loss["port"].get<std::string>() + ": " +
         loss["text"].get<std::string>());
  }
}

void Text::add_silent() {
  if (findings_["silent"].empty()) {
    return;
  }
  heading("NO ANSWER");
  std::map<std::string, Places> alike;
  for (const Json& one : findings_["silent"]) {
    if (one["is_fault"].get<bool>()) {
      line(name(one["process"]) + " (" + where(one["process"]) + ") " + one["text"].get<std::string>());
    } else {
      alike[one["text"]].push_back(one["process"]);
    }
  }
  for (const auto& [text, places] : alike) {
    line(names(places) + (places.size() == 1 ? " (" + where(places.front()) + ")" : " each") + ": " + text);
  }
}

void Text::add_moving() {
  if (!findings_["moving"].empty()) {
    heading("AT WORK");
    line(names(findings_["moving"].get<Places>()) + ": messages have gone or come between the two looks");
  }
}

void Text::add_at_rest() {
  if (findings_["at_rest"].empty()) {
    return;
  }
  heading("NOTHING WAITS IN THE TRANSPORT");
  std::map<std::pair<std::string, std::string>, Places> alike;
  for (const Json& one : findings_["at_rest"]) {
    alike[{one["call"], one["caller"]}].push_back(one["process"]);
  }
  for (const auto& [place, who] : alike) {
    line(names(who) + (who.size() == 1 ? " (" + where(who.front()) + ")" : "") + ": in " +
         (place.first.empty() ? "some call of MPI" : place.first) +
         (place.second.empty() ? "" : ", called from " + place.second));
  }
  if (findings_["waits"].empty() && findings_["losses"].empty() && findings_["moving"].empty()) {
    add_counts();
  }
}

/// So that people see that nothing is missing.
void Text::add_counts() {
  std::vector<std::string> pairs;
  std::map<std::string, std::uint64_t> taken;
  const auto sum = [](const Json& peer, const char* what) {
    std::uint64_t all = 0;
    for (const Json& queue : peer.value("queues", Json::array())) {
      all += queue.value(what, std::uint64_t{0});
    }
    return all;
  };
  const bool is_one = findings_["jobs"].get<std::size_t>() == 1;
  const auto called = [&](const Json& of) {
    return (is_one ? "" : "job " + std::to_string(of.value("job", std::uint64_t{0})) + " ") + "rank " +
           std::to_string(of.value("rank", std::uint64_t{0}));
  };
  std::map<std::pair<std::string, std::string>, std::pair<std::uint64_t, std::uint64_t>> counts;
  for (const Json& process : processes_) {
    const Json answer = process.value("answer", Json::object());
    for (const Json& port : answer.value("ports", Json::array())) {
      for (const Json& peer : port["peers"]) {
        counts[{called(process), called(peer)}].first += sum(peer, "sent");
        counts[{called(peer), called(process)}].second += sum(peer, "taken");
      }
    }
  }
  for (const auto& [pair, count] : counts) {
    pairs.push_back(pair.first + " has sent " + pair.second + " " + std::to_string(count.first) +
                    " packets, which has " +
                    (count.second > 0 || count.first == 0 ? "taken " + std::to_string(count.second)
                                                          : "not said what it has taken"));
  }
  for (std::size_t i = 0; i < std::min(pairs.size(), kMost); ++i) {
    line("  " + pairs[i]);
  }
  if (pairs.size() > kMost) {
    line("  and " + std::to_string(pairs.size() - kMost) + " pairs more (--json has them all)");
  }
  if (findings_["silent"].empty() && findings_["strangers"].empty()) {
    line(
        "All that MPI has sent has come. What somebody waits for has never been sent, or matches no receive: look at the calls "
        "above for");
    line("another tag, source or communicator, a receive or a collective call that is missing, or one too many.");
  } else {
    line(
        "All that these have sent has come, as far as is known: what they wait for may be what those above, or those that have "
        "not been asked, do not send.");
  }
}

void Text::add_strangers() {
  if (!findings_["strangers"].empty()) {
    heading("NOT ASKED");
    line(names(findings_["strangers"].get<Places>()) +
         ": on other hosts, ended, or somebody else's. fabric_hang(1) says how to ask all hosts.");
  }
}

void Text::add_head() {
  std::set<std::string> hosts;
  std::set<std::string> programs;
  std::set<std::uint64_t> jobs;
  for (const Json& process : processes_) {
    hosts.insert(process.value("host", "?"));
    programs.insert(process.value("program", "?"));
    jobs.insert(process.value("job", std::uint64_t{0}));
  }
  const auto listed = [](const auto& set) {
    std::string all;
    for (const std::string& one : set) {
      all += (all.empty() ? "" : ", ") + one;
    }
    return all;
  };
  const auto count = [](std::size_t number, const char* what) {
    return std::to_string(number) + ' ' + what + (number == 1 ? "" : "s");
  };
  text_ = "---------------- " + listed(programs) + ": " +
          (processes_.size() == 1 ? "1 process" : std::to_string(processes_.size()) + " processes") + " on " +
          (hosts.size() <= 4 ? listed(hosts) : count(hosts.size(), "host")) +
          (jobs.size() > 1 ? ", " + count(jobs.size(), "job") : "") + '\n';
}

std::string Text::all() {
  add_head();
  if (!findings_["waits"].empty()) {
    heading("WHO WAITS FOR WHOM");
    add_cycles();
    add_ends();
    for (const Json& wait : findings_["waits"]) {
      if (told_.size() < 4 * kMost) {
        add_wait(wait["from"], wait["to"]);
      }
    }
  }
  add_losses();
  add_silent();
  add_moving();
  add_at_rest();
  add_strangers();
  return text_;
}

}  // namespace

std::string as_text(const Json& processes, const Json& findings) {
  return Text(processes, findings).all();
}

}  // namespace fabric::hang
