// SPDX-License-Identifier: BSD-3-Clause
#include "test/model/main_half.h"

#include "test/model/inside_endpoints.h"

namespace fabric::model {
namespace {

/// Goodbyes time out when the checker says so.
constexpr std::chrono::hours kNoTimeout{10000};

/// An application that has ended its messages by itself.
class NoMessages final : public Awaited {
 public:
  bool message(const opal_proc_t& /*gone*/, const Fragment& message, int& /*status*/) const noexcept override {
    return message.kind != PacketKind::kMessage;
  }
  bool rdma(const opal_proc_t& /*gone*/, const void* /*context*/) const noexcept override { return true; }
};

/// The half that is at work: Open MPI's functions for names have no other way to know.
MainHalf* at_work = nullptr;

/// A descriptor or whatever else has segments, among the arguments of a callback.
template <class Argument>
std::pair<const std::byte*, std::size_t> bytes_of(const Argument& argument) {
  if constexpr (requires { argument->des_segments; }) {
    const auto& segment = argument->des_segments[0];
    return {static_cast<const std::byte*>(segment.seg_addr.pval), segment.seg_len};
  } else {
    return {nullptr, 0};
  }
}

}  // namespace

MainHalf::MainHalf(const MainEnvironment& environment)
    : environment_(environment),
      buffers_(environment.device),
      rdma_(environment.device.pd(), MrPoolHints{}),
      endpoints_(environment.port, *this, 0) {
  for (std::uint8_t rank = 0; rank < environment.processes; ++rank) {
    procs_[rank].proc_name = {kJob, rank};
    peers_[rank].info.ports.resize(2);
    peers_[rank].info.offers.push_back(environment.offer(rank));
    peers_[rank].pairs = {0, OtherWay::kPort};
  }
  opal_proc_local_get()->proc_name = {kJob, 0};
  module_.half = this;
  receivers_[kTag].cbfunc = received<>;
  PathSettings settings = test::path_settings(environment.queues);
  settings.receivers = receivers_.data();
  settings.heals = environment.heals;
  PathQueues made = test::make_queues(environment.device, buffers_, environment.queues, 8, shared_);
  room_ = made.completion_queues->reserve(512).value();
  endpoints_.make_path(settings, std::move(made), rdma_, targets_, counters_);
  endpoints_.set_contexts({&endpoints_}, &module_);
  endpoints_.set_observers(nullptr, kNoTimeout, heal_timeout(), std::chrono::milliseconds(0));
  opal_proc_for_name = &proc_for_name;
  if (environment.other_device != nullptr) {
    other_way_ = std::make_unique<OtherWay>(*environment.other_device, environment.port,
                                            static_cast<EndpointServices&>(*this), module_, receivers_.data());
  }
}

MainHalf::~MainHalf() = default;

opal_proc_t* MainHalf::proc_for_name(opal_process_name_t name) {
  return &at_work->procs_[name.vpid];
}

void MainHalf::submit(cpc::Command command) {
  if (std::visit([](const auto& one) { return one.key.local_port; }, command) != OtherWay::kPort) {
    environment_.submit(std::move(command));
  }
}

Endpoint* MainHalf::way_beside(const Endpoint& endpoint) const noexcept {
  Endpoint* const other =
      other_way_ ? other_way_->endpoints().endpoint_to(endpoint.key().peer, 1U << OtherWay::kPort) : nullptr;
  return other != nullptr && other != &endpoint && other->carrier() != nullptr ? other : nullptr;
}

std::vector<Endpoints*> MainHalf::modules() noexcept {
  std::vector<Endpoints*> modules{&endpoints_};
  if (other_way_) {
    modules.push_back(&other_way_->endpoints());
  }
  return modules;
}

// ---- What happens

void MainHalf::connect_other_way(std::uint8_t peer, std::vector<ibv_qp*> queue_pairs) {
  at_work = this;
  other_way_->connect(procs_[peer], peers_[peer], std::move(queue_pairs));
}

void MainHalf::on_upcall(const cpc::Upcall& upcall) {
  at_work = this;
  endpoints_.handle(upcall);
}

void MainHalf::queue_pair_failed(std::uint32_t number) {
  at_work = this;
  endpoints_.queue_pair_failed(number, IBV_EVENT_QP_FATAL);
}

std::chrono::milliseconds MainHalf::heal_timeout() const noexcept {
  return environment_.heals ? kNoTimeout : std::chrono::hours(0);
}

void MainHalf::progress() {
  at_work = this;
  for (Endpoints* const one : modules()) {
    if (has_left_) {
      one->path().poll_goodbyes();
    } else {
      one->progress();
    }
  }
}

template <class... Arguments>
void MainHalf::received(mca_btl_base_module_t* module, Arguments... arguments) {
  for (const auto& [bytes, size] : {bytes_of(arguments)...}) {
    if (bytes != nullptr) {
      static_cast<Module*>(module)->half->message_arrived(bytes, size);
    }
  }
}

void MainHalf::message_arrived(const std::byte* message, std::size_t size) {
  if (size != 2) {
    environment_.fault.add("a message has another length");
    return;
  }
  environment_.ledger.delivered(std::to_integer<std::size_t>(message[0]), environment_.self,
                                std::to_integer<std::uint8_t>(message[1]));
}

void MainHalf::sent(mca_btl_base_module_t* module, mca_btl_base_endpoint_t* /*endpoint*/,
                    mca_btl_base_descriptor_t* descriptor, int status) {
  const auto name = reinterpret_cast<std::uintptr_t>(descriptor->des_cbdata);
  static_cast<Module*>(module)->half->message_ended(static_cast<std::uint8_t>(name >> 8U),
                                                    static_cast<std::uint8_t>(name), status);
}

void MainHalf::message_ended(std::uint8_t peer, std::uint8_t serial, int status) {
  if (under_way_[peer].erase(serial) == 0) {
    if (abandoned_[peer].erase(serial) != 0) {
      return;
    }
    environment_.fault.add("the callback of a message is called twice");
  }
  if (status != OPAL_SUCCESS) {
    environment_.ledger.failed(environment_.self, peer, serial);
    if (!has_failed_[peer]) {
      environment_.fault.add("a message fails of which the upper layer has not been told that its peer is gone");
    }
  }
}

void MainHalf::tell_upper_layer(opal_proc_t* proc) noexcept {
  const std::size_t peer = proc->proc_name.vpid;
  if (has_failed_[peer]) {
    environment_.fault.add("the upper layer is told twice that a peer is gone");
  }
  has_failed_[peer] = true;
  if (environment_.goes_on) {  // it uses what waits again at once: a callback is one too many
    for (const std::uint8_t serial : under_way_[peer]) {
      environment_.ledger.failed(environment_.self, peer, serial);
    }
    under_way_[peer].clear();
  }
}

const Awaited* MainHalf::awaited_of(const opal_proc_t& proc) const noexcept {
  static constexpr NoMessages kAwaited;
  return environment_.goes_on && has_failed_[proc.proc_name.vpid] ? &kAwaited : nullptr;
}

void MainHalf::report_no_connection_method(const opal_proc_t& /*proc*/, const std::string& reason) noexcept {
  environment_.fault.add("no way to connect: " + reason);
}

void MainHalf::report_connection_failed(const Endpoint& /*endpoint*/, const std::string& reason,
                                        const std::string& /*history*/) noexcept {
  if (reason.find("protocol error") != std::string::npos) {
    environment_.fault.add(reason);
  }
}

// ---- The application

void MainHalf::send(std::uint8_t peer) {
  at_work = this;
  std::string why_not;
  Endpoint* const endpoint = endpoints_.endpoint_for(&procs_[peer], peers_[peer], why_not);
  const std::uint8_t serial = environment_.ledger.accepted(environment_.self, peer);
  Fragment* const fragment = endpoints_.path().get_send(Ledger::queue_of(serial, environment_.queues.count()));
  if (endpoint == nullptr || fragment == nullptr) {
    environment_.fault.add("nothing can be sent: " + why_not);
    return;
  }
  auto* const message = static_cast<std::byte*>(fragment->segments[0].seg_addr.pval);
  message[0] = static_cast<std::byte>(environment_.self);
  message[1] = static_cast<std::byte>(serial);
  fragment->segments[0].seg_len = 2;
  fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  fragment->tag = kTag;
  fragment->callback_due = false;
  fragment->des_cbfunc = sent;
  fragment->des_cbdata = reinterpret_cast<void*>(std::uintptr_t{peer} << 8U | serial);
  under_way_[peer].insert(serial);
  if (endpoint->send(*fragment) < 0) {
    under_way_[peer].erase(serial);
    environment_.ledger.failed(environment_.self, peer, serial);
    put_back(fragment);
    if (!has_failed_[peer]) {
      environment_.fault.add("a message is refused although the peer is not known to be gone");
    }
  }
}

void MainHalf::close(std::uint8_t peer) {
  at_work = this;
  environment_.ledger.drop_all(environment_.self, peer);
  abandoned_[peer].merge(under_way_[peer]);
  endpoints_.remove(endpoint_to(peer));
  has_failed_[peer] = false;
}

bool MainHalf::can_rest(std::uint8_t peer) const {
  const Endpoint* const endpoint = endpoint_to(peer);
  return endpoint != nullptr && (endpoint->*member_of(Endpoint_may_rest{}))();
}

bool MainHalf::is_resting(std::uint8_t peer) const {
  const Endpoint* const endpoint = endpoint_to(peer);
  return endpoint != nullptr && inside(*endpoint, Endpoint_state_{}) == EndpointState::kResting;
}

void MainHalf::rest(std::uint8_t peer) {
  at_work = this;
  (endpoint_to(peer)->*member_of(Endpoint_apply{}))(EndpointEvent::kRestWanted, {});
}

void MainHalf::leave() {
  at_work = this;
  has_left_ = true;
  for (Endpoints* const one : modules()) {
    one->begin_to_end();
  }
  for (Endpoints* const one : modules()) {
    one->say_goodbye_to_all();
  }
}

bool MainHalf::is_leaving() const noexcept {
  return endpoints_.are_leaving() || (other_way_ && other_way_->endpoints().are_leaving());
}

void MainHalf::end_goodbyes() {
  const auto set_timeout = [this](std::chrono::milliseconds timeout) {
    endpoints_.set_observers(nullptr, timeout, heal_timeout(), std::chrono::milliseconds(0));
    if (other_way_) {
      other_way_->endpoints().set_observers(nullptr, timeout);
    }
  };
  set_timeout(std::chrono::milliseconds(0));
  progress();
  set_timeout(kNoTimeout);
}

bool MainHalf::is_connected(std::uint8_t peer) const {
  const Endpoint* const endpoint = endpoint_to(peer);
  return endpoint != nullptr && inside(*endpoint, Endpoint_state_{}) == EndpointState::kConnected;
}

bool MainHalf::remembers_unknown() const {
  return !inside(endpoints_, Endpoints_early_cts_{}).empty() ||
         !inside(endpoints_, Endpoints_early_handshakes_{}).empty();
}

void MainHalf::see(PairNumbers& numbers, std::uint8_t peer) const {
  model::see(numbers, endpoints_, peer);
}

void MainHalf::add_to(Digest& digest, const ProcessNumbers& numbers) const {
  digest.add(has_left_ ? 1 : 0);
  for (std::uint8_t peer = 0; peer < environment_.processes; ++peer) {
    digest.add(has_failed_[peer] ? 1 : 0);
    for (const std::uint8_t serial : under_way_[peer]) {
      digest.add(serial);
    }
    digest.add(under_way_[peer].size());
  }
  model::add_to(digest, endpoints_, environment_.processes, environment_.queues.count(), numbers);
  if (other_way_) {
    model::add_to(digest, other_way_->endpoints(), environment_.processes, environment_.queues.count(), numbers);
  }
}

}  // namespace fabric::model
