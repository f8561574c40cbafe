// SPDX-License-Identifier: BSD-3-Clause
//
// Making endpoints, and taking them away.
#include "btl_fabric/peer/endpoints.h"

#include <algorithm>

#include "btl_fabric/path/link_healing.h"
#include "btl_fabric/peer/device_loss.h"
#include "common/ports/port_pairing.h"
#include "cpc/core/choose.h"
#include "cpc/registry/registry.h"

namespace fabric {

void Endpoints::make_path(const PathSettings& settings, PathQueues queues, DeviceRdma& rdma,
                          const AtomicTargets& targets, Counters& counters, PacketWatch* watch) {
  path_.emplace(settings, std::move(queues), PathParts{rdma, targets, counters, *this, watch});
}

void Endpoints::set_contexts(std::vector<Endpoints*> contexts, mca_btl_base_module_t* upper_module) {
  contexts_ = std::move(contexts);
  upper_module_ = upper_module;
}

Endpoint* Endpoints::endpoint_for(opal_proc_t* proc, const Peer& peer, std::string& why_not) {
  if (!peer.refusal.empty()) {
    why_not = peer.refusal;
    return nullptr;
  }
  if (!peer.pairs[port_.index]) {
    why_not = why_unpaired(services_.port_name(), port_.address, peer.info.ports);
    return nullptr;
  }
  const cpc::ConnectionKey key{name_of(*proc), port_.index, *peer.pairs[port_.index]};
  if (Endpoint* known = take_back(key, proc); known != nullptr) {
    return known;
  }
  const ProcessInfo& ours = services_.own_info();
  const CpcOffer* offer = cpc::choose_cpc(cpc::kCpcTraits, ours, port_.index, peer.info, key.remote_port);
  if (offer == nullptr) {
    why_not = "no connection method serves both " + services_.port_name() + " and the peer's port: " +
              cpc::why_no_cpc(cpc::kCpcTraits, ours, port_.index, peer.info, key.remote_port);
    services_.report_no_connection_method(*proc, why_not);
    return nullptr;
  }
  return add(proc, key, peer, *offer, nullptr);
}

/// The endpoint that there is for a peer which Open MPI is to know; null if there is none.
Endpoint* Endpoints::take_back(const cpc::ConnectionKey& key, opal_proc_t* proc) noexcept {
  const auto guard = known_guard();  // so that it does not go in between
  const auto found = endpoints_.find(key.peer);
  if (found == endpoints_.end() || found->second->key() != key) {
    return nullptr;
  }
  found->second->take_back(proc);
  return found->second.get();
}

Endpoint* Endpoints::add_to(Endpoint& first) {
  const Peer& peer = *services_.peer_of(*first.proc());  // which is known since `first` was made
  const cpc::ConnectionKey key{first.key().peer, port_.index, *peer.pairs[port_.index]};
  const CpcOffer* offer =
      cpc::choose_cpc(cpc::kCpcTraits, services_.own_info(), key.local_port, peer.info, key.remote_port);
  return add(first.proc(), key, peer, *offer, &first);
}

/// Contexts of this port in which a peer is reached that is reached in the first.
unsigned Endpoints::contexts_with(const Peer& peer) const {
  unsigned count = 1;
  while (count < contexts_.size()) {
    const auto ours = static_cast<std::uint16_t>(port_.index + count);
    if (!peer.pairs[ours] ||
        cpc::choose_cpc(cpc::kCpcTraits, services_.own_info(), ours, peer.info, *peer.pairs[ours]) == nullptr) {
      break;
    }
    ++count;
  }
  return count;
}

Endpoint* Endpoints::add(opal_proc_t* proc, const cpc::ConnectionKey& key, const Peer& peer, const CpcOffer& offer,
                         Endpoint* first) {
  // Offers of other kinds than ours are neither decoded nor chosen.
  const cpc::CpcTraits& cpc = *cpc::find_cpc(offer.kind);
  const std::uint8_t subset = cpc.one_way ? std::uint8_t{0} : peer.subset;
  cpc::PeerTarget target{cpc, offer.blob, peer.info.token, OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags), subset};
  if (key.remote_port < peer.info.ports.size()) {
    target.gid = peer.info.ports[key.remote_port].gid;
  }
  std::unique_ptr<Endpoint> endpoint;
  if (first != nullptr) {
    endpoint = std::make_unique<Endpoint>(*this, key, std::move(target), *first);
  } else {
    const unsigned contexts = contexts_with(peer);
    auto steering = steering_table(peer.info.steering, name_of(OPAL_PROC_MY_NAME).rank, contexts);
    endpoint = std::make_unique<Endpoint>(*this, proc, key, std::move(target), contexts, std::move(steering));
  }
  const auto guard = known_guard();
  return endpoints_.try_emplace(key.peer, std::move(endpoint)).first->second.get();  // or another thread's
}

