// SPDX-License-Identifier: BSD-3-Clause
// Ids: made, found, destroyed; the process's devices.
#include "cm/identifier.h"

#include <algorithm>
#include <cerrno>

#include "cm/address.h"
#include "cm/listeners.h"
#include "device/port.h"
#include "fabric/of_member.h"
#include "transport/engine.h"

namespace softhca::cm {

Manager& manager() {
  return of_member<Manager>();
}

namespace {

struct Start {
  std::mutex mutex;
  bool done = false;
};

int open_devices(Manager& m) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return errno;
  for (int i = static_cast<int>(m.devices.size()); i < count; ++i) {
    ibv_context* context = ibv_open_device(list[i]);
    ibv_device_attr attr{};
    const int error = context == nullptr ? errno : ibv_query_device(context, &attr);
    if (error != 0) {
      if (context != nullptr) ibv_close_device(context);
      ibv_free_device_list(list);
      return error;
    }
    m.devices.push_back({context, nullptr, nullptr, static_cast<uint8_t>(std::min(attr.max_qp_rd_atom, 255)),
                         static_cast<uint8_t>(std::min(attr.max_qp_init_rd_atom, 255))});
  }
  ibv_free_device_list(list);
  return m.devices.empty() ? ENODEV : 0;
}

}  // namespace

int start() {
  errno = 0;
  Fabric* joined = Fabric::join();
  if (joined == nullptr) return errno != 0 ? errno : ENODEV;
  Start& all = of_member<Start>();
  std::lock_guard guard(all.mutex);
  if (all.done) return 0;
  Manager& m = manager();
  m.devices.reserve(kMaxDevices);
  if (const int error = open_devices(m)) return error;
  if (const int error = engine::start()) return error;
  engine::add_listener({on_mail, on_death, nullptr});
  all.done = true;
  return 0;
}

Manager::OpenDevice* device_of(const Id& id) {
  if (id.port_id == 0) return nullptr;
  Manager& m = manager();
  const unsigned index = device_of_port_id(id.port_id);
  return index < m.devices.size() ? &m.devices[index] : nullptr;
}

uint32_t random_psn() {
  // Of the seed, the process, and how many it has drawn: splitmix64.
  static uint64_t drawn = 0;
  uint64_t z = fabric().config().seed + (uint64_t{fabric().slot()} << 32) + ++drawn * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return static_cast<uint32_t>((z ^ z >> 31) & 0xffffff);
}

Id* make_id(Channel* channel, void* context, rdma_port_space ps, ibv_qp_type type) {
  Manager& m = manager();
  auto id = std::make_unique<Id>();
  if (channel == nullptr) {
    id->own_channel = std::make_unique<Channel>();
    id->own_channel->fd = id->own_channel->queue.fd();
    if (id->own_channel->fd < 0) {
      errno = EMFILE;
      return nullptr;
    }
    id->sync = true;
    channel = id->own_channel.get();
  }
  id->on = channel;
  id->channel = channel;
  id->context = context;
  id->ps = ps;
  id->qp_type = type;
  id->listener = -1;
  id->service_space = static_cast<uint16_t>(ps);
  id->number = m.next_number++;
  id->fabric = Fabric::get();
  m.ids.emplace(id->number, id.get());
  return id.release();
}

Id* find_id(uint32_t number) {
  const auto it = manager().ids.find(number);
  return it != manager().ids.end() ? it->second : nullptr;
}

Id* find_peer(unsigned slot, uint32_t incarnation, uint32_t number) {
  const auto it = manager().by_peer.find(peer_key(slot, incarnation, number));
  return it != manager().by_peer.end() ? it->second : nullptr;
}

void set_peer(Id& id, unsigned slot, uint32_t incarnation, uint32_t number) {
  id.peer_slot = slot;
  id.peer_incarnation = incarnation;
  id.peer_id = number;
  if (number != 0) manager().by_peer[peer_key(slot, incarnation, number)] = &id;
  engine::watch(slot, incarnation);
}

ibv_pd* default_pd(Manager::OpenDevice& device) {
  if (device.pd == nullptr) device.pd = ibv_alloc_pd(device.context);
  return device.pd;
}

