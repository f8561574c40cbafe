// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints on fake verbs, without Open MPI and without a progress thread: what that would say, the test says.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <variant>

#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoints.h"
#include "cpc/oob/oob.h"
#include "cpc/oob/xoob.h"
#include "cpc/rdmacm/rdmacm.h"
#include "test/model/inside.h"
#include "test/unit/check_main.h"
#include "test/unit/path_parts.h"

using namespace fabric;
using namespace fabric::test;

namespace fabric::model {

FABRIC_OPEN(fabric, Endpoints, closing_);
FABRIC_OPEN(fabric, Endpoints, early_cts_);
FABRIC_OPEN(fabric, Endpoints, early_handshakes_);
FABRIC_OPEN(fabric, Endpoints, endpoints_);
FABRIC_OPEN(fabric, PacketPath, senders_);

}  // namespace fabric::model

namespace {

/// Allocations that are granted before one is refused; negative: all are.
long allocations_left = -1;
bool refuses_one_only = true;

}  // namespace

// The program's own, so that it can say no.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (fakes_at_work == 0 && allocations_left == 0) {
    allocations_left = refuses_one_only ? -1 : 0;
    throw std::bad_alloc();
  }
  allocations_left -= fakes_at_work == 0 && allocations_left > 0 ? 1 : 0;
  if (void* const memory = std::malloc(size != 0 ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace {

constexpr std::uint8_t kTag = 65;
constexpr const char* kXQueues = "X,256,32,16,4,16,2:X,4096,32,16,4,16,2";
constexpr const char* kSharedQueues = "S,256,32,16,4,16,2:S,4096,32,16,4,16,2";

/// A port whose peers speak oob, and what its endpoints say.
class EndpointsBench final : private EndpointServices {
 public:
  explicit EndpointsBench(const char* list = "P,256,8,4,2,2:P,4096,8,4,2,2", const cpc::CpcTraits& cpc = cpc::kOob)
      : queues(ReceiveQueues::parse(list).value()), buffers(device), rdma(device.pd(), MrPoolHints{}) {
    PathSettings settings = path_settings(queues);
    settings.receivers = receivers.data();
    for (auto& receiver : receivers) {
      receiver.cbfunc = received<>;
    }
    PathQueues made = make_queues(device, buffers, queues, 8, shared);
    room = made.completion_queues->reserve(512).value();
    endpoints.make_path(settings, std::move(made), rdma, targets, counters);
    endpoints.set_contexts({&endpoints}, &module);
    info.ports.resize(1);
    info.offers.push_back({cpc.kind, 50, 1, {}});
    peer.info = info;
    peer.pairs.emplace_back(0);
    proc.proc_name = {1, 7};
    current = this;
  }
  ~EndpointsBench() { current = nullptr; }

  Endpoint& endpoint() {
    std::string why_not;
    Endpoint* const known = endpoints.endpoint_for(&proc, peer, why_not);
    ck_assert_ptr_nonnull(known);
    return *known;
  }
  static cpc::ConnectionKey key(cpc::Direction direction = cpc::Direction::kBoth) { return {{1, 7}, 0, 0, direction}; }

  /// Sends a message with a callback; what Endpoint::send() said.
  int send() {
    Fragment* const fragment = endpoints.path().get_send(0);
    ck_assert_ptr_nonnull(fragment);
    fragment->segments[0].seg_len = 8;
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    fragment->tag = kTag;
    fragment->callback_due = false;
    fragment->des_cbfunc = sent<>;
    const int result = endpoint().send(*fragment);
    if (result < 0) {
      put_back(fragment);
    }
    return result;
  }
  /// Submits a write; what Endpoint::submit() said.
  int submit() {
    RdmaRequest* const request = rdma.requests.get(Transport::kInfiniBand);
    request->operation.pieces = 1;
    request->operation.local[0] = request->operation.confirm;
    request->callback = [](mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, mca_btl_base_registration_handle_t*,
                           void*, void*, int) { ++current->requests_ended; };
    const int result = endpoint().submit(request);
    if (result != OPAL_SUCCESS) {
      rdma.requests.put(request);
    }
    return result;
  }
  /// The progress thread connects: both halves of it.
  void post_receives() {
    handles.clear();
    for (std::size_t i = 0; i < queues.count(); ++i) {
      handles.push_back(&device.make_queue_pair().verbs);
    }
    cpc::PostReceives upcall{key(), link, handles};
    tell(upcall);
  }
  void connected() {
    cpc::Connected upcall{key(), link, std::vector<cpc::QueuePairEnd>(queues.count())};
    tell(upcall);
  }
  /// With CPCs that exchange CTS: the queue pairs of both sides are up.
  cpc::Linked linked(std::uint32_t cts) {
    for (std::size_t i = 0; i < queues.count(); ++i) {
      handles.push_back(&device.make_queue_pair().verbs);
    }
    cpc::Linked upcall{key(), link, handles, std::vector<cpc::QueuePairEnd>(queues.count()), {}, true, cts};
    upcall.handshake.queues = 1;
    upcall.handshake.send = handshake.data();
    return upcall;
  }
  void start_shared_queues() {
    for (const auto& queue : endpoints.path().queues().shared_queues) {
      ck_assert(queue->start().has_value());
    }
  }
  /// Over a queue pair whose first queue is a shared one.
  void cts_arrives(const FakeQueuePair& over, std::uint32_t number) {
    std::vector<std::byte> packet(PacketHeader::kSize);
    PacketHeader::clear_to_send(number).write(packet.data());
    device.receive(*shared[0], over, packet);
  }
  /// Over one whose first queue is a P queue: the handshake buffer has taken it.
  void handshake_arrives(std::uint64_t serial) {
    ibv_wc completion{};
    completion.wr_id = serial << cpc::kHandshakeTagBits | cpc::kHandshakeTag;
    completion.opcode = IBV_WC_RECV;
    device.completions.push_back(completion);
  }
  void tell(const cpc::Upcall& upcall) { endpoints.handle(upcall); }
  FakeQueuePair& pair(std::size_t queue = 0) {
    return *std::find_if(device.queue_pairs.begin(), device.queue_pairs.end(),
                         [&](const FakeQueuePair& one) { return &one.verbs == handles[queue]; });
  }
  void flush() {
    for (std::size_t i = 0; i < handles.size(); ++i) {
      device.flush(pair(i));
    }
  }
  template <class Command>
  [[nodiscard]] std::size_t said() const {
    return static_cast<std::size_t>(std::count_if(
        commands.begin(), commands.end(), [](const auto& one) { return std::holds_alternative<Command>(one); }));
  }

  FakeDevice device;
  ReceiveQueues queues;
  FakeBuffers buffers;
  DeviceRdma rdma;
  AtomicTargets targets;
  Counters counters;
  cpc::PortContext port;
  mca_btl_base_module_t module{};
  ProcessInfo info;
  Peer peer;
  opal_proc_t proc{};
  std::vector<FakeSharedQueue*> shared;
  std::vector<ibv_qp*> handles;
  alignas(8) std::array<std::byte, PacketHeader::kSize> handshake{};
  cpc::LinkNumber link = 1;  ///< that the progress thread is at
  Endpoints endpoints{port, *this, 0};
  CompletionQueueRoom room;

  std::vector<cpc::Command> commands;
  std::vector<int> sends_ended;
  unsigned requests_ended = 0;
  unsigned reports = 0;
  unsigned reports_of_no_memory = 0;
  unsigned upper_layer_told = 0;
  unsigned other_ports_wanted = 0;
  bool submits = true;
  std::function<void()> on_sent;

 private:
  const ProcessInfo& own_info() const noexcept override { return info; }
  const Peer* peer_of(const opal_proc_t& /*proc*/) override { return &peer; }
  std::string port_name() const override { return "fake0:1"; }
  void submit(cpc::Command command) override { commands.push_back(std::move(command)); }
  void tell_upper_layer(opal_proc_t* /*proc*/) noexcept override { ++upper_layer_told; }
  void report_no_connection_method(const opal_proc_t& /*proc*/, const std::string& /*why*/) noexcept override {
    ++reports;
  }
  void report_not_missed(const Endpoint& /*endpoint*/, const std::string& /*why*/) noexcept override {}
  void connect_other_ports(const ProcessName& /*peer*/, unsigned /*context*/) noexcept override {
    ++other_ports_wanted;
    endpoints.connect(key().peer);  // it is asked for too, and has begun
  }
  void report_connection_failed(const Endpoint& /*endpoint*/, const std::string& /*why*/,
                                const std::string& /*history*/) noexcept override {
    ++reports;
  }
  void report_link_failed(const Endpoint& /*endpoint*/, const LinkFailure& /*failure*/) noexcept override { ++reports; }
  void report_no_memory() noexcept override { ++reports_of_no_memory; }

  template <class... More>
  static void received(mca_btl_base_module_t* /*module*/, More... /*more*/) {}
  template <class... More>
  static void sent(mca_btl_base_module_t* /*module*/, mca_btl_base_endpoint_t* /*endpoint*/,
                   mca_btl_base_descriptor_t* /*descriptor*/, int status, More... /*more*/) {
    current->sends_ended.push_back(status);
    if (current->on_sent) {
      current->on_sent();
    }
  }
  inline static EndpointsBench* current = nullptr;
  std::vector<mca_btl_active_message_callback_t> receivers{256};
};

/// Everything ends, and nothing is left of it.
void take_away(EndpointsBench& bench) {
  bench.endpoints.remove(&bench.endpoint());
  for (FakeQueuePair& pair : bench.device.queue_pairs) {
    bench.device.complete_send(pair);  // our goodbye, if the peer was connected
  }
  bench.endpoints.progress();
  bench.flush();
  if (bench.said<cpc::Close>() > 0) {
    bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
  }
  for (int i = 0; i < 4; ++i) {
    bench.flush();
    bench.endpoints.progress();
  }
}

}  // namespace

/// It is the last message, and the queue pairs are given up when it has arrived.
START_TEST(goodbye_comes_first) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.post_receives();
  bench.connected();
  bench.device.complete_send(bench.pair());
  bench.endpoints.progress();
  bench.endpoints.remove(&bench.endpoint());
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  bench.device.complete_send(bench.pair());
  bench.endpoints.progress();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// A peer that has said goodbye takes nothing more: we do not wait for it to take ours.
START_TEST(goodbyes_cross) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.post_receives();
  bench.connected();
  bench.device.complete_send(bench.pair());
  bench.endpoints.progress();
  bench.endpoints.remove(&bench.endpoint());
  std::vector<std::byte> packet(PacketHeader::kSize);
  PacketHeader{PacketKind::kGoodbye, 0, {}}.write(packet.data());
  bench.device.receive(bench.pair(), packet);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The ports of a peer are connected together: a message for one that is not waits until both processes are inside MPI.
START_TEST(all_ports_are_connected) {
  EndpointsBench sender;
  ck_assert_int_eq(sender.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(sender.other_ports_wanted, 1);
  ck_assert_uint_eq(sender.commands.size(), 1);
  ck_assert(std::holds_alternative<cpc::Connect>(sender.commands[0]));

  EndpointsBench other;
  (void)other.endpoint();
  other.endpoints.connect({1, 8});
  ck_assert_msg(other.commands.empty(), "nothing is known of that peer");
  other.endpoints.connect({1, 7});
  other.endpoints.connect({1, 7});
  ck_assert_uint_eq(other.commands.size(), 1);
  ck_assert(std::holds_alternative<cpc::Connect>(other.commands[0]));
  // Nobody here misses it if that fails.
  other.tell(cpc::Upcall{cpc::Failed{EndpointsBench::key(), other.link, "refused", "", true}});
  ck_assert_uint_eq(other.reports, 0);
  ck_assert_uint_eq(other.upper_layer_told, 0);
}
END_TEST

/// A CTS that is polled when the endpoint has been closed. Without the table it was Connected again.
START_TEST(a_late_cts_revives_nothing) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(bench.linked(5));
  bench.endpoints.remove(&bench.endpoint());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  bench.cts_arrives(bench.pair(), 5);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.connections_made, 0);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

START_TEST(messages_wait_for_their_connection) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 1);
  bench.post_receives();
  ck_assert_uint_eq(bench.said<cpc::ReceivesPosted>(), 1);
  ck_assert(bench.pair().sends.empty());
  bench.connected();
  ck_assert_uint_eq(bench.pair().sends.size(), 2);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.pair().sends.size(), 3);
  take_away(bench);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// A peer goes while a callback of its own runs, and progress is called within. Its link is still in use outside.
