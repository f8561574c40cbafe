// SPDX-License-Identifier: BSD-3-Clause
//
// Connections of X queues with real queue pairs, on the first usable port of this host: three sides with one XRC domain, as
// on one node. Skipped (status 77) without a port that has XRC.
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "test/unit/xrc_side.h"

namespace fabric {
namespace {

using test::DomainFile;
using test::XrcSide;

using Sides = std::vector<std::unique_ptr<XrcSide>>;

Sides make_sides(const DomainFile& file, std::uint32_t count) {
  Sides sides;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    sides.push_back(std::make_unique<XrcSide>(rank, file, 0x1234));
  }
  return sides;
}

template <class Each>
void for_each_pair(const Sides& sides, Each each) {
  for (const auto& from : sides) {
    for (const auto& to : sides) {
      if (from != to) {
        each(*from, *to);
      }
    }
  }
}

template <class Pair>
bool all_pairs(const Sides& sides, Pair pair) {
  bool all = true;
  for_each_pair(sides, [&](XrcSide& from, XrcSide& to) { all = all && pair(from, to); });
  return all;
}

void connect_all(const Sides& sides) {
  for_each_pair(sides, [](XrcSide& from, XrcSide& to) { from.connect(to); });
  test::run_until(sides, "Connected", [&] {
    return all_pairs(sides,
                     [](XrcSide& from, XrcSide& to) { return from.is_connected_to(to) && to.is_reached_by(from); });
  });
}

/// A message on every queue from everybody to everybody, whose numbers are `round` so far.
void exchange_messages(const Sides& sides, int round) {
  for_each_pair(sides, [](XrcSide& from, XrcSide& to) {
    for (std::size_t queue = 0; queue < XrcSide::kQueues; ++queue) {
      from.send(to, queue);
    }
  });
  test::run_until(sides, "every message", [&] {
    return all_pairs(sides, [&](XrcSide& from, XrcSide& to) {
      return to.heard(from) == round * static_cast<int>(XrcSide::kQueues) && from.under_way() == 0;
    });
  });
}

void close_all(const Sides& sides) {
  for_each_pair(sides, [](XrcSide& from, XrcSide& to) {
    from.close_outgoing(to);
    to.close_incoming(from);
  });
  test::run_until(sides, "Flushing", [&] {
    return std::all_of(sides.begin(), sides.end(), [](const auto& side) { return side->has_closed_all(); });
  });
}

/// All connect to all at once: each has one send queue pair, and the others know its messages by one target.
START_TEST(everybody_to_everybody) {
  const DomainFile file;
  const Sides sides = make_sides(file, 4);
  for (int round = 1; round <= 3; ++round) {
    connect_all(sides);
    for (const auto& from : sides) {
      std::set<std::uint64_t> senders;
      std::set<std::uint32_t> targets;
      for (const auto& to : sides) {
        if (from != to) {
          senders.insert(from->path_to(*to).sender);
          targets.insert(to->target_of(*from));
        }
      }
      ck_assert_uint_eq(senders.size(), 1);
      ck_assert_uint_eq(targets.size(), 1);
    }
    exchange_messages(sides, round);
    close_all(sides);
  }
}
END_TEST

/// The target outlives the side that made it; when all have let it go, the sender gets another one.
START_TEST(targets_come_and_go) {
  const DomainFile file;
  const Sides sides = make_sides(file, 4);
  XrcSide& a = *sides[0];
  a.connect(*sides[1]);
  test::run_until(sides, "Connected", [&] { return a.is_connected_to(*sides[1]) && sides[1]->is_reached_by(a); });
  const std::uint32_t first_target = sides[1]->target_of(a);
  const std::uint64_t first_sender = a.path_to(*sides[1]).sender;
  a.connect(*sides[2]);
  test::run_until(sides, "Connected", [&] { return a.is_connected_to(*sides[2]) && sides[2]->is_reached_by(a); });
  ck_assert_uint_eq(sides[2]->target_of(a), first_target);
  sides[1]->close_incoming(a);  // who made it
  test::run_until(sides, "Flushing", [&] { return sides[1]->has_closed_all(); });
  a.send(*sides[2], 1);
  test::run_until(sides, "a message", [&] { return sides[2]->heard(a) == 1 && a.under_way() == 0; });
  sides[2]->close_incoming(a);  // the last one that has it
  test::run_until(sides, "the target's end", [&] { return !sides[3]->is_there(first_target); });
  a.connect(*sides[3]);
  test::run_until(sides, "Connected", [&] { return a.is_connected_to(*sides[3]) && sides[3]->is_reached_by(a); });
  ck_assert_uint_ne(a.path_to(*sides[3]).sender, first_sender);
  a.send(*sides[3], 0);
  test::run_until(sides, "a message", [&] { return sides[3]->heard(a) == 1 && a.under_way() == 0; });
}
END_TEST

/// Looks in a child of its own: a process that has used a device must not fork, as Check does for every test.
bool has_port() {
  const pid_t child = fork();
  if (child == 0) {
    const PortScan scan = scan_ports({});
    ibv_device_attr limits{};
    const bool has = !scan.ports.empty() && ibv_query_device(scan.ports.front().device->context.get(), &limits) == 0 &&
                     (limits.device_cap_flags & IBV_DEVICE_XRC) != 0;
    _exit(has ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  if (!has_port()) {
    std::puts("skipped: no active port with XRC");
    return 77;
  }
  return test::run_suite("xrc_verbs", {everybody_to_everybody, targets_come_and_go});
}
