// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/connection_manager.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cpc/async_events.h"
#include "cpc/connection.h"
#include "cpc/event_queue.h"
#include "cpc/oob.h"
#include "cpc/progress_thread.h"

namespace fabric::cpc {
namespace {

struct AddPort {
  const PortContext* port;
};
using Input = std::variant<Command, AddPort>;

/// The oob CPC connects queue pairs by their numbers, which iWARP has not, and makes no XRC queue pairs.
bool oob_serves(const PortContext& port) {
  const std::vector<QueueSpec>& queues = port.queues->queues();
  return port.address.link != Link::kIwarp && std::none_of(queues.begin(), queues.end(), [](const QueueSpec& queue) {
           return queue.kind == QueueKind::kXrc;
         });
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
  [[nodiscard]] const std::vector<std::byte>& oob_offer() const noexcept { return oob_offer_; }

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
  void on_request(std::unique_ptr<OobChannel> channel, Message request);
  [[nodiscard]] bool acceptable(OobChannel& channel, const Message& request);
  [[nodiscard]] Connection& connection(const ConnectionKey& key);
  [[nodiscard]] const PortContext* port(std::uint16_t index) const;

  const ManagerSettings settings_;
  const QueuePairMaker maker_;
  EventQueue<Input> inputs_;
  std::vector<std::byte> oob_offer_;

  ConnectionEnvironment environment_;
  std::unordered_map<std::uint16_t, const PortContext*> ports_;
  std::unique_ptr<Oob> oob_;
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
  auto oob = Oob::start(loop, {settings_.self, settings_.token, settings_.connect_timeout_ms},
                        [this](std::unique_ptr<OobChannel> channel, Message request) {
                          on_request(std::move(channel), std::move(request));
                        });
  if (!oob) {
    return tl::unexpected(std::move(oob).error());
  }
  oob_ = std::move(*oob);
  oob_offer_ = oob_->offer();
  async_events_.emplace(loop, [this](const AsyncEvent& event) { upcalls.push(event); });
  environment_.loop = loop;
  environment_.settings = &settings_;
  environment_.oob = oob_.get();
  environment_.make_queue_pairs = &maker_;
  environment_.port = [this](std::uint16_t index) { return port(index); };
  environment_.say = [this](Upcall upcall) { upcalls.push(std::move(upcall)); };
  return {};
}

void ConnectionManager::Impl::tear_down() {
  connections_.clear();
  async_events_.reset();
  oob_.reset();
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
  ports_[input.port->index] = input.port;
  async_events_->add(input.port->device);
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

void ConnectionManager::Impl::on_request(std::unique_ptr<OobChannel> channel, Message request) {
  if (!acceptable(*channel, request)) {
    return;
  }
  const ConnectionKey key{request.header.sender, request.header.target_port, request.header.sender_port};
  connection(key).request_arrived(std::move(channel), std::move(request));
}

/// Refuses what no connection could accept.
bool ConnectionManager::Impl::acceptable(OobChannel& channel, const Message& request) {
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
  impl_->put(AddPort{&port});
}

std::vector<CpcOffer> ConnectionManager::offers(std::span<const PortContext* const> ports) const {
  CpcOffer oob{CpcKind::kOob, impl_->settings().oob_priority, 0, impl_->oob_offer()};
  for (const PortContext* port : ports) {
    if (port->index < kMaxPorts && oob_serves(*port)) {
      oob.ports |= std::uint64_t{1} << port->index;
    }
  }
  return oob.ports == 0 ? std::vector<CpcOffer>() : std::vector<CpcOffer>{std::move(oob)};
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