START_TEST(nothing_is_freed_within_a_callback) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.post_receives();
  bench.connected();
  bench.on_sent = [&] {
    bench.on_sent = nullptr;
    take_away(bench);
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), 0);
  };
  bench.device.complete_send(bench.pair());
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.sends_ended.size(), 1);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
}
END_TEST

/// The progress thread gives a connection up, and its receives are flushed before the main thread hears of that.
START_TEST(flushed_receives_are_no_failure) {
  EndpointsBench bench;
  (void)bench.endpoint();
  bench.post_receives();  // a peer asks
  ck_assert_uint_eq(bench.said<cpc::ReceivesPosted>(), 1);
  bench.flush();
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  cpc::Failed failed{EndpointsBench::key(), bench.link, "the peer has gone", {}, false};
  bench.tell(failed);
  bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
}
END_TEST

/// Wherever there is no memory, somebody is told, everything ends, and nobody dies.
START_TEST(no_memory_is_an_error) {
  refuses_one_only = _i % 2 == 0;
  for (long granted = 0; granted < 64; ++granted) {
    EndpointsBench bench;
    bench.commands.reserve(16);
    bench.sends_ended.reserve(16);
    bench.rdma.requests.put(bench.rdma.requests.get(Transport::kInfiniBand));  // so that there are some
    (void)bench.endpoint();
    unsigned waiting = 0;
    int result = OPAL_ERR_OUT_OF_RESOURCE;  // of what is done to the peer's memory
    const auto step = [&](auto action) {
      allocations_left = granted;
      action();
      allocations_left = -1;
    };
    switch (_i / 2) {
      case 0:
        step([&] { waiting += bench.send() == OPAL_SUCCESS ? 1 : 0; });
        ck_assert(waiting == 1 || bench.said<cpc::Connect>() == 0);
        break;
      case 1:
        waiting += bench.send() == OPAL_SUCCESS ? 1 : 0;
        for (std::size_t i = 0; i < bench.queues.count(); ++i) {
          bench.handles.push_back(&bench.device.make_queue_pair().verbs);
        }
        {
          const cpc::Upcall upcall = cpc::PostReceives{EndpointsBench::key(), bench.link, bench.handles};
          step([&] { bench.tell(upcall); });
        }
        break;
      case 2:
        step([&] { result = bench.submit(); });
        ck_assert(result == OPAL_SUCCESS || result == OPAL_ERR_OUT_OF_RESOURCE);
        // What waits has a connection to wait for.
        ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), bench.said<cpc::Connect>());
        ck_assert((result == OPAL_SUCCESS) == (bench.said<cpc::Connect>() == 1));
        break;
      default:
        waiting += bench.send() == OPAL_SUCCESS ? 1 : 0;
        bench.post_receives();
        {
          const cpc::Upcall upcall =
              cpc::Connected{EndpointsBench::key(), bench.link, std::vector<cpc::QueuePairEnd>(bench.queues.count())};
          step([&] { bench.tell(upcall); });
        }
        break;
    }
    const bool failed = bench.reports_of_no_memory > 0;
    ck_assert_uint_eq(bench.upper_layer_told, failed ? 1 : 0);
    ck_assert_uint_eq(bench.sends_ended.size(), failed ? waiting : 0);
    take_away(bench);
    ck_assert_uint_eq(bench.device.completions.size(), 0);
    ck_assert_uint_eq(bench.requests_ended, result == OPAL_SUCCESS ? 1 : 0);
  }
}
END_TEST

