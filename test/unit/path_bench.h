// SPDX-License-Identifier: BSD-3-Clause
//
// A packet path on fake verbs, without Open MPI: what it says to the floor above and to the upper layer is kept for tests
// to look at.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "btl_fabric/base/detour_header.h"
#include "btl_fabric/path/immediate_sends.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/path_events.h"
#include "test/unit/path_parts.h"

namespace fabric::test {

/// What a link failed of, as it was said.
struct SeenFailure {
  const Link* link;
  LinkFailure::Kind kind;
  bool is_missed;
  ibv_wc_status status;
  int error_number;
  bool of_sender;  ///< said by sender_failed()
};

struct BenchOptions {
  const char* queues = "P,256,8,4,2,2:P,4096,8,4,2,2";
  std::uint32_t max_inline = 128;
  int most_sends = 0;  ///< buffers of a queue to send from; 0: no limit
  std::uint32_t rdma_depth = 4;
  int poll_batch = 16;
  std::uint32_t coalesce_size = 0;
  bool watches_packets = false;
  std::optional<std::uint32_t> coalesce_first = 0;
  EagerRdma eager_rdma = EagerRdma::kOff;
  RingSizes rings{.rings = 1, .slots = 4, .slot_size = 64};
  std::uint32_t eager_rdma_threshold = 2;
  bool heals = false;
  std::uint32_t shared_sends =
      0;  ///< entries of the completion queue that send queues share; 0: they own all they need
};

class PathBench final : private PathEvents {
 public:
  static constexpr std::uint8_t kTag = 65;

  explicit PathBench(const BenchOptions& options = {})
      : queues_(ReceiveQueues::parse(options.queues).value()),
        subset(QueueSubset::all(queues_)),
        buffers(device),
        rdma_(device.pd(), MrPoolHints{}) {
    PathSettings settings = path_settings(queues_, options.max_inline, options.rdma_depth);
    settings.poll_batch = options.poll_batch;
    settings.coalesce_size = options.coalesce_size;
    settings.coalesce_first = options.coalesce_first;
    settings.eager_rdma = options.eager_rdma;
    settings.eager_rdma_threshold = options.eager_rdma_threshold;
    settings.heals = options.heals;
    settings.receivers = receivers_.data();
    PathQueues made = make_queues(device, buffers, queues_, options.most_sends, shared, options.max_inline);
    if (options.eager_rdma != EagerRdma::kOff) {
      made.rings = std::make_unique<RingMemory>(buffers.source(), options.rings);
    }
    room_ = made.completion_queues->reserve({512, options.shared_sends}).value();
    completion_queue_ = options.shared_sends > 0 ? made.completion_queues->queue(0) : nullptr;
    path.emplace(settings, std::move(made),
                 PathParts{rdma_, targets, counters, *this, options.watches_packets ? &watch : nullptr});
    for (auto& receiver : receivers_) {
      receiver.cbfunc = received<>;
    }
    current_ = this;
  }
  ~PathBench() { current_ = nullptr; }

  /// A link of P and S queues that is up.
  Link& connect() {
    Link& link = open();
    start(link);
    return link;
  }
  /// One whose receives are posted.
  Link& open() {
    Link& link = *links.emplace_back(std::make_unique<Link>(*path, UpperHandles{&module, &endpoint}, subset, false));
    std::vector<ibv_qp*> handles;
    for (std::size_t i = 0; i < queues_.count(); ++i) {
      handles.push_back(&device.make_queue_pair().verbs);
      handles.back()->send_cq = completion_queue_;
      handles.back()->recv_cq = path->queues().completion_queues->queue(0);
    }
    ck_assert(link.post_receives(handles).has_value());
    return link;
  }
  void start(Link& link) {
    FragmentQueue waiting;
    RdmaRequestQueue requests;
    link.start(waiting, requests);
  }
  /// One of X queues that is up, through the queue pair of `sends`.
  Link& share(SharedSendQueue& sends, std::uint32_t target_qpn) {
    Link& link = *links.emplace_back(std::make_unique<Link>(*path, UpperHandles{&module, &endpoint}, subset, true));
    ck_assert(link.receive_from(target_qpn, 1).has_value());
    link.share(sends, std::vector<std::uint32_t>(queues_.count(), 9), 1);
    start(link);
    return link;
  }

  [[nodiscard]] FakeQueuePair& pair(Link& link, std::size_t queue = 0) {
    for (FakeQueuePair& one : device.queue_pairs) {
      if (&one.verbs == link.queues()[queue].sends->qp) {
        return one;
      }
    }
    ck_abort_msg("no such queue pair");
    std::abort();
  }

