// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes, each with objects of its own, and a queue pair each that is connected to the other's. They part before any
// object is made. On iWARP the connection manager connects them, which knows reliable connections only.
#pragma once

#include <sys/socket.h>

#include <cstdio>

#include "test/softhca/cm_world.h"
#include "test/softhca/two_processes.h"

namespace verbs_test {

constexpr uint32_t kQkey = 11;  // of to_datagrams

/// What connects the two.
struct Kind {
  ibv_qp_type type = IBV_QPT_RC;  // XRC: IBV_QPT_XRC_SEND
  bool shared = false;            // the responder's receive requests are those of a shared queue
  uint8_t resources = 4;          // READs and atomics that the responder takes at a time
  uint8_t rnr_retry = 7;
  bool selective = false;  // only what asks for it is signalled
  int receives = 256;      // completions that the responder's queue of receives has room for
};

/// What one tells the other about itself.
struct Facts {
  uint32_t qpn = 0;
  uint32_t srqn = 0;
  uint32_t rkey = 0;  // of World::memory
  uint64_t address = 0;
  uint16_t port = 0;  // of the connection manager
};

/// One end of what they talk through.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  template <typename T>
  void give(const T& value) const {
    if (::send(fd_, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) end();
  }
  template <typename T>
  [[nodiscard]] T take() const {
    T value{};
    if (::recv(fd_, &value, sizeof value, 0) != sizeof value) end();
    return value;
  }
  /// It is the other's turn.
  void done() const { give('.'); }
  void await() const { (void)take<char>(); }

 private:
  // The other has ended before its time. If it has said why to Check, that stands.
  [[noreturn]] static void end() {
    std::fputs("the other process has ended\n", stderr);
    _exit(1);
  }
  const int fd_;
};

/// One of the two. `qp` is in RTS, but for the target of XRC. Sends complete in World::cq.
struct Side {
  const Line line;
  const Kind kind;
  const pid_t peer;  // of the requester: the responder
  const bool iwarp;
  const World w;
  ibv_cq* receives;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  Facts other;
  mutable bool has_killed = false;

  Side(const Kind& wanted, int fd, int domain, pid_t responder)
      : line(fd),
        kind(wanted),
        peer(responder),
        iwarp(!have_device()),
        w(iwarp ? rdma_get_devices(nullptr)[0] : World::open_first()),
        receives(ibv_create_cq(w.context, kind.receives, nullptr, w.channel, 0)) {
    ck_assert_ptr_nonnull(receives);
    std::fill(w.memory.begin(), w.memory.end(), is_requester() ? 0x55 : 0xaa);
    iwarp ? connect_by_manager() : connect_by_hand(domain);
  }
  [[nodiscard]] bool is_requester() const { return peer != 0; }
  [[nodiscard]] ibv_qp_init_attr attributes() const {
    ibv_qp_init_attr attr = w.qp_attributes(kind.type);
    attr.recv_cq = receives;
    attr.cap = {32, 32, 4, 4, 200};
    attr.srq = srq;
    attr.sq_sig_all = kind.selective ? 0 : 1;
    return attr;
  }

  /// So many bytes from the beginning of the memory in so many pieces.
  [[nodiscard]] std::vector<ibv_sge> cut(uint32_t length, uint32_t pieces) const {
    std::vector<ibv_sge> list;
    for (uint32_t i = 0, at = 0; i < pieces; ++i) {
      const uint32_t bytes = i + 1 == pieces ? length - at : length / pieces;
      list.push_back(w.sge(at, bytes));
      at += bytes;
    }
    return list;
  }

  /// The responder is no more. Nothing else can come of it.
  void kill_other() const {
    kill(peer, SIGKILL);
    end_of(peer);
    has_killed = true;
  }
  /// Both connect once more, after both have gone to RESET. Not on iWARP.
  void connect_again() const {
    line.done();
    line.await();  // the other is in RESET too
    connect();
    line.done();
    line.await();
  }

