// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/connection_manager.h"

#include <algorithm>
#include <future>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cpc/async_events.h"
#include "cpc/connection.h"
#include "cpc/event_queue.h"
#include "cpc/oob.h"
#include "cpc/progress_thread.h"
#include "cpc/rdmacm.h"

namespace fabric::cpc {
namespace {

/// Asks for a port to be served; answered when every CPC has tried to listen on it.
struct AddPort {
  const PortContext* port;
  std::promise<void>* served;
};
using Input = std::variant<Command, AddPort>;

/// What a CPC can do for the ports of this process. Written by the progress thread while the main thread waits for it.
struct CpcService {
  CpcKind kind;
  std::uint8_t priority;
  std::string reason;             ///< why the CPC does not run; empty if it does
  std::uint64_t ports = 0;        ///< bit i: it serves the port with index i
  std::vector<std::byte> blob;    ///< oob: where it listens
  std::vector<CmAddress> listen;  ///< rdmacm, ibcm: where they listen
  std::string refusals;           ///< "rxe0:1: ...; siw0:1: ..."
};

constexpr const char* kNotAllowed = "btl_fabric_cpc_include or cpc_exclude leaves it out";

bool has_xrc(const PortContext& port) {
  const std::vector<QueueSpec>& queues = port.queues->queues();
  return std::any_of(queues.begin(), queues.end(),
                     [](const QueueSpec& queue) { return queue.kind == QueueKind::kXrc; });
}

std::string name_of(const PortContext& port) {
  return port.device == nullptr
             ? "port " + std::to_string(port.index)
             : std::string(ibv_get_device_name(port.device->device)) + ":" + std::to_string(port.port_num);
}

}  // namespace

/// What both threads share is the two queues and what never changes after start(); all the rest is the progress
/// thread's.
class ConnectionManager::Impl {
 public:
  Impl(const ManagerSettings& settings, QueuePairMaker maker) : settings_(settings), maker_(std::move(maker)) {}
  /// Ends the thread while everything that it uses is still there.
  ~Impl() { thread_.reset(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Main thread
  [[nodiscard]] Status start();
  void put(Input input);
  [[nodiscard]] const ManagerSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const std::vector<CpcService>& services() const noexcept { return services_; }

  EventQueue<Upcall> upcalls;

 private:
  [[nodiscard]] Status set_up(event_base* loop);
  void tear_down();
  void handle_inputs();
  void handle(const AddPort& input);
  void handle(Command command);
  void on_command(Connection& connection, Connect& command) { connection.connect(std::move(command.target)); }
  void on_command(Connection& connection, ReceivesPosted&) { connection.receives_posted(); }
  void on_command(Connection& connection, PeerSpoke&) { connection.peer_spoke(); }
  void on_command(Connection& connection, Close& command) { connection.close(std::move(command.reason)); }
  void on_command(Connection& connection, Destroy&) { connection.destroy(); }
  [[nodiscard]] Status start_oob(CpcService& service, const OnRequest& on_request);
  void start_rdmacm(CpcService& service, std::unique_ptr<RdmaCm>& rdmacm, const OnRequest& on_request);
  [[nodiscard]] Status serve(CpcService& service, const PortContext& port);
  [[nodiscard]] const ChannelOpener* opener(CpcKind kind) const noexcept;
  void on_request(std::unique_ptr<Channel> channel, Message request);
  [[nodiscard]] bool acceptable(Channel& channel, const Message& request);
  [[nodiscard]] Connection& connection(const ConnectionKey& key);
  [[nodiscard]] const PortContext* port(std::uint16_t index) const;

  const ManagerSettings settings_;
  const QueuePairMaker maker_;
  EventQueue<Input> inputs_;
  std::vector<CpcService> services_;

  ConnectionEnvironment environment_;
  std::unordered_map<std::uint16_t, const PortContext*> ports_;
  std::unique_ptr<Oob> oob_;
  std::unique_ptr<RdmaCm> rdmacm_;
  std::unique_ptr<RdmaCm> ibcm_;
  std::optional<AsyncEvents> async_events_;
  std::unordered_map<ConnectionKey, std::unique_ptr<Connection>> connections_;
  std::unique_ptr<ProgressThread> thread_;
};

Status ConnectionManager::Impl::start() {
  auto thread = ProgressThread::start(
      {[this](event_base* loop) { return set_up(loop); }, [this] { handle_inputs(); }, [this] { tear_down(); }});
  if (!thread) {
    return tl::unexpected(std::move(thread).error());
  }
  thread_ = std::move(*thread);
  return {};
}

Status ConnectionManager::Impl::set_up(event_base* loop) {
  environment_.loop = loop;
  environment_.settings = &settings_;
  environment_.make_queue_pairs = &maker_;
  environment_.port = [this](std::uint16_t index) { return port(index); };
  environment_.opener = [this](CpcKind kind) { return opener(kind); };
  environment_.say = [this](Upcall upcall) { upcalls.push(std::move(upcall)); };
  async_events_.emplace(loop, [this](const AsyncEvent& event) { upcalls.push(event); });
  const OnRequest on_request = [this](std::unique_ptr<Channel> channel, Message request) {
    this->on_request(std::move(channel), std::move(request));
  };
  services_ = {{CpcKind::kOob, settings_.oob_priority, {}, 0, {}, {}, {}},
               {CpcKind::kXoob, 0, "this version does not have it", 0, {}, {}, {}},
               {CpcKind::kRdmaCm, settings_.rdmacm_priority, {}, 0, {}, {}, {}},
               {CpcKind::kIbCm, settings_.ibcm_priority, {}, 0, {}, {}, {}}};
  for (CpcService& service : services_) {
    if ((settings_.cpcs & set_of(service.kind)) == 0) {
      service.reason = kNotAllowed;
    }
  }
  start_rdmacm(services_[2], rdmacm_, on_request);
  start_rdmacm(services_[3], ibcm_, on_request);
  return start_oob(services_[0], on_request);
}

Status ConnectionManager::Impl::start_oob(CpcService& service, const OnRequest& on_request) {
  if (!service.reason.empty()) {
    return {};
  }
  auto oob = Oob::start(environment_.loop, {settings_.self, settings_.token, settings_.connect_timeout_ms}, on_request);
  if (!oob) {
    return tl::unexpected(std::move(oob).error());
  }
  oob_ = std::move(*oob);
  service.blob = oob_->offer();
  return {};
}

/// A host without the kernel's communication manager still has oob.
void ConnectionManager::Impl::start_rdmacm(CpcService& service, std::unique_ptr<RdmaCm>& rdmacm,
                                           const OnRequest& on_request) {
  if (!service.reason.empty()) {
    return;
  }
  auto started = RdmaCm::start(environment_.loop,
                               {service.kind, settings_.self, settings_.token, settings_.resolve_timeout_ms,
                                settings_.connect_timeout_ms, settings_.rdmacm_port},
                               on_request);
  if (started) {
    rdmacm = std::move(*started);
  } else {
    service.reason = started.error().text;
  }
}

void ConnectionManager::Impl::tear_down() {
  connections_.clear();
  async_events_.reset();
  ibcm_.reset();
  rdmacm_.reset();
  oob_.reset();
}

const ChannelOpener* ConnectionManager::Impl::opener(CpcKind kind) const noexcept {
  switch (kind) {
    case CpcKind::kOob:
      return oob_.get();
    case CpcKind::kRdmaCm:
      return rdmacm_.get();
    case CpcKind::kIbCm:
      return ibcm_.get();
    case CpcKind::kXoob:
      break;
  }
  return nullptr;
}

void ConnectionManager::Impl::put(Input input) {
  inputs_.push(std::move(input));
  thread_->wake();
}

void ConnectionManager::Impl::handle_inputs() {
  for (Input& input : inputs_.take()) {
    std::visit([this](auto& one) { handle(std::move(one)); }, input);
  }
}

void ConnectionManager::Impl::handle(const AddPort& input) {
  const PortContext& port = *input.port;
  ports_[port.index] = &port;
  async_events_->add(port.device);
  for (CpcService& service : services_) {
    if (!service.reason.empty()) {
      continue;
    }
    if (Status served = serve(service, port); served) {
      service.ports |= std::uint64_t{1} << port.index;
    } else {
      service.refusals += (service.refusals.empty() ? "" : "; ") + name_of(port) + ": " + served.error().text;
    }
  }
  input.served->set_value();
}

/// Readies a CPC for connections of `port`. The error says why that CPC cannot make them.
Status ConnectionManager::Impl::serve(CpcService& service, const PortContext& port) {
  if (port.index >= kMaxPorts) {
    return failure("its index is beyond " + std::to_string(kMaxPorts - 1));
  }
  if (has_xrc(port)) {
    return failure("it makes no XRC queue pairs, and btl_fabric_receive_queues has X queues");
  }
  if (service.kind == CpcKind::kOob) {
    return port.address.link == Link::kIwarp
               ? Status(failure("it connects queue pairs by their numbers, which iWARP does not have"))
               : Status();
  }
  if (port.device == nullptr || port.handshakes == nullptr) {
    return failure("there is no device for the communication manager");
  }
  Result<CmAddress> listening = (service.kind == CpcKind::kIbCm ? ibcm_ : rdmacm_)->listen(port);
  if (!listening) {
    return tl::unexpected(std::move(listening).error());
  }
  service.listen.push_back(*listening);
  return {};
}

void ConnectionManager::Impl::handle(Command command) {
  std::visit(
      [this](auto& one) {
        const ConnectionKey key = one.key;
        Connection& target = connection(key);
        on_command(target, one);
        if (target.state() == State::kClosed) {
          connections_.erase(key);
        }
      },
      command);
}

void ConnectionManager::Impl::on_request(std::unique_ptr<Channel> channel, Message request) {
  if (!acceptable(*channel, request)) {
    return;
  }
  const ConnectionKey key{request.header.sender, request.header.target_port, request.header.sender_port};
  connection(key).request_arrived(std::move(channel), std::move(request));
}

/// Refuses what no connection could accept.
bool ConnectionManager::Impl::acceptable(Channel& channel, const Message& request) {
  const std::string who =
      "rank " + std::to_string(settings_.self.rank) + " of job " + std::to_string(settings_.self.job);
  const PortContext* const local = port(request.header.target_port);
  if (local == nullptr) {
    channel.refuse(RefuseReason::kUnknownPort, who + " has no port " + std::to_string(request.header.target_port) +
                                                   ", it serves " + std::to_string(ports_.size()) + " port(s)");
    return false;
  }
  const std::size_t count = local->queues->count();
  if (request.ends.size() != count) {
    channel.refuse(RefuseReason::kQueueMismatch, who + " has " + std::to_string(count) + " receive queues, you have " +
                                                     std::to_string(request.ends.size()) +
                                                     ": btl_fabric_receive_queues must be equal");
    return false;
  }
  return true;
}

Connection& ConnectionManager::Impl::connection(const ConnectionKey& key) {
  std::unique_ptr<Connection>& found = connections_[key];
  if (!found) {
    found = std::make_unique<Connection>(key, environment_);
  }
  return *found;
}

const PortContext* ConnectionManager::Impl::port(std::uint16_t index) const {
  const auto found = ports_.find(index);
  return found == ports_.end() ? nullptr : found->second;
}

// ---- The main thread's side

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::start(ManagerSettings settings, QueuePairMaker maker) {
  auto impl = std::make_unique<Impl>(settings, std::move(maker));
  if (Status started = impl->start(); !started) {
    return failure("starting connection set-up", started.error());
  }
  return std::unique_ptr<ConnectionManager>(new ConnectionManager(std::move(impl)));
}

ConnectionManager::ConnectionManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConnectionManager::~ConnectionManager() = default;

void ConnectionManager::add_port(const PortContext& port) {
  std::promise<void> served;
  impl_->put(AddPort{&port, &served});
  served.get_future().wait();
}

std::vector<CpcOffer> ConnectionManager::offers(std::span<const PortContext* const> ports) const {
  std::uint64_t wanted = 0;
  for (const PortContext* port : ports) {
    wanted |= port->index < kMaxPorts ? std::uint64_t{1} << port->index : 0;
  }
  std::vector<CpcOffer> offers;
  for (const CpcService& service : impl_->services()) {
    CpcOffer offer{service.kind, service.priority, service.ports & wanted, service.blob};
    if (service.kind != CpcKind::kOob) {
      offer.blob = encode(service.listen);
    }
    if (offer.ports != 0) {
      offers.push_back(std::move(offer));
    }
  }
  return offers;
}

std::vector<CpcOffer> ConnectionManager::refusals() const {
  std::vector<CpcOffer> refusals;
  for (const CpcService& service : impl_->services()) {
    if (service.ports == 0) {
      const std::string& why = service.reason.empty() ? service.refusals : service.reason;
      const auto bytes = std::as_bytes(std::span(why)).first(std::min(why.size(), kMaxOfferBlob));
      refusals.push_back({service.kind, service.priority, 0, {bytes.begin(), bytes.end()}});
    }
  }
  return refusals;
}

void ConnectionManager::submit(Command command) {
  impl_->put(std::move(command));
}
bool ConnectionManager::has_upcalls() const noexcept {
  return impl_->upcalls.filled();
}
std::vector<Upcall> ConnectionManager::take_upcalls() {
  return impl_->upcalls.take();
}

}  // namespace fabric::cpc
