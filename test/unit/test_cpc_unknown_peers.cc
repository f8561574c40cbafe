// SPDX-License-Identifier: BSD-3-Clause
//
// Whoever else finds the listener's port: port scanners, garbage, other jobs. Connections come about all the same.
#include <sys/resource.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <iterator>
#include <random>
#include <thread>

#include "cpc/core/message.h"
#include "cpc/core/unknown_peers.h"
#include "cpc/oob/oob_listener.h"
#include "test/unit/cpc_relay.h"
#include "test/unit/cpc_stranger.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::Fate;
using test::is_turned_away;
using test::key_of;
using test::Node;
using test::port_of;
using test::Relay;
using test::request_to;
using test::run_until;
using test::send_bytes;
using test::signed_by;

START_TEST(garbage_does_not_disturb) {
  std::minstd_rand random(3);
  Node a(1);
  Node b(2);
  std::vector<cpc::FileDescriptor> unknown;
  for (int i = 0; i < 40; ++i) {
    unknown.push_back(Relay::connect_to(port_of(b)));
    const cpc::MessageKey key = key_of(b, unknown.back());
    const std::vector<std::byte> good = signed_by(key, request_to(b));
    switch (i % 4) {
      case 0: {
        std::vector<std::byte> garbage(1 + random() % 2000);
        for (std::byte& byte : garbage) {
          byte = static_cast<std::byte>(random());
        }
        send_bytes(unknown.back(), garbage);
        break;
      }
      case 1:
        send_bytes(unknown.back(), std::span(good).first(random() % good.size()));
        break;
      case 2: {
        std::vector<std::byte> wrong = good;
        wrong[cpc::kProofOffset + 3] ^= std::byte{1};
        send_bytes(unknown.back(), wrong);
        break;
      }
      default:
        break;  // says nothing
    }
  }
  a.connect(b);
  check_connected(a, b, 0, 2);  // before the silent ones run out of time
  ck_assert(b.seen({{7, 77}, 0, 0}).fate == Fate::kUnknown);
}
END_TEST

START_TEST(wrong_words_are_turned_away_at_once) {
  Node b(2);
  std::vector<cpc::Message> wrong(4, request_to(b));
  wrong[0].header.target.rank = 3;
  wrong[1].header.type = cpc::MessageType::kReply;
  wrong[2].header.type = cpc::MessageType::kConfirm;
  wrong[3].header.type = cpc::MessageType::kRefuse;
  const std::uint64_t before = cpc::unknown_peers_refused;
  for (const cpc::Message& message : wrong) {
    const cpc::FileDescriptor unknown = Relay::connect_to(port_of(b));
    // The header is enough.
    const std::vector<std::byte> bytes = signed_by(key_of(b, unknown), message);
    send_bytes(unknown, std::span(bytes).first(cpc::kMessageHeaderBytes));
    ck_assert(is_turned_away(unknown));
  }
  // It is counted just after the socket is closed, by the progress thread.
  for (int i = 0; i < 1000 && cpc::unknown_peers_refused < before + wrong.size(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ck_assert_uint_eq(cpc::unknown_peers_refused, before + wrong.size());
}
END_TEST

/// What somebody heard on one channel, or made up, opens no other: each has a nonce of its own. Nor does it on the same one
/// with another queue pair, or with the token in place of the proof.
START_TEST(what_was_heard_opens_nothing) {
  Node b(2);
  const cpc::FileDescriptor heard = Relay::connect_to(port_of(b));
  const std::vector<std::byte> good = signed_by(key_of(b, heard), request_to(b));
  const auto is_refused = [&](const auto& bytes_for) {
    const cpc::FileDescriptor unknown = Relay::connect_to(port_of(b));
    send_bytes(unknown, bytes_for(key_of(b, unknown)));
    return is_turned_away(unknown);
  };
  ck_assert(is_refused([&](const cpc::MessageKey&) { return good; }));
  ck_assert(is_refused([&](const cpc::MessageKey& key) {
    std::vector<std::byte> bytes = signed_by(key, request_to(b));
    bytes[93] ^= std::byte{1};  // of the first queue pair's number
    return bytes;
  }));
  ck_assert(is_refused([&](const cpc::MessageKey&) {
    cpc::Message request = request_to(b);
    std::copy_n(b.token().begin(), request.header.proof.size(), request.header.proof.begin());
    return encode(request);
  }));
  ck_assert(b.seen({{7, 77}, 0, 0}).fate == Fate::kUnknown);
  send_bytes(heard, good);  // on its own channel it is good
  ck_assert(run_until({&b}, [&] { return b.seen({{7, 77}, 0, 0}).fate == Fate::kPosted; }));
}
END_TEST

/// Nothing that travels between two processes that connect has the token in it.
START_TEST(the_token_does_not_travel) {
  Node a(1);
  Node b(2);
  std::vector<std::byte> heard[2];
  {
    Relay relay(b.target(), [](int, bool, std::size_t) { return Relay::Flow::kPass; });
    relay.on_byte = [&](bool to_listener, std::byte byte) { heard[to_listener ? 1 : 0].push_back(byte); };
    relay.open();
    a.connect(a.key_to(b), relay.target());
    check_connected(a, b);
  }  // its thread has ended
  for (const std::vector<std::byte>& bytes : heard) {
    ck_assert_uint_gt(bytes.size(), cpc::kHelloBytes);
    for (const JobToken& token : {a.token(), b.token()}) {
      ck_assert(std::search(bytes.begin(), bytes.end(), token.begin(), token.begin() + 4) == bytes.end());
    }
  }
}
END_TEST

/// A listener that does not know our token, at the address of one that does: its answer counts for nothing.
START_TEST(an_impostor_gets_no_connection) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 0);
  Node b(2);
  Node impostor(2);
  cpc::PeerTarget target = impostor.target();
  target.token[0] ^= std::byte{1};
  a.connect(a.key_to(b), target);
  check_gone({&a, &impostor}, a, a.key_to(b));
}
END_TEST

