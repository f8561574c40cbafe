// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/connector.h"

#include <sys/random.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "btl_fabric/base/param_reader.h"
#include "common/ports/software_device.h"
#include "cpc/queue_pairs/port_context.h"
#include "cpc/registry/registry.h"

namespace fabric::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kQueues = "P,65536,32,16,16,8,32";
constexpr std::uint32_t kCompletions = 256;
constexpr auto kPatience = std::chrono::seconds(10);  // the other side may still be trying
constexpr auto kTimeToDrain = std::chrono::seconds(2);
/// 4.096 us * 2^14: a message that is lost is known to be after half a second.
constexpr std::uint8_t kTimeout = 14;

cpc::QueuePairSettings queue_pair_settings(const UsablePort& port, const Params& values) {
  cpc::QueuePairSettings settings;
  settings.timeout = std::min(static_cast<std::uint8_t>(values.timeout), kTimeout);
  settings.retry_count =
      finite_retries(port.device->attributes.vendor_id, static_cast<std::uint8_t>(values.retry_count));
  settings.service_level = static_cast<std::uint8_t>(values.service_level);
  settings.traffic_class = port.traffic_class(values.traffic_class);
  settings.pkey_index = port.pkey_index;
  return settings;
}

}  // namespace

Result<std::unique_ptr<Connector>> Connector::make(std::uint32_t rank, const std::vector<UsablePort>& ports,
                                                   const Parameters& parameters) {
  std::unique_ptr<Connector> made(new Connector);
  made->queues_ = ReceiveQueues::parse(kQueues).value();
  made->settings_.self = {1, rank};
  for (const UsablePort& port : ports) {
    made->add_port(port, parameters);
  }
  if (Status started = made->start(parameters); !started) {
    return tl::unexpected(started.error());
  }
  return made;
}

/// The progress thread goes before what it uses.
Connector::~Connector() {
  manager_.reset();
}

void Connector::add_port(const UsablePort& usable, const Parameters& parameters) {
  auto port = std::make_unique<Port>();
  port->usable = usable;
  port->completion_queues = std::make_unique<CompletionQueueSet>(usable.device->context.get(), kCompletions, 0);
  port->handshakes = std::make_unique<cpc::HandshakeSlab>(usable.device->pd.get());
  cpc::PortContext& context = port->context;
  context = cpc::context_of(usable, static_cast<std::uint16_t>(ports_.size()));
  context.handshakes = port->handshakes.get();
  context.queues = &queues_;
  context.subsets = {QueueSubset::all(queues_)};
  context.completion_queues = port->completion_queues.get();
  context.srqs = {nullptr};
  context.settings = queue_pair_settings(usable, parameters.values());
  ports_.push_back(std::move(port));
}

Status Connector::start(const Parameters& parameters) {
  if (getrandom(settings_.token.data(), settings_.token.size(), 0) != static_cast<ssize_t>(settings_.token.size())) {
    return failure("the kernel gives no random numbers");
  }
  settings_.retry_time_ms = 1000;
  settings_.connect_timeout_ms = 3000;
  settings_.cpcs = parameters.cpcs();
  auto methods = cpc::make_cpcs(ParamReader(parameters.values()));
  if (!methods) {
    return tl::unexpected(methods.error());
  }
  auto started = cpc::ConnectionManager::start(settings_, std::move(*methods), cpc::make_rc_queue_pairs);
  if (!started) {
    return tl::unexpected(started.error());
  }
  manager_ = std::move(*started);
  std::vector<const cpc::PortContext*> contexts;
  for (const auto& port : ports_) {
    manager_->add_port(port->context);
    contexts.push_back(&port->context);
    info_.ports.push_back(port->usable.address);
  }
  info_.token = settings_.token;
  info_.receive_queues = queues_.canonical();
  info_.offers = manager_->offers(contexts);
  const std::vector<CpcOffer> refusals = manager_->refusals();
  info_.offers.insert(info_.offers.end(), refusals.begin(), refusals.end());
  return {};
}

Wire& Connector::wire_of(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
  auto& wire = wires_[{key, link}];
  if (!wire) {
    wire = std::make_unique<Wire>(ports_[key.local_port]->context.pd, key, link, [this] { pump(); });
  }
  return *wire;
}

/// The connection manager hears IBV_EVENT_DEVICE_FATAL, or a call fails with EIO: it marks the queues.
bool Connector::is_lost(std::uint16_t port) const noexcept {
  return ports_[port]->completion_queues->is_lost();
}

std::string Connector::why_lost(std::uint16_t port) const {
  return ports_[port]->usable.device->name + " is gone (IBV_EVENT_DEVICE_FATAL or EIO)";
}

