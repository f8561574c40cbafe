// SPDX-License-Identifier: BSD-3-Clause
//
// Connections through the public API: made, refused, broken off. cm.test runs it on each personality.
#include <malloc.h>

#include "test/softhca/cm_world.h"

namespace {

using namespace cm_test;

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
  client.ask();
  rdma_cm_id* const rejected = next_request(server.channel);
  const std::string why(200, 'y');
  if (!is("iwarp")) FAILS(rdma_reject(rejected, why.data(), 149), EINVAL);
  OK(rdma_reject(rejected, why.data(), 148));
  rdma_conn_param p = param();
  FAILS(rdma_accept(rejected, &p), EINVAL);
  destroy(rejected);
  rdma_cm_event* event = expect(client.channel, RDMA_CM_EVENT_REJECTED);
  ck_assert_int_eq(event->status, refused());
  ck_assert_uint_eq(event->param.conn.private_data_len, 148);
  ck_assert_mem_eq(event->param.conn.private_data, why.data(), 148);
  OK(rdma_ack_cm_event(event));
  ck_assert_int_eq(state_of(client.id->qp), IBV_QPS_ERR);
  // A request whose id is destroyed is rejected as well.
  Client second(server.port);
  second.ask();
  destroy(next_request(server.channel));
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, refused());
}
END_TEST

/// The id of a request may go before the event that brought it is acknowledged.
START_TEST(test_destroy_before_ack) {
  mallopt(M_PERTURB, 0xa5);  // what is freed is overwritten
  Server server;
  Client client(server.port);
  client.ask();
  rdma_cm_event* request = expect(server.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  OK(rdma_reject(request->id, nullptr, 0));
  OK(rdma_destroy_id(request->id));
  OK(rdma_ack_cm_event(request));
  expect_and_ack(client.channel, RDMA_CM_EVENT_REJECTED, refused());
}
END_TEST

START_TEST(test_nobody_listens) {
  Client client(7);
  client.ask();
  expect_and_ack(client.channel, RDMA_CM_EVENT_REJECTED, refused(8));
  // A port that is bound is not listened on.
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* bound = nullptr;
  OK(rdma_create_id(channel, &bound, nullptr, RDMA_PS_TCP));
  sockaddr_in any = ip("0.0.0.0", 0);
  OK(rdma_bind_addr(bound, sa(any)));
  Client second(ntohs(rdma_get_src_port(bound)));
  second.ask();
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, refused(8));
  OK(rdma_destroy_id(bound));
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_client_gives_up) {
  Server server;
  rdma_conn_param p = param();
  rdma_cm_id* passive = nullptr;
  {
    Client client(server.port);
    client.ask();
    passive = next_request(server.channel);
  }
  expect_and_ack(server.channel, RDMA_CM_EVENT_REJECTED, refused(4));
  FAILS(rdma_accept(passive, &p), EINVAL);
  destroy(passive);
}
END_TEST

START_TEST(test_backlog) {
  auto server = std::make_unique<Server>(RDMA_PS_TCP, 2);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server->port));
    clients.back()->ask();
  }
  // Two requests fit. The third is refused.
  expect_and_ack(clients[2]->channel, RDMA_CM_EVENT_REJECTED, refused());
  server.reset();  // nobody has read the others
  for (int i = 0; i < 2; ++i)
    expect_and_ack(clients[static_cast<size_t>(i)]->channel, RDMA_CM_EVENT_REJECTED, refused());
}
END_TEST

START_TEST(test_killed_peer) {
  ListeningProcess peer([](Server& server) {
    rdma_conn_param p = param();
    rdma_cm_id* const passive = next_request(server.channel);
    make_qp(passive);
    OK(rdma_accept(passive, &p));
  });
  Client client(peer.port());
  client.ask();
  expect_and_ack(client.channel, RDMA_CM_EVENT_ESTABLISHED);
  // The next request is in its channel, where nobody reads it.
  Client second(peer.port());
  second.ask();
  ck_assert(silent(second.channel));
  peer.end();
  expect_and_ack(client.channel, RDMA_CM_EVENT_DISCONNECTED);
  expect_and_ack(second.channel, RDMA_CM_EVENT_REJECTED, is("iwarp") ? -ECONNRESET : 28);
}
END_TEST

// PATH_GIVEN: what the subnet manager's paths have: service level, and whether the LIDs of both ports are their second.
void check_path(const ibv_ah_attr& way) {
  if (!is("ib")) return;
  const char* const path = getenv("PATH_GIVEN");
  const std::string is_now =
      std::to_string(way.sl) + ' ' + std::to_string(way.src_path_bits) + ' ' + std::to_string(way.dlid & 1U);
  ck_assert_str_eq(is_now.c_str(), path != nullptr ? path : is_now.c_str());
}

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
      if (state == IBV_QPS_RTR) check_path(a.ah_attr);
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

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_cm", {test_connect_with_private_data, test_disconnect_by_destroy, test_reject, test_destroy_before_ack,
                     test_nobody_listens, test_client_gives_up, test_backlog, test_killed_peer,
                     test_without_a_qp_on_the_id, test_many_at_once});
}
