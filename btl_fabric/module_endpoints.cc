// SPDX-License-Identifier: BSD-3-Clause
//
// The endpoints of a module: making them, and what the progress thread says about their connections.
#include <algorithm>

#include "btl_fabric/component.h"
#include "btl_fabric/counters.h"
#include "btl_fabric/module.h"
#include "btl_fabric/report.h"
#include "common/gid_choice.h"

namespace fabric {

Endpoint* Module::endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not) {
  const std::uint16_t ours = context_.index;
  if (!peer.refusal.empty()) {
    why_not = peer.refusal;
    return nullptr;
  }
  if (!peer.pairs[ours]) {
    why_not = "no port of the peer is on the subnet of " + name() + " (" + to_string(port_.address.subnet) + ")";
    return nullptr;
  }
  const cpc::ConnectionKey key{name_of(*proc), ours, *peer.pairs[ours]};
  if (Endpoint* known = find(key); known != nullptr) {
    return known;
  }
  const CpcOffer* offer = cpc::choose_cpc(Component::get().info(), ours, peer.info, key.remote_port);
  if (offer == nullptr) {
    why_not = "no connection method serves both " + name() + " and the peer's port: " +
              cpc::why_no_cpc(Component::get().info(), ours, peer.info, key.remote_port);
    report_no_connection_method(*this, *proc, why_not);
    return nullptr;
  }
  cpc::PeerTarget target{offer->kind, offer->blob, peer.info.token, OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags)};
  auto endpoint = std::make_unique<Endpoint>(*this, proc, key, std::move(target));
  return endpoints_.emplace(key, std::move(endpoint)).first->second.get();
}

Endpoint* Module::find(const cpc::ConnectionKey& key) const noexcept {
  const auto found = endpoints_.find(key);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

bool Module::is_closing(const cpc::ConnectionKey& key) const noexcept {
  return std::any_of(closing_.begin(), closing_.end(), [&](const auto& endpoint) { return endpoint->key() == key; });
}

void Module::remove_endpoint(Endpoint* endpoint) {
  const auto found = endpoints_.find(endpoint->key());
  if (found == endpoints_.end() || found->second.get() != endpoint) {
    return;
  }
  closing_.push_back(std::move(found->second));
  endpoints_.erase(found);
  endpoint->close("the process has disconnected");
}

/// Endpoints whose last completion is in can go.
void Module::reap_drained() {
  for (std::size_t i = 0; i < closing_.size();) {
    if (!closing_[i]->is_drained()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Endpoint> endpoint = std::move(closing_[i]);
    closing_.erase(closing_.begin() + static_cast<std::ptrdiff_t>(i));
    handshakes_.erase(endpoint->handshake().serial);
    for (std::size_t queue = 0; queue < queues_.count(); ++queue) {
      if (const ibv_qp* qp = endpoint->queue(queue).qp; qp != nullptr) {
        queue_pairs_.erase(qp->qp_num);
      }
    }
    connections_->submit(cpc::Destroy{endpoint->key()});
    if (Endpoint* successor = find(endpoint->key()); successor != nullptr) {
      successor->connect_if_wanted();
    }
  }
}

void Module::handle(const cpc::PostReceives& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not;
  if (endpoint == nullptr) {
    endpoint = Component::get().endpoint_of_stranger(*this, upcall.key, why_not);
  }
  if (endpoint == nullptr) {
    connections_->submit(cpc::Close{upcall.key, why_not});
    return;
  }
  if (auto posted = endpoint->post_receives(upcall.queue_pairs); !posted) {
    connection_failed(*endpoint, posted.error().text);
    return;
  }
  connections_->submit(cpc::ReceivesPosted{upcall.key});
}

void Module::handle(const cpc::Connected& upcall) {
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr) {
    endpoint->connected(upcall.remote_ends);
  }
}

void Module::handle(const cpc::Linked& upcall) {
  if (is_closing(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint* endpoint = find(upcall.key);
  std::string why_not = "the connection has failed";
  if (endpoint == nullptr) {
    endpoint = Component::get().endpoint_of_stranger(*this, upcall.key, why_not);
  }
  if (endpoint == nullptr || endpoint->state() == Endpoint::State::kFailed) {
    connections_->submit(cpc::Close{upcall.key, why_not});
    return;
  }
  handshakes_[upcall.handshake.serial] = endpoint;
  if (Status linked = endpoint->linked(upcall); !linked) {
    connection_failed(*endpoint, linked.error().text);
    return;
  }
  check_early_cts(*endpoint);
}

void Module::handle(const cpc::PeerLeft& upcall) {
  if (Endpoint* endpoint = find(upcall.key); endpoint != nullptr) {
    peer_left(*endpoint);
  }
}

void Module::connection_failed(Endpoint& endpoint, const std::string& reason) noexcept {
  if (endpoint.state() == Endpoint::State::kFailed) {
    return;
  }
  std::string doing;
  if (endpoint.exchanges_cts()) {
    doing.append("clear-to-send exchange: ").append(cpc::to_string(endpoint.cts_state()));
  }
  report_connection_failed(*this, endpoint, reason, doing);
  fail(endpoint);
  connections_->submit(cpc::Close{endpoint.key(), reason});
}

void Module::handle(const cpc::Failed& upcall) {
  Endpoint* endpoint = find(upcall.key);
  if (endpoint == nullptr && !is_closing(upcall.key)) {
    connections_->submit(
        cpc::Close{upcall.key, upcall.reason});  // a stranger's; the stranger has been told and reports it
  }
  if (endpoint == nullptr || endpoint->state() == Endpoint::State::kFailed) {
    return;
  }
  report_connection_failed(*this, *endpoint, upcall.reason, upcall.history);
  fail(*endpoint);
  connections_->submit(cpc::Close{upcall.key, upcall.reason});
}

void Module::handle(const cpc::Flushing& upcall) {
  for (const auto& endpoint : closing_) {
    if (endpoint->key() == upcall.key) {
      endpoint->drain();
      return;
    }
  }
  if (find(upcall.key) == nullptr) {
    connections_->submit(cpc::Destroy{upcall.key});  // refused: no endpoint ever used its queue pairs
  }
}

void Module::handle(const cpc::AsyncEvent& event) {
  switch (event.type) {
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      for (const auto& shared : shared_queues_) {
        if (shared && shared->srq() == event.object) {
          ++counters.srq_limit_events;
          shared->limit_reached();
        }
      }
      break;
    case IBV_EVENT_DEVICE_FATAL:
      report_device_event(*this, event.type);
      if (error_callback != nullptr) {
        error_callback(this, MCA_BTL_ERROR_FLAGS_FATAL, nullptr, nullptr);
      }
      break;
    case IBV_EVENT_PORT_ERR:
      // Not fatal: the link may come back before the transport's retries are used up.
      if (event.port_num == port_.port_num) {
        report_device_event(*this, event.type);
      }
      break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      report_device_event(*this, event.type);
      if (error_callback != nullptr) {
        error_callback(this, MCA_BTL_ERROR_FLAGS_FATAL, nullptr, nullptr);
      }
      break;
    default:
      break;  // the rest is news (ports coming up), or comes as failed completions too (queue pairs)
  }
}

}  // namespace fabric