std::vector<std::string> Connector::lost_devices() const {
  std::vector<std::string> names;
  for (std::uint16_t port = 0; port < ports_.size(); ++port) {
    const std::string& name = ports_[port]->usable.device->name;
    if (is_lost(port) && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

void Connector::pump() {
  if (manager_->has_upcalls()) {
    for (cpc::Upcall& upcall : manager_->take_upcalls()) {
      std::visit(
          [this](const auto& one) {
            if constexpr (requires { one.link; }) {
              cpc::LinkNumber& newest = newest_[one.key];
              newest = std::max(newest, one.link);
            }
            on(one);
          },
          upcall);
    }
  }
  ibv_wc completion{};
  for (const auto& port : ports_) {
    for (std::size_t i = 0; i < port->completion_queues->count(); ++i) {
      while (ibv_poll_cq(port->completion_queues->queue(i), 1, &completion) > 0) {
        take(completion, *port);
      }
    }
  }
  for (const auto& [key, wire] : wires_) {
    if (is_lost(key.first.local_port)) {
      wire->fail(why_lost(key.first.local_port));  // no completion says so
    }
  }
  sweep();
}

void Connector::take(const ibv_wc& completion, const Port& port) {
  for (const auto& [key, wire] : wires_) {
    if (wire->qpn() == completion.qp_num && key.first.local_port == port.context.index) {
      wire->complete(completion);
      return;
    }
  }
  if (completion.status == IBV_WC_SUCCESS) {
    early_cts_.insert(completion.qp_num);
  }
}

void Connector::sweep() {
  for (auto it = wires_.begin(); it != wires_.end();) {
    const Wire& wire = *it->second;
    if (&wire != in_use_ && wire.is_flushing() && wire.is_drained()) {
      manager_->submit(cpc::Destroy{wire.key(), wire.number()});
      it = wires_.erase(it);
    } else {
      ++it;
    }
  }
}

void Connector::on(const cpc::PostReceives& upcall) {
  wire_of(upcall.key, upcall.link).post_receives(upcall.queue_pairs.front());
  manager_->submit(cpc::ReceivesPosted{upcall.key, upcall.link});
}
void Connector::on(const cpc::Linked& upcall) {
  Wire& wire = wire_of(upcall.key, upcall.link);
  wire.link(upcall, early_cts_.erase(upcall.queue_pairs.front()->qp_num) > 0);
}
void Connector::on(const cpc::Connected& upcall) {
  wire_of(upcall.key, upcall.link).set_connected();
}
void Connector::on(const cpc::PeerLeft& upcall) {
  wire_of(upcall.key, upcall.link).fail(upcall.reason);
}
void Connector::on(const cpc::Failed& upcall) {
  failures_[upcall.key] = {upcall.link, upcall.reason};
  if (const auto found = wires_.find({upcall.key, upcall.link}); found != wires_.end()) {
    found->second->fail(upcall.reason);
  }
}
void Connector::on(const cpc::QueuePairsGone& upcall) {
  early_cts_.erase(upcall.first_qpn);
}
void Connector::on(const cpc::Flushing& upcall) {
  wire_of(upcall.key, upcall.link).set_flushing();
}

Result<Wire*> Connector::connect(const Attempt& attempt, const ProcessInfo& peer) {
  const cpc::ConnectionKey key{{1, attempt.peer}, attempt.our_port, attempt.their_port};
  const cpc::LinkNumber before = used_[key];
  if (is_lost(attempt.our_port)) {
    return failure(why_lost(attempt.our_port));
  }
  if (attempt.is_ours) {
    const auto offer = std::find_if(peer.offers.begin(), peer.offers.end(),
                                    [&attempt](const CpcOffer& one) { return one.kind == attempt.kind; });
    if (offer == peer.offers.end()) {
      return failure("the peer does not offer it");
    }
    manager_->submit(cpc::Connect{
        key, ++newest_[key], {*cpc::find_cpc(attempt.kind), offer->blob, peer.token, attempt.is_same_host}});
  }
  std::string why = "nothing has come from the peer within 10 s";
  std::string lost;
  const auto end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    pump();
    if (is_lost(attempt.our_port)) {
      why = why_lost(attempt.our_port);
      break;
    }
    for (const auto& [known, wire] : wires_) {
      if (known.first != key || known.second <= before || wire->is_flushing()) {
        continue;
      }
      if (wire->is_connected()) {
        used_[key] = known.second;
        in_use_ = wire.get();
        return wire.get();
      }
      lost = wire->failure_text();
    }
    if (!lost.empty()) {
      why = "connected, but the first message does not come through: " + lost;
      break;
    }
    // A link that fails may be followed by a newer one, which the peer makes.
    if (const auto failed = failures_.find(key); failed != failures_.end() && failed->second.first > before) {
      why = failed->second.second;
      if (attempt.is_ours && failed->second.first == newest_[key]) {
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  for (const auto& [known, wire] : wires_) {
    if (known.first == key && known.second > before) {
      manager_->submit(cpc::Close{key, known.second, "the doctor gives it up", true});
    }
  }
  used_[key] = newest_[key];
  return failure(why);
}

void Connector::close(Wire& wire) {
  const WireKey key{wire.key(), wire.number()};
  manager_->submit(cpc::Close{key.first, key.second, "done"});
  in_use_ = nullptr;
  const auto end = Clock::now() + kTimeToDrain;
  // What is left on a device that is gone never completes.
  while (wires_.contains(key) && !is_lost(key.first.local_port) && Clock::now() < end) {
    pump();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace fabric::doctor