/// The first CTS may be here before its connection is known.
START_TEST(no_memory_for_an_early_cts) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  if (_i == 0) {
    FakeQueuePair unknown;
    unknown.verbs.qp_num = 0x999;
    bench.cts_arrives(unknown, 5);
  } else {
    bench.handshake_arrives(77);
  }
  allocations_left = 0;
  refuses_one_only = true;
  bench.endpoints.progress();
  allocations_left = -1;
  ck_assert_uint_eq(bench.reports_of_no_memory, 1);
  ck_assert_uint_eq(bench.upper_layer_told, 1);
}
END_TEST

/// Peers of a node come and go. 0: the queue pair to the node goes with each; 1: it stays for somebody else; 2: it goes
/// while a callback runs, and progress is called within.
START_TEST(a_shared_send_queue_goes_with_its_queue_pair) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  const auto& senders = inside(bench.endpoints.path(), model::PacketPath_senders_{});
  FakeQueuePair& pair = bench.device.make_queue_pair();
  const auto turn = [&] {
    bench.device.complete_send(pair);
    bench.endpoints.progress();
  };
  const cpc::ConnectionKey key = EndpointsBench::key(cpc::Direction::kOutgoing);
  for (cpc::LinkNumber link = 1; link <= 20; ++link) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    bench.tell(cpc::PostReceives{key, link, {}});
    const std::uint64_t sender = _i == 1 ? 1 : link;
    bench.tell(cpc::Connected{key, link, {{7, 7}}, {&pair.verbs, sender, {1, 2}, link}});
    ck_assert_uint_eq(senders.size(), 1);
    ck_assert_uint_eq(senders.at(sender)->shares().size(), 1);
    turn();
    const auto go = [&] {
      bench.endpoints.remove(&bench.endpoint());
      turn();
      turn();
      bench.tell(cpc::Flushing{key, link});
      bench.endpoints.progress();
      bench.tell(cpc::QueuePairsGone{key, link, 0, 0, 0, _i == 1 ? 0 : sender});
      bench.endpoints.progress();
      ck_assert_uint_eq(senders.size(), _i == 0 ? 0 : 1);
    };
    if (_i == 2) {
      bench.on_sent = [&] {
        bench.on_sent = nullptr;
        go();
      };
      turn();
      bench.endpoints.progress();
      ck_assert_uint_eq(senders.size(), 0);
    } else {
      turn();
      go();
    }
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), link);
    ck_assert_uint_eq(bench.reports, 0);
  }
}
END_TEST

