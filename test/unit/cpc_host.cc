// SPDX-License-Identifier: BSD-3-Clause
//
// One host of two, for cpc_networks.test: a connection manager with fake queue pairs in a process of its own, which may
// be in a network of its own.
//   cpc_host FOLDER RANK PEER wants|wants-later|waits [MILLISECONDS]
// Leaves FOLDER/RANK for its peer (its offer) and FOLDER/RANK.ports (its TCP ports), waits for FOLDER/go, and prints
// "connected" or why it failed, or "nothing happened" when there is a FOLDER/stop. MILLISECONDS: how long each attempt to get
// through may take (default 2000).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/unit/cpc_node.h"

namespace fabric {
namespace {

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Under another name first, so that nobody reads half of it.
void write_file(const std::filesystem::path& path, const void* data, std::size_t size) {
  const std::filesystem::path unfinished = path.string() + ".unfinished";
  std::ofstream(unfinished, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  std::filesystem::rename(unfinished, path);
}

void run(const std::filesystem::path& folder, std::uint32_t rank, std::uint32_t peer, bool wants, bool later,
         unsigned timeout_ms) {
  auto options = test::Node::options(rank);
  options.settings.connect_timeout_ms = timeout_ms;
  options.settings.retry_time_ms = 700;
  options.settings.handshake_timeout_ms = 60000;
  test::Node node(options);
  const std::vector<std::byte> own = node.target().offer;
  const auto offer = cpc::decode_oob_offer(own);
  const std::string ports = std::to_string(offer->port_v4) + " " + std::to_string(offer->port_v6) + "\n";
  write_file(folder / (std::to_string(rank) + ".ports"), ports.data(), ports.size());
  write_file(folder / std::to_string(rank), own.data(), own.size());
  while (!std::filesystem::exists(folder / "go")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto of_peer = test::Node::options(peer);
  const cpc::ConnectionKey key{of_peer.settings.self, 0, 0};
  if (later) {
    test::run_for({&node}, 300);
  }
  if (wants) {
    node.connect(key, {cpc::kOob, read_file(folder / std::to_string(peer)), of_peer.settings.token, false});
  }
  const auto connected = [&] { return node.seen(key).fate == test::Fate::kConnected; };
  const bool done = test::run_until(
      {&node}, [&] { return connected() || node.seen(key).failed > 0 || std::filesystem::exists(folder / "stop"); },
      60);
  if (!done || !connected()) {
    std::printf("rank %u: %s\n", rank, node.seen(key).failed > 0 ? node.seen(key).reason.c_str() : "nothing happened");
    return;
  }
  std::printf("rank %u: connected\n", rank);
  test::run_for({&node}, 200);  // the peer has to hear of it
}

std::vector<std::string> arguments;

START_TEST(one_host) {
  run(arguments[1], static_cast<std::uint32_t>(std::stoul(arguments[2])),
      static_cast<std::uint32_t>(std::stoul(arguments[3])), arguments[4] != "waits", arguments[4] == "wants-later",
      arguments.size() > 5 ? static_cast<unsigned>(std::stoul(arguments[5])) : 2000);
}
END_TEST

}  // namespace
}  // namespace fabric

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: cpc_host FOLDER RANK PEER wants|wants-later|waits [MILLISECONDS]\n", stderr);
    return 2;
  }
  fabric::arguments.assign(argv, argv + argc);
  return fabric::test::run_suite("cpc_host", {fabric::one_host}, 100);  // what a Node checks needs a test around it
}
