// SPDX-License-Identifier: BSD-3-Clause
//
// The component while it runs, and its end.
#include "btl_fabric/mca/component.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include "btl_fabric/base/device_memory.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/dump_signal.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/mca/state_answer.h"
#include "btl_fabric/peer/device_loss.h"
#include "common/ports/port_pairing.h"
#include "cpc/registry/registry.h"

namespace fabric {

/// In a child of fork(2) there is no progress thread, and devices, descriptors and registrations are the parent's: destroying
/// a queue pair or taking a descriptor out of an epoll set there would do so in the parent.
void Component::forget_in_child() noexcept {
  instance_ = nullptr;
  in_forked_child = true;
}

Component* Component::make(const mca_btl_base_component_t& component) {
  [[maybe_unused]] static const int watches_forks = pthread_atfork(nullptr, nullptr, forget_in_child);
  delete std::exchange(instance_, new Component(component));
  return instance_;
}

void Component::stop() noexcept {
  delete std::exchange(instance_, nullptr);
}

Component::~Component() {
  take_down();
}

const Peer* Component::peer_of(const opal_proc_t& proc) {
  {
    const std::lock_guard guard(peers_mutex_);
    if (const auto known = peers_.find(name_of(proc)); known != peers_.end()) {
      return known->second.get();
    }
  }
  std::uint8_t* data = nullptr;
  size_t size = 0;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV(rc, &component_->btl_version, &proc.proc_name, &data, &size);
  const std::unique_ptr<std::uint8_t, decltype(&free)> owner(data, free);
  if (rc != OPAL_SUCCESS || data == nullptr) {
    return nullptr;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  auto peer = std::make_unique<Peer>(look_up(proc, {bytes, bytes + size}));
  const std::lock_guard guard(peers_mutex_);
  return peers_.emplace(name_of(proc), std::move(peer)).first->second.get();
}

Peer Component::look_up(const opal_proc_t& proc, std::vector<std::byte> blob) {
  Peer peer;
  auto info = decode_process_info(blob, cpc::is_registered);
  if (!info) {
    peer.refusal = info.error().text;
    report_bad_modex(proc, info.error().text);
    return peer;
  }
  peer.info = std::move(*info);
  const auto subset = queues_.subset_with(peer.info.receive_queues, peer.info.queue_level);
  if (!subset) {
    peer.refusal = subset.error().text;
    if (!queues_differ_reported_.exchange(true)) {
      report_queues_differ(proc, info_.receive_queues, peer.info.receive_queues);
    }
    return peer;
  }
  peer.subset = *subset;
  peer.pairs = pair_contexts(info_.ports, info_.contexts, peer.info.ports, peer.info.contexts,
                             params().allow_different_subnets != 0);
  return peer;
}

Endpoint* Component::endpoint_to(const ProcessName& peer, std::uint64_t remote_ports, Module& first) noexcept {
  Endpoint* found = first.endpoints().endpoint_to(peer, remote_ports);
  for (std::size_t i = 0; found == nullptr && i < modules_.size(); i += locks_->contexts()) {
    found = modules_[i]->endpoints().endpoint_to(peer, remote_ports);
  }
  return found;
}

void Component::connect_ports(const ProcessName& peer, unsigned context) noexcept {
  for (std::size_t i = context; i < modules_.size(); i += locks_->contexts()) {
    modules_[i]->endpoints().connect(peer);
  }
}

std::uint32_t Component::rdma_outstanding(unsigned context, const ProcessName* peer) const noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = context; i < modules_.size(); i += locks_->contexts()) {
    sum += modules_[i]->endpoints().rdma_outstanding(peer);
  }
  return sum;
}

Component::Entered Component::enter_another(Endpoint& first, std::uint8_t order) noexcept {
  const unsigned context = order < first.contexts() ? order : locks_->current() % first.contexts();
  Entered entered{locks_->lock_if_allowed(context)};
  entered.endpoint = entered.guard ? first.in_context(context) : nullptr;
  return entered;
}

