// SPDX-License-Identifier: BSD-3-Clause
//
// The connection manager through the public API, as programs use it. cm.test runs it on each personality.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/unit/check_main.h"

namespace {

/// What the first device is: ib, roce or iwarp. To be asked after a test has forked, not before.
bool is(const char* personality) {
  static const std::string found = [] {
    ibv_context** devices = rdma_get_devices(nullptr);
    ck_assert_ptr_nonnull(devices);
    ibv_port_attr port{};
    ck_assert_int_eq(ibv_query_port(devices[0], 1, &port), 0);
    const bool iwarp = devices[0]->device->transport_type == IBV_TRANSPORT_IWARP;
    rdma_free_devices(devices);
    return iwarp ? "iwarp" : port.link_layer == IBV_LINK_LAYER_ETHERNET ? "roce" : "ib";
  }();
  return found == personality;
}

#define OK(call) ck_assert_msg((call) == 0, "%s: %s", #call, strerror(errno))
#define FAILS(call, error)                                                     \
  do {                                                                         \
    errno = 0;                                                                 \
    ck_assert_int_eq((call), -1);                                              \
    ck_assert_msg(errno == (error), "%s: %s", #call, strerror(errno));         \
  } while (0)

sockaddr_in ip(const char* address, uint16_t port) {
  sockaddr_in sin{};
  sin.sin_family = AF_INET;
  sin.sin_port = htons(port);
  inet_pton(AF_INET, address, &sin.sin_addr);
  return sin;
}
template <typename T>
sockaddr* sa(T& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

/// Waits at most `ms` for the next event, which has to be `type`. The caller acknowledges it.
rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type, int ms = 20000) {
  pollfd fd{channel->fd, POLLIN, 0};
  ck_assert_msg(poll(&fd, 1, ms) == 1, "no %s", rdma_event_str(type));
  rdma_cm_event* event = nullptr;
  OK(rdma_get_cm_event(channel, &event));
  ck_assert_msg(event->event == type, "%s (%d) instead of %s", rdma_event_str(event->event), event->status,
                rdma_event_str(type));
  return event;
}
void expect_and_ack(rdma_event_channel* channel, rdma_cm_event_type type, int status = 0) {
  rdma_cm_event* event = expect(channel, type);
  ck_assert_int_eq(event->status, status);
  OK(rdma_ack_cm_event(event));
}
bool silent(rdma_event_channel* channel, int ms = 100) {
  pollfd fd{channel->fd, POLLIN, 0};
  return poll(&fd, 1, ms) == 0;
}

ibv_qp_init_attr qp_attr(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  return attr;
}

rdma_conn_param param(const void* data = nullptr, size_t length = 0) {
  rdma_conn_param p{};
  p.private_data = data;
  p.private_data_len = static_cast<uint8_t>(length);
  p.responder_resources = p.initiator_depth = 1;
  p.retry_count = p.rnr_retry_count = 7;
  return p;
}

/// A listener on an ephemeral port, with a channel.
struct Server {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  uint16_t port = 0;

  explicit Server(rdma_port_space ps = RDMA_PS_TCP, int backlog = 0, uint16_t wanted = 0) {
    ck_assert_ptr_nonnull(channel);
    OK(rdma_create_id(channel, &id, this, ps));
    sockaddr_in any = ip("0.0.0.0", wanted);
    OK(rdma_bind_addr(id, sa(any)));
    OK(rdma_listen(id, backlog));
    port = ntohs(rdma_get_src_port(id));
    ck_assert_int_ne(port, 0);
  }
  ~Server() {
    OK(rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
  }
};

/// An id that has resolved the route to a port of this node.
struct Client {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;

  explicit Client(uint16_t port, rdma_port_space ps = RDMA_PS_TCP, const char* address = "127.0.0.1") {
    OK(rdma_create_id(channel, &id, this, ps));
    sockaddr_in to = ip(address, port);
    OK(rdma_resolve_addr(id, nullptr, sa(to), 2000));
    expect_and_ack(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    OK(rdma_resolve_route(id, 2000));
    expect_and_ack(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    ck_assert_ptr_nonnull(id->verbs);
    ck_assert_ptr_nonnull(id->pd);
    ck_assert_ptr_eq(id->pd->context, id->verbs);
  }
  void make_qp(ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attr = qp_attr(type);
    OK(rdma_create_qp(id, nullptr, &attr));
  }
  ~Client() {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    OK(rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
  }
};

void make_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attr = qp_attr(type);
  OK(rdma_create_qp(id, nullptr, &attr));
}
void destroy(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  OK(rdma_destroy_id(id));
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

/// A connection between a new client and a server; the passive id goes to `*passive`.
std::unique_ptr<Client> connect_to(Server& server, rdma_cm_id** passive) {
  auto client = std::make_unique<Client>(server.port);
  client->make_qp();
  rdma_conn_param p = param();
  OK(rdma_connect(client->id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  *passive = request->id;
  OK(rdma_ack_cm_event(request));
  make_qp(*passive);
  OK(rdma_accept(*passive, &p));
  expect_and_ack(client->channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
  return client;
}

/// One message, the active side first.
void exchange(rdma_cm_id* from, rdma_cm_id* to) {
  char out[] = "message", in[8] = {};
  ibv_mr* out_mr = rdma_reg_msgs(from, out, sizeof out);
  ibv_mr* in_mr = rdma_reg_msgs(to, in, sizeof in);
  ck_assert(out_mr != nullptr && in_mr != nullptr);
  OK(rdma_post_recv(to, nullptr, in, sizeof in, in_mr));
  OK(rdma_post_send(from, nullptr, out, sizeof out, out_mr, 0));
  ibv_wc wc{};
  ck_assert_int_eq(rdma_get_send_comp(from, &wc), 1);
  ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
  ck_assert_int_eq(rdma_get_recv_comp(to, &wc), 1);
  ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
  ck_assert_str_eq(in, "message");
  OK(rdma_dereg_mr(out_mr));
  OK(rdma_dereg_mr(in_mr));
}

START_TEST(test_connect_with_private_data) {
  Server server;
  Client client(server.port);
  client.make_qp();
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_INIT);
  std::string data(255, 'x');
  const size_t limit = is("iwarp") ? 255 : 56;
  rdma_conn_param p = param(data.data(), limit);
  if (!is("iwarp")) {
    p.private_data_len = 57;
    FAILS(rdma_connect(client.id, &p), EINVAL);
    p.private_data_len = 56;
  }
  p.initiator_depth = 3;
  p.responder_resources = 2;
  OK(rdma_connect(client.id, &p));
  FAILS(rdma_connect(client.id, &p), EINVAL);
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  ck_assert_ptr_eq(request->listen_id, server.id);
  ck_assert_ptr_eq(request->id->context, &server);
  ck_assert_ptr_nonnull(request->id->verbs);
  ck_assert_ptr_nonnull(request->id->pd);
  ck_assert_uint_eq(request->param.conn.private_data_len, limit);
  ck_assert_mem_eq(request->param.conn.private_data, data.data(), limit);
  ck_assert_uint_eq(request->param.conn.responder_resources, 3);
  ck_assert_uint_eq(request->param.conn.initiator_depth, 2);
  ck_assert_uint_eq(request->param.conn.qp_num, client.id->qp->qp_num);
  rdma_cm_id* passive = request->id;
  ck_assert_uint_eq(rdma_get_dst_port(passive), rdma_get_src_port(client.id));
  make_qp(passive);
  p = param("reply", 6);
  p.initiator_depth = 2;
  OK(rdma_accept(passive, &p));
  OK(rdma_ack_cm_event(request));
  rdma_cm_event* event = expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  ck_assert_str_eq(static_cast<const char*>(event->param.conn.private_data), "reply");
  ck_assert_uint_eq(event->param.conn.private_data_len, is("iwarp") ? 6 : 196);
  ck_assert_uint_eq(event->param.conn.qp_num, passive->qp->qp_num);
  OK(rdma_ack_cm_event(event));
  expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_RTS);
  ck_assert_int_eq(state_of(passive->qp), IBV_QPS_RTS);
  exchange(client.id, passive);
  exchange(passive, client.id);
  OK(rdma_disconnect(client.id));
  expect_and_ack(server.channel, RDMA_CM_EVENT_DISCONNECTED);
  OK(rdma_disconnect(passive));
  expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_ERR);
  ck_assert_int_eq(state_of(passive->qp), IBV_QPS_ERR);
  if (!is("iwarp")) {
    expect_and_ack(client.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    expect_and_ack(server.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  }
  destroy(passive);
}
END_TEST

START_TEST(test_disconnect_by_destroy) {
  Server server;
  rdma_cm_id* passive = nullptr;
  auto client = connect_to(server, &passive);
  destroy(passive);
  expect_and_ack(client->channel, RDMA_CM_EVENT_DISCONNECTED);
  OK(rdma_disconnect(client->id));
  // And the passive side calls it first, the active one does nothing but go.
  client = connect_to(server, &passive);
  OK(rdma_disconnect(passive));
  expect_and_ack(client->channel, RDMA_CM_EVENT_DISCONNECTED);
  client.reset();
  expect_and_ack(server.channel, RDMA_CM_EVENT_DISCONNECTED);
  destroy(passive);
  // Both at once.
  client = connect_to(server, &passive);
  OK(rdma_disconnect(passive));
  OK(rdma_disconnect(client->id));
  expect_and_ack(client->channel, RDMA_CM_EVENT_DISCONNECTED);
  expect_and_ack(server.channel, RDMA_CM_EVENT_DISCONNECTED);
  destroy(passive);
}
END_TEST

START_TEST(test_reject) {
  Server server;
  Client client(server.port);
  client.make_qp();
  rdma_conn_param p = param();
  OK(rdma_connect(client.id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  const std::string why(200, 'y');
  if (!is("iwarp")) FAILS(rdma_reject(request->id, why.data(), 149), EINVAL);
  OK(rdma_reject(request->id, why.data(), 148));
  FAILS(rdma_accept(request->id, &p), EINVAL);
  rdma_cm_id* rejected = request->id;
  OK(rdma_ack_cm_event(request));
  destroy(rejected);
  rdma_cm_event* event = expect(client.channel, RDMA_CM_EVENT_REJECTED);
  ck_assert_int_eq(event->status, is("iwarp") ? -ECONNREFUSED : 28);
  ck_assert_uint_eq(event->param.conn.private_data_len, 148);
  ck_assert_mem_eq(event->param.conn.private_data, why.data(), 148);
  OK(rdma_ack_cm_event(event));
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_ERR);
  // A request whose id is destroyed is rejected as well.
  Client second(server.port);
  second.make_qp();
  OK(rdma_connect(second.id, &p));
  request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rejected = request->id;
  OK(rdma_ack_cm_event(request));
  destroy(rejected);
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 28);
}
END_TEST

START_TEST(test_nobody_listens) {
  Client client(7);
  client.make_qp();
  rdma_conn_param p = param();
  OK(rdma_connect(client.id, &p));
  expect_and_ack(client.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 8);
  // A port that is bound is not listened on.
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* bound = nullptr;
  OK(rdma_create_id(channel, &bound, nullptr, RDMA_PS_TCP));
  sockaddr_in any = ip("0.0.0.0", 0);
  OK(rdma_bind_addr(bound, sa(any)));
  Client second(ntohs(rdma_get_src_port(bound)));
  second.make_qp();
  OK(rdma_connect(second.id, &p));
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 8);
  OK(rdma_destroy_id(bound));
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_client_gives_up) {
  Server server;
  rdma_conn_param p = param();
  rdma_cm_event* request = nullptr;
  {
    Client client(server.port);
    client.make_qp();
    OK(rdma_connect(client.id, &p));
    request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  }
  rdma_cm_id* passive = request->id;
  OK(rdma_ack_cm_event(request));
  expect_and_ack(server.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 4);
  FAILS(rdma_accept(passive, &p), EINVAL);
  destroy(passive);
}
END_TEST

START_TEST(test_backlog) {
  auto server = std::make_unique<Server>(RDMA_PS_TCP, 2);
  std::vector<std::unique_ptr<Client>> clients;
  rdma_conn_param p = param();
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server->port));
    clients.back()->make_qp();
    OK(rdma_connect(clients.back()->id, &p));
  }
  // Two requests fit. The third is refused.
  expect_and_ack(clients[2]->channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 28);
  server.reset();  // nobody has read the others
  for (int i = 0; i < 2; ++i)
    expect_and_ack(clients[static_cast<size_t>(i)]->channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNREFUSED : 28);
}
END_TEST

START_TEST(test_ports) {
  Server server;
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  OK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
  sockaddr_in same = ip("0.0.0.0", server.port);
  FAILS(rdma_bind_addr(id, sa(same)), EADDRINUSE);
  sockaddr_in local = ip("127.0.0.1", server.port);
  FAILS(rdma_bind_addr(id, sa(local)), EADDRINUSE);
  sockaddr_in foreign = ip("192.0.2.1", 0);
  FAILS(rdma_bind_addr(id, sa(foreign)), EADDRNOTAVAIL);
  sockaddr strange{};
  strange.sa_family = AF_UNIX;
  FAILS(rdma_bind_addr(id, &strange), EINVAL);
  local = ip("127.0.0.1", 0);
  OK(rdma_bind_addr(id, sa(local)));
  ck_assert_ptr_nonnull(id->verbs);
  FAILS(rdma_bind_addr(id, sa(local)), EINVAL);
  const uint16_t port = ntohs(rdma_get_src_port(id));
  OK(rdma_destroy_id(id));
  // It is free again; and the port spaces do not know each other.
  OK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
  local = ip("127.0.0.1", port);
  OK(rdma_bind_addr(id, sa(local)));
  rdma_cm_id* udp = nullptr;
  OK(rdma_create_id(channel, &udp, nullptr, RDMA_PS_UDP));
  OK(rdma_bind_addr(udp, sa(local)));
  OK(rdma_destroy_id(udp));
  OK(rdma_destroy_id(id));
  // Reuse: both may bind, one may listen.
  rdma_cm_id* ids[2] = {};
  int yes = 1;
  for (rdma_cm_id*& each : ids) {
    OK(rdma_create_id(channel, &each, nullptr, RDMA_PS_TCP));
    OK(rdma_set_option(each, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    OK(rdma_bind_addr(each, sa(local)));
  }
  OK(rdma_listen(ids[0], 1));
  FAILS(rdma_listen(ids[0], 1), EINVAL);
  FAILS(rdma_listen(ids[1], 1), EADDRINUSE);
  for (rdma_cm_id* each : ids) OK(rdma_destroy_id(each));
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_port_of_a_dead_process) {
  int to_parent[2];
  OK(pipe(to_parent));
  const pid_t child = fork();
  if (child == 0) {
    Server server;
    (void)!write(to_parent[1], &server.port, sizeof server.port);
    pause();
    _exit(0);
  }
  uint16_t port = 0;
  ck_assert_int_eq(read(to_parent[0], &port, sizeof port), sizeof port);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Server server(RDMA_PS_TCP, 0, port);
  ck_assert_uint_eq(server.port, port);
}
END_TEST

START_TEST(test_killed_peer) {
  int to_parent[2];
  OK(pipe(to_parent));
  const pid_t child = fork();
  if (child == 0) {
    Server server;
    (void)!write(to_parent[1], &server.port, sizeof server.port);
    rdma_conn_param p = param();
    rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    make_qp(request->id);
    OK(rdma_accept(request->id, &p));
    pause();
    _exit(0);
  }
  uint16_t port = 0;
  ck_assert_int_eq(read(to_parent[0], &port, sizeof port), sizeof port);
  rdma_conn_param p = param();
  Client client(port);
  client.make_qp();
  OK(rdma_connect(client.id, &p));
  expect_and_ack(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  // The next request is in its channel, where nobody reads it.
  Client second(port);
  second.make_qp();
  OK(rdma_connect(second.id, &p));
  ck_assert(silent(second.channel));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNRESET : 28);
}
END_TEST

START_TEST(test_address_errors) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  FAILS(rdma_create_id(channel, &id, nullptr, RDMA_PS_IPOIB), EPROTONOSUPPORT);
  FAILS(rdma_create_id(channel, &id, nullptr, static_cast<rdma_port_space>(7)), EINVAL);
  OK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
  rdma_conn_param p = param();
  FAILS(rdma_connect(id, &p), EINVAL);
  FAILS(rdma_resolve_route(id, 100), EINVAL);
  FAILS(rdma_accept(id, &p), EINVAL);
  FAILS(rdma_disconnect(id), EINVAL);
  FAILS(rdma_establish(id), EINVAL);
  FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
  FAILS(rdma_reject(id, nullptr, 0), EINVAL);
  ibv_qp_init_attr attr = qp_attr();
  FAILS(rdma_create_qp(id, nullptr, &attr), EINVAL);
  sockaddr_in nowhere = ip("192.0.2.1", 1);
  OK(rdma_resolve_addr(id, nullptr, sa(nowhere), 50));
  expect_and_ack(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
  // It may try again.
  sockaddr_in here = ip("127.0.0.1", 1);
  OK(rdma_resolve_addr(id, nullptr, sa(here), 50));
  expect_and_ack(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  FAILS(rdma_resolve_addr(id, nullptr, sa(here), 50), EINVAL);
  FAILS(rdma_listen(id, 1), EINVAL);
  FAILS(rdma_join_multicast(id, sa(here), nullptr), ENOSYS);
  OK(rdma_destroy_id(id));
  // The channel can be made non-blocking.
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_without_a_qp_on_the_id) {
  // The user makes and moves the QPs, with what rdma_init_qp_attr says, and completes the connection himself.
  if (is("iwarp")) return;
  Server server;
  Client client(server.port);
  ibv_pd* pd = ibv_alloc_pd(client.id->verbs);
  ibv_cq* cq = ibv_create_cq(client.id->verbs, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr attr = qp_attr();
  attr.send_cq = attr.recv_cq = cq;
  ibv_qp* qps[2] = {ibv_create_qp(pd, &attr), ibv_create_qp(pd, &attr)};
  ck_assert(qps[0] != nullptr && qps[1] != nullptr);
  const auto move = [](rdma_cm_id* id, ibv_qp* qp) {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr a{};
      a.qp_state = state;
      int mask = 0;
      OK(rdma_init_qp_attr(id, &a, &mask));
      ck_assert_int_eq(ibv_modify_qp(qp, &a, mask), 0);
    }
  };
  rdma_conn_param p = param();
  p.qp_num = qps[0]->qp_num;
  p.srq = 1;
  OK(rdma_connect(client.id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* passive = request->id;
  ck_assert_uint_eq(request->param.conn.qp_num, qps[0]->qp_num);
  ck_assert_uint_eq(request->param.conn.srq, 1);
  OK(rdma_ack_cm_event(request));
  move(passive, qps[1]);
  p.qp_num = qps[1]->qp_num;
  OK(rdma_accept(passive, &p));
  rdma_cm_event* response = expect(client.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ck_assert_uint_eq(response->param.conn.qp_num, qps[1]->qp_num);
  OK(rdma_ack_cm_event(response));
  move(client.id, qps[0]);
  ck_assert(silent(server.channel));
  OK(rdma_establish(client.id));
  FAILS(rdma_establish(client.id), EINVAL);
  expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
  FAILS(rdma_notify(passive, IBV_EVENT_COMM_EST), EISCONN);
  OK(rdma_disconnect(client.id));
  expect_and_ack(server.channel, RDMA_CM_EVENT_DISCONNECTED);
  ck_assert_int_eq(state_of(qps[0]), IBV_QPS_RTS);  // they are not the id's
  OK(rdma_destroy_id(passive));
  expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
  for (ibv_qp* qp : qps) ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_int_eq(ibv_destroy_cq(cq), 0);
  ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(test_migrate) {
  Server server;
  Client client(server.port);
  client.make_qp();
  rdma_conn_param p = param();
  OK(rdma_connect(client.id, &p));
  // The request waits in the old channel and moves with its listener; so does the id that it brings.
  rdma_event_channel* second = rdma_create_event_channel();
  pollfd fd{server.channel->fd, POLLIN, 0};
  ck_assert_int_eq(poll(&fd, 1, 10000), 1);
  OK(rdma_migrate_id(server.id, second));
  ck_assert_ptr_eq(server.id->channel, second);
  ck_assert(silent(server.channel, 0));
  rdma_cm_event* request = expect(second, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* passive = request->id;
  ck_assert_ptr_eq(passive->channel, second);
  OK(rdma_ack_cm_event(request));
  rdma_event_channel* third = rdma_create_event_channel();
  OK(rdma_migrate_id(passive, third));
  make_qp(passive);
  OK(rdma_accept(passive, &p));
  expect_and_ack(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_and_ack(third, RDMA_CM_EVENT_ESTABLISHED);
  destroy(passive);
  rdma_destroy_event_channel(third);
  OK(rdma_migrate_id(server.id, server.channel));
  rdma_destroy_event_channel(second);
}
END_TEST

START_TEST(test_destroy_waits_for_acks) {
  Server server;
  Client client(server.port);
  client.make_qp();
  rdma_conn_param p = param();
  OK(rdma_connect(client.id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* passive = request->id;
  OK(rdma_ack_cm_event(request));
  OK(rdma_reject(passive, nullptr, 0));
  rdma_cm_event* event = expect(client.channel, RDMA_CM_EVENT_REJECTED);
  std::atomic<bool> destroyed{false};
  Client other(server.port);
  std::swap(other.id, client.id);
  std::swap(other.channel, client.channel);
  rdma_destroy_qp(other.id);
  std::thread thread([&] {
    OK(rdma_destroy_id(other.id));
    destroyed = true;
  });
  usleep(100000);
  ck_assert(!destroyed);
  OK(rdma_ack_cm_event(event));
  thread.join();
  OK(rdma_create_id(other.channel, &other.id, nullptr, RDMA_PS_TCP));
  destroy(passive);
}
END_TEST

rdma_addrinfo* addresses(const char* node, uint16_t port, int flags, int ps = RDMA_PS_TCP) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = ps;
  rdma_addrinfo* info = nullptr;
  ck_assert_int_eq(rdma_getaddrinfo(node, std::to_string(port).c_str(), &hints, &info), 0);
  ck_assert_ptr_nonnull(info);
  return info;
}

START_TEST(test_endpoints) {
  // Everything synchronous, as in the examples of librdmacm.
  rdma_addrinfo* passive = addresses("127.0.0.1", 20079, RAI_PASSIVE);
  rdma_addrinfo* active = addresses("localhost", 20079, 0);
  ck_assert_int_eq(active->ai_qp_type, IBV_QPT_RC);
  ibv_qp_init_attr attr = qp_attr();
  rdma_cm_id* listener = nullptr;
  OK(rdma_create_ep(&listener, passive, nullptr, &attr));
  OK(rdma_listen(listener, 0));
  rdma_addrinfo* numeric = addresses("127.0.0.1", 20079, RAI_NUMERICHOST);
  std::thread thread([&] {
    rdma_cm_id* id = nullptr;
    ibv_qp_init_attr a = qp_attr();
    OK(rdma_create_ep(&id, numeric, nullptr, &a));
    OK(rdma_connect(id, nullptr));
    ck_assert_int_eq(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    char text[] = "synchronous";
    ibv_mr* mr = rdma_reg_msgs(id, text, sizeof text);
    OK(rdma_post_send(id, nullptr, text, sizeof text, mr, 0));
    ibv_wc wc{};
    ck_assert_int_eq(rdma_get_send_comp(id, &wc), 1);
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    OK(rdma_disconnect(id));
    OK(rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
    // And nobody there.
    numeric->ai_dst_addr->sa_family = AF_INET;
    reinterpret_cast<sockaddr_in*>(numeric->ai_dst_addr)->sin_port = htons(9);
    a = qp_attr();  // the first one has the CQs of the id that is gone
    OK(rdma_create_ep(&id, numeric, nullptr, &a));
    FAILS(rdma_connect(id, nullptr), ECONNREFUSED);
    rdma_destroy_ep(id);
  });
  rdma_cm_id* id = nullptr;
  OK(rdma_get_request(listener, &id));
  ck_assert_int_eq(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  ck_assert_ptr_nonnull(id->qp);
  char text[16] = {};
  ibv_mr* mr = rdma_reg_msgs(id, text, sizeof text);
  OK(rdma_post_recv(id, nullptr, text, sizeof text, mr));
  OK(rdma_accept(id, nullptr));
  ibv_wc wc{};
  ck_assert_int_eq(rdma_get_recv_comp(id, &wc), 1);
  ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
  ck_assert_str_eq(text, "synchronous");
  OK(rdma_disconnect(id));
  thread.join();
  OK(rdma_dereg_mr(mr));
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
  rdma_freeaddrinfo(passive);
  rdma_freeaddrinfo(active);
  rdma_freeaddrinfo(numeric);
  rdma_addrinfo* none = nullptr;
  FAILS(rdma_getaddrinfo(nullptr, nullptr, nullptr, &none), EINVAL);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  ck_assert_int_ne(rdma_getaddrinfo("no.such.host", nullptr, &hints, &none), 0);
}
END_TEST

START_TEST(test_datagrams) {
  if (is("iwarp")) return;
  Server server(RDMA_PS_UDP);
  Client client(server.port, RDMA_PS_UDP);
  client.make_qp(IBV_QPT_UD);
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_RTS);
  const std::string data(200, 'u');
  rdma_conn_param p = param(data.data(), 181);
  FAILS(rdma_connect(client.id, &p), EINVAL);
  p.private_data_len = 180;
  OK(rdma_connect(client.id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  ck_assert_uint_eq(request->param.ud.private_data_len, 180);
  ck_assert_mem_eq(request->param.ud.private_data, data.data(), 180);
  rdma_cm_id* passive = request->id;
  OK(rdma_ack_cm_event(request));
  make_qp(passive, IBV_QPT_UD);
  p = param("ud", 3);
  OK(rdma_accept(passive, &p));
  rdma_cm_event* event = expect(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  ck_assert_uint_eq(event->param.ud.qp_num, passive->qp->qp_num);
  ck_assert_uint_eq(event->param.ud.qkey, RDMA_UDP_QKEY);
  ck_assert_uint_eq(event->param.ud.private_data_len, 136);
  ck_assert_str_eq(static_cast<const char*>(event->param.ud.private_data), "ud");
  ibv_ah* ah = ibv_create_ah(client.id->pd, &event->param.ud.ah_attr);
  ck_assert_ptr_nonnull(ah);
  char out[] = "datagram";
  std::vector<char> in(40 + sizeof out);
  ibv_mr* in_mr = rdma_reg_msgs(passive, in.data(), in.size());
  ibv_mr* out_mr = rdma_reg_msgs(client.id, out, sizeof out);
  OK(rdma_post_recv(passive, nullptr, in.data(), in.size(), in_mr));
  OK(rdma_post_ud_send(client.id, nullptr, out, sizeof out, out_mr, 0, ah, event->param.ud.qp_num));
  OK(rdma_ack_cm_event(event));
  ibv_wc wc{};
  ck_assert_int_eq(rdma_get_recv_comp(passive, &wc), 1);
  ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
  ck_assert_str_eq(in.data() + 40, "datagram");
  ck_assert_int_eq(rdma_get_send_comp(client.id, &wc), 1);
  ibv_destroy_ah(ah);
  OK(rdma_dereg_mr(in_mr));
  OK(rdma_dereg_mr(out_mr));
  destroy(passive);
  // Rejected, and nobody there.
  Client second(server.port, RDMA_PS_UDP);
  second.make_qp(IBV_QPT_UD);
  OK(rdma_connect(second.id, &p));
  request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  passive = request->id;
  OK(rdma_ack_cm_event(request));
  OK(rdma_reject(passive, nullptr, 0));
  expect_and_ack(second.channel, RDMA_CM_EVENT_UNREACHABLE, 2);
  destroy(passive);
  Client third(9, RDMA_PS_UDP);
  third.make_qp(IBV_QPT_UD);
  OK(rdma_connect(third.id, &p));
  expect_and_ack(third.channel, RDMA_CM_EVENT_UNREACHABLE, 1);
}
END_TEST

START_TEST(test_native_addresses) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  OK(rdma_create_id(channel, &listener, nullptr, RDMA_PS_IB));
  sockaddr_ib address{};
  address.sib_family = AF_IB;
  address.sib_pkey = 0xffff;
  address.sib_sid = htobe64(RDMA_IB_PS_IB | 4711);
  address.sib_sid_mask = ~uint64_t{0};
  if (!is("ib")) {
    FAILS(rdma_bind_addr(listener, sa(address)), ENODEV);
    OK(rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
    return;
  }
  OK(rdma_bind_addr(listener, sa(address)));
  OK(rdma_listen(listener, 0));
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ck_assert_int_ge(count, 1);
  ibv_gid gid{};
  ck_assert_int_eq(ibv_query_gid(devices[0], 1, 0, &gid), 0);
  memcpy(&address.sib_addr, &gid, sizeof gid);
  rdma_event_channel* own = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  OK(rdma_create_id(own, &id, nullptr, RDMA_PS_IB));
  OK(rdma_resolve_addr(id, nullptr, sa(address), 1000));
  expect_and_ack(own, RDMA_CM_EVENT_ADDR_RESOLVED);
  ck_assert_ptr_eq(id->verbs, devices[0]);
  OK(rdma_resolve_route(id, 1000));
  expect_and_ack(own, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ck_assert_int_eq(id->route.num_paths, 1);
  make_qp(id);
  const std::string data(93, 'i');
  rdma_conn_param p = param(data.data(), 93);
  FAILS(rdma_connect(id, &p), EINVAL);
  p.private_data_len = 92;
  OK(rdma_connect(id, &p));
  rdma_cm_event* request = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  ck_assert_uint_eq(request->param.conn.private_data_len, 92);
  rdma_cm_id* passive = request->id;
  ck_assert_int_eq(passive->route.addr.src_addr.sa_family, AF_IB);
  ck_assert_uint_eq(ntohs(rdma_get_src_port(passive)), 4711);
  OK(rdma_ack_cm_event(request));
  make_qp(passive);
  p = param();
  OK(rdma_accept(passive, &p));
  expect_and_ack(own, RDMA_CM_EVENT_ESTABLISHED);
  expect_and_ack(channel, RDMA_CM_EVENT_ESTABLISHED);
  exchange(id, passive);
  destroy(id);
  expect_and_ack(channel, RDMA_CM_EVENT_DISCONNECTED);
  destroy(passive);
  OK(rdma_destroy_id(listener));
  rdma_free_devices(devices);
  rdma_destroy_event_channel(own);
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_many_at_once) {
  constexpr int kThreads = 4, kEach = 50;
  Server server;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      rdma_event_channel* channel = rdma_create_event_channel();
      std::vector<rdma_cm_id*> ids(kEach);
      sockaddr_in to = ip("127.0.0.1", server.port);
      for (rdma_cm_id*& id : ids) {
        OK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
        OK(rdma_resolve_addr(id, nullptr, sa(to), 2000));
      }
      for (int i = 0; i < 3 * kEach; ++i) {
        rdma_cm_event* event = nullptr;
        OK(rdma_get_cm_event(channel, &event));
        rdma_cm_id* id = event->id;
        const rdma_cm_event_type type = event->event;
        OK(rdma_ack_cm_event(event));
        rdma_conn_param p = param();
        if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
          OK(rdma_resolve_route(id, 2000));
        } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
          make_qp(id);
          OK(rdma_connect(id, &p));
        } else {
          ck_assert_int_eq(type, RDMA_CM_EVENT_ESTABLISHED);
        }
      }
      for (rdma_cm_id* id : ids) destroy(id);
      rdma_destroy_event_channel(channel);
    });
  std::vector<rdma_cm_id*> passive;
  int established = 0, disconnected = 0;
  while (disconnected < kThreads * kEach) {
    rdma_cm_event* event = nullptr;
    OK(rdma_get_cm_event(server.channel, &event));
    rdma_conn_param p = param();
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      make_qp(event->id);
      OK(rdma_accept(event->id, &p));
      passive.push_back(event->id);
    } else if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
      ++established;
    } else if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
      ++disconnected;
    }
    OK(rdma_ack_cm_event(event));
  }
  ck_assert_int_eq(established, kThreads * kEach);
  for (std::thread& thread : threads) thread.join();
  for (rdma_cm_id* id : passive) destroy(id);
}
END_TEST

START_TEST(test_options_and_names) {
  ck_assert_str_eq(rdma_event_str(RDMA_CM_EVENT_REJECTED), "RDMA_CM_EVENT_REJECTED");
  Server server;
  Client client(server.port);
  uint8_t byte = 3;
  OK(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
  OK(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
  FAILS(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 2), EINVAL);
  FAILS(rdma_set_option(client.id, RDMA_OPTION_ID, 77, &byte, 1), ENOSYS);
  int number = 1;
  FAILS(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number), EINVAL);
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ck_assert_ptr_eq(devices[0], client.id->verbs);
  ck_assert_ptr_null(devices[count]);
  rdma_free_devices(devices);
  if (is("iwarp")) return;
  // RC with shared receives, and depths beyond the device's.
  ibv_srq_init_attr srq{};
  srq.attr.max_wr = 8;
  srq.attr.max_sge = 1;
  OK(rdma_create_srq(client.id, nullptr, &srq));
  client.make_qp();
  ck_assert_ptr_eq(client.id->qp->srq, client.id->srq);
  rdma_conn_param p = param();
  p.initiator_depth = 200;
  FAILS(rdma_connect(client.id, &p), EINVAL);
  p.initiator_depth = p.responder_resources = RDMA_MAX_INIT_DEPTH;
  OK(rdma_connect(client.id, &p));
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  ck_assert_uint_eq(request->param.conn.srq, 1);
  rdma_cm_id* passive = request->id;
  OK(rdma_ack_cm_event(request));
  OK(rdma_destroy_id(passive));
  expect_and_ack(client.channel, RDMA_CM_EVENT_REJECTED, 28);
  rdma_destroy_qp(client.id);
  rdma_destroy_srq(client.id);
}
END_TEST

START_TEST(test_child_of_a_process) {
  Server server;
  const pid_t child = fork();
  if (child == 0) {
    rdma_cm_id* id = nullptr;
    const bool refused = rdma_create_id(server.channel, &id, nullptr, RDMA_PS_TCP) == -1 && errno != 0 &&
                         rdma_listen(server.id, 1) == -1 && rdma_create_event_channel() == nullptr;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_cm",
      {test_connect_with_private_data, test_disconnect_by_destroy, test_reject, test_nobody_listens,
       test_client_gives_up, test_backlog, test_ports, test_port_of_a_dead_process, test_killed_peer,
       test_address_errors, test_without_a_qp_on_the_id, test_migrate, test_destroy_waits_for_acks, test_endpoints,
       test_datagrams, test_native_addresses, test_many_at_once, test_options_and_names, test_child_of_a_process});
}
