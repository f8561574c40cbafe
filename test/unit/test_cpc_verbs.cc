// SPDX-License-Identifier: BSD-3-Clause
//
// Two connection managers with real queue pairs on the first InfiniBand or RoCE port of this host. Skipped (status 77)
// without one.
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include "common/verbs_handle.h"
#include "cpc/connection_manager.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using MemoryRegion = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;

constexpr const char* kQueues = "P,4096,8,4,4,2:S,4096,16,4,16";
constexpr std::size_t kBuffer = 4096;

/// Opens the first device with an active port that is not iWARP; fills in what a PortContext needs of it.
DeviceContext open_device(cpc::PortContext& port) {
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(ibv_get_device_list(&count), &ibv_free_device_list);
  for (int i = 0; i < count; ++i) {
    ibv_device* const candidate = list.get()[i];
    DeviceContext device(candidate->transport_type == IBV_TRANSPORT_IB ? ibv_open_device(candidate) : nullptr);
    ibv_port_attr attributes{};
    ibv_gid gid{};
    if (device && ibv_query_port(device.get(), 1, &attributes) == 0 && attributes.state == IBV_PORT_ACTIVE &&
        ibv_query_gid(device.get(), 1, 0, &gid) == 0) {
      port.device = device.get();
      port.address.link = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? Link::kRoce : Link::kInfiniBand;
      port.address.lid = attributes.lid;
      port.address.mtu = static_cast<std::uint8_t>(attributes.active_mtu);
      std::memcpy(port.address.gid.raw.data(), gid.raw, sizeof gid.raw);
      return device;
    }
  }
  return nullptr;
}

/// A process: one port of the device, and receives in one buffer.
struct Side {
  explicit Side(std::uint32_t rank) : queues(*ReceiveQueues::parse(kQueues)) {
    device = open_device(port);
    ck_assert(device != nullptr);
    domain.reset(ibv_alloc_pd(device.get()));
    completion_queues = std::make_unique<CompletionQueueSet>(device.get(), 256, 32);
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = 16;
    attributes.attr.max_sge = 1;
    srq.reset(ibv_create_srq(domain.get(), &attributes));
    region.reset(ibv_reg_mr(domain.get(), buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE));
    ck_assert(domain && srq && region);
    port.pd = domain.get();
    port.queues = &queues;
    port.completion_queues = completion_queues.get();
    port.srqs = {nullptr, srq.get()};
    settings.self = {1, rank};
    settings.token.fill(std::byte{9});
    auto started = cpc::ConnectionManager::start(settings, cpc::make_rc_queue_pairs);
    ck_assert(started.has_value());
    manager = std::move(*started);
    manager->add_port(port);
  }

  void post_receives() {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data()), kBuffer, region->lkey};
    ibv_recv_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* rejected = nullptr;
    for (int i = 0; i < 10; ++i) {
      ck_assert_int_eq(ibv_post_recv(queue_pairs[0], &request, &rejected), 0);
      ck_assert_int_eq(ibv_post_srq_recv(srq.get(), &request, &rejected), 0);
    }
  }

  void send(std::size_t queue) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data()), 64, region->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* rejected = nullptr;
    ck_assert_int_eq(ibv_post_send(queue_pairs[queue], &request, &rejected), 0);
  }

  void pump() {
    for (cpc::Upcall& upcall : manager->take_upcalls()) {
      if (const auto* post = std::get_if<cpc::PostReceives>(&upcall)) {
        queue_pairs = post->queue_pairs;
        post_receives();
        manager->submit(cpc::ReceivesPosted{post->key});
      } else if (const auto* failed = std::get_if<cpc::Failed>(&upcall)) {
        ck_abort_msg("%s; %s", failed->reason.c_str(), failed->history.c_str());
      } else if (std::holds_alternative<cpc::Connected>(upcall)) {
        connected = true;
      } else if (const auto* flushing = std::get_if<cpc::Flushing>(&upcall)) {
        flushed = true;
        key = flushing->key;
      }
    }
    ibv_wc completion{};
    for (std::size_t i = 0; i < completion_queues->count(); ++i) {
      while (ibv_poll_cq(completion_queues->queue(i), 1, &completion) > 0) {
        (completion.status == IBV_WC_SUCCESS ? good : bad)++;
      }
    }
  }

  cpc::PortContext port;
  ReceiveQueues queues;
  cpc::ManagerSettings settings;
  std::array<std::byte, kBuffer> buffer{};
  DeviceContext device;
  ProtectionDomain domain;
  std::unique_ptr<CompletionQueueSet> completion_queues;
  SharedReceiveQueue srq;
  MemoryRegion region;
  std::vector<ibv_qp*> queue_pairs;
  bool connected = false;
  bool flushed = false;
  cpc::ConnectionKey key;
  int good = 0;  ///< completions
  int bad = 0;
  std::unique_ptr<cpc::ConnectionManager> manager;  ///< first to go
};

template <class Done>
void run_until(Side& a, Side& b, const char* what, Done done) {
  for (int i = 0; i < 20000 && !done(); ++i) {
    a.pump();
    b.pump();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ck_assert_msg(done(), "%s did not happen; good %d %d, bad %d %d", what, a.good, b.good, a.bad, b.bad);
}

START_TEST(messages_go_both_ways) {
  Side a(1);
  Side b(2);
  const std::array<const cpc::PortContext*, 1> ports{&b.port};
  const auto offers = b.manager->offers(ports);
  ck_assert_uint_eq(offers.size(), 1);
  const cpc::PeerTarget target{CpcKind::kOob, offers[0].blob, b.settings.token, true};
  a.manager->submit(cpc::Connect{{b.settings.self, 0, 0}, target});
  run_until(a, b, "Connected", [&] { return a.connected && b.connected; });
  for (const std::size_t queue : {0U, 1U}) {
    a.send(queue);
    b.send(queue);
  }
  run_until(a, b, "all eight completions", [&] { return a.good == 4 && b.good == 4; });
  a.manager->submit(cpc::Close{{b.settings.self, 0, 0}, "done"});
  b.manager->submit(cpc::Close{{a.settings.self, 0, 0}, "done"});
  // The nine receives that are left on each P queue come back; those of shared queues stay there.
  run_until(a, b, "Flushing", [&] { return a.flushed && b.flushed && a.bad == 9 && b.bad == 9; });
  a.manager->submit(cpc::Destroy{a.key});
  b.manager->submit(cpc::Destroy{b.key});
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  cpc::PortContext port;
  if (!open_device(port)) {
    std::puts("skipped: no active InfiniBand or RoCE port");
    return 77;
  }
  return test::run_suite("cpc_verbs", {messages_go_both_ways});
}
