// SPDX-License-Identifier: BSD-3-Clause
//
// What a module does for its endpoints: tells them of other processes, and Open MPI and the user of what fails.
#pragma once

#include "btl_fabric/peer/endpoint_services.h"

namespace fabric {

class Module;

class ModuleServices final : public EndpointServices {
 public:
  explicit ModuleServices(Module& module) noexcept : module_(module) {}

  [[nodiscard]] const ProcessInfo& own_info() const noexcept override;
  [[nodiscard]] const Peer* peer_of(const opal_proc_t& proc) override;
  [[nodiscard]] std::string port_name() const override;
  void submit(cpc::Command command) override;
  void connect_other_ports(const ProcessName& peer, unsigned context) noexcept override;
  [[nodiscard]] Endpoint* way_beside(const Endpoint& endpoint) const noexcept override;
  [[nodiscard]] bool leads_elsewhere(const Endpoint& endpoint) const noexcept override;
  [[nodiscard]] Endpoint* endpoint_through(std::uint16_t port, const ProcessName& peer) noexcept override;
  void tell_upper_layer(opal_proc_t* proc) noexcept override;
  [[nodiscard]] const Awaited* awaited_of(const opal_proc_t& proc) const noexcept override;
  void device_is_gone() noexcept override;
  void report_no_connection_method(const opal_proc_t& proc, const std::string& reason) noexcept override;
  void report_not_missed(const Endpoint& endpoint, const std::string& reason) noexcept override;
  void report_connected(const Endpoint& endpoint, std::string_view method,
                        std::chrono::microseconds took) noexcept override;
  void report_healed(const Endpoint& endpoint, const std::string& how) noexcept override;
  void report_detour(const Endpoint& endpoint, const std::string& why, const Endpoint& way) noexcept override;
  void report_connection_failed(const Endpoint& endpoint, const std::string& reason,
                                const std::string& history) noexcept override;
  void report_link_failed(const Endpoint& endpoint, const LinkFailure& failure) noexcept override;
  void report_no_memory() noexcept override;

 private:
  template <class Report>
  void say(Report report) noexcept;

  Module& module_;
};

}  // namespace fabric
