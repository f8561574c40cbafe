// SPDX-License-Identifier: BSD-3-Clause
// Event channels: events are pushed by calls and by the engine, taken and acknowledged by the user.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/identifier.h"

namespace softhca::cm {

std::unique_ptr<Event> make_event(Id& id, int type, int status) {
  auto event = std::make_unique<Event>();
  event->id = &id;
  event->event = static_cast<rdma_cm_event_type>(type);
  event->status = status;
  event->owner = &id;
  event->number = id.number;
  return event;
}

void push(std::unique_ptr<Event> event) {
  Id& owner = *event->owner;
  if (owner.on == nullptr) return;
  ++owner.unacked;
  owner.on->queue.push(event.release());
}

void push(Id& id, int type, int status) {
  push(make_event(id, type, status));
}

std::vector<std::unique_ptr<Event>> withdraw(Id& id) {
  std::vector<std::unique_ptr<Event>> taken;
  if (id.on == nullptr) return taken;
  taken.reserve(id.unacked);
  id.on->queue.remove_if([&](Event* event) {
    if (event->owner != &id) return false;
    taken.emplace_back(event);
    return true;
  });
  return taken;
}

namespace {

void forget(Lock& lock, Event* event, bool delivered) {
  Id& owner = *event->owner;
  --owner.unacked;
  if (delivered) --owner.delivered;
  manager().acked.notify_all();
  lock.unlock();
  delete event;
}

// What librdmacm does before the user sees an event. False: the user does not see it.
bool prepare(Event& event) {
  Id& id = *Id::of(event.id);
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) --event.owner->requests;
  if (event.event == RDMA_CM_EVENT_REJECTED) fail_qp(id);
  if (!event.response) return true;
  // Something else has happened since the peer accepted: its event follows.
  if (id.state != State::Responded) return false;
  if (id.qp == nullptr && !iwarp()) return true;
  if (const int error = connect_qp(id)) {
    fail_qp(id);
    Message m = message_to_peer(id, Kind::Rej);
    m.status = kRejConsumer;
    send_to_peer(id, m);
    disarm(id);
    id.state = State::Failed;
    event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.status = -error;
    return true;
  }
  disarm(id);
  id.state = State::Connected;
  send_to_peer(id, message_to_peer(id, Kind::Rtu));
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  return true;
}

}  // namespace

int next_event(Channel& channel, Event** event) {
  for (;;) {
    Event* next = nullptr;
    if (const int error = channel.queue.pop(next)) return error;
    Lock lock(manager().mutex);
    if (!prepare(*next)) {
      forget(lock, next, false);
      continue;
    }
    ++next->owner->delivered;
    *event = next;
    return 0;
  }
}

void acknowledge(Event* event) {
  Lock lock(manager().mutex);
  if (event->owner->event == event) event->owner->event = nullptr;
  if (Id* id = find_id(event->number); id != nullptr && id->event == event) id->event = nullptr;
  forget(lock, event, true);
}

int complete(Id& id) {
  if (!id.sync) return 0;
  if (id.event != nullptr) acknowledge(static_cast<Event*>(id.event));
  Event* event = nullptr;
  if (const int error = next_event(*id.own_channel, &event)) return error;
  id.event = event;
  if (event->event == RDMA_CM_EVENT_REJECTED) return ECONNREFUSED;
  return event->status < 0 ? -event->status : event->status;
}

namespace {

// A request's id whose event is dropped: nobody will ever know of it.
void drop_channel(Channel& channel) {
  std::vector<Id*> unaccepted;
  {
    Lock lock(manager().mutex);
    for (const auto& [number, id] : manager().ids)
      if (id->on == &channel) id->on = nullptr;
    channel.queue.remove_if([&](Event* event) {
      --event->owner->unacked;
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) unaccepted.push_back(Id::of(event->id));
      delete event;
      return true;
    });
    manager().acked.notify_all();
  }
  for (Id* id : unaccepted) destroy_id(*id);
}

