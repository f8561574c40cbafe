// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/rdmacm/rdmacm_channel.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

constexpr std::uint8_t kMostRetries = 7;
constexpr int kInvalidServiceId = 8;
constexpr int kConsumerReject = 28;  ///< reason of a REJ: InfiniBand Architecture, section 12.6.7.2

tl::unexpected<Error> cm_failure(const std::string& while_doing) {
  return verbs_failure(while_doing, errno);
}

/// True if the peer's kernel has rejected a REQ that did not fit into the backlog of its listener, whose process did not see it.
/// (Or whose process gave it up, or ended: then no process listens the next time, and the reason is another.) On iWARP
/// it cannot be told from a port on which nobody listens.
bool is_of_full_backlog(const CmEvent& event) noexcept {
  const std::span<const std::byte> data = event.private_data();
  return event.status == kConsumerReject &&
         std::all_of(data.begin(), data.end(), [](std::byte one) { return one == std::byte{0}; });
}

/// On iWARP that, and a full backlog.
bool is_of_no_listener(const CmEvent& event) noexcept {
  return event.status == kInvalidServiceId || event.status == -ECONNREFUSED;
}

}  // namespace

MessageKey cm_key(const JobToken& token, Transport link, std::uint32_t qpn) noexcept {
  return {token, nonce_of_queue_pair(link == Transport::kIwarp ? 0 : qpn)};
}

bool is_signed(const CmMessage& message, std::span<const std::byte> private_data, const MessageKey& key) noexcept {
  return key.has_signed(private_data.first(message.header.length));
}

RdmaCmChannel::RdmaCmChannel(const CmEnvironment& environment, const CmPort& port, const ChannelIdentity& identity,
                             const CmAddress& target, const Message& request)
    : environment_(environment),
      port_(port),
      opener_(true),
      target_(target),
      lanes_(request.ends.size()),
      soon_(environment.loop, [this] { lose(std::exchange(failure_, {})); }) {
  assert_on_progress_thread();
  identity_ = identity;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].own_qpn = request.ends[i].qpn;
  }
  // A REQ that is not answered soon goes on without a turn: its peer may have stopped, which the kernel takes a minute
  // to find out.
  ticket_ = environment.throttle->ask([this] { start(); }, [this] { ticket_.reset(); },
                                      place_of(identity.peer, identity.self));
}

RdmaCmChannel::RdmaCmChannel(const CmEnvironment& environment, const CmPort& port, const ChannelIdentity& identity,
                             std::size_t queue_count)
    : environment_(environment), port_(port), opener_(false), lanes_(queue_count), soon_(environment.loop, [this] {
        lose(std::exchange(failure_, {}));
      }) {
  assert_on_progress_thread();
  identity_ = identity;
}

void RdmaCmChannel::add(CmId id, std::size_t queue, std::uint32_t peer_qpn) {
  assert(!has(queue));
  Lane& lane = lanes_[queue];
  id->context = static_cast<CmEventHandler*>(this);
  lane.id = std::move(id);
  lane.peer_qpn = peer_qpn;
}

bool RdmaCmChannel::is_complete() const noexcept {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.id != nullptr; });
}

/// A message as the owner sees it: what the ids received, put together.
Message RdmaCmChannel::received(MessageType type) const {
  Message message;
  message.header = identity_.incoming(type);
  for (const Lane& lane : lanes_) {
    message.ends.push_back({lane.peer_qpn, 0});
  }
  return message;
}

// ---- Opening

void RdmaCmChannel::start() {
  began_ = std::chrono::steady_clock::now();
  for (Lane& lane : lanes_) {
    if (Status started = start(lane); !started) {
      lose(remote() + ": " + started.error().text);
      return;
    }
  }
}

Status RdmaCmChannel::start(Lane& lane) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(environment_.events, &id, static_cast<CmEventHandler*>(this),
                     environment_.native ? RDMA_PS_IB : RDMA_PS_TCP) != 0) {
    return cm_failure("creating an id of the communication manager");
  }
  lane.id.reset(id);
  CmSocketAddress source = socket_address(port_.address, true);
  CmSocketAddress target = socket_address(target_, false);
  if (rdma_resolve_addr(id, source.get(), target.get(), static_cast<int>(environment_.resolve_timeout_ms)) != 0) {
    return cm_failure("resolving its address");
  }
  return {};
}

