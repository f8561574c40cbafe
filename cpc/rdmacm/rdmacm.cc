// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/rdmacm/rdmacm.h"

#include <infiniband/ib.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/wire.h"
#include "common/ports/device_probe.h"
#include "cpc/core/unknown_peers.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/queue_pair_path.h"

namespace fabric::cpc {
namespace {

/// More than the kernel lets wait anyway (net.rdma_ucm.max_backlog): it takes its own limit then.
constexpr int kBacklog = 1 << 16;
/// Port numbers tried from RdmaCmSettings::first_port on: a node has as many processes.
constexpr unsigned kPortsTried = 1024;

/// True if an id is bound to a port of ours.
bool leads_to(const rdma_cm_id& id, const PortContext& port) noexcept {
  return id.verbs != nullptr && id.port_num == port.port_num &&
         std::strcmp(ibv_get_device_name(id.verbs->device), ibv_get_device_name(port.device->device)) == 0;
}

const char* link_name(Transport link) noexcept {
  switch (link) {
    case Transport::kInfiniBand:
      return "an InfiniBand";
    case Transport::kRoce:
      return "a RoCE";
    case Transport::kIwarp:
      return "an iWARP";
  }
  return "an unknown";
}

}  // namespace

RdmaCmSettings RdmaCmSettings::read(std::string_view name, const CpcParameters& parameters) {
  RdmaCmSettings settings;
  settings.priority = parameters.number(std::string(name) + "_priority");
  settings.first_port = static_cast<std::uint16_t>(parameters.number("rdmacm_port"));
  settings.resolve_timeout_ms = static_cast<unsigned>(parameters.number("rdmacm_resolve_timeout"));
  return settings;
}

Result<std::unique_ptr<Cpc>> make_rdmacm(const CpcParameters& parameters) {
  return std::make_unique<RdmaCm>(kRdmaCm, RdmaCmSettings::read(kRdmaCm.name, parameters));
}
Result<std::unique_ptr<Cpc>> make_ibcm(const CpcParameters& parameters) {
  return std::make_unique<RdmaCm>(kIbCm, RdmaCmSettings::read(kIbCm.name, parameters));
}

RdmaCm::RdmaCm(const CpcTraits& traits, const RdmaCmSettings& settings)
    : Cpc(traits, settings.priority), native_(traits.kind == kIbCm.kind), settings_(settings) {}

RdmaCm::~RdmaCm() {
  stop();
}

Status RdmaCm::start(const CpcContext& context) {
  assert_on_progress_thread();
  context_ = context;
  throttle_.emplace(context.loop, context.settings->connect_limit);
  environment_ = {context.loop, nullptr, &*throttle_, &traits(), native_, settings_.resolve_timeout_ms};
  if (Status opened = events_.open(context.loop); !opened) {
    return opened;
  }
  environment_.events = events_.channel();
  return {};
}

void RdmaCm::stop() noexcept {
  arrivals_.clear();
  listeners_.clear();
  events_.close();
  throttle_.reset();
}

// ---- Listening

/// A host without the kernel's communication manager still has oob.
Status RdmaCm::serve(const PortContext& port) {
  assert_on_progress_thread();
  if (port.device == nullptr || port.handshakes == nullptr) {
    return failure("there is no device for the communication manager");
  }
  auto listener = std::make_unique<Listener>(*this);
  listener->port.port = &port;
  listener->port.address.port_index = port.index;
  if (native_) {
    if (port.address.link != Transport::kInfiniBand) {
      return failure(std::string("it is ") + link_name(port.address.link) +
                     " port, and native InfiniBand addressing (AF_IB) is for InfiniBand only");
    }
    listener->port.address.address = port.address.gid.raw;
    listener->port.address.pkey = port.pkey;
  } else if (const auto ip = port.ip ? port.ip : find_ip(port)) {
    listener->port.address.address = ip->address;
    listener->port.scope = ip->interface;
  } else {
    return failure("its network interface has no IP address, or none was found");
  }
  listener->port.reads_granted = clamp_reads(port.limits.max_qp_rd_atom, kReadsGranted);
  listener->port.reads_asked = clamp_reads(port.limits.max_qp_init_rd_atom, kReadsAsked);
  if (Status listening = listen(*listener); !listening) {
    return listening;
  }
  listeners_[port.index] = std::move(listener);
  return {};
}

std::vector<std::byte> RdmaCm::offer(std::uint64_t ports) const {
  std::vector<CmAddress> addresses;
  for (const auto& [index, listener] : listeners_) {
    if ((ports >> index & 1U) != 0) {
      addresses.push_back(listener->port.address);
    }
  }
  return encode(addresses);
}

/// The kernel knows which address leads to which device, where hardware addresses do not tell (bonds, VLANs).
std::optional<InterfaceAddress> RdmaCm::find_ip(const PortContext& port) const {
  for (const InterfaceAddress& address : interface_addresses()) {
    const Result<CmId> id = bound_id(nullptr, ip_address(address.address, 0, address.interface));
    if (id && leads_to(**id, port)) {
      return address;
    }
  }
  return std::nullopt;
}

Result<CmId> RdmaCm::bound_id(CmEventHandler* context, CmSocketAddress address) const {
  const rdma_port_space space = native_ ? RDMA_PS_IB : RDMA_PS_TCP;
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(events_.channel(), &made, context, space) != 0) {
    return verbs_failure("creating an id of the communication manager", errno);
  }
  CmId id(made);
  if (rdma_bind_addr(made, address.get()) != 0) {
    const int error_number = errno;
    id.reset();
    errno = error_number;
    return verbs_failure("binding to its address", error_number);
  }
  return id;
}

