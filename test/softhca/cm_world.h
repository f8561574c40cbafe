// SPDX-License-Identifier: BSD-3-Clause
//
// A server, clients and the events between them, through the public API of the connection manager. Every test runs in a
// process of its own (Check forks).
#pragma once

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

namespace cm_test {

/// What the first device is: ib, roce or iwarp. To be asked after a test has forked, not before.
inline bool is(const char* personality) {
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
#define FAILS(call, error)                                             \
  do {                                                                 \
    errno = 0;                                                         \
    ck_assert_int_eq((call), -1);                                      \
    ck_assert_msg(errno == (error), "%s: %s", #call, strerror(errno)); \
  } while (0)

inline sockaddr_in ip(const char* address, uint16_t port) {
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
inline rdma_cm_event* expect(rdma_event_channel* channel, rdma_cm_event_type type, int ms = 20000) {
  pollfd fd{channel->fd, POLLIN, 0};
  ck_assert_msg(poll(&fd, 1, ms) == 1, "no %s", rdma_event_str(type));
  rdma_cm_event* event = nullptr;
  OK(rdma_get_cm_event(channel, &event));
  ck_assert_msg(event->event == type, "%s (%d) instead of %s", rdma_event_str(event->event), event->status,
                rdma_event_str(type));
  return event;
}
inline void expect_and_ack(rdma_event_channel* channel, rdma_cm_event_type type, int status = 0) {
  rdma_cm_event* event = expect(channel, type);
  ck_assert_int_eq(event->status, status);
  OK(rdma_ack_cm_event(event));
}
/// The id that the next request for a connection brings.
inline rdma_cm_id* next_request(rdma_event_channel* channel) {
  rdma_cm_event* request = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const id = request->id;
  OK(rdma_ack_cm_event(request));
  return id;
}
/// The status of RDMA_CM_EVENT_REJECTED: `otherwise`, but on iWARP.
inline int refused(int otherwise = 28) {
  return is("iwarp") ? -ECONNREFUSED : otherwise;
}
inline bool silent(rdma_event_channel* channel, int ms = 100) {
  pollfd fd{channel->fd, POLLIN, 0};
  return poll(&fd, 1, ms) == 0;
}

inline ibv_qp_init_attr qp_attr(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  return attr;
}

inline rdma_conn_param param(const void* data = nullptr, size_t length = 0) {
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
  /// Makes a queue pair and asks for a connection.
  void ask() {
    make_qp();
    rdma_conn_param p = param();
    OK(rdma_connect(id, &p));
  }
  ~Client() {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    OK(rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
  }
};

/// A process that listens, until it is killed. `serve(server)` is what it does first.
class ListeningProcess {
 public:
  template <typename Serve>
  explicit ListeningProcess(Serve serve) {
    int to_parent[2];
    OK(pipe(to_parent));
    pid_ = fork();
    if (pid_ == 0) {
      Server server;
      (void)!write(to_parent[1], &server.port, sizeof server.port);
      serve(server);
      pause();
      _exit(0);
    }
    ck_assert_int_eq(read(to_parent[0], &port_, sizeof port_), sizeof port_);
    close(to_parent[0]);
    close(to_parent[1]);
  }
  [[nodiscard]] uint16_t port() const { return port_; }
  void end() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

inline void make_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attr = qp_attr(type);
  OK(rdma_create_qp(id, nullptr, &attr));
}
inline void destroy(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  OK(rdma_destroy_id(id));
}

inline ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

/// A connection between a new client and a server; the passive id goes to `*passive`.
inline std::unique_ptr<Client> connect_to(Server& server, rdma_cm_id** passive) {
  auto client = std::make_unique<Client>(server.port);
  client->ask();
  *passive = next_request(server.channel);
  make_qp(*passive);
  rdma_conn_param p = param();
  OK(rdma_accept(*passive, &p));
  expect_and_ack(client->channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
  return client;
}

/// One message, the active side first.
inline void exchange(rdma_cm_id* from, rdma_cm_id* to) {
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

}  // namespace cm_test