/// Our end of an id must be the port that the queue pairs are on.
Status RdmaCmChannel::on_address_resolved(const Lane& lane) const {
  const char* const ours = ibv_get_device_name(port_.port->device->device);
  const char* const found = lane.id->verbs == nullptr ? "none" : ibv_get_device_name(lane.id->verbs->device);
  if (std::string_view(ours) != found || lane.id->port_num != port_.port->port_num) {
    return failure("the way there begins at port " + std::to_string(lane.id->port_num) + " of device " + found +
                   ", not at port " + std::to_string(port_.port->port_num) + " of " + ours);
  }
  if (int tos = port_.port->settings.traffic_class; tos != 0) {
    auto octet = static_cast<std::uint8_t>(tos);
    (void)rdma_set_option(lane.id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, sizeof octet);
  }
  if (rdma_resolve_route(lane.id.get(), static_cast<int>(environment_.resolve_timeout_ms)) != 0) {
    return cm_failure("resolving the route to it");
  }
  return {};
}

Status RdmaCmChannel::request(const Lane& lane) {
  const std::vector<std::byte> data = signed_bytes(own(MessageType::kRequest, lane), lane.own_qpn);
  request_left_ = true;
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.responder_resources = port_.reads_granted;
  parameters.initiator_depth = port_.reads_asked;
  parameters.flow_control = 1;
  parameters.retry_count = port_.port->settings.retry_count;
  parameters.rnr_retry_count = kMostRetries;
  parameters.qp_num = lane.own_qpn;
  if (rdma_connect(lane.id.get(), &parameters) == 0) {
    return {};
  }
  nobody_listens_ = errno == ECONNREFUSED;  // siw, which waits for TCP's answer
  return cm_failure("asking it for a connection");
}

void RdmaCmChannel::on_answer(Lane& lane, const CmEvent& event) {
  const Result<CmMessage> answer = decode_cm_message(event.private_data());
  const Status good = answer ? check(*answer, lane, event) : Status(tl::unexpected(answer.error()));
  if (!good) {
    lose(remote() + " answers something else: " + good.error().text);
    return;
  }
  lane.peer_qpn = event.peer_qpn;
  lane.answered = true;
  if (std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& one) { return one.answered; })) {
    ticket_.reset();
    began_ = {};
    handler_->on_message(*this, received(MessageType::kReply));
  }
}

void RdmaCmChannel::on_rejected(const CmEvent& event) {
  if (const auto version = other_version(event.private_data())) {
    lose(remote() + speaks_other_version(*version));  // whoever says so has not proved who it is
    return;
  }
  peer_is_busy_ = is_of_full_backlog(event);
  const Result<CmMessage> refusal = decode_cm_message(event.private_data());
  nobody_listens_ = !refusal && is_of_no_listener(event);
  if (!refusal || refusal->header.type != MessageType::kRefuse) {
    lose(remote() + ": " + describe(event));
    return;
  }
  if (!is_signed(*refusal, event.private_data(), cm_key(identity_.token, port_.port->address.link, 0))) {
    lose(remote() + " does not know us: " + refusal->text);
    return;
  }
  if (!identity_.is_of_peer(refusal->header)) {
    lose(remote() + " refuses another connection: " + refusal->text);
    return;
  }
  lost_ = true;
  Message message = received(MessageType::kRefuse);
  message.reason = refusal->reason;
  message.newest = refusal->newest;
  message.text = refusal->text;
  handler_->on_message(*this, std::move(message));
}

// ---- What the owner asks for

void RdmaCmChannel::send(Message message) {
  assert_on_progress_thread();
  if (message.header.type == MessageType::kRefuse) {
    reject_all(message);
    return;
  }
  for (std::size_t i = 0; i < lanes_.size() && !lost_; ++i) {
    Lane& lane = lanes_[i];
    Status sent;
    if (message.header.type == MessageType::kReply) {
      lane.own_qpn = message.ends[i].qpn;
      sent = accept(lane);
    } else if (port_.port->address.link != Transport::kIwarp && rdma_establish(lane.id.get()) != 0) {
      sent = cm_failure("completing the connection");
    }
    if (!sent) {
      lose_soon(remote() + ": " + sent.error().text);
      return;
    }
  }
}

Status RdmaCmChannel::accept(Lane& lane) {
  const std::vector<std::byte> data = signed_bytes(own(MessageType::kReply, lane), lane.own_qpn);
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.responder_resources = RDMA_MAX_RESP_RES;  // what the peer asks for, as far as the device can
  parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
  parameters.flow_control = 1;
  parameters.rnr_retry_count = kMostRetries;
  parameters.qp_num = lane.own_qpn;
  lane.replied = true;
  return rdma_accept(lane.id.get(), &parameters) == 0 ? Status() : cm_failure("accepting the connection");
}

/// An id that has said its last word already hears of the end when it is destroyed.
void RdmaCmChannel::reject_all(const Message& message) {
  for (const Lane& lane : lanes_) {
    const bool waits_for_us = lane.id != nullptr && (opener_ ? lane.answered : !lane.replied);
    if (waits_for_us) {
      CmMessage refusal = own(MessageType::kRefuse, lane);
      refusal.reason = message.reason;
      refusal.newest = message.newest;
      refusal.text = message.text;
      const std::vector<std::byte> data = signed_bytes(refusal, 0);
      (void)rdma_reject(lane.id.get(), data.data(), static_cast<std::uint8_t>(data.size()));
    }
  }
}

