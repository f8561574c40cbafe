// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/held_requests.h"

namespace fabric::cpc {

void HeldRequests::add(std::unique_ptr<Channel> channel, Message request) {
  const std::uint16_t port = channel->identity().self_port;
  held_.push_back(std::make_unique<Held>(*this, std::move(channel), std::move(request)));
  Held& held = *held_.back();
  held.wait = questions_.ask(port, held.request.address.gid, [this, &held] { hand_on(held); });
  if (held.wait == nullptr) {
    hand_on(held);
    return;
  }
  held.channel->set_handler(&held);
}

void HeldRequests::hand_on(Held& held) {
  std::unique_ptr<Channel> channel = std::move(held.channel);
  Message request = std::move(held.request);
  drop(held);
  take_(std::move(channel), std::move(request));
}

}  // namespace fabric::cpc
