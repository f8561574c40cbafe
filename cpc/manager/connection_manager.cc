// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/manager/connection_manager.h"

#include <unistd.h>

#include <future>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/host_name.h"
#include "cpc/loop/async_events.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/event_queue.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/loop/question_socket.h"
#include "cpc/manager/connections.h"
#include "cpc/manager/cpc_services.h"
#include "cpc/queue_pairs/xrc_senders.h"

namespace fabric::cpc {
namespace {

/// Asks for a port to be served; answered when every CPC has tried to listen on it.
struct AddPort {
  const PortContext* port;
  std::promise<void>* served;
};
/// What the main thread says to those who have asked.
struct Answer {
  std::string line;
};
using Input = std::variant<Command, AddPort, Answer>;

}  // namespace

/// What both threads share is the two queues and what never changes after start(); all the rest is the progress
/// thread's.
class ConnectionManager::Impl {
 public:
  Impl(const ConnectionSettings& settings, std::vector<std::unique_ptr<Cpc>> cpcs, QueuePairMaker maker,
       XrcMaker xrc_maker)
      : settings_(settings), maker_(std::move(maker)), xrc_maker_(std::move(xrc_maker)), services_(std::move(cpcs)) {}
  /// Ends the thread while everything that it uses is still there.
  ~Impl() { thread_.reset(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Main thread
  [[nodiscard]] Status start();
  void put(Input input);
  void start_ticks() noexcept {
    ticks_are_wanted_.store(true, std::memory_order_release);
    thread_->wake();
  }
  [[nodiscard]] const CpcServices& services() const noexcept { return services_; }

  EventQueue<Upcall> upcalls;
  std::atomic<bool> keep_alive_is_said = false;  ///< and has not been taken
  std::atomic<bool> is_asked = false;            ///< the same
  std::atomic<bool> is_look_due = false;         ///< the same

 private:
  [[nodiscard]] Status set_up(event_base* loop);
  void tear_down();
  void handle_inputs();
  void tick() noexcept;
  void say_keep_alive();
  void say_look();
  void handle(const AddPort& input);
  void handle(const Answer& input);
  [[nodiscard]] std::string greeting() const;
  void on_event(const AsyncEvent& event);
  void handle(Command command) { connections_.handle(std::move(command)); }
  [[nodiscard]] const PortContext* port(std::uint16_t index) const;

  const ConnectionSettings settings_;
  const QueuePairMaker maker_;
  const XrcMaker xrc_maker_;
  EventQueue<Input> inputs_;
  std::atomic<bool> ticks_are_wanted_ = false;
  CpcServices services_;

  ConnectionEnvironment environment_;
  std::unordered_map<std::uint16_t, const PortContext*> ports_;
  std::optional<Timer> ticks_;
  std::optional<Timer> keep_alive_;
  std::optional<Timer> looks_;
  std::optional<QuestionSocket> questions_;
  std::optional<AsyncEvents> async_events_;
  std::optional<XrcSenders> senders_;
  Connections connections_{environment_};
  std::unique_ptr<ProgressThread> thread_;
};

Status ConnectionManager::Impl::start() {
  auto thread = ProgressThread::start({[this](event_base* loop) { return set_up(loop); }, [this] { handle_inputs(); },
                                       [this] { tear_down(); }, [this] { upcalls.note_loss(); }});
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
  senders_.emplace(loop, xrc_maker_);
  environment_.senders = &*senders_;
  environment_.port = [this](std::uint16_t index) { return port(index); };
  environment_.opener = [this](CpcKind kind) { return services_.opener(kind); };
  environment_.say = [this](Upcall upcall) { upcalls.push(std::move(upcall)); };
  ticks_.emplace(loop, [this] { tick(); });
  if (settings_.keepalive_ms > 0) {
    keep_alive_.emplace(loop, [this] { say_keep_alive(); });
    keep_alive_->start(settings_.keepalive_ms);
  }
  if (settings_.look_ms > 0) {
    looks_.emplace(loop, [this] { say_look(); });
    looks_->start(settings_.look_ms);
  }
  if (settings_.takes_questions) {
    questions_.emplace(
        loop, [this] { return greeting(); },
        [this] {
          is_asked.store(true, std::memory_order_relaxed);
          upcalls.nudge();
        });
    if (!questions_->listen()) {
      questions_.reset();  // fabric_hang says that this process does not answer
    }
  }
  async_events_.emplace(loop, [this](const AsyncEvent& event) { on_event(event); });
  services_.start({loop, &settings_,
                   [this](std::unique_ptr<Channel> channel, Message request) {
                     connections_.on_request(std::move(channel), std::move(request));
                   },
                   [this](std::string reason) { upcalls.push(Shortage{std::move(reason)}); },
                   [this](std::string text) { upcalls.push(Remark{std::move(text)}); }});
  return {};
}

/// Whoever asks for a connection on a device that is gone is told so, while the main thread computes.
void ConnectionManager::Impl::on_event(const AsyncEvent& event) {
  for (const auto& [index, port] : ports_) {
    if (event.type == IBV_EVENT_DEVICE_FATAL && port->device == event.device && port->completion_queues != nullptr) {
      port->completion_queues->lose_device();
    }
  }
  upcalls.push(event);
}

void ConnectionManager::Impl::tear_down() {
  questions_.reset();
  connections_.clear();
  senders_.reset();
  async_events_.reset();
  ticks_.reset();
  keep_alive_.reset();
  looks_.reset();
  services_.stop();
}

void ConnectionManager::Impl::put(Input input) {
  inputs_.push(std::move(input));
  thread_->wake();
}

void ConnectionManager::Impl::tick() noexcept {
  if (settings_.tick()) {
    ticks_->start(settings_.tick_ms);
  }
}

void ConnectionManager::Impl::say_keep_alive() {
  keep_alive_->start(settings_.keepalive_ms);
  if (keep_alive_is_said.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  try {
    upcalls.push(KeepAliveDue{});
  } catch (const std::bad_alloc&) {  // the next time will do
    keep_alive_is_said.store(false, std::memory_order_relaxed);
  }
}

void ConnectionManager::Impl::say_look() {
  looks_->start(settings_.look_ms);
  is_look_due.store(true, std::memory_order_relaxed);
  upcalls.nudge();
}

void ConnectionManager::Impl::handle_inputs() {
  if (ticks_are_wanted_.exchange(false, std::memory_order_acquire) && !ticks_->running()) {
    ticks_->start(settings_.tick_ms);
  }
  for (Input& input : inputs_.take()) {
    run_or_lose([&] { std::visit([this](auto& one) { handle(std::move(one)); }, input); });
  }
}

void ConnectionManager::Impl::handle(const AddPort& input) {
  const PortContext& port = *input.port;
  run_or_lose([&] {
    ports_[port.index] = &port;
    async_events_->add(port.device);
    services_.add(port);
  });
  input.served->set_value();
}

void ConnectionManager::Impl::handle(const Answer& input) {
  if (questions_) {
    questions_->answer(input.line);
  }
}

/// Who this is, and what only the progress thread knows.
std::string ConnectionManager::Impl::greeting() const {
  const nlohmann::ordered_json told{{"format", 1},
                                    {"pid", getpid()},
                                    {"host", host_name()},
                                    {"job", settings_.self.job},
                                    {"rank", settings_.self.rank},
                                    {"connections", connections_.describe()}};
  return told.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

const PortContext* ConnectionManager::Impl::port(std::uint16_t index) const {
  const auto found = ports_.find(index);
  return found == ports_.end() ? nullptr : found->second;
}

// ---- The main thread's side

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::start(ConnectionSettings settings,
                                                                    std::vector<std::unique_ptr<Cpc>> cpcs,
                                                                    QueuePairMaker maker, XrcMaker xrc_maker) {
  auto impl = std::make_unique<Impl>(settings, std::move(cpcs), std::move(maker), std::move(xrc_maker));
  if (Status started = impl->start(); !started) {
    return failure("starting connection set-up", started.error());
  }
  return std::unique_ptr<ConnectionManager>(new ConnectionManager(std::move(impl)));
}

ConnectionManager::ConnectionManager(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)), has_upcalls_(impl_->upcalls.flag()) {}
ConnectionManager::~ConnectionManager() = default;

void ConnectionManager::add_port(const PortContext& port) {
  std::promise<void> served;
  impl_->put(AddPort{&port, &served});
  served.get_future().wait();
}

std::vector<CpcOffer> ConnectionManager::offers(std::span<const PortContext* const> ports) const {
  return impl_->services().offers(ports);
}
std::vector<CpcOffer> ConnectionManager::refusals() const {
  return impl_->services().refusals();
}
std::vector<std::string> ConnectionManager::remarks() const {
  return impl_->services().remarks();
}

void ConnectionManager::start_ticks() noexcept {
  impl_->start_ticks();
}
void ConnectionManager::submit(Command command) {
  impl_->put(std::move(command));
}
bool ConnectionManager::take_question() noexcept {
  return impl_->is_asked.load(std::memory_order_relaxed) && impl_->is_asked.exchange(false, std::memory_order_relaxed);
}
bool ConnectionManager::take_look() noexcept {
  return impl_->is_look_due.load(std::memory_order_relaxed) &&
         impl_->is_look_due.exchange(false, std::memory_order_relaxed);
}
void ConnectionManager::answer(std::string line) {
  impl_->put(Answer{std::move(line)});
}
void ConnectionManager::nudge() noexcept {
  impl_->upcalls.nudge();
}

std::vector<Upcall> ConnectionManager::take_upcalls() {
  std::vector<Upcall> taken = impl_->upcalls.take();
  impl_->keep_alive_is_said.store(false, std::memory_order_relaxed);
  if (impl_->upcalls.take_loss()) {
    try {
      taken.emplace_back(Shortage{"out of memory", true});
    } catch (const std::bad_alloc&) {
      impl_->upcalls.note_loss();  // it is told next time
    }
  }
  return taken;
}

}  // namespace fabric::cpc