/// The completions of a context, unless another thread is at it.
int Component::progress(unsigned context) noexcept {
  const auto guard = locks_->try_lock(context);
  if (!guard) {
    return 0;
  }
  directed_sends_->send_what_was_left(context);
  return progress_ports(context);
}

/// The same, for whoever needs no lock.
inline int Component::progress_ports(unsigned context) noexcept {
  int total = 0;
  for (std::size_t i = context; i < modules_.size(); i += locks_->contexts()) {
    total += modules_[i]->endpoints().progress();
  }
  return total;
}

/// Most processes have one port, and MPI without threads.
int Component::progress() noexcept {
  if (only_port_ == nullptr || opal_uses_threads || connections_->has_upcalls()) [[unlikely]] {
    return progress_everything();
  }
  return only_port_->progress();
}

int Component::progress_everything() noexcept {
  if (connections_ == nullptr) {
    return 0;
  }
  if (connections_->has_upcalls() || locks_->are_all_wanted()) [[unlikely]] {
    handle_upcalls();
  }
  if (staged_ != nullptr && staged_->has_waiting()) [[unlikely]] {
    staged_->go_on();
  }
  if (locks_->contexts() > 1) [[unlikely]] {
    return progress_all();
  }
  return locks_->are_needed() ? progress(0) : progress_ports(0);
}

int Component::progress_all() noexcept {
  const unsigned contexts = locks_->contexts();
  // Whoever handles upcalls needs every lock: threads that all make progress would seldom leave it one. But a thread
  // that holds one is in a callback, and may wait for what comes in here.
  if (upcalls_are_handled_.load(std::memory_order_relaxed) && !locks_->holds_any()) [[unlikely]] {
    return 0;
  }
  // What was sent to the thread comes first, then the completions of its own sends, then what is there for threads that may not
  // run now: to look everywhere costs less than a change of threads.
  const unsigned home = locks_->home();
  const unsigned current = locks_->current();
  int total = progress(home);
  if (current != home) {
    total += progress(current);
  }
  for (unsigned context = 0; context < contexts; ++context) {
    if (context != home && context != current) {
      total += progress(context);
    }
  }
  return total;
}

/// One thread does, with everything locked. A callback does not: it may hold a lock that the others wait for.
[[gnu::cold]] void Component::handle_upcalls() {
  if (locks_->holds_some() || upcalls_are_handled_.exchange(true, std::memory_order_acquire)) {
    return;
  }
  {
    const auto guard = locks_->lock_all();
    take_upcalls();
  }
  upcalls_are_handled_.store(false, std::memory_order_release);
}

[[gnu::cold]] void Component::take_upcalls() {
  // First: who asks from now on is heard the next time.
  const std::vector<cpc::Upcall> upcalls = connections_->take_upcalls();
  if (dump_signal::take()) {
    for (const auto& module : modules_) {
      report_state(*module);
    }
  }
  if (connections_->take_question()) {
    answer_question(modules_, *connections_);
  }
  if (connections_->take_look() && top_ != nullptr) {
    top_->publish(modules_);
  }
  for (const cpc::Upcall& upcall : upcalls) {
    if (const auto* event = std::get_if<cpc::AsyncEvent>(&upcall)) {
      for (const auto& module : modules_) {
        if (module->context().device == event->device) {
          module->handle(*event);
        }
      }
      continue;
    }
    if (const auto* shortage = std::get_if<cpc::Shortage>(&upcall)) {
      handle(*shortage);
      continue;
    }
    if (const auto* remark = std::get_if<cpc::Remark>(&upcall)) {
      report_idle_setting(remark->text);
      continue;
    }
    if (std::holds_alternative<cpc::KeepAliveDue>(upcall)) {
      for (const auto& module : modules_) {
        module->endpoints().handle(upcall);
      }
      continue;
    }
    std::visit(
        [&](const auto& about_connection) {
          if constexpr (requires { about_connection.key; }) {
            modules_[about_connection.key.local_port]->endpoints().handle(upcall);
          } else if constexpr (requires { about_connection.local_port; }) {
            Module& module = *modules_[about_connection.local_port];
            if (!std::exchange(room_wanted_is_told_, true)) {
              report_queue_pairs_short(module);
            }
            for (const auto& one : modules_) {
              if (one->context().device == module.context().device) {
                one->endpoints().handle(upcall);
              }
            }
          }
        },
        upcall);
  }
  if (locks_->are_all_wanted()) {
    take_losses();
  }
}

