// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/xoob.h"

#include <utility>

namespace fabric::cpc {

Result<std::unique_ptr<Channel>> Xoob::open(const ChannelIdentity& identity, const PeerTarget& target,
                                            Message request) const {
  Result<XoobOffer> offer = decode_xoob_offer(target.offer);
  if (!offer) {
    return tl::unexpected(std::move(offer).error());
  }
  return listener_->open(identity, {target.cpc, std::move(offer->listener), target.token, target.same_node},
                         std::move(request));
}

}  // namespace fabric::cpc