  /// A message of the upper layer's in a buffer of `queue`; null if there is none.
  Fragment* message(std::size_t queue = 0, std::size_t size = 8, bool wants_callback = true) {
    Fragment* fragment = path->get_send(queue);
    if (fragment == nullptr) {
      return nullptr;
    }
    fragment->segments[0].seg_len = size;
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | (wants_callback ? MCA_BTL_DES_SEND_ALWAYS_CALLBACK : 0);
    fragment->tag = kTag;
    fragment->callback_due = false;
    fragment->des_cbfunc = sent<>;
    fragment->des_cbdata = nullptr;
    return fragment;
  }
  /// Sends one; what Link::send() said.
  int send(Link& link, std::size_t queue = 0, std::size_t size = 8, bool wants_callback = true) {
    Fragment* const fragment = message(queue, size, wants_callback);
    ck_assert_ptr_nonnull(fragment);
    const int result = link.send(*fragment);
    if (result < 0) {
      put_back(fragment);
    }
    return result;
  }
  /// What sendi does with a header of `size` bytes, each `value`.
  bool send_immediately(Link& link, std::size_t size = 8, std::uint8_t value = 0) {
    const std::vector<std::byte> header(size, std::byte{value});
    return link.send_immediately({nullptr, header.data(), size, 0, kTag});
  }

  /// A write of 8 bytes, an atomic by the device, or one by message.
  RdmaRequest* request(RdmaKind kind, bool as_message = false) {
    RdmaRequest* made = rdma_.requests.get(Transport::kInfiniBand);
    ck_assert_ptr_nonnull(made);
    made->operation.kind = kind;
    made->operation.pieces = 1;
    made->operation.local[0] = made->operation.confirm;
    made->as_message = as_message;
    made->callback = finished;
    return made;
  }
  /// What LinkRdma::submit() said.
  int submit(Link& link, RdmaRequest* made) {
    const int result = link.rdma().submit(made);
    if (result != OPAL_SUCCESS) {
      rdma_.requests.put(made);
    }
    return result;
  }

  /// The bytes of a packet.
  [[nodiscard]] static std::vector<std::byte> packet(PacketKind kind, std::size_t size = 8, CreditGrant grant = {}) {
    std::vector<std::byte> bytes(PacketHeader::kSize + size);
    PacketHeader{kind, kTag, grant}.write(bytes.data());
    return bytes;
  }
  /// A message with credits comes in on a P queue.
  void receive(Link& link, CreditGrant grant = {}, std::size_t queue = 0, PacketKind kind = PacketKind::kMessage) {
    device.receive(pair(link, queue), packet(kind, kind == PacketKind::kCredits ? 0 : 8, grant));
  }

  /// What waits on a link goes over a new one, as the floor above has it. Gives that, which is up.
  Link& go_over_from(Link& old, Link::State state) {
    FragmentQueue waiting;
    RdmaRequestQueue requests;
    old.stop(state);
    old.take_waiting(waiting, requests);
    Link& link = open();
    link.start(waiting, requests);
    return link;
  }

  /// Ends a link as the floor above does.
  void fail(Link& link) {
    link.stop(Link::State::kFailed);
    link.end_waiting();
  }
  void close(Link& link) {
    link.stop(Link::State::kClosed);
    link.end_waiting();
  }

  FakeDevice device;
  PacketWatch watch{[this] { ++ticks_started; }};
  int ticks_started = 0;
  ReceiveQueues queues_;
  QueueSubset subset;
  FakeBuffers buffers;
  AtomicTargets targets;
  Counters counters;
  mca_btl_base_module_t module{};
  mca_btl_base_endpoint_t endpoint{};
  std::vector<FakeSharedQueue*> shared;

  // What was said
  std::vector<SeenFailure> failures;
  std::vector<int> sends_ended;     ///< the status of each callback
  std::vector<int> requests_ended;  ///< the same
  unsigned messages = 0;            ///< received
  std::vector<std::byte> last_message;
  unsigned connections_wanted = 0;
  unsigned spoke = 0;
  unsigned losses = 0;
  int goodbyes_arrived = 0;
  int goodbyes_done = 0;
  int rests_asked = 0;
  int rests_declined = 0;
  int links_resent = 0;
  std::vector<std::vector<std::byte>> counts_heard;
  std::vector<std::vector<std::byte>> detours_heard;
  unsigned cts = 0;
  unsigned handshakes = 0;
  unsigned unknown = 0;
  bool fails_links = true;  ///< as the floor above does when it is told of a failure
  // What the upper layer does in its callbacks
  std::function<void()> on_message;
  std::function<void(int)> on_sent;
  std::function<void(int)> on_finished;
  std::function<void(Link&)> on_failure;