Endpoint* Endpoints::endpoint_of_unknown(const cpc::ConnectionKey& key, std::string& why_not) {
  const opal_process_name_t name{key.peer.job, key.peer.rank};
  opal_proc_t* proc = opal_proc_for_name(name);
  const Peer* peer = proc != nullptr ? services_.peer_of(*proc) : nullptr;
  if (peer == nullptr) {
    why_not = "the process is not known to Open MPI";
    return nullptr;
  }
  Endpoint* const first = contexts_.front()->endpoint_for(proc, *peer, why_not);
  if (first != nullptr && number_ >= first->contexts()) {
    why_not = "transmit context " + std::to_string(number_) + " is not used between the two";
    return nullptr;
  }
  Endpoint* const endpoint = first != nullptr ? first->in_context(number_) : nullptr;
  if (endpoint != nullptr && endpoint->key() != key) {
    why_not = "port " + std::to_string(key.local_port) + " does not pair up with port " +
              std::to_string(key.remote_port) + " of the peer";
    return nullptr;
  }
  return endpoint;
}

/// By the key of the endpoint, or of a direction of its connection.
Endpoint* Endpoints::find(const cpc::ConnectionKey& key) const noexcept {
  Endpoint* const endpoint = find(key.peer);
  return endpoint != nullptr && endpoint->key() == endpoint_key(key) ? endpoint : nullptr;
}

