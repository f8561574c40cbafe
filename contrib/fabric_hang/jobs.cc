// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/jobs.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace fabric::hang {
namespace {

using Json = nlohmann::ordered_json;
using Job = std::uint64_t;
using Name = std::pair<Job, std::uint64_t>;  // with the rank

/// Calls back for each peer that a process tells of.
template <class Function>
void for_each_peer(const Json& process, Function function) {
  const Json answer = process.value("answer", Json::object());
  for (const Json& port : answer.value("ports", Json::array())) {
    for (const Json& peer : port.value("peers", Json::array())) {
      function(Name{peer.value("job", Job{0}), peer.value("rank", std::uint64_t{0})});
    }
  }
}

/// Each job stands for those that it is known to be together with.
class Families {
 public:
  Job head(Job job) {
    const Job above = above_.try_emplace(job, job).first->second;
    return above == job ? job : above_[job] = head(above);
  }
  void join(Job one, Job other) { above_[head(one)] = head(other); }

 private:
  std::map<Job, Job> above_;
};

/// Without those that come again, since somebody has named a process or a file twice: that which has answered stays, or the first.
Json once_each(const Json& processes) {
  std::map<std::tuple<Job, std::uint64_t, std::string, std::int64_t>, std::size_t> places;
  Json all = Json::array();
  for (const Json& process : processes) {
    const auto [found, is_new] =
        places.try_emplace({process.value("job", Job{0}), process.value("rank", std::uint64_t{0}),
                            process.value("host", ""), process.value("pid", std::int64_t{0})},
                           all.size());
    if (is_new) {
      all.push_back(process);
    } else if (all[found->second].contains("silent") && !process.contains("silent")) {
      all[found->second] = process;
    }
  }
  return all;
}

}  // namespace

std::vector<Json> by_job(const Json& told) {
  const Json processes = once_each(told);
  Families families;
  std::set<Name> told_of;
  std::set<Name> asked;
  for (const Json& process : processes) {
    if (!process.contains("job")) {
      continue;
    }
    const Job job = process["job"].get<Job>();
    asked.emplace(job, process.value("rank", std::uint64_t{0}));
    (void)families.head(job);
    for_each_peer(process, [&](const Name& peer) {
      families.join(job, peer.first);
      told_of.insert(peer);
    });
  }
  std::map<Job, Json> sets;
  for (Json process : processes) {
    if (!process.contains("job")) {
      const auto rank = process.value("rank", std::uint64_t{0});
      const auto known = std::find_if(told_of.begin(), told_of.end(),
                                      [&](const Name& one) { return one.second == rank && !asked.contains(one); });
      process["job"] = known != told_of.end() ? known->first : Job{0};
      asked.emplace(process["job"].get<Job>(), rank);
    }
    Json& set = sets[families.head(process["job"].get<Job>())];
    set.push_back(std::move(process));
  }
  std::vector<Json> all;
  for (auto& [job, set] : sets) {
    all.push_back(std::move(set));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Json& one, const Json& other) { return one.size() > other.size(); });
  return all;
}

}  // namespace fabric::hang