Status RdmaCm::listen(Listener& listener) const {
  CmPort& port = listener.port;
  const unsigned tries = native_ || settings_.first_port == 0 ? 1 : kPortsTried;
  for (unsigned i = 0; i < tries && !listener.id; ++i) {
    const auto number = static_cast<std::uint16_t>(settings_.first_port == 0 ? 0 : settings_.first_port + i);
    Result<CmId> id = bound_id(&listener, native_ ? ib_address(port.address.address, port.address.pkey, 0)
                                                  : ip_address(port.address.address, number, port.scope));
    if (id) {
      listener.id = std::move(*id);
    } else if (errno != EADDRINUSE || i + 1 == tries) {
      return tl::unexpected(std::move(id).error());
    }
  }
  if (!leads_to(*listener.id, *port.port)) {
    return failure("its address leads to another device");
  }
  if (rdma_listen(listener.id.get(), kBacklog) != 0) {
    return verbs_failure("listening on its address", errno);
  }
  port.address.service =
      native_ ? be64toh(reinterpret_cast<const sockaddr_ib*>(&listener.id->route.addr.src_storage)->sib_sid)
              : ntohs(rdma_get_src_port(listener.id.get()));
  return {};
}

// ---- Opening

Result<std::unique_ptr<Channel>> RdmaCm::open(const ChannelIdentity& identity, const PeerTarget& target,
                                              Message request) {
  assert_on_progress_thread();
  const Result<std::vector<CmAddress>> addresses = decode_cm_addresses(target.offer);
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  const auto found = std::find_if(addresses->begin(), addresses->end(),
                                  [&](const CmAddress& address) { return address.port_index == identity.peer_port; });
  const auto listener = listeners_.find(identity.self_port);
  if (found == addresses->end() || listener == listeners_.end()) {
    return failure(std::string(traits().name) + " does not serve " +
                   (found == addresses->end() ? "the peer's port" : "our port"));
  }
  return std::make_unique<RdmaCmChannel>(environment_, listener->second->port, identity, *found, request);
}

// ---- Events

void RdmaCm::on_listener_event(Listener& listener, const CmEvent& event) {
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) {
    return;  // ADDR_CHANGE, DEVICE_REMOVAL: the device's own events tell the main thread
  }
  CmId id(event.id);
  const Result<CmMessage> request = decode_cm_message(event.private_data());
  if (!request) {
    turn_away(id, request.error().text);
    return;
  }
  const MessageKey key = cm_key(context_.settings->token, listener.port.port->address.link, event.peer_qpn);
  if (!is_signed(*request, event.private_data(), key)) {
    turn_away(id, "a message without proof: you do not belong to this job");
    return;
  }
  if (Status good = check(listener, *request); !good) {
    refuse(id, *request, RefuseReason::kFailed, good.error().text);
    return;
  }
  admit(listener, std::move(id), *request, event.peer_qpn);
}