Endpoint* Endpoints::find(const ProcessName& peer) const noexcept {
  const auto guard = known_guard();
  const auto found = endpoints_.find(peer);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

void Endpoints::connect(const ProcessName& peer) noexcept {
  Endpoint* const endpoint = find(peer);
  if (endpoint == nullptr || is_lost()) {
    return;
  }
  try {
    endpoint->apply(EndpointEvent::kSendWanted);
  } catch (const std::bad_alloc&) {  // the first message tries again
  }
}

Endpoint* Endpoints::endpoint_to(const ProcessName& peer, std::uint64_t remote_ports) const noexcept {
  Endpoint* const endpoint = find(peer);
  const bool reaches = endpoint != nullptr && (remote_ports >> (endpoint->key().remote_port % 64) & 1) != 0;
  return reaches ? endpoint : nullptr;
}

Endpoint* Endpoints::find_closing(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept {
  return closing_.find(key.peer, [&](const Endpoint& endpoint) {
    return endpoint.key() == endpoint_key(key) && endpoint.directions_.has(key.direction, link);
  });
}

EndpointLink* Endpoints::find_ending(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept {
  const auto its_own = [&](const Endpoint& endpoint) {
    EndpointLink* one = endpoint.ending_;
    while (one != nullptr && !(one->key == key && one->number == link)) {
      one = one->next_of_peer;
    }
    return one;
  };
  const Endpoint* const known = find(key.peer);
  EndpointLink* const found = known != nullptr ? its_own(*known) : nullptr;
  if (found != nullptr) {
    return found;
  }
  const auto has = [&](const Endpoint& endpoint) { return its_own(endpoint) != nullptr; };
  const Endpoint* const closing = closing_.find(key.peer, has);
  return closing != nullptr ? its_own(*closing) : nullptr;
}

Endpoint* Endpoints::find_any(const cpc::ConnectionKey& key, cpc::LinkNumber link) const noexcept {
  Endpoint* const closing = find_closing(key, link);
  return closing != nullptr ? closing : find(key);
}

/// With X queues a goodbye to a peer that has gone breaks the queue pair to its node: so its own is looked for before.
void Endpoints::remove(Endpoint* first) {
  if (first->is_xrc_) {
    take_what_is_here();
  }
  for (unsigned context = first->contexts(); context-- > 0;) {
    if (Endpoint* endpoint = first->if_in_context(context); endpoint != nullptr) {
      in_context(context).close(endpoint);
    }
  }
}

void Endpoints::close(Endpoint* endpoint) {
  endpoint->forget_gone();
  {
    const auto guard = known_guard();
    if (endpoint->goes_on_to_receive()) {
      endpoint->lose_proc();
    } else if (!set_aside(*endpoint)) {
      return;
    }
  }
  endpoint->apply(EndpointEvent::kRemoved, {.text = "the process has disconnected", .direction = endpoint->outgoing()});
}

/// Nobody holds an endpoint any more that Open MPI has taken away when the peer has ended its connection too.
void Endpoints::close_if_over(Endpoint& endpoint) {
  {
    const auto guard = known_guard();  // Open MPI may be about to have it again
    if (!endpoint.is_over() || !set_aside(endpoint)) {
      return;
    }
  }
  endpoint.apply(EndpointEvent::kRemoved, {.text = "the process has disconnected", .direction = endpoint.outgoing()});
}

/// Makes one of those that are being closed of one that is known; false if it is none. For whoever holds known_guard().
bool Endpoints::set_aside(Endpoint& endpoint) {
  const auto found = endpoints_.find(endpoint.key().peer);
  if (found == endpoints_.end() || found->second.get() != &endpoint) {
    return false;
  }
  if (endpoint.counts_ != nullptr) {
    endpoint.counts_->is_agreed = false;  // it may end before all that it has sent has arrived
  }
  closing_.add(found->second);
  has_chores_ = true;
  endpoints_.erase(found);
  return true;
}

void Endpoints::begin_to_end() noexcept {
  const auto guard = known_guard();
  is_ending_ = true;
  for (const auto& [key, endpoint] : endpoints_) {
    endpoint->forget_callers();
  }
  for (const auto& endpoint : closing_) {
    endpoint->forget_callers();
  }
  if (self_) {
    self_->forget_callers();
  }
  for (EndpointLink* one = ending_.first(); one != nullptr;
       one = one->next.get()) {  // what has broken keeps what was under way
    for (LinkQueue& queue : one->queues()) {
      queue.unfinished.forget_callers();
    }
    one->rdma().forget_callers();
  }
}

void Endpoints::say_goodbye_to_all() {
  std::vector<Endpoint*> idle;
  for (auto guard = known_guard(); const auto& [key, endpoint] : endpoints_) {
    const EndpointState state = endpoint->state();
    const bool is_up = state == EndpointState::kConnected || state == EndpointState::kClear ||
                       state == EndpointState::kResting || state == EndpointState::kParting;
    if (is_up && !endpoint->has_waiting()) {
      idle.push_back(endpoint.get());
    }
  }
  for (Endpoint* endpoint : idle) {
    close(endpoint);
  }
}

bool Endpoints::are_leaving() const noexcept {
  return std::any_of(closing_.begin(), closing_.end(), [](const auto& endpoint) { return endpoint->is_leaving(); });
}

/// With X queues a peer that only sends learns of our end by its goodbye alone, and an adapter that has our target queue
/// pair no more does not acknowledge it: the peer would wait for as long as it may.
bool Endpoints::await_goodbyes() const noexcept {
  const auto guard = known_guard();
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const auto& one) { return one.second->only_receives(); });
}

void Endpoints::take_down(std::unique_ptr<EndpointLink> link) noexcept {
  EndpointLink& ending = *link;
  ending.next_of_peer = std::exchange(ending.endpoint.ending_, &ending);
  handshakes_.erase(ending.endpoint.handshake_.serial);
  if (ending.is_flushed) {
    ending.flushed_at = std::chrono::steady_clock::now();
    ending.post_drain_markers();
  }
  ending_.push_back(std::move(link));
  has_chores_ = true;
}

void Endpoints::reap_links() {
  if (ending_.size() == 0) {
    return;
  }
  constexpr std::chrono::milliseconds kPatience{50};
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t looks = std::min(ending_.size(), kMostLooks); looks > 0 && ending_.size() > 0; --looks) {
    std::unique_ptr<EndpointLink> one = ending_.pop_front();
    if (!one->is_flushed || !one->is_drained()) {
      if (one->is_flushed && now - one->flushed_at > kPatience) {
        one->flushed_at = now;
        LinkHealing(*one).flush_again();
      }
      ending_.push_back(std::move(one));
      continue;
    }
    if (one->number != 0) {
      submit(cpc::Destroy{one->key, one->number});
    }
    Endpoint& endpoint = one->endpoint;
    if (one->state() == Link::State::kBroken) {
      guarded(&endpoint, [&] { endpoint.take_what_is_left(*one); });
    }
    EndpointLink** at = &endpoint.ending_;
    while (*at != one.get()) {
      at = &(*at)->next_of_peer;
    }
    *at = one->next_of_peer;
    guarded(&endpoint, [&] { endpoint.go_on_healing(); });
  }
}

