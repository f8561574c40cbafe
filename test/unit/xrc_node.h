// SPDX-License-Identifier: BSD-3-Clause
//
// Processes with X queues, as far as connection set-up is concerned (cpc_node.h), and what must hold between them.
#pragma once

#include <memory>
#include <vector>

#include "test/unit/cpc_node.h"

namespace fabric::test {

constexpr const char* kXrcQueues = "X,4096,64,32:X,65536,64,32,16";

inline Node::Options xrc_options(std::uint32_t rank, std::uint64_t domain) {
  Node::Options options = Node::options(rank);
  options.receive_queues = kXrcQueues;
  options.xrc_domain = domain;
  return options;
}
/// A process with X queues, on the host with that domain.
class XrcNode : public Node {
 public:
  XrcNode(std::uint32_t rank, std::uint64_t domain) : Node(xrc_options(rank, domain)) {}
};
using Nodes = std::vector<std::unique_ptr<XrcNode>>;

inline void check_no_leak() {
  ck_assert_int_eq(fake_senders.made.load(), fake_senders.destroyed.load());
  ck_assert_uint_eq(fake_targets.alive(), 0);
}

template <class Done>
bool run_all(const Nodes& nodes, Done done, double seconds = 60) {
  return run_until(
      {},
      [&] {
        for (const auto& node : nodes) {
          node->pump();
        }
        return done();
      },
      seconds);
}

inline bool is_connected(Node& from, Node& to) {
  return from.seen(from.key_to(to)).fate == Fate::kConnected && to.seen(to.key_from(from)).fate == Fate::kConnected;
}

/// The sender leads to the target that the peer takes for ours, and to the peer's own queues.
inline void check_path(Node& from, Node& to) {
  const Seen& out = from.seen(from.key_to(to));
  const Seen& in = to.seen(to.key_from(from));
  ck_assert_uint_eq(out.remote_ends.at(0).qpn, in.target_qpn);
  ck_assert_uint_ne(out.xrc.sender, 0);
  ck_assert_uint_eq(out.xrc.srq_numbers.size(), 2);
  ck_assert_uint_eq(out.xrc.srq_numbers[1], to.name().rank * 256 + 1);
}

}  // namespace fabric::test
