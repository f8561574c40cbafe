// SPDX-License-Identifier: BSD-3-Clause
//
// What endpoints need of the floor above: what is known of other processes, and who is told when something fails. Whoever
// decides here that something is an error reports it, once.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "btl_fabric/path/path_events.h"
#include "btl_fabric/peer/peer.h"
#include "cpc/core/cpc.h"

namespace fabric {

class Awaited;
class Endpoint;

/// Of a port, in one context. Called by whoever holds the context's lock.
class EndpointServices {
 public:
  /// What this process has published.
  [[nodiscard]] virtual const ProcessInfo& own_info() const noexcept = 0;
  /// What a process has published; null, with nothing said, if it does not run this component.
  [[nodiscard]] virtual const Peer* peer_of(const opal_proc_t& proc) = 0;
  /// The port, for messages to users.
  [[nodiscard]] virtual std::string port_name() const = 0;

  /// Tells the progress thread something about a connection; it answers by Endpoints::handle(). May throw std::bad_alloc.
  virtual void submit(cpc::Command command) = 0;

  /// This port is being connected with a peer: connects the others too, by Endpoints::connect(). Upper layers use all ports
  /// that they know, and a message for one that is not connected waits until both processes are inside MPI again.
  virtual void connect_other_ports(const ProcessName& peer, unsigned context) noexcept = 0;

  /// Another endpoint to the same peer, in the same context, whose link carries; null: there is none now.
  [[nodiscard]] virtual Endpoint* way_beside(const Endpoint& endpoint) const noexcept = 0;
  /// Another device that is there has a port which leads to the same peer, whether it is connected or not.
  [[nodiscard]] virtual bool leads_elsewhere(const Endpoint& endpoint) const noexcept = 0;
  /// The endpoint to a peer through this process's port `port`, which is a number from the peer, made if need be; null: there is none.
  [[nodiscard]] virtual Endpoint* endpoint_through(std::uint16_t port, const ProcessName& peer) noexcept = 0;

  /// The upper layer is told that a peer (null: all) cannot be reached any more. It may end the job.
  virtual void tell_upper_layer(opal_proc_t* proc) noexcept = 0;
  /// Where it goes on without the peer, of whose end it has heard from us or from elsewhere: what it still wants to hear. It ends the rest
  /// by itself. Null: it does not, and wants to hear all.
  [[nodiscard]] virtual const Awaited* awaited_of(const opal_proc_t& proc) const noexcept = 0;

  /// Verbs has said so. DeviceLoss may be told to begin.
  virtual void device_is_gone() noexcept = 0;

  // What users are told. Where there is no memory for it, that.
  virtual void report_no_connection_method(const opal_proc_t& proc, const std::string& reason) noexcept = 0;
  /// A connection that only the peer wanted.
  virtual void report_not_missed(const Endpoint& endpoint, const std::string& reason) noexcept = 0;
  /// A connection has come about, by this method.
  virtual void report_connected(const Endpoint& endpoint, std::string_view method,
                                std::chrono::microseconds took) noexcept = 0;
  /// A connection had broken, and has been made anew with nothing lost.
  virtual void report_healed(const Endpoint& endpoint, const std::string& how) noexcept = 0;
  /// What is sent over one goes by another meanwhile.
  virtual void report_detour(const Endpoint& endpoint, const std::string& why, const Endpoint& way) noexcept = 0;
  virtual void report_connection_failed(const Endpoint& endpoint, const std::string& reason,
                                        const std::string& history) noexcept = 0;
  virtual void report_link_failed(const Endpoint& endpoint, const LinkFailure& failure) noexcept = 0;
  virtual void report_no_memory() noexcept = 0;

 protected:
  ~EndpointServices() = default;
};

}  // namespace fabric
