// SPDX-License-Identifier: BSD-3-Clause
//
// What the main thread of a process does and keeps for thousands of peers: the product's endpoints, links and packet path, on
// queue pairs that only keep what is posted (test/unit/fake_verbs.h), with the queues that `auto` chooses for such a job.
//
//   endpoint_scale [PEERS...]      (default: 1000 10000 100000)
//
// Each size is a process of its own. It makes an endpoint for each peer; all of them connect to it, while it computes, and
// send it a message each; it answers all; and says goodbye to all. Then, with new peers, the ways to all are lost. For each of
// these steps: processor time for each peer, and the longest that one call took. Memory is what the component has allocated
// and the fakes have not, without the buffers of the shared receives, which do not depend on the number of peers.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "btl_fabric/peer/endpoints.h"
#include "cpc/oob/oob.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "test/unit/path_parts.h"

using namespace fabric;
using namespace fabric::test;

namespace {

/// Bytes that the component has, and not the fakes.
std::size_t in_use = 0;

struct alignas(16) Tag {
  std::size_t size = 0;  ///< that counts
};

void* allocate(std::size_t size) {
  auto* const tag = static_cast<Tag*>(std::malloc(sizeof(Tag) + size));
  if (tag == nullptr) {
    throw std::bad_alloc();
  }
  tag->size = fakes_at_work == 0 ? size : 0;
  in_use += tag->size;
  return tag + 1;
}

void release(void* memory) noexcept {
  if (memory != nullptr) {
    Tag* const tag = static_cast<Tag*>(memory) - 1;
    in_use -= tag->size;
    std::free(tag);
  }
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  return allocate(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  release(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  release(memory);
}

namespace {

constexpr std::uint32_t kJob = 1;
constexpr mca_btl_base_tag_t kTag = 65;
constexpr std::uint8_t kLevel = 2;  ///< of `auto`: what jobs of that size get

using Clock = std::chrono::steady_clock;

/// The calls of one step.
class Step {
 public:
  template <class Call>
  void time(Call call) {
    const auto start = Clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    sum_ += took.count();
    longest_ = std::max(longest_, took.count());
  }
  void print(const char* what, std::size_t peers) const {
    std::printf("  %-34s %8.2f us   longest call %8.0f us\n", what, sum_ / static_cast<double>(peers), longest_);
  }

 private:
  double sum_ = 0;
  double longest_ = 0;
};

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "endpoint_scale: %s\n", what.c_str());
  std::exit(1);
}

/// The process, with one port, and its peers.
class Process final : private EndpointServices {
 public:
  explicit Process(std::size_t peers, bool heals = false)
      : queues_(cpc::queues_of_level(kLevel)), buffers_(device_), rdma_(device_.pd(), MrPoolHints{}), peers_(peers) {
    port_.queues = &queues_;
    port_.subsets = {QueueSubset::all(queues_)};
    PathSettings settings = path_settings(queues_);
    settings.receivers = receivers_.data();
    settings.heals = heals;
    for (auto& receiver : receivers_) {
      receiver.cbfunc = count_received<>;
    }
    PathQueues made = make_queues(device_, buffers_, queues_, -1, shared_);
    room_ = made.completion_queues->reserve(1).value();  // so that there is a queue to poll
    endpoints_.make_path(settings, std::move(made), rdma_, targets_, counters_);
    endpoints_.set_contexts({&endpoints_}, &module_);
    if (heals) {
      endpoints_.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    }
    for (const auto& queue : endpoints_.path().queues().shared_queues) {
      if (queue && !queue->start()) {
        stop("no receives");
      }
    }
    info_.ports.resize(1);
    info_.offers.push_back({cpc::kOob.kind, 50, 1, {}});
    known_.info = info_;
    known_.pairs.emplace_back(0);
    for (std::size_t i = 0; i < peers; ++i) {
      peers_[i].proc.proc_name = {kJob, static_cast<std::uint32_t>(i + 1)};
    }
  }

  void know_all() {
    const std::size_t before = in_use;
    Step step;
    for (Known& peer : peers_) {
      step.time([&] {
        std::string why_not;
        peer.endpoint = endpoints_.endpoint_for(&peer.proc, known_, why_not);
      });
      if (peer.endpoint == nullptr) {
        stop("no endpoint");
      }
    }
    step.print("known", peers_.size());
    print_memory("known, idle", before);
  }

  /// The progress thread has connected them all while we computed.
  void all_connect() {
    const std::size_t before = in_use;
    Step step;
    for (Known& peer : peers_) {
      std::vector<ibv_qp*> handles;
      {
        const FakeAtWork at_work;
        peer.pair = &device_.make_queue_pair();
        handles.push_back(&peer.pair->verbs);
      }
      const cpc::ConnectionKey key = key_of(peer);
      step.time([&] {
        endpoints_.handle(cpc::PostReceives{key, kLink, handles});
        endpoints_.handle(cpc::Connected{key, kLink, std::vector<cpc::QueuePairEnd>(1)});
      });
    }
    step.print("connected, at the peer's wish", peers_.size());
    print_memory("connected, more", before);
  }

  void all_send() {
    std::vector<std::byte> packet(PacketHeader::kSize + 8);
    PacketHeader{PacketKind::kMessage, kTag, {}}.write(packet.data());
    received = 0;
    Step step;
    for (Known& peer : peers_) {
      {
        const FakeAtWork at_work;
        device_.receive(*shared_[0], *peer.pair, packet);
      }
      step.time([&] { endpoints_.progress(); });
    }
    step.print("a message from each", peers_.size());
    if (received != peers_.size()) {
      stop(std::to_string(received) + " messages have come");
    }
  }

  void send_to_all() {
    Step step;
    post_to_all(step);
    for (Known& peer : peers_) {
      finish_sends(peer);
      step.time([&] { endpoints_.progress(); });
    }
    step.print("a message to each", peers_.size());
  }

  void idle() {
    Step step;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      step.time([&] { endpoints_.progress(); });
    }
    step.print("progress() with nothing to do", peers_.size());
  }

  void take_all_away() {
    Step step;
    for (Known& peer : peers_) {
      step.time([&] { endpoints_.remove(peer.endpoint); });
      finish_sends(peer);
      step.time([&] { endpoints_.progress(); });
      step.time([&] { endpoints_.handle(cpc::Flushing{key_of(peer), kLink}); });
      {
        const FakeAtWork at_work;
        device_.flush(*peer.pair);
      }
      step.time([&] { endpoints_.progress(); });
    }
    step.print("goodbye, and taken away", peers_.size());
    if (destroyed_ != peers_.size()) {
      stop(std::to_string(destroyed_) + " connections have ended");
    }
  }

  /// As at the end of a job: all goodbyes first, then the ends of all connections.
  void take_all_away_together() {
    Step step;
    for (Known& peer : peers_) {
      step.time([&] { endpoints_.remove(peer.endpoint); });
    }
    for (Known& peer : peers_) {
      finish_sends(peer);
      step.time([&] { endpoints_.progress(); });
    }
    for (Known& peer : peers_) {
      step.time([&] { endpoints_.handle(cpc::Flushing{key_of(peer), kLink}); });
      {
        const FakeAtWork at_work;
        device_.flush(*peer.pair);
      }
      step.time([&] { endpoints_.progress(); });
    }
    for (std::size_t calls = 0; destroyed_ < peers_.size(); ++calls) {
      step.time([&] { endpoints_.progress(); });
      if (calls > peers_.size()) {
        stop(std::to_string(destroyed_) + " connections have ended");
      }
    }
    step.print("goodbye, all at the same time", peers_.size());
  }

  /// The way to all is gone for a while, with a message under way to each, and none can be connected again.
  void all_break() {
    Step step;
    post_to_all(step);
    step = {};
    for (Known& peer : peers_) {
      step.time([&] { endpoints_.handle(cpc::Failed{key_of(peer), kLink, "no way to the peer", "", true, false}); });
      step.time([&] { endpoints_.handle(cpc::Flushing{key_of(peer), kLink}); });
      {
        const FakeAtWork at_work;
        device_.flush(*peer.pair);
      }
      step.time([&] { endpoints_.progress(); });
    }
    step.print("broken, all at the same time", peers_.size());
    step = {};
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      step.time([&] { endpoints_.progress(); });
    }
    step.print("progress() while all are broken", peers_.size());
  }