int migrate(Id& id, Channel* channel) {
  std::unique_ptr<Channel> fresh;
  if (channel == nullptr) {
    fresh = std::make_unique<Channel>();
    fresh->fd = fresh->queue.fd();
    if (fresh->fd < 0) return EMFILE;
  }
  if (id.sync && id.event != nullptr) acknowledge(static_cast<Event*>(id.event));
  Lock lock(manager().mutex);
  manager().acked.wait(lock, [&] { return id.delivered == 0; });
  auto pending = withdraw(id);
  Channel* const old = id.on;
  std::swap(id.own_channel, fresh);
  id.sync = channel == nullptr;
  id.on = id.sync ? id.own_channel.get() : channel;
  id.channel = id.on;
  for (std::unique_ptr<Event>& event : pending) {
    if (Id* child = Id::of(event->id); child != &id && child->on == old) child->channel = child->on = id.on;
    id.on->queue.push(event.release());  // it is counted already
  }
  return 0;
}

}  // namespace
}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT rdma_event_channel* rdma_create_event_channel() {
  if (const int error = start()) {
    errno = error;
    return nullptr;
  }
  Channel* made = nullptr;
  api("rdma_create_event_channel", [&]() -> int {
    auto channel = std::make_unique<Channel>();
    channel->fd = channel->queue.fd();
    if (channel->fd < 0) return EMFILE;
    made = channel.release();
    return 0;
  });
  return made;
}

SOFTHCA_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (channel == nullptr || !is_own(channel)) return;
  drop_channel(*static_cast<Channel*>(channel));
  delete static_cast<Channel*>(channel);
}

SOFTHCA_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return api("rdma_get_cm_event", channel, [&]() -> int {
    if (channel == nullptr || event == nullptr) return EINVAL;
    Event* next = nullptr;
    if (const int error = next_event(*static_cast<Channel*>(channel), &next)) return error;
    *event = next;
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  auto* mine = static_cast<Event*>(event);
  return api("rdma_ack_cm_event", mine != nullptr ? mine->owner : nullptr, [&]() -> int {
    if (mine == nullptr) return EINVAL;
    acknowledge(mine);
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return api("rdma_migrate_id", id, [&]() -> int {
    return id == nullptr || !is_own(channel) ? EINVAL : migrate(*Id::of(id), static_cast<Channel*>(channel));
  });
}

SOFTHCA_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
  switch (static_cast<int>(event)) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return "RDMA_CM_EVENT_ADDR_RESOLVED";
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "RDMA_CM_EVENT_ADDR_ERROR";
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return "RDMA_CM_EVENT_ROUTE_RESOLVED";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "RDMA_CM_EVENT_ROUTE_ERROR";
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return "RDMA_CM_EVENT_CONNECT_REQUEST";
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return "RDMA_CM_EVENT_CONNECT_RESPONSE";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "RDMA_CM_EVENT_CONNECT_ERROR";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "RDMA_CM_EVENT_UNREACHABLE";
    case RDMA_CM_EVENT_REJECTED:
      return "RDMA_CM_EVENT_REJECTED";
    case RDMA_CM_EVENT_ESTABLISHED:
      return "RDMA_CM_EVENT_ESTABLISHED";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "RDMA_CM_EVENT_DISCONNECTED";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "RDMA_CM_EVENT_DEVICE_REMOVAL";
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      return "RDMA_CM_EVENT_MULTICAST_JOIN";
    case RDMA_CM_EVENT_MULTICAST_ERROR:
      return "RDMA_CM_EVENT_MULTICAST_ERROR";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "RDMA_CM_EVENT_ADDR_CHANGE";
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return "RDMA_CM_EVENT_TIMEWAIT_EXIT";
    case kAddrInfoResolved:
      return "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    case kAddrInfoError:
      return "RDMA_CM_EVENT_ADDRINFO_ERROR";
    case kUserEvent:
      return "RDMA_CM_EVENT_USER";
    default:
      return "UNKNOWN EVENT";
  }
}