/// Of devices, in all contexts at once: a message may go by one and have its buffer of another. Some contexts may not have heard of it.
[[gnu::cold]] void Component::take_losses() noexcept try {
  for (const auto& module : modules_) {
    if (module->cache().is_lost()) {
      module->lose_device();
    }
  }
  bool is_done = true;
  for (std::size_t i = 0; i < ports_; ++i) {
    is_done = DeviceLoss(port(i).endpoints()).take_effect_in_all() && is_done;
  }
  locks_->want_all(!is_done);
} catch (const std::bad_alloc&) {  // it is done the next time
}

void Component::handle(const cpc::Shortage& shortage) {
  if (!shortage.is_fatal) {
    report_shortage(shortage.reason);
    return;
  }
  report_connections_lost(shortage.reason);
  Module& any = *modules_.front();
  if (any.error_callback != nullptr) {
    any.error_callback(&any, MCA_BTL_ERROR_FLAGS_FATAL, nullptr, nullptr);
  }
}

void Component::finalize_module(Module* module) noexcept {
  module->error_callback = nullptr;
  if (--active_modules_ == 0) {
    if (connections_ != nullptr) {
      say_goodbye();
    }
    take_down();
    if (job_reporter_ != nullptr) {
      job_reporter_->finish();
    }
  }
}

/// Open MPI takes away the peers that a process was started with before it is done with the modules, but not those that it met
/// later. Nothing calls the upper layer any more.
void Component::say_goodbye() noexcept try {
  const auto guard = locks_->lock_all();
  directed_sends_->send_all_left();
  const auto poll = [this] {
    for (const auto& module : modules_) {
      module->path().poll_goodbyes();
    }
  };
  for (const auto& module : modules_) {
    module->endpoints().begin_to_end();
  }
  poll();  // who has said goodbye may be gone
  for (const auto& module : modules_) {
    module->endpoints().say_goodbye_to_all();
  }
  wait_for_goodbyes(poll, true);
} catch (const std::bad_alloc&) {  // then our peers find out as best they can
}

void Component::wait_for_goodbyes() noexcept {
  wait_for_goodbyes([this] { (void)progress(); }, false);
}

template <class Poll>
void Component::wait_for_goodbyes(Poll poll, bool of_peers_too) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const auto left = std::chrono::milliseconds(params().goodbye_timeout) - goodbyes_took_;
  while (Clock::now() - began < left && std::any_of(modules_.begin(), modules_.end(), [&](const auto& module) {
           const Endpoints& endpoints = module->endpoints();
           return endpoints.are_leaving() || (of_peers_too && endpoints.await_goodbyes());
         })) {
    poll();
  }
  goodbyes_took_ += Clock::now() - began;
}

/// Queue pairs first (they go with the progress thread), then what they use.
void Component::take_down() noexcept {
  only_port_ = nullptr;
  dump_signal::forget();
  top_.reset();
  connections_.reset();
  while (!modules_.empty()) {
    modules_.pop_back();  // endpoints of the first context outlive those of others
  }
  shared_caches_.clear();
  caches_.clear();
  may_be_on_device = false;
  staged_transfers = nullptr;
  staged_.reset();
  peers_.clear();
  if (const std::unique_ptr<cpc::Trace> trace = std::move(trace_); trace != nullptr) {
    if (Status written = trace->write(); !written) {
      report_trace_not_written(written.error().text);
    }
  }
}

}  // namespace fabric