  inline static std::size_t received = 0;

 private:
  struct Known {
    opal_proc_t proc{};
    Endpoint* endpoint = nullptr;
    FakeQueuePair* pair = nullptr;
  };
  static constexpr cpc::LinkNumber kLink = 1;

  [[nodiscard]] static cpc::ConnectionKey key_of(const Known& peer) { return {name_of(peer.proc), 0, 0}; }
  void post_to_all(Step& step) {
    for (Known& peer : peers_) {
      step.time([&] {
        Fragment* const fragment = endpoints_.path().get_send(0);
        if (fragment == nullptr) {
          stop("no fragment");
        }
        fragment->segments[0].seg_len = 8;
        fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
        fragment->tag = kTag;
        fragment->callback_due = false;
        if (peer.endpoint->send(*fragment) < 0) {
          stop("a message was not taken");
        }
      });
    }
  }
  void finish_sends(const Known& peer) {
    const FakeAtWork at_work;
    while (!peer.pair->sends.empty()) {
      device_.complete_send(*peer.pair);
    }
    peer.pair->all_sends.clear();
  }
  void print_memory(const char* what, std::size_t before) const {
    std::printf("  %-34s %8.0f bytes\n", what,
                static_cast<double>(in_use - before) / static_cast<double>(peers_.size()));
  }

