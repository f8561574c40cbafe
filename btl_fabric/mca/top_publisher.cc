// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/top_publisher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string_view>
#include <utility>

#include "btl_fabric/base/connection_memory.h"
#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/traffic_counts.h"
#include "btl_fabric/peer/endpoints_top.h"

namespace fabric {

namespace {

static_assert(kCounterTable.size() <= top::kMostCounters);
static_assert(std::all_of(kCounterTable.begin(), kCounterTable.end(), [](const CounterSpec& spec) {
  return std::string_view(spec.name).size() < sizeof(top::Counter::name);
}));

/// The clock that steady_clock is here, CLOCK_MONOTONIC: other processes read the same.
std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

constexpr std::string_view name_of_link(Transport link) noexcept {
  return link == Transport::kInfiniBand ? "ib" : link == Transport::kIwarp ? "iwarp" : "roce";
}

bool is_of_first_context(Module& module) {
  return module.endpoints().number_of_context() == 0;
}

}  // namespace

Result<std::unique_ptr<TopPublisher>> TopPublisher::begin(std::span<const std::unique_ptr<Module>> modules) {
  std::unique_ptr<TopPublisher> publisher(new TopPublisher);
  top::Process& process = publisher->image_.process;
  const ProcessName self = name_of(OPAL_PROC_MY_NAME);
  process.pid = static_cast<std::uint32_t>(getpid());
  process.job = self.job;
  process.rank = self.rank;
  process.program.set(program_invocation_short_name);
  process.version.set(FABRIC_VERSION);
  process.now_ns = process.before_ns = now_ns();
  publisher->name_ports(modules);
  publisher->take_counters();
  auto page = top::OwnPage::make(top::kFolder, self, publisher->image_);
  if (!page) {
    return tl::unexpected(page.error());
  }
  publisher->page_ = std::move(*page);
  for (const auto& module : modules) {
    EndpointsTop::watch(module->endpoints());
  }
  TrafficCounts::count(modules);
  return publisher;
}

void TopPublisher::name_ports(std::span<const std::unique_ptr<Module>> modules) {
  std::uint32_t& count = image_.process.ports;
  for (const auto& module : modules) {
    if (count < image_.ports.size() && is_of_first_context(*module)) {
      top::Port& port = image_.ports[count++];
      port.device.set(module->port().device->name);
      port.link.set(name_of_link(module->port().address.link));
      port.number = module->port().port_num;
      port.path = module->port().address.path;
    }
  }
}

void TopPublisher::take_counters() noexcept {
  std::uint32_t count = 0;
  for (const CounterSpec& spec : kCounterTable) {
    top::Counter& counter = image_.counters[count++];
    counter.name.set(spec.name);
    counter.before = std::exchange(counter.now, value_of(spec));
  }
  image_.process.counters = count;
}

void TopPublisher::publish(std::span<const std::unique_ptr<Module>> modules) noexcept try {
  EndpointsTop endpoints;
  std::uint32_t port = 0;
  for (const auto& module : modules) {
    if (is_of_first_context(*module) && port++ < image_.process.ports) {
      endpoints.take(module->endpoints());
    }
  }
  top::Process& process = image_.process;
  process.before_ns = std::exchange(process.now_ns, now_ns());
  ++process.publications;
  process.connection_memory = connection_memory_now.load(std::memory_order_relaxed);
  process.known_peers = static_cast<std::uint32_t>(endpoints.count());
  process.peers = endpoints.write(image_.peers);
  std::fill(image_.peers.begin() + process.peers, image_.peers.end(), top::Peer());
  take_counters();
  page_->publish(image_);
} catch (const std::bad_alloc&) {  // the next time will do
}

}  // namespace fabric