Status RdmaCmChannel::connect(QueuePairs& queue_pairs, const Message& /*from_peer*/) {
  assert_on_progress_thread();
  return queue_pairs.connect_by([this](std::size_t queue, ibv_qp_attr& attributes) -> Status {
    int mask = 0;
    if (rdma_init_qp_attr(lanes_[queue].id.get(), &attributes, &mask) != 0) {
      return cm_failure("asking the communication manager for the attributes of a queue pair");
    }
    return {};
  });
}

// ---- What happens

void RdmaCmChannel::on_event(const CmEvent& event) {
  Lane* const lane = find(event.id);
  if (lane == nullptr || lost_) {
    return;
  }
  Status done;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      done = on_address_resolved(*lane);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      done = request(*lane);
      break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      on_answer(*lane, event);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (opener_) {
        on_answer(*lane, event);  // iWARP
        return;
      }
      lane->answered = true;
      if (std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& one) { return one.answered; })) {
        handler_->on_message(*this, received(MessageType::kConfirm));
      }
      return;
    case RDMA_CM_EVENT_REJECTED:
      on_rejected(event);
      return;
    case RDMA_CM_EVENT_ADDR_CHANGE:
      if (lane->answered) {
        return;  // the interface got another address; a connection that is up keeps its path as long as packets get through
      }
      done = failure(describe(event));
      break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return;  // news about connections that are over, or about what we never asked for
    case RDMA_CM_EVENT_DISCONNECTED:
      done = failure("has disconnected");
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    default:
      done = failure(describe(event));
      break;
  }
  if (!done) {
    lose(remote() + ": " + done.error().text);
  }
}

RdmaCmChannel::Lane* RdmaCmChannel::find(const rdma_cm_id* id) noexcept {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [id](const Lane& lane) { return lane.id.get() == id; });
  return found == lanes_.end() ? nullptr : &*found;
}

CmMessage RdmaCmChannel::own(MessageType type, const Lane& lane) const {
  CmMessage message;
  message.header = identity_.outgoing(type);
  message.queue = static_cast<std::uint8_t>(&lane - lanes_.data());
  message.queue_count = static_cast<std::uint8_t>(lanes_.size());
  return message;
}

std::vector<std::byte> RdmaCmChannel::signed_bytes(const CmMessage& message, std::uint32_t qpn) const {
  std::vector<std::byte> bytes = encode(message);
  cm_key(identity_.token, port_.port->address.link, qpn).sign(bytes);
  return bytes;
}

/// A REPLY must be of the peer that was asked, to what it was asked.
Status RdmaCmChannel::check(const CmMessage& message, const Lane& lane, const CmEvent& event) const {
  if (!is_signed(message, event.private_data(), cm_key(identity_.token, port_.port->address.link, event.peer_qpn))) {
    return failure("a message without proof: it is not of this job");
  }
  const CmMessage expected = own(MessageType::kReply, lane);
  const MessageHeader& header = message.header;
  if (header.type != MessageType::kReply || !identity_.is_of_peer(header) || message.queue != expected.queue ||
      message.queue_count != expected.queue_count) {
    return failure(std::string("a ") + to_string(header.type) + " of another connection");
  }
  return {};
}

CmSocketAddress RdmaCmChannel::socket_address(const CmAddress& address, bool local) const {
  if (environment_.native) {
    return ib_address(address.address, address.pkey, local ? 0 : address.service);
  }
  const auto number = static_cast<std::uint16_t>(local ? 0 : address.service);
  return ip_address(address.address, number, port_.scope);
}

/// "10.0.0.1 port 4000": IP addresses and GIDs are written alike.
std::string RdmaCmChannel::remote() const {
  if (!opener_) {
    return "the peer";
  }
  Gid address;
  address.raw = target_.address;
  std::string text = to_string(address);
  if (text.rfind("::ffff:", 0) == 0) {
    text.erase(0, std::strlen("::ffff:"));
  }
  return text + (environment_.native ? " service " : " port ") + std::to_string(target_.service);
}

unsigned RdmaCmChannel::tried_ms() const noexcept {
  using Clock = std::chrono::steady_clock;
  return began_ == Clock::time_point()
             ? 0
             : static_cast<unsigned>(
                   std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_).count());
}

void RdmaCmChannel::lose(std::string reason) {
  lost_ = true;
  handler_->on_lost(*this, std::move(reason), false);
}

void RdmaCmChannel::lose_soon(std::string reason) {
  lost_ = true;
  failure_ = std::move(reason);
  soon_.start(0);
}

}  // namespace fabric::cpc
