// SPDX-License-Identifier: BSD-3-Clause
//
// Another port of a process, whose links carry from the start and never break: what goes by it instead of a link that has broken.
// Its queues are not those of the process' first port, since they are those of another device.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "btl_fabric/peer/endpoints.h"
#include "test/model/inside_endpoints.h"
#include "test/unit/path_parts.h"

namespace fabric::model {

class OtherWay {
 public:
  static constexpr std::uint16_t kPort = 1;

  /// `first`: the process' first port.
  OtherWay(test::FakeDevice& device, const cpc::PortContext& first, EndpointServices& services,
           mca_btl_base_module_t& module, mca_btl_active_message_callback_t* receivers)
      : port_(on_this_port(first)),
        buffers_(device),
        rdma_(device.pd(), MrPoolHints{}),
        endpoints_(port_, services, 0) {
    PathSettings settings = test::path_settings(*port_.queues);
    settings.receivers = receivers;
    PathQueues made = test::make_queues(device, buffers_, *port_.queues, 8, shared_);
    room_ = made.completion_queues->reserve(512).value();
    endpoints_.make_path(settings, std::move(made), rdma_, targets_, counters_);
    endpoints_.set_contexts({&endpoints_}, &module);
    endpoints_.set_observers(nullptr, std::chrono::hours(10000));
  }
  OtherWay(const OtherWay&) = delete;
  OtherWay& operator=(const OtherWay&) = delete;

  /// The link with a peer is up.
  void connect(opal_proc_t& proc, const Peer& peer, std::vector<ibv_qp*> queue_pairs) {
    std::string why_not;
    Endpoint* const endpoint = endpoints_.endpoint_for(&proc, peer, why_not);
    const cpc::ConnectionKey key = endpoint->key();
    const std::vector<cpc::QueuePairEnd> ends(queue_pairs.size());
    endpoints_.handle(cpc::PostReceives{key, 1, std::move(queue_pairs)});
    endpoints_.handle(cpc::Connected{key, 1, ends});
    (endpoint->*member_of(Endpoint_apply{}))(EndpointEvent::kSendWanted, {});
  }
  [[nodiscard]] Endpoints& endpoints() noexcept { return endpoints_; }
  [[nodiscard]] const Endpoints& endpoints() const noexcept { return endpoints_; }

 private:
  static cpc::PortContext on_this_port(cpc::PortContext port) {
    port.index = kPort;
    return port;
  }

  const cpc::PortContext port_;
  test::FakeBuffers buffers_;
  std::vector<test::FakeSharedQueue*> shared_;
  DeviceRdma rdma_;
  AtomicTargets targets_;
  Counters counters_;
  Endpoints endpoints_;
  CompletionQueueRoom room_;
};

}  // namespace fabric::model
