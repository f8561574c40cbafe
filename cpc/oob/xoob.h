// SPDX-License-Identifier: BSD-3-Clause
//
// The xoob CPC: connections of X queues, set up over TCP by the means of oob. What it adds to them is what it publishes
// (xoob_offer.h); what connections share is in xrc_senders.h.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "cpc/oob/oob.h"
#include "cpc/oob/xoob_offer.h"

namespace fabric::cpc {

/// Opens channels to the listener in a XoobOffer. Progress thread only.
class Xoob final : public ChannelOpener {
 public:
  explicit Xoob(std::unique_ptr<Oob> listener) : listener_(std::move(listener)) {}
  [[nodiscard]] const std::vector<std::byte>& listener_offer() const noexcept { return listener_->offer(); }
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) const override;

 private:
  std::unique_ptr<Oob> listener_;
};

}  // namespace fabric::cpc