/// No earlier either, but for what libevent's clock is coarse (CLOCK_MONOTONIC_COARSE).
START_TEST(silence_is_turned_away_in_time) {
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 200);
  const auto start = std::chrono::steady_clock::now();
  const cpc::FileDescriptor unknown = Relay::connect_to(port_of(b));
  ck_assert(is_turned_away(unknown));
  ck_assert(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(180));
}
END_TEST

/// More unknown peers than are let in at once: the rest, and a peer of the job, wait until the first run out of time.
START_TEST(more_unknown_than_places) {
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 300);
  Node a(1);
  std::vector<cpc::FileDescriptor> crowd;
  for (int i = 0; i < 150; ++i) {
    crowd.push_back(Relay::connect_to(port_of(b)));
    ck_assert(static_cast<bool>(crowd.back()));
  }
  a.connect(b);
  check_connected(a, b);
}
END_TEST

/// As many silent sockets as unknown peers are let in, and one that goes away by itself: a peer takes its place at once.
START_TEST(one_of_a_full_house_leaves) {
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 60000);  // no silent one runs out of time
  Node a(1);
  std::vector<cpc::FileDescriptor> silent;
  for (std::size_t i = 0; i < cpc::OobListener::kMaxUnknown; ++i) {
    silent.push_back(Relay::connect_to(port_of(b)));
    ck_assert(static_cast<bool>(silent.back()));
  }
  a.connect(b);
  test::run_for({&a, &b}, 20);
  silent.pop_back();
  check_connected(a, b, 0, 5);
}
END_TEST

/// Two hosts; the sockets of one are silent and take every place. Those of the other have places as soon as they come.
START_TEST(a_silent_host_keeps_out_only_itself) {
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 60000);
  std::deque<cpc::FileDescriptor> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(Relay::connect_to(port_of(b), 0x7f000002));
    ck_assert(static_cast<bool>(silent.back()));
  }
  const cpc::FileDescriptor slow = Relay::connect_to(port_of(b));  // one of another host, which is slow only
  for (std::uint32_t rank = 3; rank < 6; ++rank) {
    Node a(rank);
    a.connect(b);
    check_connected(a, b, 0, 5);
  }
  send_bytes(slow, signed_by(key_of(b, slow), request_to(b)));
  ck_assert(run_until({&b}, [&] { return b.seen({{7, 77}, 0, 0}).fate == Fate::kPosted; }));
}
END_TEST

/// Where there are few descriptors, strangers get a sixteenth of them, and the application keeps the rest.
START_TEST(strangers_leave_descriptors_to_others) {
  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  rlimit limit{};
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 160;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 60000);
  const auto before = open_descriptors();
  std::vector<cpc::FileDescriptor> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(Relay::connect_to(port_of(b)));
    ck_assert(static_cast<bool>(silent.back()));
  }
  const auto accepted = [&] { return open_descriptors() - before - 40; };
  ck_assert(run_until({&b}, [&] { return accepted() > 0; }));
  test::run_for({&b}, 50);
  ck_assert_int_le(accepted(), 10);
  Node a(1);
  a.connect(b);
  check_connected(a, b, 0, 5);
}
END_TEST

