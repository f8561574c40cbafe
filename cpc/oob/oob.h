// SPDX-License-Identifier: BSD-3-Clause
//
// The oob CPC: connections of P and S queues on InfiniBand and RoCE, set up over TCP.
#pragma once

#include <memory>
#include <vector>

#include "cpc/core/cpc_interface.h"
#include "cpc/oob/address_filter.h"
#include "cpc/oob/tcp_service.h"

namespace fabric::cpc {

inline constexpr CpcTraits kOob{CpcKind{1}, "oob", false, false, true};

/// Of oob and xoob.
struct OobSettings {
  int priority = 50;
  unsigned resolve_timeout_ms = 2000;  ///< for a path that the subnet administrator is asked for (path_questions.h)
  AddressFilter addresses;             ///< those of this host that are used

  /// From NAME_priority, rdmacm_resolve_timeout, oob_if_include and oob_if_exclude.
  [[nodiscard]] static Result<OobSettings> read(std::string_view name, const CpcParameters& parameters);

  /// Names what the include list has and this host has not, also if nothing is left then. See Cpc.
  [[nodiscard]] std::string remark() const;
};

class Oob final : public Cpc {
 public:
  explicit Oob(OobSettings settings) : Cpc(kOob, settings.priority), settings_(std::move(settings)) {}

  [[nodiscard]] Status start(const CpcContext& context) override;
  void stop() noexcept override { service_.reset(); }
  [[nodiscard]] Status serve(const PortContext& port) override;
  [[nodiscard]] std::vector<std::byte> offer(std::uint64_t) const override { return service_->offer(); }
  [[nodiscard]] std::string remark() const override { return remark_; }
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) override;

 private:
  OobSettings settings_;
  std::string remark_;
  std::unique_ptr<TcpService> service_;
};

[[nodiscard]] Result<std::unique_ptr<Cpc>> make_oob(const CpcParameters& parameters);

inline constexpr CpcRegistration kOobCpc{kOob, make_oob};

}  // namespace fabric::cpc
