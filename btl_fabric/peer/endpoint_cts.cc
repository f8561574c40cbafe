// SPDX-License-Identifier: BSD-3-Clause
//
// An endpoint's half of the clear-to-send exchange: carries out cpc/core/cts_table.h.
#include <cstring>

#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

Status Endpoint::linked(const cpc::Linked& linked) {
  handshake_ = linked.handshake;
  remote_ends_ = linked.remote_ends;
  may_speak_first_ = linked.may_speak_first;
  if (Status posted = post_receives(linked.queue_pairs); !posted) {
    return posted;
  }
  return apply(cpc::CtsEvent::kLinked);
}

Status Endpoint::cts_arrived() {
  return ++cts_received_ == handshake_.queues ? apply(cpc::CtsEvent::kCtsArrived) : Status();
}

Status Endpoint::peer_left() {
  return apply(cpc::CtsEvent::kPeerLeft);
}

/// The only function that writes the state of the exchange.
Status Endpoint::apply(cpc::CtsEvent event) {
  const cpc::CtsStep step = cpc::cts_step(cts_, event, may_speak_first_);
  // On iWARP every receive that the peer's leaving flushes says so again.
  const bool is_news = event != cpc::CtsEvent::kPeerLeft || state_ != State::kPeerLeft;
  if (cpc::Trace* const trace = owner_.trace(); trace != nullptr && is_news) {
    trace->add(key_, cts_, event, step.next);
  }
  cts_ = step.next;
  for (const cpc::CtsAction action : step.actions) {
    switch (action) {
      case cpc::CtsAction::kNone:
        break;
      case cpc::CtsAction::kSendCts:
        ++owner_.path().counters().cts_messages;
        for (std::size_t i = 0; i < handshake_.queues; ++i) {
          if (const int error = link().queue(i).post_cts(handshake_); error != 0) {
            return failure(std::string("posting the first message: ") + std::strerror(error));
          }
        }
        break;
      case cpc::CtsAction::kStartSending:
        connected(remote_ends_);
        break;
      case cpc::CtsAction::kFail:
        return failure(std::string(step.why));
      case cpc::CtsAction::kNotePeerLeft:
        if (state_ == State::kConnected) {
          state_ = State::kPeerLeft;
          carrier_ = nullptr;
          link().stop(Link::State::kPeerLeft);
        }
        if (has_waiting()) {
          return failure("the peer has closed the connection, and messages for it wait");
        }
        break;
    }
  }
  return {};
}

}  // namespace fabric