/// Without memory it is done the next time.
void Endpoints::do_chores() noexcept try {
  if (is_lost()) {
    DeviceLoss(*this).take_effect_alone();
  }
  if (loss_ == Loss::kUnderWay) {
    return;  // in a callback: its links are being looked at
  }
  reap_drained();
  watch_healing();
  make_room();
  has_chores_ =
      !closing_.empty() || !healing_.empty() || ending_.size() > 0 || path_->has_senders_gone() || links_wanted_ > 0;
} catch (const std::bad_alloc&) {
  services_.report_no_memory();
}

/// Links and endpoints whose last completion is in can go.
void Endpoints::reap_drained() {
  reap_links();
  for (std::size_t looks = std::min(closing_.size(), kMostLooks); looks > 0 && !closing_.empty(); --looks) {
    next_to_reap_ = next_to_reap_ < closing_.size() ? next_to_reap_ : 0;
    Endpoint& one = closing_[next_to_reap_];
    if (one.has_left_for(goodbye_timeout_)) {
      one.apply(EndpointEvent::kGoodbyeDone);
    }
    if (one.state() == EndpointState::kClosing) {
      for (const cpc::Direction direction : Directions::kAll) {  // there was no memory to say it
        one.close(direction, "the process has disconnected");
      }
    }
    if (!one.is_drained()) {
      ++next_to_reap_;
      continue;
    }
    one.destroy();
    const std::unique_ptr<Endpoint> endpoint = closing_.take(next_to_reap_);
    handshakes_.erase(endpoint->handshake_.serial);
    if (Endpoint* const next = find(endpoint->key().peer); next != nullptr) {
      guarded(next, [&] { next->go_on_healing(); });
    }
  }
  path_->reap_senders();
}

std::uint32_t Endpoints::rdma_of_ending_links(const Endpoint& endpoint) const noexcept {
  std::uint32_t sum = 0;
  for (EndpointLink* one = endpoint.ending_; one != nullptr; one = one->next_of_peer) {
    sum += one->rdma().outstanding();
  }
  return sum;
}

void Endpoints::tell_links(Endpoint& endpoint) noexcept {
  if (endpoint.link_) {
    endpoint.link_->upper() = endpoint.upper();
  }
  for (EndpointLink* one = endpoint.ending_; one != nullptr; one = one->next_of_peer) {
    one->upper() = endpoint.upper();
  }
}

const Awaited* Endpoints::awaited_of(const Endpoint& endpoint) const noexcept {
  const opal_proc_t* const proc = endpoint.is_taken_away() ? nullptr : endpoint.proc();
  return proc != nullptr ? services_.awaited_of(*proc) : nullptr;
}

std::uint32_t Endpoints::rdma_outstanding(const ProcessName* peer) const noexcept {
  const auto guard = known_guard();
  if (peer != nullptr) {
    if (self_ && self_->key().peer == *peer) {
      return self_->rdma_outstanding();
    }
    const auto found = endpoints_.find(*peer);
    return found != endpoints_.end() ? found->second->rdma_outstanding() : 0;
  }
  std::uint32_t sum = self_ ? self_->rdma_outstanding() : 0;
  for (const auto& [name, endpoint] : endpoints_) {
    sum += endpoint->rdma_outstanding();
  }
  return sum;
}

// ---- This process itself

Endpoint* Endpoints::self_endpoint(opal_proc_t* self) {
  const auto guard = known_guard();
  if (!self_) {
    const cpc::ConnectionKey key{name_of(*self), port_.index, port_.index};
    auto made = std::make_unique<Endpoint>(*this, self, key, cpc::PeerTarget{}, 1);
    made->is_self_ = true;
    self_ = std::move(made);
  }
  return self_.get();
}

Status Endpoints::connect_self() {
  const ReceiveQueues& queues = path_->receive_queues();
  const PathSettings& settings = path_->settings();
  auto loopback = cpc::make_loopback(port_, cpc::send_space(queues, cpc::rdma_queue(queues), settings.costs,
                                                            settings.max_inline, settings.rdma_depth));
  if (!loopback) {
    return tl::unexpected(std::move(loopback).error());
  }
  loopback_.emplace(std::move(*loopback));
  self_->link().set_loopback(loopback_->near.get());
  self_->apply(EndpointEvent::kMade);
  return {};
}

}  // namespace fabric
