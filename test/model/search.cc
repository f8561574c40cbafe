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

/// A world that was seen. Choices are told apart by their places: on another way to the same world they have other numbers.
struct Node {
  // How it was reached first
  std::uint32_t parent = 0;
  std::uint32_t place = 0;
  // What may happen next
  std::vector<std::uint32_t> children;  ///< of the choices that have been taken
  std::uint32_t count = 0;              ///< of choices
  std::uint64_t look = 0;               ///< of them
  std::vector<Choice> choices;          ///< on the way by which it was reached first; empty: not needed yet
  [[nodiscard]] bool is_done() const noexcept { return children.size() == count; }
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

/// The same for worlds that differ by the numbers of their channels and queue pairs alone.
std::uint64_t look_of(const std::vector<Choice>& choices) {
  std::uint64_t look = 0;
  for (const Choice& one : choices) {
    const bool is_numbered = one.kind >= Kind::kLeaves;
    for (const unsigned part :
         {static_cast<unsigned>(one.kind), is_numbered ? 0U : one.a, unsigned{one.b}, unsigned{one.c}}) {
      look = (look ^ part) * 0x100000001b3U;
    }
  }
  return look;
}

class Searcher {
 public:
  Searcher(const Options& options, event_base* loop) : options_(options), loop_(loop) {}

  Found run() {
    catch_aborts();
    auto first = std::make_unique<World>(options_, loop_);
    seen_.emplace(first->fingerprint(), 0);
    nodes_.emplace_back();
    look_at_new(std::move(first));
    for (std::uint32_t at = 0; at < nodes_.size() && found_.fault.empty(); ++at) {
      while (!nodes_[at].is_done() && found_.fault.empty()) {
        walk_from(at);
      }
    }
    if (found_.fault.empty()) {
      check_ends();
    }
    found_.worlds = nodes_.size();
    return std::move(found_);
  }

 private:
  /// The world, made again, and the way to it.
  std::pair<std::unique_ptr<World>, Schedule> make(std::uint32_t at) {
    std::vector<std::uint32_t> steps;
    for (; at != 0; at = nodes_[at].parent) {
      steps.push_back(at);
    }
    auto world = std::make_unique<World>(options_, loop_);
    Schedule way;
    for (; !steps.empty(); steps.pop_back()) {
      const Node& next = nodes_[steps.back()];
      std::vector<Choice>& choices = nodes_[next.parent].choices;
      if (choices.empty()) {
        choices = world->choices();
      }
      way.push_back(choices[next.place]);
      world->take(way.back());
    }
    return {std::move(world), std::move(way)};
  }

  /// Takes steps that have not been taken, until one leads to a new world. Making worlds again is what takes time, so this
  /// goes on from worlds that were seen before, too.
  void walk_from(std::uint32_t at) {
    auto [world, way] = make(at);
    for (std::optional<std::uint32_t> place = next_step(at); place; place = next_step(at)) {
      const std::vector<Choice>& choices = world->choices();
      if (choices.size() != nodes_[at].count || look_of(choices) != nodes_[at].look) {
        bury(world);
        tell("two worlds that differ look the same", at);
        found_.way += "and after\n" + describe(options_, loop_, way);
        return;
      }
      const bool is_new_step = *place == nodes_[at].children.size();
      found_.steps += is_new_step ? 1 : 0;
      way.push_back(choices[*place]);
      if (const std::string fault = take(world, way.back()); !fault.empty()) {
        tell(fault, at, place);
        return;
      }
      if (is_new_step && visit(at, *place, *world)) {
        look_at_new(std::move(world));
        return;
      }
      at = nodes_[at].children[*place];
    }
    if (const std::string fault = end(std::move(world)); !fault.empty()) {
      tell(fault, at);
    }
  }

  /// The place of a step that has not been taken, or of one that leads to a world which has such steps.
  [[nodiscard]] std::optional<std::uint32_t> next_step(std::uint32_t at) const {
    const Node& node = nodes_[at];
    if (!node.is_done()) {
      return static_cast<std::uint32_t>(node.children.size());
    }
    const auto open = std::find_if(node.children.begin(), node.children.end(),
                                   [this](std::uint32_t child) { return !nodes_[child].is_done(); });
    return open == node.children.end()
               ? std::nullopt
               : std::optional<std::uint32_t>(static_cast<std::uint32_t>(open - node.children.begin()));
  }

  /// True if the step has led to a new world.
  bool visit(std::uint32_t parent, std::uint32_t place, const World& world) {
    const auto [seen, is_new] = seen_.emplace(world.fingerprint(), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) {
      nodes_.push_back({.parent = parent, .place = place, .children = {}, .choices = {}});
    }
    nodes_[parent].children.push_back(seen->second);
    return is_new;
  }

  /// It is the last of the nodes.
  void look_at_new(std::unique_ptr<World> world) {
    const auto at = static_cast<std::uint32_t>(nodes_.size() - 1);
    nodes_[at].count = static_cast<std::uint32_t>(world->choices().size());
    nodes_[at].look = look_of(world->choices());
    if (world->is_quiet()) {
      ends_.push_back(at);
    }
    std::string fault = world->fault();
    if (fault.empty()) {
      fault = end(std::move(world));
    } else {
      bury(world);
    }
    if (!fault.empty()) {
      tell(fault, at);
    }
  }

  /// Nothing goes round in circles: from every world on, something ends.
  void check_ends() {
    std::vector<std::vector<std::uint32_t>> from(nodes_.size());
    for (std::uint32_t parent = 0; parent < nodes_.size(); ++parent) {
      for (const std::uint32_t child : nodes_[parent].children) {
        from[child].push_back(parent);
      }
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
      tell("whatever happens, it never ends", static_cast<std::uint32_t>(endless - ends.begin()));
    }
  }

  /// What is wrong with a world, or with that to which a step from there leads.
  void tell(const std::string& fault, std::uint32_t at, std::optional<std::uint32_t> place = std::nullopt) {
    auto [world, way] = make(at);
    if (place) {
      way.push_back(world->choices()[*place]);
    }
    bury(world);
    found_.fault = fault;
    found_.way = describe(options_, loop_, way);
  }

  const Options& options_;
  event_base* const loop_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> ends_;
  std::unordered_map<Fingerprint, std::uint32_t, Fingerprint::Hash> seen_;
  Found found_;
};

}  // namespace

/// LeakSanitizer asks at the end of the process: what nobody has destroyed after an abort() is no leak. Visible, or else its
/// library does not find it.
extern "C" [[gnu::visibility("default")]] int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() {
  return aborts::has_come_back ? 1 : 0;
}

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
