// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of peers that wait until the path back is known (path_questions.h): their queue pairs are connected as soon as
// somebody takes the request.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <utility>

#include "cpc/core/channel.h"
#include "cpc/oob/path_questions.h"

namespace fabric::cpc {

/// Progress thread only. Destroying it closes the channels that wait.
class HeldRequests {
 public:
  /// `questions` and `take` outlive this.
  HeldRequests(PathQuestions& questions, const OnRequest& take) : questions_(questions), take_(take) {}

  /// Hands the request on, at once if there is nothing to wait for.
  void add(std::unique_ptr<Channel> channel, Message request);

 private:
  /// While it waits, whatever happens to the channel is its end: the peer comes back.
  struct Held final : ChannelHandler {
    Held(HeldRequests& all, std::unique_ptr<Channel> of, Message first)
        : owner(all), channel(std::move(of)), request(std::move(first)) {}
    void on_message(Channel& /*channel*/, Message /*message*/) override { owner.drop(*this); }
    void on_lost(Channel& /*channel*/, std::string /*reason*/, bool /*confirm_taken*/) override { owner.drop(*this); }

    HeldRequests& owner;
    std::unique_ptr<Channel> channel;
    Message request;
    std::unique_ptr<PathQuestions::Wait> wait;
  };

  void hand_on(Held& held);
  void drop(const Held& held) {
    held_.remove_if([&](const std::unique_ptr<Held>& one) { return one.get() == &held; });
  }

  PathQuestions& questions_;
  const OnRequest& take_;
  std::list<std::unique_ptr<Held>> held_;
};

}  // namespace fabric::cpc
