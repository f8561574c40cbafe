// SPDX-License-Identifier: BSD-3-Clause
//
// A sender is killed after each of the stores by which it changes what the receiver shares with it: the receiver's requests still
// complete once each, and it is told of what has come. The stores are not listed anywhere. The sender is run one instruction
// at a time, and the memory of the receiver, which is this process, is compared after each: a store that is new is
// visited without anybody's help.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "fabric/layout.h"

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;

const char* where = "";  // for messages: which store of which kind of message
int visited = 0;
void require(bool good, const char* what, int line) {
  if (good) return;
  fprintf(stderr, "line %d: %s, after store %d: not so: %s\n", line, where, visited, what);
  exit(1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

constexpr uint32_t kDepth = 8;  // receive requests
constexpr uint32_t kHeader = 40;
constexpr uint32_t kBufferBytes = 8192;
constexpr uint32_t kQkey = 17;
constexpr int kPatienceMs = 5000;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr uint8_t kFromPeer = 0xa5;
constexpr uint8_t kFromHere = 0x5a;

struct Mode {
  const char* name;
  ibv_qp_type type;
  bool shared;  // receive requests are of an SRQ
  ibv_wr_opcode opcode;
  uint32_t length;
};
constexpr Mode kModes[] = {
    {"a message", IBV_QPT_RC, false, IBV_WR_SEND, 8},
    {"a longer message", IBV_QPT_RC, false, IBV_WR_SEND, 1000},
    {"a message to a shared queue", IBV_QPT_RC, true, IBV_WR_SEND, 8},
    {"a longer message to a shared queue", IBV_QPT_RC, true, IBV_WR_SEND, 1000},
    {"a write with a message to a shared queue", IBV_QPT_RC, true, IBV_WR_RDMA_WRITE_WITH_IMM, 64},
    {"a message that is too long", IBV_QPT_RC, true, IBV_WR_SEND, kBufferBytes + 8},
    {"a datagram", IBV_QPT_UD, false, IBV_WR_SEND, 8},
    {"a datagram to a shared queue", IBV_QPT_UD, true, IBV_WR_SEND, 8},
};

struct Address {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t memory;
  uint16_t lid;
  ibv_gid gid;
};

struct World {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;       // of receives
  ibv_cq* send_cq = nullptr;  // of sends
  ibv_srq* srq = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>((kDepth + 2) * size_t{kBufferBytes});
  ibv_mr* mr = nullptr;
  ibv_port_attr port{};
  ibv_gid gid{};

  World() {
    ibv_device** list = ibv_get_device_list(nullptr);
    REQUIRE(list != nullptr && list[0] != nullptr);
    context = ibv_open_device(list[0]);
    REQUIRE(context != nullptr);
    REQUIRE(ibv_query_port(context, 1, &port) == 0 && ibv_query_gid(context, 1, 0, &gid) == 0);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, nullptr, channel, 0);
    send_cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
    ibv_srq_init_attr attr{};
    attr.attr = {kDepth, 1, 0};
    srq = ibv_create_srq(pd, &attr);
    REQUIRE(cq != nullptr && send_cq != nullptr && mr != nullptr && srq != nullptr);
  }

  ibv_ah_attr path(const Address& to) const {
    ibv_ah_attr ah{};
    ah.dlid = to.lid;
    ah.port_num = 1;
    ah.is_global = 1;
    ah.grh.dgid = to.gid;
    ah.grh.hop_limit = 1;
    return ah;
  }
  Address address(const ibv_qp* qp) const {
    return {qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(buffer(kDepth + 1)), port.lid, gid};
  }

  ibv_qp* make_qp(const Mode& mode) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = cq;
    attr.srq = mode.shared ? srq : nullptr;
    attr.cap = {4, mode.shared ? 0U : kDepth, 1, 1, 0};
    attr.qp_type = mode.type;
    attr.sq_sig_all = 1;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    REQUIRE(qp != nullptr);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = kAccess;
    init.qkey = kQkey;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    REQUIRE(ibv_modify_qp(qp, &init, mask | (mode.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    return qp;
  }

  void connect(ibv_qp* qp, const Address& to) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qpn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr = path(to);
    const bool connected = qp->qp_type == IBV_QPT_RC;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          !connected ? IBV_QP_STATE
                                     : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 4;
    attr.rnr_retry = 4;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          !connected ? IBV_QP_STATE | IBV_QP_SQ_PSN
                                     : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  uint8_t* buffer(uint64_t n) const { return const_cast<uint8_t*>(memory.data()) + n * kBufferBytes; }
  void post_receive(ibv_qp* qp, uint64_t n) const {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer(n)), kBufferBytes, mr->lkey};
    ibv_recv_wr wr{n, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE((qp != nullptr ? ibv_post_recv(qp, &wr, &bad) : ibv_post_srq_recv(srq, &wr, &bad)) == 0);
  }
  // From the buffers behind those of receive requests, of which the last is where writes go.
  ibv_send_wr request(ibv_sge& sge, ibv_wr_opcode opcode, uint32_t length, uint8_t content, ibv_ah* ah,
                      const Address& to) const {
    std::memset(buffer(kDepth), content, length);
    sge = {reinterpret_cast<uint64_t>(buffer(kDepth)), length, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.wr.rdma = {to.memory, to.rkey};
    if (ah != nullptr) wr.wr.ud = {ah, to.qpn, kQkey};
    return wr;
  }
  static void post(ibv_qp* qp, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  }
  void expect_sent() const {
    ibv_wc wc;
    const auto limit = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (ibv_poll_cq(send_cq, 1, &wc) == 0) REQUIRE(Clock::now() < limit);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
  }
};

Address exchange(int socket, const Address& mine) {
  Address theirs{};
  REQUIRE(write(socket, &mine, sizeof mine) == sizeof mine);
  REQUIRE(recv(socket, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
  return theirs;
}
void meet(int socket) {
  char byte = 0;
  REQUIRE(write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1);
}

// --- The sender

int be_sender(const Mode& mode, int socket) {
  World world;
  ibv_qp* qp = world.make_qp({mode.name, mode.type, false, mode.opcode, 0});
  const Address to = exchange(socket, world.address(qp));
  world.connect(qp, to);
  ibv_ah_attr path = world.path(to);
  ibv_ah* ah = mode.type == IBV_QPT_UD ? ibv_create_ah(world.pd, &path) : nullptr;
  meet(socket);
  // What is done once only is behind it then.
  ibv_sge sge;
  ibv_send_wr wr = world.request(sge, IBV_WR_SEND, 8, kFromPeer, ah, to);
  World::post(qp, wr);
  world.expect_sent();
  meet(socket);
  wr = world.request(sge, mode.opcode, mode.length, kFromPeer, ah, to);
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 77;
  raise(SIGSTOP);
  World::post(qp, wr);
  raise(SIGSTOP);
  return 0;
}

// --- The receiver

class Receiver {
 public:
  Receiver() {
    ibv_qp* qp = world_.make_qp(kModes[0]);
    const std::string path = std::string(getenv("SOFTHCA_DIR")) + "/slots";
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* mapped = mmap(nullptr, softhca::kSlotBytes, PROT_READ, MAP_SHARED, file,
                        static_cast<off_t>(softhca::slot_of_qpn(qp->qp_num) * softhca::kSlotBytes));
    REQUIRE(mapped != MAP_FAILED);
    close(file);
    slot_ = static_cast<const softhca::Slot*>(mapped);
    REQUIRE(ibv_destroy_qp(qp) == 0);
    for (const auto& cq : slot_->cqs)
      if (cq_ == nullptr && cq.in_use.load() != 0) cq_ = &cq;
    srq_ = &slot_->srqs[world_.srq->handle];
    for (uint64_t n = 0; n < kDepth; ++n) post(nullptr, n);
  }

  // One sender, which dies after so many stores. False: it has got to the end before.
  bool lose_sender(int index, int stores, bool others_first) {
    const Mode& mode = kModes[index];
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const pid_t pid = start(index, pair);
    ibv_qp* qp = world_.make_qp(mode);
    ibv_qp* of_requests = mode.shared ? nullptr : qp;
    std::set<uint64_t> of_srq;
    if (!mode.shared) {
      of_srq.swap(outstanding_);
      for (uint64_t n = 0; n < kDepth; ++n) post(qp, n);
    }
    const Address peer = exchange(pair[0], world_.address(qp));
    world_.connect(qp, peer);
    meet(pair[0]);
    post(of_requests, expect_message(kFromPeer));
    arm(mode);
    meet(pair[0]);
    const bool killed = run_to_store(pid, qp, stores);
    kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status) && !WIFEXITED(status)) {
    }
    close(pair[0]);
    expect_to_be_told(mode);
    account(mode, qp, others_first);
    REQUIRE(ibv_destroy_qp(qp) == 0);
    if (mode.shared)
      for (uint64_t n = 0; n < kDepth; ++n) post(nullptr, n);
    else
      outstanding_.swap(of_srq);
    return killed;
  }

 private:
  void post(ibv_qp* qp, uint64_t n) {
    REQUIRE(outstanding_.insert(n).second);
    world_.post_receive(qp, n);
  }

  static pid_t start(int index, const int (&pair)[2]) {
    const std::string mode = std::to_string(index);
    const std::string fd = std::to_string(pair[1]);
    char program[] = "/proc/self/exe";
    char* arguments[] = {program, const_cast<char*>(mode.c_str()), const_cast<char*>(fd.c_str()), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, pair[0]);
    pid_t pid = 0;
    REQUIRE(posix_spawn(&pid, program, &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    return pid;
  }

  const softhca::CqEntry& entry(uint32_t number) const {
    const auto* ring = reinterpret_cast<const uint8_t*>(slot_) + cq_->offset;
    return reinterpret_cast<const softhca::CqEntry*>(ring)[number & (cq_->capacity - 1)];
  }

  // What senders write to, but for the rings, which nobody looks at before one of these says so: of an entry that is its turn.
  std::vector<uint8_t> shared_memory(const ibv_qp* qp) const {
    std::vector<uint8_t> all;
    const auto add = [&](const void* from, size_t bytes) {
      const auto* begin = static_cast<const uint8_t*>(from);
      all.insert(all.end(), begin, begin + bytes);
    };
    add(slot_, offsetof(softhca::Slot, mailbox));
    std::memset(&all[offsetof(softhca::SlotHeader, asleep)], 0, sizeof slot_->header.asleep);  // by this process alone
    add(cq_, sizeof *cq_);
    for (uint32_t n = 0; n < cq_->capacity; ++n) add(&entry(n).turn, sizeof entry(n).turn);
    add(srq_, sizeof *srq_);
    add(&slot_->qps[softhca::index_of_qpn(qp->qp_num)], sizeof slot_->qps[0]);
    return all;
  }

  bool run_to_store(pid_t pid, const ibv_qp* qp, int stores) const {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
      puts("one process may not trace another here");
      exit(77);
    }
    REQUIRE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    std::vector<uint8_t> before = shared_memory(qp);
    for (int seen = 0; seen < stores;) {
      REQUIRE(ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) == 0);
      REQUIRE(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
      if (WSTOPSIG(status) == SIGSTOP) return false;
      REQUIRE(WSTOPSIG(status) == SIGTRAP);
      std::vector<uint8_t> now = shared_memory(qp);
      if (now == before) continue;
      before.swap(now);
      ++seen;
    }
    return true;
  }

  // The next message or the next loss of requests shall be told.
  void arm(const Mode& mode) {
    while (readable(world_.channel->fd, 0)) take_event();
    REQUIRE(ibv_req_notify_cq(world_.cq, 0) == 0);
    ibv_srq_attr attr{0, 0, kDepth};
    if (mode.shared) REQUIRE(ibv_modify_srq(world_.srq, &attr, IBV_SRQ_LIMIT) == 0);
  }
  void expect_to_be_told(const Mode& mode) {
    const uint32_t next = cq_->head.load();
    if (entry(next).turn.load() == softhca::turn_of(next, cq_->capacity))
      REQUIRE(readable(world_.channel->fd, kPatienceMs));
    while (readable(world_.channel->fd, 0)) take_event();
    if (!mode.shared || srq_->ring.posted.load() - srq_->ring.taken.load() == kDepth) return;
    for (ibv_event_type type = IBV_EVENT_COMM_EST; type != IBV_EVENT_SRQ_LIMIT_REACHED; type = next_async())
      REQUIRE(readable(world_.context->async_fd, kPatienceMs));
  }
  void take_event() const {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    REQUIRE(ibv_get_cq_event(world_.channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
  }
  ibv_event_type next_async() const {
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(world_.context, &event) == 0);
    ibv_ack_async_event(&event);
    return event.event_type;
  }
  static bool readable(int fd, int milliseconds) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, milliseconds) == 1;
  }

  // It was posted, completes once, and has what was sent. Gives its number.
  uint64_t take_completion(const ibv_wc& wc, uint8_t content) {
    REQUIRE(outstanding_.erase(wc.wr_id) == 1);
    if (wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_LOC_LEN_ERR) return wc.wr_id;
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    const uint8_t* from = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM ? world_.buffer(kDepth + 1) : world_.buffer(wc.wr_id);
    const uint32_t header = wc.byte_len == kHeader + 8 ? kHeader : 0;
    REQUIRE(from[header] == content && from[wc.byte_len - 1] == content);
    return wc.wr_id;
  }
  uint64_t expect_message(uint8_t content) {
    ibv_wc wc;
    const auto limit = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (ibv_poll_cq(world_.cq, 1, &wc) == 0) REQUIRE(Clock::now() < limit);
    return take_completion(wc, content);
  }

  // Every request that was posted completes: with the sender's message, with the queue pair, or with messages from here, the
  // first of which may come before the queue pair is ended.
  void account(const Mode& mode, ibv_qp* qp, bool others_first) {
    ibv_qp* from = world_.make_qp({mode.name, mode.type, false, mode.opcode, 0});
    ibv_qp* to = mode.type == IBV_QPT_RC ? world_.make_qp(mode) : qp;
    const Address there = world_.address(to);
    world_.connect(from, there);
    if (to != qp) world_.connect(to, world_.address(from));
    ibv_ah_attr path = world_.path(there);
    ibv_ah* ah = mode.type == IBV_QPT_UD ? ibv_create_ah(world_.pd, &path) : nullptr;
    const auto send = [&] {
      ibv_sge sge;
      ibv_send_wr wr = world_.request(sge, IBV_WR_SEND, 8, kFromHere, ah, there);
      World::post(from, wr);
      world_.expect_sent();
      expect_message(kFromHere);
    };
    const bool has_others = mode.type == IBV_QPT_UD || mode.shared;
    take_all();
    if (has_others && others_first) send();
    if (mode.type == IBV_QPT_RC) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    }
    take_all();
    while (readable(world_.context->async_fd, 0)) next_async();
    if (has_others)
      while (!outstanding_.empty()) send();
    REQUIRE(outstanding_.empty());
    if (ah != nullptr) REQUIRE(ibv_destroy_ah(ah) == 0);
    if (to != qp) REQUIRE(ibv_destroy_qp(to) == 0);
    REQUIRE(ibv_destroy_qp(from) == 0);
  }
  void take_all() {
    ibv_wc wc;
    while (ibv_poll_cq(world_.cq, 1, &wc) != 0) take_completion(wc, kFromPeer);
  }

  World world_;
  const softhca::Slot* slot_ = nullptr;
  const softhca::CqShared* cq_ = nullptr;
  const softhca::SrqShared* srq_ = nullptr;
  std::set<uint64_t> outstanding_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return be_sender(kModes[atoi(argv[1])], atoi(argv[2]));
  Receiver receiver;
  int all = 0;
  for (int mode = 0; mode < static_cast<int>(std::size(kModes)); ++mode) {
    where = kModes[mode].name;
    for (visited = 1; receiver.lose_sender(mode, visited, false) && receiver.lose_sender(mode, visited, true);
         ++visited)
      ++all;
    printf("%s: %d stores\n", where, visited - 1);
    fflush(stdout);
  }
  return all > 0 ? 0 : 1;
}