  /// A receive request of that many bytes at that place of the memory, to whichever queue there is.
  void post_recv(uint64_t wr_id, size_t offset, uint32_t length) const { post_recv(wr_id, {w.sge(offset, length)}); }
  void post_recv(uint64_t wr_id, std::vector<ibv_sge> list) const {
    ibv_recv_wr wr{wr_id, nullptr, list.data(), static_cast<int>(list.size())};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad), 0);
  }
  /// The request is posted, and has to complete like this.
  void expect(ibv_send_wr wr, ibv_wc_status status = IBV_WC_SUCCESS) const {
    wr.wr_id = 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    if (kind.type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = other.srqn;
    ck_assert_int_eq(World::post(qp, wr), 0);
    w.expect(1, status);
  }
  ibv_wc expect_received(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) const {
    const ibv_wc wc = World::next(receives);
    ck_assert_msg(wc.wr_id == wr_id && wc.status == status, "receive %d: %s; expected %d: %s",
                  static_cast<int>(wc.wr_id), ibv_wc_status_str(wc.status), static_cast<int>(wr_id),
                  ibv_wc_status_str(status));
    return wc;
  }
  [[nodiscard]] bool nothing_received() const {
    ibv_wc wc{};
    return ibv_poll_cq(receives, 1, &wc) == 0;
  }
  /// Reads and writes of the other's memory; atomics at its beginning, by the key and the address in `at`.
  [[nodiscard]] static ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& list, const Facts& at) {
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = opcode;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {at.address, 1, 2, at.rkey};
    else
      wr.wr.rdma = {at.address, at.rkey};
    return wr;
  }
  [[nodiscard]] ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& list) const { return request(opcode, list, other); }
  /// A datagram to the other.
  [[nodiscard]] ibv_send_wr datagram(ibv_sge& list) const {
    ibv_send_wr wr = request(IBV_WR_SEND, list, {});
    ibv_ah_attr path = w.path();
    wr.wr.ud = {ibv_create_ah(w.pd, &path), other.qpn, kQkey};
    ck_assert_ptr_nonnull(wr.wr.ud.ah);
    return wr;
  }
  [[nodiscard]] bool untouched(size_t begin, size_t end, uint8_t value) const {
    return std::all_of(w.memory.begin() + static_cast<long>(begin), w.memory.begin() + static_cast<long>(end),
                       [value](uint8_t byte) { return byte == value; });
  }

 private:
  [[nodiscard]] Facts facts() const { return {0, 0, w.mr->rkey, w.address(0), 0}; }

  void make(Facts& own, int domain) {
    const bool xrc = kind.type == IBV_QPT_XRC_SEND;
    ibv_srq_init_attr shared{nullptr, {32, 4, 0}};
    if (xrc && !is_requester()) {
      ibv_xrcd* xrcd = open_domain(w, domain);
      srq = make_xrc_srq(xrcd, &own.srqn);
      qp = new_target(w, xrcd);
    } else {
      if (kind.shared && !is_requester()) srq = ibv_create_srq(w.pd, &shared);
      ibv_qp_init_attr attr = attributes();
      qp = ibv_create_qp(w.pd, &attr);
    }
    ck_assert_ptr_nonnull(qp);
    own.qpn = qp->qp_num;
  }
  ibv_srq* make_xrc_srq(ibv_xrcd* xrcd, uint32_t* number) const {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {32, 4, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = w.pd;
    attr.xrcd = xrcd;
    attr.cq = receives;
    ibv_srq* made = ibv_create_srq_ex(w.context, &attr);
    ck_assert_ptr_nonnull(made);
    ck_assert_int_eq(ibv_get_srq_num(made, number), 0);
    return made;
  }

  void connect_by_hand(int domain) {
    Facts own = facts();
    make(own, domain);
    line.give(own);
    other = line.take<Facts>();
    connect();
    line.done();
    line.await();
  }
  void connect() const {
    if (kind.type == IBV_QPT_UD) return to_datagrams(w, qp);
    w.to_init(qp);
    const bool takes = qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV;
    ibv_qp_attr rtr = w.rtr_attributes(other.qpn);
    rtr.max_dest_rd_atomic = kind.resources;
    const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ck_assert_int_eq(ibv_modify_qp(qp, &rtr, takes ? kRtrMask : kRtrMask & ~responder), 0);
    ibv_qp_attr rts = World::rts_attributes();
    rts.rnr_retry = kind.rnr_retry;
    ck_assert_int_eq(ibv_modify_qp(qp, &rts,
                                   qp->qp_type == IBV_QPT_UC         ? IBV_QP_STATE | IBV_QP_SQ_PSN
                                   : qp->qp_type == IBV_QPT_XRC_RECV ? kRtsMaskTarget
                                                                     : kRtsMask),
                     0);
  }

  void connect_by_manager() {
    ibv_srq_init_attr shared{nullptr, {32, 4, 0}};
    if (kind.shared && !is_requester()) srq = ibv_create_srq(w.pd, &shared);
    ibv_qp_init_attr attr = attributes();
    rdma_conn_param param = cm_test::param();
    Facts own = facts();
    rdma_cm_id* id = nullptr;
    // They stay, as all other objects do.
    if (is_requester()) {
      auto& client = *new cm_test::Client(line.take<Facts>().port);
      id = client.id;
      OK(rdma_create_qp(id, w.pd, &attr));
      OK(rdma_connect(id, &param));
      cm_test::expect_and_ack(client.channel, RDMA_CM_EVENT_ESTABLISHED);
    } else {
      auto& server = *new cm_test::Server;
      own.port = server.port;
      line.give(own);
      id = cm_test::next_request(server.channel);
      OK(rdma_create_qp(id, w.pd, &attr));
      OK(rdma_accept(id, &param));
      cm_test::expect_and_ack(server.channel, RDMA_CM_EVENT_ESTABLISHED);
    }
    qp = id->qp;
    own.qpn = qp->qp_num;
    line.give(own);
    other = line.take<Facts>();
  }
};

/// Both parts, each in its process; nothing, if the device has no such queue pairs. `responder` returns when it has nothing to do any more but to be there.
template <typename Requester, typename Responder>
void between(const Kind& kind, Requester&& requester, Responder&& responder) {
  if (kind.type != IBV_QPT_RC && !have_device()) return;
  int line[2];
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
  const int domain = memfd_create("domain", 0);
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    close(line[0]);
    const Side side(kind, line[1], domain, 0);
    responder(side);
    side.line.await();
    _exit(0);
  }
  close(line[1]);
  const Side side(kind, line[0], domain, child);
  requester(side);
  if (side.has_killed) return;
  side.line.done();
  const int end = end_of(child);
  if (WIFEXITED(end) && WEXITSTATUS(end) != 0) _exit(1);  // it has told Check why
  ck_assert_msg(end == 0, "the responder is killed by signal %d", WTERMSIG(end));
}

/// The first message of a connection, which goes another way than all others: between processes that shall see those.
inline void greet(const Side& side) {
  side.line.await();
  ibv_sge list = side.w.sge(0, 8);
  side.expect(Side::request(IBV_WR_SEND, list, {}));
  side.line.await();
  side.line.done();
}
inline void be_greeted(const Side& side) {
  side.post_recv(1, 0, 8);
  side.line.done();
  side.expect_received(1);
  std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
  side.line.done();
  side.line.await();
}

/// Whether there is a device at all. Leaves nothing open.
inline bool have_any_device() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list != nullptr) ibv_free_device_list(list);
  return count > 0;
}

}  // namespace verbs_test
