// SPDX-License-Identifier: BSD-3-Clause
#include "test/model/search.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "test/model/aborts.h"
#include "test/model/world.h"

namespace fabric::model {
namespace {

/// How a world was reached first.
struct Node {
  std::uint32_t parent = 0;
  Choice choice;
};

/// Worlds in which something is wrong are left alone: not even their end can be relied upon.
void bury(std::unique_ptr<World>& world) {
  static std::vector<std::unique_ptr<World>>& buried = *new std::vector<std::unique_ptr<World>>;
  buried.push_back(std::move(world));
}

/// The fault that a step leads to, or "". The world is null then.
std::string take(std::unique_ptr<World>& world, const Choice& choice) {
  std::string fault = what_aborts([&] { world->take(choice); });
  fault = fault.empty() ? world->fault() : fault;
  if (!fault.empty()) {
    bury(world);
  }
  return fault;
}

/// The fault that is found when every process ends, or "".
std::string end(std::unique_ptr<World> world) {
  const std::string abort = what_aborts([&] { world->end(); });
  std::string fault = abort.empty() ? world->fault() : abort + " when all processes end";
  if (!fault.empty()) {
    bury(world);
  }
  return fault;
}

class Searcher {
 public:
  Searcher(const Options& options, event_base* loop) : options_(options), loop_(loop) {}

  Found run() {
    catch_aborts();
    visit(0, {}, World(options_, loop_));
    for (std::uint32_t at = 0; at < nodes_.size() && found_.fault.empty(); ++at) {
      expand(at);
    }
    if (found_.fault.empty()) {
      check_ends();
    }
    found_.worlds = nodes_.size();
    return std::move(found_);
  }

 private:
  [[nodiscard]] Schedule way_to(std::uint32_t at) const {
    Schedule way;
    for (; at != 0; at = nodes_[at].parent) {
      way.push_back(nodes_[at].choice);
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

  void expand(std::uint32_t at) {
    const Schedule way = way_to(at);
    std::vector<Choice> choices;
    for (std::size_t i = 0; i == 0 || i < choices.size(); ++i) {
      auto world = std::make_unique<World>(options_, loop_);
      for (const Choice& choice : way) {
        world->take(choice);
      }
      if (i == 0) {
        choices = world->choices();
        if (world->is_quiet()) {
          ends_.push_back(at);
        }
      }
      if (const std::string fault = world->fault(); !fault.empty()) {
        bury(world);
        tell(fault, way);
        return;
      }
      if (choices.empty()) {
        tell(end(std::move(world)), way);
        return;
      }
      ++found_.steps;
      std::string fault = take(world, choices[i]);
      if (fault.empty()) {
        visit(at, choices[i], *world);
        fault = end(std::move(world));
      }
      if (!fault.empty()) {
        Schedule there = way;
        there.push_back(choices[i]);
        tell(fault, there);
        return;
      }
    }
  }

  void visit(std::uint32_t parent, const Choice& choice, const World& world) {
    const auto [seen, is_new] = seen_.emplace(world.fingerprint(), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) {
      nodes_.push_back({parent, choice});
    }
    edges_.push_back({parent, seen->second});
  }

  /// Nothing goes round in circles: from every world on, something ends.
  void check_ends() {
    std::vector<std::vector<std::uint32_t>> from(nodes_.size());
    for (const auto& [parent, child] : edges_) {
      from[child].push_back(parent);
    }
    std::vector<bool> ends(nodes_.size());
    std::vector<std::uint32_t> open = ends_;
    found_.ends = ends_.size();
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      if (!ends[at]) {
        ends[at] = true;
        open.insert(open.end(), from[at].begin(), from[at].end());
      }
    }
    const auto endless = std::find(ends.begin(), ends.end(), false);
    if (endless != ends.end()) {
      tell("whatever happens, it never ends", way_to(static_cast<std::uint32_t>(endless - ends.begin())));
    }
  }

  void tell(const std::string& fault, const Schedule& way) {
    if (!fault.empty()) {
      found_.fault = fault;
      found_.way = describe(options_, loop_, way);
    }
  }

  const Options& options_;
  event_base* const loop_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::uint32_t> ends_;
  std::unordered_map<Fingerprint, std::uint32_t, Fingerprint::Hash> seen_;
  Found found_;
};

}  // namespace

std::string describe(const Options& options, event_base* loop, const Schedule& way) {
  auto world = std::make_unique<World>(options, loop);
  std::string text;
  for (const Choice& choice : way) {
    text += "  " + world->name(choice);
    if (!take(world, choice).empty()) {
      return text + "\n";
    }
    text += "  " + world->states() + "\n";
  }
  bury(world);
  return text;
}

Found search(const Options& options, event_base* loop) {
  return Searcher(options, loop).run();
}

Found wander(const Options& options, event_base* loop, std::uint64_t seed, std::size_t runs) {
  Found found;
  catch_aborts();
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < runs && found.fault.empty(); ++i) {
    Schedule way;
    auto world = std::make_unique<World>(options, loop);
    while (found.fault.empty()) {
      const std::vector<Choice>& choices = world->choices();
      found.ends += world->is_quiet() ? 1 : 0;
      found.fault = world->fault();
      if (!found.fault.empty()) {
        bury(world);
      }
      if (choices.empty() || !found.fault.empty()) {
        break;
      }
      const Choice choice = choices[random() % choices.size()];
      way.push_back(choice);
      ++found.steps;
      found.fault = take(world, choice);
    }
    if (found.fault.empty()) {
      found.fault = end(std::move(world));
    }
    if (!found.fault.empty()) {
      found.way = describe(options, loop, way);
    }
  }
  return found;
}

}  // namespace fabric::model
