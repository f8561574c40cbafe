// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/module_services.h"

#include <cstdio>
#include <new>
#include <utility>

#include "btl_fabric/base/gone_peer.h"
#include "btl_fabric/base/upper_layer.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/job_reporter.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

namespace fabric {

namespace {

class AwaitedByOpenMpi final : public Awaited {
 public:
  bool message(const opal_proc_t& gone, const Fragment& message, int& status) const noexcept override {
    return fabric_awaits_message(&gone, message.tag, &message, &status);
  }
  bool rdma(const opal_proc_t& gone, const void* context) const noexcept override {
    return fabric_awaits_rdma(&gone, context);
  }
};

}  // namespace

const ProcessInfo& ModuleServices::own_info() const noexcept {
  return Component::get().info();
}

const Peer* ModuleServices::peer_of(const opal_proc_t& proc) {
  return Component::get().peer_of(proc);
}

std::string ModuleServices::port_name() const {
  return module_.name();
}

void ModuleServices::tell_upper_layer(opal_proc_t* proc) noexcept {
  Module& known = module_.in_context(0);
  if (known.error_callback != nullptr) {
    known.error_callback(&known, MCA_BTL_ERROR_FLAGS_FATAL, proc, nullptr);
  }
}

const Awaited* ModuleServices::awaited_of(const opal_proc_t& proc) const noexcept {
  static constexpr AwaitedByOpenMpi kAwaited;
  return fabric_goes_on_without(&proc) ? &kAwaited : nullptr;
}

void ModuleServices::device_is_gone() noexcept {
  module_.lose_device();
}

void ModuleServices::connect_other_ports(const ProcessName& peer, unsigned context) noexcept {
  Component::get().connect_ports(peer, context);
}

Endpoint* ModuleServices::way_beside(const Endpoint& endpoint) const noexcept {
  const Component& component = Component::get();
  for (std::size_t i = 0; i < component.ports(); ++i) {
    Module& module = component.port(i).in_context(endpoint.owner().number_of_context());
    Endpoint* const other = module.endpoints().endpoint_to(endpoint.key().peer, ~std::uint64_t{0});
    if (other != nullptr && other != &endpoint && other->carrier() != nullptr && !module.cache().is_lost()) {
      return other;
    }
  }
  return nullptr;
}

/// Endpoints of contexts beside the first are made when they are used.
bool ModuleServices::leads_elsewhere(const Endpoint& endpoint) const noexcept {
  const Component& component = Component::get();
  for (std::size_t i = 0; i < component.ports(); ++i) {
    Module& port = component.port(i);
    if (&port.cache() != &module_.cache() && !port.cache().is_lost() &&
        port.endpoints().endpoint_to(endpoint.key().peer, ~std::uint64_t{0}) != nullptr) {
      return true;
    }
  }
  return false;
}

Endpoint* ModuleServices::endpoint_through(std::uint16_t port, const ProcessName& peer) noexcept {
  Component& component = Component::get();
  const unsigned contexts = component.locks().contexts();
  if (port / contexts >= component.ports()) {
    return nullptr;
  }
  Module& first = component.port(port / contexts);
  Endpoints& endpoints = first.in_context(port % contexts).endpoints();
  if (Endpoint* const known = endpoints.endpoint_to(peer, ~std::uint64_t{0}); known != nullptr) {
    return known;
  }
  try {
    std::string why_not;
    opal_proc_t* const proc = opal_proc_for_name({peer.job, peer.rank});
    const Peer* const known = proc != nullptr ? component.peer_of(*proc) : nullptr;
    Endpoint* const made = known != nullptr ? first.endpoints().endpoint_for(proc, *known, why_not) : nullptr;
    return made != nullptr && port % contexts < made->contexts() ? made->in_context(port % contexts) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void ModuleServices::submit(cpc::Command command) {
  Component::get().connections().submit(std::move(command));
}

/// Runs a report.
template <class Report>
void ModuleServices::say(Report report) noexcept {
  try {
    report();
  } catch (const std::bad_alloc&) {
    report_no_memory();
  }
}

void ModuleServices::report_no_connection_method(const opal_proc_t& proc, const std::string& reason) noexcept {
  say([&] { fabric::report_no_connection_method(module_, proc, reason); });
}

void ModuleServices::report_not_missed(const Endpoint& endpoint, const std::string& reason) noexcept {
  say([&] { fabric::report_not_missed(module_, endpoint, reason); });
}

void ModuleServices::report_connection_failed(const Endpoint& endpoint, const std::string& reason,
                                              const std::string& history) noexcept {
  say([&] { fabric::report_connection_failed(module_, endpoint, reason, history); });
}

void ModuleServices::report_connected(const Endpoint& endpoint, std::string_view method,
                                      std::chrono::microseconds took) noexcept {
  say([&] {
    if (PathNotes* const notes = JobReporter::paths(); notes != nullptr) {
      notes->note(module_, endpoint, method);
    }
    fabric::report_connected(module_, endpoint, method, took);
  });
}

void ModuleServices::report_healed(const Endpoint& endpoint, const std::string& how) noexcept {
  say([&] { fabric::report_healed(module_, endpoint, how); });
}

void ModuleServices::report_detour(const Endpoint& endpoint, const std::string& why, const Endpoint& way) noexcept {
  say([&] { fabric::report_detour(module_, endpoint, why, way); });
}

void ModuleServices::report_link_failed(const Endpoint& endpoint, const LinkFailure& failure) noexcept {
  say([&] {
    switch (failure.kind) {
      case LinkFailure::Kind::kCompletion:
        report_transfer_failed(module_, endpoint, failure.completion);
        return;
      case LinkFailure::Kind::kRefusedPost:
        report_post_failed(module_, endpoint, failure.qpn, failure.error_number);
        return;
      case LinkFailure::Kind::kBadPacket:
        report_bad_packet(module_, endpoint, failure.qpn, failure.packet);
        return;
      case LinkFailure::Kind::kNoMemory:
        report_no_memory();
        return;
      case LinkFailure::Kind::kDeviceEvent:
        report_queue_pair_event(module_, endpoint, failure.qpn, failure.event);
        return;
    }
  });
}

void ModuleServices::report_no_memory() noexcept {
  std::fputs("btl_fabric: there is no memory left, and connections fail for it\n", stderr);
}

}  // namespace fabric