void bind_to_port(Id& id, uint32_t port_id) {
  id.port_id = port_id;
  id.port_num = static_cast<uint8_t>(port_of_port_id(port_id));
  if (Manager::OpenDevice* device = device_of(id)) {
    id.verbs = device->context;
    id.pd = default_pd(*device);  // programs use it before they make a queue pair
  }
  gid_at(fabric(), port_id, gid_index(fabric().config()), &id.route.addr.addr.ibaddr.sgid);
  id.route.addr.addr.ibaddr.pkey = htons(pkey_at(fabric().config(), 0));
}

void say_goodbye(Id& id) {
  switch (id.state) {
    case State::Connecting:
      if (id.peer_slot == 0 || datagram(id)) break;
      [[fallthrough]];
    case State::Responded:
    case State::Requested:
    case State::Accepted: {
      Message m = message_to_peer(id, datagram(id) ? Kind::SidrRep : Kind::Rej);
      m.status = datagram(id) ? kSidrReject : id.state == State::Connecting ? kRejTimeout : kRejConsumer;
      send_to_peer(id, m);
      break;
    }
    case State::Connected:
      send_to_peer(id, message_to_peer(id, Kind::Dreq));
      break;
    case State::Disconnected:
      send_to_peer(id, message_to_peer(id, Kind::Drep));
      break;
    default:
      break;
  }
}

namespace {

// From here on nobody finds it any more.
void detach(Id& id) {
  disarm(id);
  say_goodbye(id);
  id.state = State::Failed;
  manager().ids.erase(id.number);
  if (const auto it = manager().by_peer.find(peer_key(id.peer_slot, id.peer_incarnation, id.peer_id));
      it != manager().by_peer.end() && it->second == &id)
    manager().by_peer.erase(it);
  if (id.listener >= 0) release_port(fabric(), id.listener);
  id.listener = -1;
}

}  // namespace

void destroy_id(Id& id) {
  Lock lock(manager().mutex);
  detach(id);
  for (const std::unique_ptr<Event>& event : withdraw(id)) {
    --id.unacked;
    if (event->id == &id) continue;
    // A request that nobody has read: its id goes too.
    Id* child = Id::of(event->id);
    detach(*child);
    child->unacked -= static_cast<uint32_t>(withdraw(*child).size());
    delete child;
  }
  if (id.event != nullptr) {
    auto* event = static_cast<Event*>(id.event);
    lock.unlock();
    acknowledge(event);
    lock.lock();
  }
  manager().acked.wait(lock, [&] { return id.unacked == 0; });
  lock.unlock();
  rdma_freeaddrinfo(id.resolved);
  delete &id;
}

// --- Timers

void arm(Id& id, uint64_t after_ns, void (*expired)(Id& id)) {
  disarm(id);
  id.timer = engine::call_at(Fabric::now_ns() + after_ns, [number = id.number, turn = id.timer_turn, expired] {
    std::lock_guard guard(manager().mutex);
    Id* found = find_id(number);
    if (found == nullptr || found->timer_turn != turn) return;
    found->timer = 0;
    expired(*found);
  });
}

void disarm(Id& id) {
  ++id.timer_turn;
  if (id.timer != 0) engine::cancel_call(id.timer);
  id.timer = 0;
}

}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  if (const int error = start()) {
    errno = error;
    return -1;
  }
  return api("rdma_create_id", channel, [&]() -> int {
    if (id == nullptr) return EINVAL;
    if (ps == RDMA_PS_IPOIB) return EPROTONOSUPPORT;
    if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB) return EINVAL;
    Lock lock(manager().mutex);
    Id* made = make_id(static_cast<Channel*>(channel), context, ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
    if (made == nullptr) return errno;
    *id = made;
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  return api("rdma_destroy_id", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    destroy_id(*Id::of(id));
    return 0;
  });
}

SOFTHCA_EXPORT ibv_context** rdma_get_devices(int* num_devices) {
  if (num_devices != nullptr) *num_devices = 0;
  const int error = start();
  const auto& devices = manager().devices;
  auto** list = error == 0 ? static_cast<ibv_context**>(calloc(devices.size() + 1, sizeof(ibv_context*))) : nullptr;
  if (list == nullptr) {
    errno = error != 0 ? error : ENOMEM;
    return nullptr;
  }
  for (size_t i = 0; i < devices.size(); ++i) list[i] = devices[i].context;
  if (num_devices != nullptr) *num_devices = static_cast<int>(devices.size());
  return list;
}

SOFTHCA_EXPORT void rdma_free_devices(ibv_context** list) {
  free(list);
}