/// X queues: the peer that sends does not know that Open MPI has taken it away here, and nothing that it sends is lost. 0, 2: we
/// have no connection to it; 1, 3: we were about to connect. Only its goodbye is the end, whether Open MPI has taken the
/// endpoint back in between (2, 3) or not.
START_TEST(who_only_receives_goes_on_to) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  FakeQueuePair& target = bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
  const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
  Endpoint* const endpoint = &bench.endpoint();
  bench.tell(cpc::PostReceives{incoming, 1, {}, target.verbs.qp_num, 9});
  bench.tell(cpc::Connected{incoming, 1, {}, {}});
  const bool connects = _i % 2 == 1;
  if (connects) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  }
  bench.endpoints.remove(endpoint);
  ck_assert_uint_eq(bench.said<cpc::Close>(), connects ? 1 : 0);
  std::vector<std::byte> message(PacketHeader::kSize + 4);
  PacketHeader{PacketKind::kMessage, kTag, {}}.write(message.data());
  bench.device.receive(*bench.shared[0], target, message);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.messages_received, 1);
  if (connects) {
    bench.tell(cpc::Flushing{outgoing, 1});
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  }
  if (_i >= 2) {
    ck_assert_ptr_eq(&bench.endpoint(), endpoint);
    bench.device.receive(*bench.shared[0], target, message);
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.counters.messages_received, 2);
  }
  PacketHeader{PacketKind::kGoodbye, 0, {}}.write(message.data());
  store_be(message.data() + PacketHeader::kSize, std::uint32_t{9});
  bench.device.receive(*bench.shared[0], target, message);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Close>(), connects ? 2 : 1);
  bench.tell(cpc::Flushing{incoming, 1});
  if (_i >= 2) {
    bench.endpoints.remove(endpoint);
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), connects ? 2 : 1);
  ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_endpoints_{}).size(), 0);
  ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_closing_{}).size(), 0);
  ck_assert_uint_eq(bench.sends_ended.size(), 0);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// Of a connection that the main thread is never told of. Most attempts that come to nothing leave no CTS; some do.
