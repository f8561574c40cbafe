// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/module_services.h"

#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

namespace fabric {

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

void ModuleServices::report_no_connection_method(const opal_proc_t& proc, const std::string& reason) {
  fabric::report_no_connection_method(module_, proc, reason);
}

void ModuleServices::report_not_missed(const Endpoint& endpoint, const std::string& reason) {
  fabric::report_not_missed(module_, endpoint, reason);
}

void ModuleServices::report_connection_failed(const Endpoint& endpoint, const std::string& reason,
                                              const std::string& history) {
  fabric::report_connection_failed(module_, endpoint, reason, history);
}

void ModuleServices::report_link_failed(const Endpoint& endpoint, const LinkFailure& failure) {
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
      fabric::report_connection_failed(module_, endpoint, "there is no memory for what the peer asks for", "");
      return;
    case LinkFailure::Kind::kDeviceEvent:
      report_queue_pair_event(module_, endpoint, failure.qpn, failure.event);
      return;
  }
}

}  // namespace fabric
