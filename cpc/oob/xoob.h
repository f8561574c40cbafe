// SPDX-License-Identifier: BSD-3-Clause
//
// The xoob CPC: connections of X queues, set up over TCP as oob does it. What it adds is what it publishes
// (xoob_offer.h); what connections share is in xrc_senders.h.
#pragma once

#include <memory>
#include <vector>

#include "cpc/core/cpc_interface.h"
#include "cpc/oob/oob.h"
#include "cpc/oob/xoob_offer.h"

namespace fabric::cpc {

inline constexpr CpcTraits kXoob{CpcKind{2}, "xoob", false, true, true};

class Xoob final : public Cpc {
 public:
  explicit Xoob(OobSettings settings) : Cpc(kXoob, settings.priority), settings_(std::move(settings)) {}

  /// It listens from the first port on that it serves: most jobs have no X queues.
  [[nodiscard]] Status start(const CpcContext& context) override;
  void stop() noexcept override { service_.reset(); }
  [[nodiscard]] Status serve(const PortContext& port) override;
  [[nodiscard]] std::vector<std::byte> offer(std::uint64_t ports) const override;
  [[nodiscard]] std::string remark() const override { return remark_; }
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) override;
  [[nodiscard]] Result<XrcDomainPort> xrc_domain(const PeerTarget& target, std::uint16_t port) const override {
    return domain_of(target.offer, port);
  }

 private:
  OobSettings settings_;
  CpcContext context_;
  std::string remark_;
  std::unique_ptr<TcpService> service_;
  std::vector<XoobPort> ports_;  ///< those that it serves
};

[[nodiscard]] Result<std::unique_ptr<Cpc>> make_xoob(const CpcParameters& parameters);

inline constexpr CpcRegistration kXoobCpc{kXoob, make_xoob};

}  // namespace fabric::cpc