START_TEST(an_early_cts_goes_with_its_queue_pairs) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  for (std::uint32_t i = 1; i <= 100; ++i) {
    FakeQueuePair unknown;
    unknown.verbs.qp_num = i % 7 + 1;  // numbers are used again
    bench.cts_arrives(unknown, i);
    bench.handshake_arrives(i);
    bench.endpoints.progress();
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_cts_{}).size(), 1);
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_handshakes_{}).size(), 1);
    // What comes with the last turn of the device is not forgotten either.
    bench.cts_arrives(unknown, i);
    bench.handshake_arrives(i);
    bench.tell(cpc::QueuePairsGone{EndpointsBench::key(), 1, i, unknown.verbs.qp_num, i});
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_cts_{}).size(), 0);
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_handshakes_{}).size(), 0);
  }
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// A device gives the number of a queue pair to the next one, and the CTS of the first may be here still, or again. 0: the
/// second's is not here yet; 1: it came before we hear that the first is gone.
START_TEST(a_cts_of_queue_pairs_that_are_gone_is_none) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  const cpc::Linked linked = bench.linked(2);
  bench.cts_arrives(bench.pair(), 1);
  if (_i == 1) {
    bench.cts_arrives(bench.pair(), 2);
  }
  bench.endpoints.progress();
  bench.tell(cpc::QueuePairsGone{EndpointsBench::key(), 1, 1, bench.pair().verbs.qp_num, 1});
  bench.tell(linked);
  ck_assert_uint_eq(bench.counters.connections_made, _i == 1 ? 1 : 0);
  bench.cts_arrives(bench.pair(), 1);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.connections_made, _i == 1 ? 1 : 0);
  if (_i == 0) {
    bench.cts_arrives(bench.pair(), 2);
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.counters.connections_made, 1);
  }
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

int main() {
  Suite* suite = suite_create("endpoints");
  TCase* tcase = tcase_create("endpoints");
  tcase_add_test(tcase, messages_wait_for_their_connection);
  tcase_add_test(tcase, goodbye_comes_first);
  tcase_add_test(tcase, goodbyes_cross);
  tcase_add_test(tcase, all_ports_are_connected);
  tcase_add_test(tcase, a_late_cts_revives_nothing);
  tcase_add_test(tcase, an_early_cts_goes_with_its_queue_pairs);
  tcase_add_loop_test(tcase, who_only_receives_goes_on_to, 0, 4);
  tcase_add_loop_test(tcase, a_shared_send_queue_goes_with_its_queue_pair, 0, 3);
  tcase_add_loop_test(tcase, a_cts_of_queue_pairs_that_are_gone_is_none, 0, 2);
  tcase_add_test(tcase, nothing_is_freed_within_a_callback);
  tcase_add_test(tcase, flushed_receives_are_no_failure);
  tcase_add_loop_test(tcase, no_memory_is_an_error, 0, 8);
  tcase_add_loop_test(tcase, no_memory_for_an_early_cts, 0, 2);
  suite_add_tcase(suite, tcase);
  SRunner* runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