/// 100,000 connections of strangers from several hosts: some go at once, some say garbage, and 400 are silent at any time. Peers of
/// the job come all along, and each gets its connection.
START_TEST(a_storm_of_strangers) {
  constexpr int kStrangers = 100000;
  constexpr std::uint32_t kPeers = 20;
  constexpr std::size_t kSilent = 400;
  Node b(2, &cpc::ConnectionSettings::connect_timeout_ms, 60000);  // no silent one runs out of time
  const std::uint16_t port = port_of(b);
  std::atomic<int> came = 0;
  std::thread storm([&] {
    const linger at_once{1, 0};  // a port that is closed is free again
    const std::array<std::byte, 100> garbage{};
    std::deque<cpc::FileDescriptor> silent;
    for (; came < kStrangers; ++came) {
      const auto number = static_cast<std::uint32_t>(came.load());
      cpc::FileDescriptor stranger = Relay::connect_to(port, 0x7f000002 + number % 7);
      (void)setsockopt(stranger.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      if (number % 3 == 0) {
        send_bytes(stranger, garbage);
      }
      if (number % 3 < 2) {
        silent.push_back(std::move(stranger));
      }
      if (silent.size() > kSilent) {
        silent.pop_front();
      }
    }
  });
  for (std::uint32_t peer = 0; peer < kPeers; ++peer) {
    Node a(3 + peer);
    const int enough = static_cast<int>(peer) * (kStrangers / static_cast<int>(kPeers));
    // However slow the host is: only a storm that stands still fails.
    for (int seen = came; seen < enough; seen = came) {
      ck_assert(run_until({&a, &b}, [&] { return came > seen; }));
    }
    a.connect(b);
    check_connected(a, b);
  }
  storm.join();
}
END_TEST

/// A member of the job with bad manners: its own connection fails, and nobody else's.
START_TEST(rude_peers_fail_alone) {
  Node a(1);
  Node b(2);
  const cpc::FileDescriptor rude = Relay::connect_to(port_of(b));
  const cpc::MessageKey rude_key = key_of(b, rude);
  send_bytes(rude, signed_by(rude_key, request_to(b)));
  const cpc::ConnectionKey key{{7, 77}, 0, 0};
  b.posts = false;
  ck_assert(run_until({&b}, [&] { return b.seen(key).fate == Fate::kAsked; }));
  cpc::Message confirm = request_to(b);
  confirm.header.type = cpc::MessageType::kConfirm;
  send_bytes(rude, signed_by(rude_key, confirm, 1));
  check_gone({&b}, b, key);
  test::check_text_has(b.seen(key).reason, "protocol error: ConfirmArrived in state Answering");
  b.posts = true;
  a.connect(b);
  check_connected(a, b);
}
END_TEST

/// The first of the peer's addresses leads to somebody who accepts and says nothing; the second to the peer.
START_TEST(a_silent_address_is_left_for_the_next) {
  Node a(1, &cpc::ConnectionSettings::connect_timeout_ms, 200);
  Node b(2);
  Relay relay(b.target(), [](int, bool, std::size_t) { return Relay::Flow::kPass; });
  relay.open();
  const std::uint16_t port = cpc::decode_oob_offer(relay.target().offer)->port_v4;
  const cpc::FileDescriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Relay::loopback(port, 0x7f000002);
  ck_assert_int_eq(bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ck_assert_int_eq(listen(silent.get(), 4), 0);
  cpc::PeerTarget target = relay.target();
  target.offer = encode(cpc::OobOffer{port, 0, {{false, 8, {127, 0, 0, 2}}, {false, 8, {127, 0, 0, 1}}}});
  a.connect(a.key_to(b), target);
  check_connected(a, b);
  pollfd came{silent.get(), POLLIN, 0};
  ck_assert_int_eq(poll(&came, 1, 0), 1);
}
END_TEST

/// The side that opens a channel finds a difference in version in the listener's first word; but whoever says that has proved nothing,
/// and so it is tried again.
START_TEST(other_versions_are_told) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 0);
  Node b(2);
  auto bytes = cpc::encode_hello({});
  bytes[4] = std::byte{200};
  const cpc::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Relay::loopback(0);
  socklen_t length = sizeof address;
  ck_assert_int_eq(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ck_assert_int_eq(listen(listener.get(), 1), 0);
  ck_assert_int_eq(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  cpc::PeerTarget target = b.target();
  target.offer = encode(cpc::OobOffer{ntohs(address.sin_port), 0, {{false, 8, {127, 0, 0, 1}}}});
  a.connect(a.key_to(b), target);
  std::optional<cpc::FileDescriptor> accepted;
  std::thread other([&] {
    accepted.emplace(accept(listener.get(), nullptr, nullptr));
    send_bytes(*accepted, bytes);
  });
  check_gone({&a}, a, a.key_to(b));
  other.join();
  test::check_text_has(a.seen(a.key_to(b)).reason, "speaks version 200");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_unknown_peers",
                         {garbage_does_not_disturb, wrong_words_are_turned_away_at_once, what_was_heard_opens_nothing,
                          the_token_does_not_travel, an_impostor_gets_no_connection, silence_is_turned_away_in_time,
                          more_unknown_than_places, one_of_a_full_house_leaves, a_silent_host_keeps_out_only_itself,
                          strangers_leave_descriptors_to_others, a_storm_of_strangers, rude_peers_fail_alone,
                          a_silent_address_is_left_for_the_next, other_versions_are_told},
                         600);
}