  const ProcessInfo& own_info() const noexcept override { return info_; }
  const Peer* peer_of(const opal_proc_t& /*proc*/) override { return &known_; }
  std::string port_name() const override { return "fake0:1"; }
  void submit(cpc::Command command) override { destroyed_ += std::holds_alternative<cpc::Destroy>(command) ? 1 : 0; }
  void tell_upper_layer(opal_proc_t* /*proc*/) noexcept override {}
  const Awaited* awaited_of(const opal_proc_t& /*proc*/) const noexcept override { return nullptr; }
  void connect_other_ports(const ProcessName& /*peer*/, unsigned /*context*/) noexcept override {}
  void report_no_connection_method(const opal_proc_t& /*proc*/, const std::string& why) noexcept override { stop(why); }
  void report_not_missed(const Endpoint& /*endpoint*/, const std::string& why) noexcept override { stop(why); }
  void report_detour(const Endpoint& /*endpoint*/, const std::string& /*why*/,
                     const Endpoint& /*way*/) noexcept override {}
  Endpoint* way_beside(const Endpoint& /*endpoint*/) const noexcept override { return nullptr; }
  bool leads_elsewhere(const Endpoint& /*endpoint*/) const noexcept override { return false; }
  void device_is_gone() noexcept override {}
  Endpoint* endpoint_through(std::uint16_t /*port*/, const ProcessName& /*peer*/) noexcept override { return nullptr; }
  void report_healed(const Endpoint& /*endpoint*/, const std::string& /*how*/) noexcept override {}
  void report_connected(const Endpoint& /*endpoint*/, std::string_view /*method*/,
                        std::chrono::microseconds /*took*/) noexcept override {}
  void report_connection_failed(const Endpoint& /*endpoint*/, const std::string& why,
                                const std::string& /*history*/) noexcept override {
    stop(why);
  }
  void report_link_failed(const Endpoint& /*endpoint*/, const LinkFailure& /*failure*/) noexcept override {
    stop("a link has failed");
  }
  void report_no_memory() noexcept override { stop("no memory"); }

  template <class... More>
  static void count_received(mca_btl_base_module_t* /*module*/, More... /*more*/) {
    ++received;
  }

  FakeDevice device_;
  ReceiveQueues queues_;
  FakeBuffers buffers_;
  DeviceRdma rdma_;
  AtomicTargets targets_;
  Counters counters_;
  cpc::PortContext port_;
  mca_btl_base_module_t module_{};
  ProcessInfo info_;
  Peer known_;
  std::vector<FakeSharedQueue*> shared_;
  std::vector<mca_btl_active_message_callback_t> receivers_{256};
  std::vector<Known> peers_;
  std::size_t destroyed_ = 0;
  Endpoints endpoints_{port_, *this, 0};
  CompletionQueueRoom room_;
};

void measure(std::size_t peers) {
  std::printf("%zu peers, each:\n", peers);
  {
    Process process(peers);
    process.know_all();
    process.all_connect();
    process.all_send();
    process.send_to_all();
    process.idle();
    process.take_all_away();
  }
  Process process(peers);
  process.know_all();
  process.all_connect();
  process.take_all_away_together();
  Process cut_off(peers, true);
  cut_off.know_all();
  cut_off.all_connect();
  cut_off.all_break();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes{1000, 10000, 100000};
  if (argc > 1) {
    sizes.clear();
  }
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    const unsigned long peers = std::strtoul(argv[i], &end, 10);
    if (*end != '\0' || peers < 1 || peers > 1000000) {
      std::fprintf(stderr, "endpoint_scale: PEERS is %s, not a number from 1 to 1000000\n", argv[i]);
      return 2;
    }
    sizes.push_back(peers);
  }
  for (const std::size_t peers : sizes) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      measure(peers);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      return 1;
    }
  }
  return 0;
}
