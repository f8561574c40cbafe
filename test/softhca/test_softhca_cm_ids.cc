// SPDX-License-Identifier: BSD-3-Clause
//
// What ids of the connection manager are otherwise: addresses, ports, endpoints, datagrams. cm.test runs it on each personality.
#include "test/softhca/cm_world.h"

namespace {

using namespace cm_test;

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
  ListeningProcess other([](Server&) {});
  other.end();
  Server server(RDMA_PS_TCP, 0, other.port());
  ck_assert_uint_eq(server.port, other.port());
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
  FAILS(rdma_join_multicast(id, sa(here), nullptr), EINVAL);
  OK(rdma_destroy_id(id));
  // The channel can be made non-blocking.
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
  rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(test_migrate) {
  Server server;
  Client client(server.port);
  client.ask();
  // The request waits in the old channel and moves with its listener; so does the id that it brings.
  rdma_event_channel* second = rdma_create_event_channel();
  pollfd fd{server.channel->fd, POLLIN, 0};
  ck_assert_int_eq(poll(&fd, 1, 10000), 1);
  OK(rdma_migrate_id(server.id, second));
  ck_assert_ptr_eq(server.id->channel, second);
  ck_assert(silent(server.channel, 0));
  rdma_cm_id* const passive = next_request(second);
  ck_assert_ptr_eq(passive->channel, second);
  rdma_event_channel* third = rdma_create_event_channel();
  OK(rdma_migrate_id(passive, third));
  make_qp(passive);
  rdma_conn_param p = param();
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
  client.ask();
  rdma_cm_id* const passive = next_request(server.channel);
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
  passive = next_request(server.channel);
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
    // Before it has a place of its own in the fabric, and afterwards.
    const auto refused = [&] {
      return rdma_listen(server.id, 1) == -1 && rdma_create_id(server.channel, &id, nullptr, RDMA_PS_TCP) == -1 &&
             errno == EPERM;
    };
    _exit(refused() && rdma_create_event_channel() != nullptr && refused() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_cm_ids",
      {test_ports, test_port_of_a_dead_process, test_address_errors, test_migrate, test_destroy_waits_for_acks,
       test_endpoints, test_datagrams, test_native_addresses, test_options_and_names, test_child_of_a_process});
}