  /// Buffers of a queue that can be had now, if there is a limit.
  [[nodiscard]] unsigned buffers_left(std::size_t queue = 0) {
    std::vector<Fragment*> all;
    FragmentPool& pool = *path->queues().send_pools[queue];  // the path itself would take note that there are none left
    while (Fragment* one = pool.get()) {
      all.push_back(one);
    }
    for (Fragment* one : all) {
      put_back(one);
    }
    return static_cast<unsigned>(all.size());
  }

 private:
  void say_failed(Link& link, const LinkFailure& failure, bool of_sender) {
    failures.push_back(
        {&link, failure.kind, failure.is_missed, failure.completion.status, failure.error_number, of_sender});
    if (on_failure) {
      on_failure(link);
    } else if (fails_links && link.state() != Link::State::kFailed && link.state() != Link::State::kClosed) {
      fail(link);
    }
  }
  void connection_wanted(Link& /*link*/) noexcept override { ++connections_wanted; }
  void link_failed(Link& link, const LinkFailure& failure) noexcept override { say_failed(link, failure, false); }
  void sender_failed(SharedSendQueue& sends, Link* link, const LinkFailure& failure) noexcept override {
    sends.fail();
    if (link != nullptr) {
      say_failed(*link, failure, true);
    }
  }
  void device_is_gone() noexcept override { ++losses; }
  void peer_spoke(Link& /*link*/) noexcept override { ++spoke; }
  void goodbye_arrived(Link& /*link*/) noexcept override { ++goodbyes_arrived; }
  void goodbye_done(Link& /*link*/) noexcept override { ++goodbyes_done; }
  void rest_asked(Link& /*link*/) noexcept override { ++rests_asked; }
  void rest_declined(Link& /*link*/) noexcept override { ++rests_declined; }
  void counts_arrived(Link& /*link*/, std::span<const std::byte> counts) noexcept override {
    counts_heard.emplace_back(counts.begin(), counts.end());
  }
  bool detour_arrived(Link& /*link*/, std::span<std::byte> body) noexcept override {
    detours_heard.emplace_back(body.begin(), body.end());
    return body.size() >= DetourHeader::kSize;
  }
  void resent(Link& /*link*/) noexcept override { ++links_resent; }
  void cts_received(LinkQueue& /*queue*/, std::span<const std::byte> /*packet*/) noexcept override { ++cts; }
  void handshake_completed(const ibv_wc& /*completion*/) noexcept override { ++handshakes; }
  void unknown_queue_pair_spoke(std::uint32_t /*qpn*/, std::span<const std::byte> /*packet*/) noexcept override {
    ++unknown;
  }

  // Open MPI 4.1 and 5.0 call these with different arguments.
  template <class Argument>
  static const mca_btl_base_segment_t* find_segment(Argument argument) {
    if constexpr (requires { argument->des_segments; }) {
      return argument->des_segments;
    }
    return nullptr;
  }
  template <class... More>
  static void received(mca_btl_base_module_t* /*module*/, More... more) {
    ++current_->messages;
    const mca_btl_base_segment_t* segment = nullptr;
    ((segment = segment == nullptr ? find_segment(more) : segment), ...);
    const auto* bytes = static_cast<const std::byte*>(segment->seg_addr.pval);
    current_->last_message.assign(bytes, bytes + segment->seg_len);
    if (current_->on_message) {
      current_->on_message();
    }
  }
  template <class... More>
  static void sent(mca_btl_base_module_t* module, mca_btl_base_endpoint_t* endpoint,
                   mca_btl_base_descriptor_t* /*descriptor*/, int status, More... /*more*/) {
    ck_assert(module == &current_->module && endpoint == &current_->endpoint);
    current_->sends_ended.push_back(status);
    if (current_->on_sent) {
      current_->on_sent(status);
    }
  }
  static void finished(mca_btl_base_module_t* module, mca_btl_base_endpoint_t* endpoint, void* /*address*/,
                       mca_btl_base_registration_handle_t* /*handle*/, void* /*context*/, void* /*data*/, int status) {
    ck_assert(module == &current_->module && endpoint == &current_->endpoint);
    current_->requests_ended.push_back(status);
    if (current_->on_finished) {
      current_->on_finished(status);
    }
  }

  inline static PathBench* current_ = nullptr;
  std::vector<mca_btl_active_message_callback_t> receivers_{256};
  DeviceRdma rdma_;

 public:
  // In the order of creation: links go before the path, and the room of the completion queue too.
  std::optional<PacketPath> path;
  std::vector<std::unique_ptr<Link>> links;

 private:
  CompletionQueueRoom room_;
  ibv_cq* completion_queue_ = nullptr;
};

}  // namespace fabric::test
