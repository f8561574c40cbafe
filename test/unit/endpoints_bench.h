// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints on fake verbs, without Open MPI and without a progress thread: what that would say, the test says.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "btl_fabric/peer/endpoints.h"
#include "cpc/oob/oob.h"
#include "test/unit/path_parts.h"

namespace fabric::test {

inline constexpr std::uint8_t kTag = 65;
inline constexpr const char* kXQueues = "X,256,32,16,4,16,2:X,4096,32,16,4,16,2";
inline constexpr const char* kSharedQueues = "S,256,32,16,4,16,2:S,4096,32,16,4,16,2";

/// A port whose peers speak oob, and what its endpoints say. `heals`: copies are kept of what the device copies.
class EndpointsBench final : private EndpointServices {
 public:
  explicit EndpointsBench(const char* list = "P,256,8,4,2,2:P,4096,8,4,2,2", const cpc::CpcTraits& cpc = cpc::kOob,
                          bool heals = false)
      : queues(ReceiveQueues::parse(list).value()), buffers(device), rdma(device.pd(), MrPoolHints{}) {
    port.subsets = {QueueSubset::all(queues)};
    PathSettings settings = path_settings(queues);
    settings.receivers = receivers.data();
    settings.heals = heals;
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
    opal_proc_local_get()->proc_name = {1, 0};
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

  /// Another process on the same node, or a third.
  Endpoint& endpoint_of_another(bool third = false) {
    std::string why_not;
    opal_proc_t& process = others[third ? 1 : 0];
    process.proc_name = {1, third ? 9U : 8U};
    Endpoint* const known = endpoints.endpoint_for(&process, peer, why_not);
    ck_assert_ptr_nonnull(known);
    return *known;
  }

  /// Whom messages are handed to from now on.
  template <class Function>
  void deliver_to(Function callback) {
    for (auto& receiver : receivers) {
      receiver.cbfunc = callback;
    }
  }

  /// Sends a message with a callback; what Endpoint::send() said.
  int send() { return send(endpoint()); }
  int send(Endpoint& to) {
    Fragment* const fragment = endpoints.path().get_send(0);
    ck_assert_ptr_nonnull(fragment);
    fragment->segments[0].seg_len = 8;
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    fragment->tag = kTag;
    fragment->callback_due = false;
    fragment->des_cbfunc = sent<>;
    const int result = to.send(*fragment);
    if (result < 0) {
      put_back(fragment);
    }
    return result;
  }
  /// Submits a write; what Endpoint::submit() said.
  int submit() { return submit(endpoint()); }
  int submit(Endpoint& to) {
    RdmaRequest* const request = rdma.requests.get(Transport::kInfiniBand);
    request->operation.pieces = 1;
    request->operation.local[0] = request->operation.confirm;
    request->callback = [](mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, mca_btl_base_registration_handle_t*,
                           void*, void*, int) { ++current->requests_ended; };
    const int result = to.submit(request);
    if (result != OPAL_SUCCESS) {
      rdma.requests.put(request);
    }
    return result;
  }
  void make_queue_pairs() {
    handles.clear();
    for (std::size_t i = 0; i < queues.count(); ++i) {
      handles.push_back(&device.make_queue_pair().verbs);
    }
  }
  /// The progress thread connects: both halves of it.
  void post_receives() {
    make_queue_pairs();
    tell(cpc::PostReceives{key(), link, handles});
  }
  void connected() { tell(cpc::Connected{key(), link, std::vector<cpc::QueuePairEnd>(queues.count())}); }
  /// Sends a message, for which the progress thread connects.
  void send_and_connect() {
    ck_assert_int_eq(send(), OPAL_SUCCESS);
    post_receives();
    connected();
  }
  /// What is under way on the first queue arrives.
  void messages_arrive() {
    device.complete_send(pair());
    endpoints.progress();
  }
  /// The peer's, over a P queue.
  void goodbye_arrives(std::size_t queue) { packet_arrives({PacketKind::kGoodbye, 0, {}}, PacketHeader::kSize, queue); }
  void message_arrives(std::size_t queue = 0) {
    packet_arrives({PacketKind::kMessage, kTag, {}}, PacketHeader::kSize + 4, queue);
  }
  void credits_arrive(std::uint16_t credits) {
    packet_arrives({PacketKind::kMessage, kTag, {credits, 0}}, PacketHeader::kSize + 4, 0);
  }
  /// With CPCs that exchange CTS: the queue pairs of both sides are up.
  cpc::Linked linked(std::uint32_t cts) {
    make_queue_pairs();
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
  opal_proc_t others[2]{};
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
  unsigned losses = 0;
  unsigned upper_layer_told = 0;
  const Awaited* awaited = nullptr;  ///< by an upper layer that goes on without the peer
  unsigned other_ports_wanted = 0;
  bool submits = true;
  Endpoint* beside = nullptr;   ///< of another port
  Endpoint* through = nullptr;  ///< whom the peer means
  std::function<void()> on_sent;

 private:
  void packet_arrives(const PacketHeader& header, std::size_t size, std::size_t queue) {
    std::vector<std::byte> packet(size);
    header.write(packet.data());
    device.receive(pair(queue), packet);
  }

  const ProcessInfo& own_info() const noexcept override { return info; }
  const Peer* peer_of(const opal_proc_t& /*proc*/) override { return &peer; }
  std::string port_name() const override { return "fake0:1"; }
  void submit(cpc::Command command) override { commands.push_back(std::move(command)); }
  void device_is_gone() noexcept override { ++losses; }
  void tell_upper_layer(opal_proc_t* /*proc*/) noexcept override { ++upper_layer_told; }
  const Awaited* awaited_of(const opal_proc_t& /*proc*/) const noexcept override { return awaited; }
  void report_no_connection_method(const opal_proc_t& /*proc*/, const std::string& /*why*/) noexcept override {
    ++reports;
  }
  void report_not_missed(const Endpoint& /*endpoint*/, const std::string& /*why*/) noexcept override {}
  void report_detour(const Endpoint& /*endpoint*/, const std::string& /*why*/,
                     const Endpoint& /*way*/) noexcept override {}
  Endpoint* way_beside(const Endpoint& /*endpoint*/) const noexcept override { return beside; }
  bool leads_elsewhere(const Endpoint& /*endpoint*/) const noexcept override { return beside != nullptr; }
  Endpoint* endpoint_through(std::uint16_t /*port*/, const ProcessName& /*peer*/) noexcept override { return through; }
  void report_healed(const Endpoint& /*endpoint*/, const std::string& /*how*/) noexcept override {}
  void report_connected(const Endpoint& /*endpoint*/, std::string_view /*method*/,
                        std::chrono::microseconds /*took*/) noexcept override {}
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
inline void take_away(EndpointsBench& bench) {
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

}  // namespace fabric::test
