// SPDX-License-Identifier: BSD-3-Clause
//
// Paths that the subnet administrator is asked for, and what is made of the answers. The functions of librdmacm are the test's.
#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/held_requests.h"
#include "cpc/oob/path_questions.h"
#include "cpc/queue_pairs/queue_pair_path.h"
#include "test/unit/check_main.h"

namespace {

std::deque<rdma_cm_event> events;  ///< in the kernel
std::vector<rdma_cm_id*> asked;    ///< for a path, without an answer
int channels = 0;                  ///< opened
int ids = 0;                       ///< that are there
int opening_fails = 0;             ///< errno
int address_fails = 0;             ///< errno
int route_fails = 0;               ///< errno
int timeout_ms = 0;                ///< that is to be given

int fail_with(int error_number) {
  errno = error_number;
  return error_number != 0 ? -1 : 0;
}
void push(rdma_cm_id* id, rdma_cm_event_type type, int status = 0) {
  rdma_cm_event event{};
  event.id = id;
  event.event = type;
  event.status = status;
  events.push_back(event);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

rdma_event_channel* rdma_create_event_channel() {
  if (opening_fails != 0) {
    errno = opening_fails;
    return nullptr;
  }
  ++channels;
  return new rdma_event_channel{eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};  // readable as long as it is
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  ck_assert_int_eq(ids, 0);
  close(channel->fd);
  delete channel;
}
int rdma_create_id(rdma_event_channel* /*channel*/, rdma_cm_id** id, void* context, rdma_port_space space) {
  ck_assert_int_eq(space, RDMA_PS_IB);
  *id = new rdma_cm_id{};
  (*id)->context = context;
  ++ids;
  return 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  std::erase(asked, id);
  delete id->route.path_rec;
  delete id;
  --ids;
  return 0;
}
int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* target, int given_ms) {
  ck_assert_int_eq(source->sa_family, AF_IB);
  ck_assert_int_eq(target->sa_family, AF_IB);
  ck_assert_int_eq(given_ms, timeout_ms);
  if (address_fails == 0) {
    push(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  return fail_with(address_fails);
}
int rdma_resolve_route(rdma_cm_id* id, int given_ms) {
  ck_assert_int_eq(given_ms, timeout_ms);
  if (route_fails == 0) {
    asked.push_back(id);
  }
  return fail_with(route_fails);
}
int rdma_get_cm_event(rdma_event_channel* /*channel*/, rdma_cm_event** event) {
  static rdma_cm_event read;
  if (events.empty()) {
    return fail_with(EAGAIN);
  }
  read = events.front();
  events.pop_front();
  *event = &read;
  return 0;
}
int rdma_ack_cm_event(rdma_cm_event* /*event*/) {
  return 0;
}
const char* ibv_get_device_name(ibv_device* /*device*/) {
  return "test0";
}

#pragma GCC visibility pop
}

namespace fabric::cpc {
namespace {

constexpr std::uint16_t kOurLid = 0x20;

PortAddress peer_with(std::uint8_t number, std::uint16_t lid) {
  PortAddress peer;
  peer.gid.raw[15] = number;
  peer.lid = lid;
  peer.mtu = 5;
  return peer;
}

/// Ports of ours, and what asks for them.
struct Asker {
  explicit Asker(event_base* of, Transport link = Transport::kInfiniBand, bool has_own_lids = false, int timeout = 700)
      : table(has_own_lids),
        loop(of),
        questions(of, static_cast<unsigned>(timeout_ms = timeout),
                  [this](std::string text) { told.push_back(std::move(text)); }) {
    context.device = &device;
    port.device = &context;
    port.index = 3;
    port.address = peer_with(1, kOurLid + 1);
    port.address.link = link;
    port.path_bits = 1;
    port.path_table = &table;
    questions.add(port);
  }
  [[nodiscard]] std::unique_ptr<PathQuestions::Wait> ask(const PortAddress& peer) {
    return questions.ask(3, peer.gid, [this] { ++answers; });
  }
  void turn() const {
    for (int i = 0; i < 4; ++i) {
      event_base_loop(loop, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
  }
  /// The subnet administrator's answer to the oldest question.
  void answer(std::uint8_t service_level, std::uint16_t lid, std::uint16_t our_lid, std::uint8_t mtu = 5) const {
    rdma_cm_id* const id = asked.front();
    asked.erase(asked.begin());
    id->route.path_rec = new ibv_sa_path_rec{};
    id->route.num_paths = 1;
    id->route.path_rec->sl = service_level;
    id->route.path_rec->dlid = htons(lid);
    id->route.path_rec->slid = htons(our_lid);
    id->route.path_rec->mtu = mtu;
    id->route.path_rec->rate = IBV_RATE_40_GBPS;
    push(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    turn();
  }

  ibv_device device{};
  ibv_context context{};
  PathTable table;
  PortContext port;
  event_base* loop;
  int answers = 0;
  std::vector<std::string> told;
  PathQuestions questions;
};

void on_loop(const std::function<void(event_base*)>& run) {
  events.clear();
  asked.clear();
  channels = opening_fails = address_fails = route_fails = 0;
  const auto go = [&](event_base* loop) -> Status {
    run(loop);
    return {};
  };
  const auto thread = ProgressThread::start({go, [] {}, [] {}, [] {}});
  ck_assert(thread.has_value());
}

START_TEST(the_path_is_that_of_the_answer) {
  on_loop([](event_base* loop) {
    Asker asker(loop);
    const PortAddress peer = peer_with(2, 0x40);
    ck_assert_uint_eq(path_to(asker.port, peer).sl, 0);
    const auto wait = asker.ask(peer);
    ck_assert(wait != nullptr);
    asker.turn();
    ck_assert_int_eq(asker.answers, 0);
    asker.answer(5, 0x42, kOurLid + 2, 4);
    ck_assert_int_eq(asker.answers, 1);
    ibv_ah_attr path = path_to(asker.port, peer);
    ck_assert_uint_eq(path.sl, 5);
    ck_assert_uint_eq(path.dlid, 0x40);  // the peer says which of its LIDs it uses
    ck_assert_uint_eq(path.src_path_bits, 2);
    ck_assert_uint_eq(path.static_rate, IBV_RATE_40_GBPS);
    ck_assert_int_eq(mtu_to(asker.port, peer), 4);
    PortAddress said = asker.port.address;
    asker.questions.fill_in(3, peer.gid, said);
    ck_assert_uint_eq(said.lid, kOurLid + 2);
    ck_assert_uint_eq(said.mtu, 4);
    // The user's service level goes before.
    asker.port.settings.service_level = 3;
    path = path_to(asker.port, peer);
    ck_assert_uint_eq(path.sl, 3);
    ck_assert_uint_eq(path.src_path_bits, 2);
    // The way to ourselves is the main thread's, and as it was.
    ck_assert_uint_eq(published_path_to(asker.port, peer).dlid, 0x40);
    ck_assert(asker.told.empty());
    ck_assert_int_eq(ids, 0);
  });
}
END_TEST

/// A queue pair takes packets from the LID that it sends to, and of the size that it sends in: so both sides must agree, where
/// they have heard of different paths and where only one has heard of any.
START_TEST(both_sides_agree) {
  for (const bool other_hears : {false, true}) {
    on_loop([&](event_base* loop) {
      Asker one(loop);
      Asker other(loop);
      other.port.address = peer_with(2, 0x41);
      const auto wait = one.ask(peer_with(2, 0x41));
      one.turn();
      one.answer(5, 0x43, kOurLid + 2, 4);
      if (other_hears) {
        const auto also = other.ask(one.port.address);
        other.turn();
        other.answer(6, kOurLid + 3, 0x40, 3);
        ck_assert_int_eq(other.answers, 1);
      }
      PortAddress of_one = one.port.address;
      one.questions.fill_in(3, other.port.address.gid, of_one);
      PortAddress of_other = other.port.address;
      other.questions.fill_in(3, of_one.gid, of_other);
      const ibv_ah_attr there = path_to(one.port, of_other);
      const ibv_ah_attr back = path_to(other.port, of_one);
      ck_assert_uint_eq(there.dlid, 0x40 + back.src_path_bits);
      ck_assert_uint_eq(back.dlid, kOurLid + there.src_path_bits);
      ck_assert_int_eq(mtu_to(one.port, of_other), other_hears ? 3 : 4);
      ck_assert_int_eq(mtu_to(one.port, of_other), mtu_to(other.port, of_one));
      ck_assert_uint_eq(there.sl, 5);
      ck_assert_uint_eq(back.sl, other_hears ? 6 : 0);
    });
  }
}
END_TEST

/// Several paths through one port differ by their LIDs.
START_TEST(paths_of_a_port_keep_their_lids) {
  on_loop([](event_base* loop) {
    Asker asker(loop, Transport::kInfiniBand, true);
    const PortAddress peer = peer_with(2, 0x40);
    const auto wait = asker.ask(peer);
    asker.turn();
    asker.answer(5, 0x42, kOurLid + 2);
    const ibv_ah_attr path = path_to(asker.port, peer);
    ck_assert_uint_eq(path.sl, 5);
    ck_assert_uint_eq(path.dlid, 0x40);
    ck_assert_uint_eq(path.src_path_bits, 1);
  });
}
END_TEST

START_TEST(each_pair_is_asked_for_once) {
  on_loop([](event_base* loop) {
    Asker asker(loop);
    const auto first = asker.ask(peer_with(2, 0x40));
    auto second = asker.ask(peer_with(2, 0x40));
    const auto third = asker.ask(peer_with(2, 0x40));
    second.reset();  // whoever does not wait any more hears nothing
    asker.turn();
    ck_assert_uint_eq(asked.size(), 1);
    asker.answer(1, 0x40, kOurLid);
    ck_assert_int_eq(asker.answers, 2);
    ck_assert(asker.ask(peer_with(2, 0x40)) == nullptr);
    const auto other = asker.ask(peer_with(3, 0x41));
    ck_assert(other != nullptr);
    ck_assert_int_eq(channels, 1);
  });
}
END_TEST

/// Not all at once, and in order.
START_TEST(questions_wait_in_line) {
  on_loop([](event_base* loop) {
    Asker asker(loop);
    std::vector<std::unique_ptr<PathQuestions::Wait>> waits;
    for (std::uint8_t i = 0; i < PathQuestions::kMostAtOnce + 2; ++i) {
      waits.push_back(asker.ask(peer_with(static_cast<std::uint8_t>(10 + i), static_cast<std::uint16_t>(0x40 + i))));
    }
    asker.turn();
    ck_assert_uint_eq(asked.size(), PathQuestions::kMostAtOnce);
    asker.answer(1, 0x40, kOurLid);
    ck_assert_uint_eq(asked.size(), PathQuestions::kMostAtOnce);
    while (!asked.empty()) {
      asker.answer(1, 0x40, kOurLid);
    }
    ck_assert_int_eq(asker.answers, static_cast<int>(PathQuestions::kMostAtOnce) + 2);
  });
}
END_TEST

/// Whatever fails, the connection goes on with what was published, and that is said once.
START_TEST(without_an_answer_it_goes_on) {
  struct Case {
    int* fails;  ///< null: nobody answers
    const char* says;
  };
  for (const Case& one : {Case{&opening_fails, "rdma_ucm"}, Case{&address_fails, "AF_IB"},
                          Case{&route_fails, "asking for a path"}, Case{nullptr, "RDMA_CM_EVENT_ROUTE_ERROR"}}) {
    on_loop([&](event_base* loop) {
      Asker asker(loop);
      if (one.fails != nullptr) {
        *one.fails = ENODEV;
      }
      const PortAddress peer = peer_with(2, 0x40);
      const PortAddress other = peer_with(3, 0x41);
      const auto wait = asker.ask(peer);
      const auto also = asker.ask(other);
      ck_assert(wait != nullptr && also != nullptr);
      ck_assert_int_eq(asker.answers, 0);  // never within the call
      asker.turn();
      while (!asked.empty()) {
        push(asked.front(), RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
        asked.erase(asked.begin());
      }
      asker.turn();
      ck_assert_int_eq(asker.answers, 2);
      ck_assert_uint_eq(asker.told.size(), 1);
      ck_assert_msg(asker.told[0].find(one.says) != std::string::npos, "%s", asker.told[0].c_str());
      const ibv_ah_attr path = path_to(asker.port, peer);
      ck_assert_uint_eq(path.dlid, 0x40);
      ck_assert_uint_eq(path.src_path_bits, 1);
      ck_assert(asker.ask(peer) == nullptr);  // not asked for again
    });
  }
}
END_TEST

/// Not even that it has waited long enough.
START_TEST(the_kernel_may_say_nothing) {
  on_loop([](event_base* loop) {
    Asker asker(loop, Transport::kInfiniBand, false, 10);
    const auto wait = asker.ask(peer_with(2, 0x40));
    while (asker.answers == 0) {
      event_base_loop(loop, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    ck_assert_int_eq(ids, 0);
    ck_assert(asker.told.at(0).find("no answer") != std::string::npos);
  });
}
END_TEST

/// Where nobody answers, a job does not wait for each of its peers.
START_TEST(after_many_without_an_answer_nobody_is_asked) {
  on_loop([](event_base* loop) {
    Asker asker(loop);
    std::vector<std::unique_ptr<PathQuestions::Wait>> waits;
    for (std::uint8_t i = 0; i < 2 * PathQuestions::kMostUnanswered; ++i) {
      waits.push_back(asker.ask(peer_with(static_cast<std::uint8_t>(10 + i), static_cast<std::uint16_t>(0x40 + i))));
    }
    asker.turn();
    for (rdma_cm_id* const id : asked) {
      push(id, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
    }
    asked.clear();
    asker.turn();
    while (!asked.empty()) {
      push(asked.front(), RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
      asked.erase(asked.begin());
      asker.turn();
    }
    ck_assert_int_eq(asker.answers, 2 * static_cast<int>(PathQuestions::kMostUnanswered));
    ck_assert(asker.ask(peer_with(200, 0x99)) == nullptr);
    ck_assert_uint_eq(asker.told.size(), 1);
  });
}
END_TEST

START_TEST(nobody_is_asked_who_is_not_to_be) {
  on_loop([](event_base* loop) {
    Asker roce(loop, Transport::kRoce);
    PortAddress peer = peer_with(2, 0);
    peer.link = Transport::kRoce;
    ck_assert(roce.ask(peer) == nullptr);
    Asker infiniband(loop);
    ck_assert(infiniband.questions.ask(4, peer_with(2, 0x40).gid, [] {}) == nullptr);  // a port that does not want it
    ck_assert(infiniband.ask(PortAddress()) == nullptr);                               // not known yet
    ck_assert_int_eq(channels, 0);
  });
}
END_TEST

/// A peer's channel, of which nothing is wanted here.
struct FakeChannel final : Channel {
  explicit FakeChannel(int& count) : open(count) {
    identity_.self_port = 3;
    ++open;
  }
  ~FakeChannel() override { --open; }
  [[nodiscard]] const CpcTraits& cpc() const noexcept override { return traits; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return false; }
  void send(Message /*message*/) override {}
  [[nodiscard]] Status connect(QueuePairs& /*queue_pairs*/, const Message& /*from_peer*/) override { return {}; }
  void lose() { handler_->on_lost(*this, "gone", false); }
  void hear(Message message) { handler_->on_message(*this, std::move(message)); }

  CpcTraits traits{};
  int& open;
};

START_TEST(a_request_waits_for_the_path) {
  on_loop([](event_base* loop) {
    Asker asker(loop);
    int open = 0;
    std::vector<Message> taken;
    const OnRequest take = [&](std::unique_ptr<Channel> /*channel*/, Message request) {
      taken.push_back(std::move(request));
    };
    HeldRequests held(asker.questions, take);
    Message request;
    request.address = peer_with(2, 0x40);
    held.add(std::make_unique<FakeChannel>(open), request);
    for (const bool is_lost : {true, false}) {  // these peers have changed their minds meanwhile
      auto channel = std::make_unique<FakeChannel>(open);
      FakeChannel& given_up = *channel;
      held.add(std::move(channel), request);
      ck_assert_int_eq(open, 2);
      if (is_lost) {
        given_up.lose();
      } else {
        given_up.hear({});
      }
      ck_assert_int_eq(open, 1);
    }
    asker.turn();
    ck_assert_uint_eq(taken.size(), 0);
    asker.answer(1, 0x40, kOurLid);
    ck_assert_uint_eq(taken.size(), 1);
    ck_assert_int_eq(open, 0);
    held.add(std::make_unique<FakeChannel>(open), request);  // known by now
    ck_assert_uint_eq(taken.size(), 2);
    request.address = peer_with(3, 0x41);
    held.add(std::make_unique<FakeChannel>(open), request);
    ck_assert_uint_eq(taken.size(), 2);
  });
  ck_assert_int_eq(ids, 0);
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "path_questions",
      {the_path_is_that_of_the_answer, both_sides_agree, the_kernel_may_say_nothing, paths_of_a_port_keep_their_lids,
       each_pair_is_asked_for_once, questions_wait_in_line, without_an_answer_it_goes_on,
       after_many_without_an_answer_nobody_is_asked, nobody_is_asked_who_is_not_to_be, a_request_waits_for_the_path});
}
