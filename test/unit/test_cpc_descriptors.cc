// SPDX-License-Identifier: BSD-3-Clause
//
// A process that has no file descriptor left, and what is said of it.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/question_address.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/oob/oob_dialer.h"
#include "test/unit/cpc_relay.h"

namespace fabric {
namespace {

using test::check_connected;
using test::Fate;
using test::Node;
using test::run_until;

/// Takes all descriptors of this process but some.
class Hoard {
 public:
  explicit Hoard(std::size_t left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{64, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    for (cpc::FileDescriptor one(dup(0)); one; one = cpc::FileDescriptor(dup(0))) {
      taken_.push_back(std::move(one));
    }
    ck_assert_uint_ge(taken_.size(), left);
    taken_.resize(taken_.size() - left);
  }
  ~Hoard() { release(); }
  Hoard(const Hoard&) = delete;
  Hoard& operator=(const Hoard&) = delete;
  void release() {
    taken_.clear();
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<cpc::FileDescriptor> taken_;
};

long cpu_ms() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
}

/// The process has no descriptor left for a while: nothing spins or breaks, and connections come about afterwards.
START_TEST(no_descriptor_left) {
  Node a(1);
  Node b(2);
  Hoard hoard(1);  // one for a's side, none for b's
  a.connect(b);
  const long start = cpu_ms();
  test::run_for({&a, &b}, 400);
  ck_assert_int_lt(cpu_ms() - start, 300);
  ck_assert(b.seen(b.key_to(a)).fate == Fate::kUnknown);
  ck_assert_uint_eq(b.shortages.size(), 1);
  test::check_text_has(b.shortages[0], "Too many open files");
  hoard.release();
  check_connected(a, b);
  ck_assert_uint_eq(b.shortages.size() + a.shortages.size(), 1);
}
END_TEST

/// The same while b's main thread computes: those who wait for it give their descriptors to those who come.
START_TEST(no_descriptor_left_while_peers_wait) {
  constexpr std::uint16_t kPorts = 6;
  auto options = Node::options(1);
  options.ports = kPorts;
  Node a(options);
  options.settings.self.rank = 2;
  Node b(options);
  b.posts = false;
  std::uint16_t port = 0;
  for (; port < 3; ++port) {
    a.connect(b, port);
    ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a, port)).fate == Fate::kAsked; }));
  }
  Hoard hoard(1);
  for (; port < kPorts; ++port) {
    a.connect(b, port);
    ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a, port)).fate == Fate::kAsked; }));
  }
  b.posts = true;
  for (port = 0; port < kPorts; ++port) {
    check_connected(a, b, port);
  }
}
END_TEST

/// Whoever asks what the process waits for is answered when there is one.
START_TEST(no_descriptor_for_questions) {
  auto options = Node::options(1);
  options.settings.takes_questions = true;
  Node a(options);
  const QuestionAddress own(pid_namespace_of("self"), getpid());
  const cpc::FileDescriptor asker(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Hoard hoard(0);
  ck_assert_int_eq(connect(asker.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length), 0);
  const auto hears = [&] {
    char first = 0;
    return recv(asker.get(), &first, 1, MSG_DONTWAIT) == 1;
  };
  const long start = cpu_ms();
  test::run_for({&a}, 400);
  ck_assert_int_lt(cpu_ms() - start, 300);
  ck_assert(!hears());
  hoard.release();
  ck_assert(run_until({&a}, hears));
}
END_TEST

/// Whoever dials without a descriptor tries again when there is one. It says so once, for all connections that wait.
START_TEST(no_descriptor_to_dial) {
  constexpr std::uint16_t kPorts = 2;
  auto options = Node::options(1);
  options.ports = kPorts;
  Node a(options);
  options.settings.self.rank = 2;
  Node b(options);
  Hoard hoard(0);
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    a.connect(b, port);
  }
  ck_assert(run_until({&a, &b}, [&] { return !a.shortages.empty(); }));
  test::run_for({&a, &b}, 400);  // it tries more than once
  ck_assert_uint_eq(a.shortages.size(), 1);
  test::check_text_has(a.shortages[0], "opening a TCP connection");
  test::check_text_has(a.shortages[0], "Too many open files");
  test::check_text_has(a.shortages[0], "may have 64: raise ulimit -n");
  hoard.release();
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    check_connected(a, b, port);
  }
  ck_assert_uint_eq(a.shortages.size(), 1);
  ck_assert_uint_eq(b.shortages.size(), 0);
}
END_TEST

/// None comes back in time: that is why the connection fails, whatever addresses the peer has.
START_TEST(no_descriptor_to_dial_for_too_long) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 500);
  Node b(2);
  cpc::PeerTarget target = b.target();
  auto offer = *cpc::decode_oob_offer(target.offer);
  offer.addresses = {{false, 8, {127, 0, 0, 1}}, {false, 8, {127, 0, 0, 2}}};
  target.offer = encode(offer);
  const cpc::ConnectionKey key = a.key_to(b);
  Hoard hoard(0);
  a.connect(key, target);
  ck_assert(run_until({&a, &b}, [&] { return a.seen(key).failed == 1; }));
  const std::string& reason = a.seen(key).reason;
  test::check_text_has(reason, "Too many open files");
  test::check_text_has(reason, "may have 64: raise ulimit -n");
  test::check_text_has(reason, "(attempt ");
  ck_assert_msg(reason.find("Too many") == reason.rfind("Too many"), "%s", reason.c_str());
}
END_TEST

/// A loopback address with a port of its own. Connections to it are refused until it listens.
class TcpPort {
 public:
  TcpPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage;
    socklen_t size = cpc::to_sockaddr({{false, 8, {127, 0, 0, 1}}, 0}, storage);
    auto* const address = reinterpret_cast<sockaddr*>(&storage);
    ck_assert_int_eq(bind(socket_.get(), address, size), 0);
    ck_assert_int_eq(getsockname(socket_.get(), address, &size), 0);
    address_ = cpc::from_sockaddr(storage);
  }
  void listen() const { ck_assert_int_eq(::listen(socket_.get(), 1), 0); }
  [[nodiscard]] const cpc::SocketAddress& address() const { return address_; }

 private:
  cpc::FileDescriptor socket_;
  cpc::SocketAddress address_;
};

/// One descriptor is enough to try all addresses of a peer.
START_TEST(one_descriptor_to_dial) {
  const TcpPort refuses;
  const TcpPort listens;
  listens.listen();
  std::vector<std::string> shortages;
  Result<cpc::FileDescriptor> dialed = failure("not done");
  const auto dial = [&](event_base* loop) -> Status {
    cpc::ShortageReport shortage([&](const std::string& reason) { shortages.push_back(reason); });
    Hoard hoard(1);
    bool done = false;
    const cpc::Dialer dialer(loop, shortage, {refuses.address(), listens.address()}, 10000, [&](auto result) {
      dialed = std::move(result);
      done = true;
    });
    while (!done) {
      event_base_loop(loop, EVLOOP_ONCE);
    }
    return {};
  };
  const auto thread = cpc::ProgressThread::start({dial, [] {}, [] {}, {}});
  ck_assert(thread.has_value());
  ck_assert_msg(dialed.has_value(), "%s", dialed ? "" : dialed.error().text.c_str());
  ck_assert_uint_eq(shortages.size(), 0);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_descriptors",
                         {no_descriptor_left, no_descriptor_left_while_peers_wait, no_descriptor_for_questions,
                          no_descriptor_to_dial, no_descriptor_to_dial_for_too_long, one_descriptor_to_dial},
                         120);
}