/// After its proof: who does not belong to us learns nothing of this.
Status RdmaCm::check(const Listener& listener, const CmMessage& request) const {
  const MessageHeader& header = request.header;
  if (header.type != MessageType::kRequest) {
    return failure(std::string("an unexpected ") + to_string(header.type));
  }
  if (header.target != context_.settings->self) {
    return failure("this is " + to_string(context_.settings->self));
  }
  if (header.target_port != listener.port.port->index) {
    return failure("port " + std::to_string(header.target_port) + " does not listen here");
  }
  return {};
}

/// A stranger: it learns nothing of us.
void RdmaCm::turn_away(const CmId& id, const std::string& why) {
  unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
  CmMessage refusal;
  refusal.header.type = MessageType::kRefuse;
  refusal.reason = RefuseReason::kFailed;
  refusal.text = why;
  const std::vector<std::byte> data = encode(refusal);
  (void)rdma_reject(id.get(), data.data(), static_cast<std::uint8_t>(data.size()));
}

/// One that has proved who it is. The answer is good for its attempt only.
void RdmaCm::refuse(const CmId& id, const CmMessage& request, RefuseReason reason, const std::string& why) {
  unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
  CmMessage refusal;
  refusal.header = request.header;
  refusal.header.type = MessageType::kRefuse;
  std::swap(refusal.header.sender, refusal.header.target);
  std::swap(refusal.header.sender_port, refusal.header.target_port);
  refusal.reason = reason;
  refusal.newest = request.header.incarnation;
  refusal.text = why;
  std::vector<std::byte> data = encode(refusal);
  cm_key(context_.settings->token, Transport::kIwarp, 0).sign(data);
  (void)rdma_reject(id.get(), data.data(), static_cast<std::uint8_t>(data.size()));
}

void RdmaCm::admit(Listener& listener, CmId id, const CmMessage& request, std::uint32_t peer_qpn) {
  const MessageHeader& header = request.header;
  const ArrivalKey key(header.sender, header.sender_port, header.target_port, header.incarnation, header.attempt);
  auto found = arrivals_.find(key);
  if (found == arrivals_.end()) {
    const ChannelIdentity identity{context_.settings->token, context_.settings->self, header.sender,
                                   header.target_port,       header.sender_port,      header.attempt,
                                   header.incarnation};
    Arrival arrival;
    arrival.channel = std::make_unique<RdmaCmChannel>(environment_, listener.port, identity, request.queue_count);
    arrival.channel->set_handler(this);
    arrival.timer = std::make_unique<Timer>(environment_.loop, [this, key] { arrivals_.erase(key); });
    arrival.timer->start(context_.settings->connect_timeout_ms);
    found = arrivals_.emplace(key, std::move(arrival)).first;
  }
  RdmaCmChannel& channel = *found->second.channel;
  if (channel.queue_count() != request.queue_count || channel.has(request.queue)) {
    // One of the two is of somebody who repeats what it heard. The peer comes again, with a newer incarnation.
    arrivals_.erase(found);
    refuse(id, request, RefuseReason::kOutdated,
           "another REQ of the same connection has been here, and contradicts this one");
    return;
  }
  channel.add(std::move(id), request.queue, peer_qpn);
  if (channel.is_complete()) {
    std::unique_ptr<RdmaCmChannel> complete = std::move(found->second.channel);
    arrivals_.erase(found);
    Message message = complete->received(MessageType::kRequest);
    context_.on_request(std::move(complete), std::move(message));
  }
}

/// The peer has given up before all of its REQs were here.
void RdmaCm::drop(const Channel& channel) {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                  [&](const auto& arrival) { return arrival.second.channel.get() == &channel; });
  if (found != arrivals_.end()) {
    arrivals_.erase(found);
  }
}

void RdmaCm::on_message(Channel& channel, Message) {
  drop(channel);
}
void RdmaCm::on_lost(Channel& channel, std::string, bool) {
  drop(channel);
}

}  // namespace fabric::cpc
