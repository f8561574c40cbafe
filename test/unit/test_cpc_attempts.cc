// SPDX-License-Identifier: BSD-3-Clause
//
// Connections of CPCs that exchange CTS have new queue pairs for each attempt, and there may be none left for a further one.
#include <functional>

#include "cpc/core/connection.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/rdmacm/rdmacm.h"
#include "test/unit/cpc_node.h"

namespace fabric {
namespace {

using test::fake_counts;

/// One that only counts.
class CountedChannel final : public cpc::Channel {
 public:
  CountedChannel(bool is_ours, int& open) : is_ours_(is_ours), open_(open) { ++open_; }
  ~CountedChannel() override { --open_; }
  [[nodiscard]] const cpc::CpcTraits& cpc() const noexcept override { return cpc::kRdmaCm; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return is_ours_; }
  void send(cpc::Message message) override {
    ck_assert_msg(message.header.type != cpc::MessageType::kRefuse, "the peer is told that it is over");
  }
  [[nodiscard]] Status connect(cpc::QueuePairs& queue_pairs, const cpc::Message& from_peer) override {
    return queue_pairs.connect(from_peer.address, from_peer.ends);
  }

 private:
  const bool is_ours_;
  int& open_;
};

/// A connection, and all that it needs; on a device that refuses the makings that are to fail.
class LoneConnection final : public cpc::ChannelOpener, private cpc::ConnectionOwner {
 public:
  LoneConnection(event_base* loop, unsigned retry_time_ms) {
    settings_.self = {7, 2};
    settings_.retry_time_ms = retry_time_ms;
    port_.queues = &queues_;
    port_.subsets = {QueueSubset::all(queues_)};
    environment_.loop = loop;
    environment_.settings = &settings_;
    environment_.make_queue_pairs = &maker_;
    environment_.port = [this](std::uint16_t) { return &port_; };
    environment_.opener = [this](CpcKind) { return this; };
    environment_.say = [this](const cpc::Upcall& upcall) { failed += std::holds_alternative<cpc::Failed>(upcall); };
    connection.emplace(cpc::ConnectionKey{{7, 1}, 0, 0}, 1, environment_, incarnations_,
                       static_cast<cpc::ConnectionOwner&>(*this));
  }
  [[nodiscard]] Result<std::unique_ptr<cpc::Channel>> open(const cpc::ChannelIdentity&, const cpc::PeerTarget&,
                                                           cpc::Message) override {
    ++opened;
    return std::make_unique<CountedChannel>(true, channels);
  }
  void connect() {
    cpc::PeerTarget target;
    target.cpc = cpc::kRdmaCm;
    connection->connect(target);
  }
  void peer_asks(std::uint32_t attempt) {
    cpc::Message request;
    request.header.attempt = attempt;
    request.header.incarnation = 1;
    request.ends = {{1, 1}, {2, 2}};
    connection->request_arrived(std::make_unique<CountedChannel>(false, channels), std::move(request));
  }

  int to_fail = 0;
  int failed = 0;    ///< upcalls
  int opened = 0;    ///< channels, by us
  int channels = 0;  ///< that there are

 private:
  void on_event(cpc::Connection&) override {}

  cpc::ConnectionSettings settings_;
  ReceiveQueues queues_ = *ReceiveQueues::parse("P,4096,64,32:S,65536,128,64,16");
  cpc::PortContext port_;
  cpc::QueuePairMaker maker_ = [this](const cpc::PortContext&,
                                      const QueueSubset& queues) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    if (to_fail > 0) {
      --to_fail;
      auto refused = failure("the fake device has no queue pair left");
      refused.value().is_shortage = true;
      return refused;
    }
    return std::make_unique<test::FakeQueuePairs>(queues.count(), false);
  };
  cpc::ConnectionEnvironment environment_;
  cpc::Incarnations incarnations_;

 public:
  std::optional<cpc::Connection> connection;
};

/// Connections live on progress threads.
void on_progress_thread(const std::function<void(event_base* loop)>& what) {
  cpc::ProgressDuties duties;
  duties.set_up = [&](event_base* loop) {
    what(loop);
    return Status();
  };
  duties.woken = [] {};
  duties.tear_down = [] {};
  ck_assert(cpc::ProgressThread::start(std::move(duties)).has_value());
}

int alive() {
  return fake_counts.made - fake_counts.destroyed;
}

/// The peer's request crosses ours and counts: it is answered with new queue pairs, and others have taken what the device had.
START_TEST(queue_pairs_run_short_between_two_attempts) {
  on_progress_thread([](event_base* loop) {
    LoneConnection lone(loop, 1500);
    lone.connect();
    lone.to_fail = 2;
    lone.peer_asks(1);
    ck_assert(lone.connection->state() == cpc::State::kRequestSent);
    ck_assert_int_eq(lone.channels + alive(), 0);
    while (lone.opened < 2) {  // one further attempt fails for the same reason
      ck_assert_int_eq(event_base_loop(loop, EVLOOP_ONCE), 0);
    }
    ck_assert(lone.connection->state() == cpc::State::kRequestSent);
    ck_assert_int_eq(lone.to_fail + lone.failed, 0);
    ck_assert_int_eq(alive(), 1);
  });
  ck_assert_int_eq(alive(), 0);
}
END_TEST

/// Who has not asked forgets about it: the peer asks again.
START_TEST(queue_pairs_run_short_for_a_peer) {
  on_progress_thread([](event_base* loop) {
    LoneConnection lone(loop, 1500);
    lone.peer_asks(1);
    ck_assert(lone.connection->state() == cpc::State::kReplySent);
    lone.to_fail = 1;
    lone.peer_asks(2);
    ck_assert(lone.connection->state() == cpc::State::kClosed);
    ck_assert_int_eq(lone.channels + alive() + lone.failed, 0);
  });
}
END_TEST

/// When the time is over, that is told, and so it is of the first ones, which have been waited for before.
START_TEST(queue_pairs_stay_short) {
  on_progress_thread([](event_base* loop) {
    LoneConnection lone(loop, 0);
    lone.connect();
    lone.to_fail = 1;
    lone.peer_asks(1);
    ck_assert_int_eq(lone.failed, 1);
    LoneConnection first(loop, 1500);
    first.to_fail = 1;
    first.connect();
    ck_assert_int_eq(first.failed, 1);
  });
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_attempts", {queue_pairs_run_short_between_two_attempts, queue_pairs_run_short_for_a_peer,
                                          queue_pairs_stay_short});
}
