// SPDX-License-Identifier: BSD-3-Clause
//
// Processes are killed at random instants while they send or receive: what the others then have must be consistent, and they
// go on. Each peer is this same program, started again. Written against the public verbs API alone.
//
//   test_softhca_kill [ROUNDS [SEED]]
#include <infiniband/verbs.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "test/softhca/bare_verbs.h"

extern char** environ;

namespace {

using bare_verbs::Address;
using bare_verbs::Device;
using Clock = std::chrono::steady_clock;

constexpr int kDepth = 64;                                      // receive requests of a QP or SRQ
constexpr uint32_t kBufferBytes = 8192;                         // of a receive request
constexpr size_t kTargets = size_t{kDepth} * 2 * kBufferBytes;  // where the memory for WRITE, READ and atomics begins
constexpr size_t kTargetBytes = 65536;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr auto kPatience = std::chrono::seconds(30);

// A device, with one CQ, one SRQ and one piece of memory: first buffers for receive requests, then targets.
struct World : Device {
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>(kTargets + kTargetBytes);
  ibv_mr* mr = nullptr;

  World() {
    cq = ibv_create_cq(context, 1024, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
    srq = make_srq(kDepth);
    REQUIRE(cq != nullptr && mr != nullptr);
  }

  ibv_qp* make_qp(bool with_srq) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = with_srq ? srq : nullptr;
    attr.cap = {kDepth, with_srq ? 0U : kDepth, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    REQUIRE(qp != nullptr);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = kAccess;
    REQUIRE(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    return qp;
  }

  Address address(const ibv_qp* qp) const {
    return {qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(memory.data() + kTargets), port.lid, gid};
  }

  // The transport gives up after some 20 ms.
  void connect(ibv_qp* qp, const Address& to) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qpn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = path(to);
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 4;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  // Buffer `n` is used by the request with that wr_id.
  uint8_t* buffer(uint64_t n) { return memory.data() + n * kBufferBytes; }
  void post_receive(ibv_qp* qp, uint64_t n) { Device::post_receive(qp, srq, n, buffer(n), kBufferBytes, mr->lkey); }
  // What is in buffer `n`.
  void post_send(ibv_qp* qp, uint64_t n, uint32_t length) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer(n)), length, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  }
};

// The other process, and a socket to it.
struct Peer {
  pid_t pid = 0;
  int socket = -1;

  explicit Peer(const char* role) {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const std::string fd = std::to_string(pair[1]);
    char program[] = "/proc/self/exe";
    char* arguments[] = {program, const_cast<char*>(role), const_cast<char*>(fd.c_str()), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, pair[0]);
    REQUIRE(posix_spawn(&pid, program, &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    socket = pair[0];
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  void end() {
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, nullptr, 0) == pid);
    close(socket);
  }
};

Address exchange(int socket, const Address& mine) {
  Address theirs{};
  REQUIRE(write(socket, &mine, sizeof mine) == sizeof mine);
  REQUIRE(recv(socket, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
  return theirs;
}
// Both sides are in RTS.
void meet(int socket) {
  char byte = 0;
  REQUIRE(write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1);
}

// --- Roles of peers

// Message n has the number in its first and its last 8 bytes. Nobody else sends as much as the longest: faults by
// min_bytes strike senders alone (kill.test).
constexpr uint32_t length_of(uint64_t n) {
  return n % 3 == 0 ? 16 : n % 3 == 1 ? 160 : 5000;
}

// Sends, writes, reads and adds until it is killed.
int be_sender(int socket) {
  World world;
  ibv_qp* qp = world.make_qp(false);
  const Address to = exchange(socket, world.address(qp));
  world.connect(qp, to);
  meet(socket);
  uint64_t messages = 0;
  uint64_t posted = 0;
  uint64_t done = 0;
  for (;;) {
    while (posted - done < 16) {
      uint8_t* buffer = world.buffer(posted % 16);
      ibv_sge sge{reinterpret_cast<uint64_t>(buffer), kBufferBytes, world.mr->lkey};
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma = {to.memory + 64, to.rkey};
      switch (posted++ % 4) {
        case 0:
          sge.length = length_of(messages);
          std::memcpy(buffer, &messages, sizeof messages);
          std::memcpy(buffer + sge.length - sizeof messages, &messages, sizeof messages);
          ++messages;
          wr.opcode = IBV_WR_SEND;
          break;
        case 1:
          wr.opcode = IBV_WR_RDMA_WRITE;
          break;
        case 2:
          wr.opcode = IBV_WR_RDMA_READ;
          break;
        case 3:
          sge.length = 8;
          wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
          wr.wr.atomic = {to.memory, 1, 0, to.rkey};
      }
      ibv_send_wr* bad = nullptr;
      REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
    }
    ibv_wc wc;
    if (ibv_poll_cq(world.cq, 1, &wc) == 0) continue;
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    ++done;
  }
}

// A queue pair with all its receives posted, connected to the one at the other end of `socket`.
ibv_qp* connected_receiver(World& world, int socket) {
  ibv_qp* qp = world.make_qp(false);
  for (uint64_t n = 0; n < kDepth; ++n) world.post_receive(qp, n);
  world.connect(qp, exchange(socket, world.address(qp)));
  meet(socket);
  return qp;
}

// Posts receive requests until it is killed.
int be_receiver(int socket) {
  World world;
  ibv_qp* qp = connected_receiver(world, socket);
  for (;;) {
    ibv_wc wc;
    if (ibv_poll_cq(world.cq, 1, &wc) != 0) world.post_receive(qp, wc.wr_id);
  }
}

// Answers every message with one, until the socket is closed.
int be_echo(int socket) {
  World world;
  ibv_qp* qp = connected_receiver(world, socket);
  for (;;) {
    ibv_wc wc;
    if (ibv_poll_cq(world.cq, 1, &wc) == 0) {
      pollfd fd{socket, POLLIN, 0};
      if (poll(&fd, 1, 1) > 0) return 0;
      continue;
    }
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    if ((wc.opcode & IBV_WC_RECV) == 0) continue;
    world.post_send(qp, wc.wr_id, wc.byte_len);
    world.post_receive(qp, wc.wr_id);
  }
}

// --- The survivor

class Survivor {
 public:
  explicit Survivor(unsigned seed) : random_(seed), echo_("echo") {
    echo_qp_ = world_.make_qp(false);
    world_.connect(echo_qp_, exchange(echo_.socket, world_.address(echo_qp_)));
    meet(echo_.socket);
    // Of the SRQ every buffer is posted always; those of the QPs come after them.
    for (uint64_t n = 0; n < kDepth; ++n) post(nullptr, n);
  }
  ~Survivor() {
    close(echo_.socket);
    waitpid(echo_.pid, nullptr, 0);
  }
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;

  // A peer that sends here is killed.
  void lose_sender(bool with_srq) {
    Peer peer("sender");
    ibv_qp* qp = world_.make_qp(with_srq);
    receiving_ = qp;
    next_message_ = 0;
    if (!with_srq)
      for (uint64_t n = kDepth; n < 2 * kDepth; ++n) post(qp, n);
    world_.connect(qp, exchange(peer.socket, world_.address(qp)));
    meet(peer.socket);
    const auto until = Clock::now() + std::chrono::microseconds(random_() % 8000);
    while (Clock::now() < until) poll_once();
    peer.end();
    check_echo();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    receiving_ = nullptr;
    while (poll_once()) {
    }
    if (!with_srq) REQUIRE(outstanding_.size() == kDepth);  // those of the SRQ: all of this QP's have come back, once
    REQUIRE(ibv_destroy_qp(qp) == 0);
    for (uint64_t n = 0; n < kDepth; ++n)
      if (!outstanding_[n]) post(nullptr, n);
    check_echo();
    total_ += next_message_;
  }

  // A peer that receives is killed.
  void lose_receiver() {
    Peer peer("receiver");
    ibv_qp* qp = world_.make_qp(false);
    world_.connect(qp, exchange(peer.socket, world_.address(qp)));
    meet(peer.socket);
    const auto until = Clock::now() + std::chrono::microseconds(random_() % 8000);
    bool killed = false;
    unsigned posted = 0;
    unsigned done = 0;
    ibv_wc_status first_error = IBV_WC_SUCCESS;
    for (const auto limit = until + kPatience; done < posted || first_error == IBV_WC_SUCCESS;) {
      REQUIRE(Clock::now() < limit);
      if (!killed && Clock::now() > until) {
        peer.end();
        killed = true;
      }
      for (; posted - done < 8 && first_error == IBV_WC_SUCCESS; ++posted) {
        world_.post_send(qp, kDepth, posted % 2 == 0 ? 100U : 3000U);
      }
      ibv_wc wc;
      if (ibv_poll_cq(world_.cq, 1, &wc) == 0) continue;
      REQUIRE(wc.qp_num == qp->qp_num);
      ++done;
      if (wc.status == IBV_WC_SUCCESS) {
        REQUIRE(first_error == IBV_WC_SUCCESS);
      } else if (first_error == IBV_WC_SUCCESS) {
        REQUIRE(killed && wc.status == IBV_WC_RETRY_EXC_ERR);
        first_error = wc.status;
      } else {
        REQUIRE(wc.status == IBV_WC_WR_FLUSH_ERR);
      }
    }
    REQUIRE(ibv_destroy_qp(qp) == 0);
    check_echo();
  }

  uint64_t total() const { return total_; }

 private:
  void post(ibv_qp* qp, uint64_t n) {
    world_.post_receive(qp, n);
    REQUIRE(!outstanding_[n]);
    outstanding_[n] = true;
  }

  // Takes one completion, if there is one, and posts its request again while the QP lives.
  bool poll_once() {
    ibv_wc wc;
    const int n = ibv_poll_cq(world_.cq, 1, &wc);
    REQUIRE(n >= 0);
    if (n == 0) return false;
    if (wc.qp_num == echo_qp_->qp_num) {
      REQUIRE(wc.status == IBV_WC_SUCCESS);
      ++echoes_;
      return true;
    }
    REQUIRE(wc.wr_id < 2 * kDepth && outstanding_[wc.wr_id]);  // it was posted, and completes once
    outstanding_.erase(wc.wr_id);
    if (wc.status == IBV_WC_SUCCESS) {
      // Every message comes once, in order and whole.
      uint64_t head = 0;
      uint64_t tail = 0;
      REQUIRE(wc.byte_len == length_of(next_message_));
      std::memcpy(&head, world_.buffer(wc.wr_id), sizeof head);
      std::memcpy(&tail, world_.buffer(wc.wr_id) + wc.byte_len - sizeof tail, sizeof tail);
      REQUIRE(head == next_message_ && tail == next_message_);
      ++next_message_;
    } else {
      REQUIRE(wc.status == IBV_WC_WR_FLUSH_ERR);
    }
    if (receiving_ != nullptr) post(wc.wr_id < kDepth ? nullptr : receiving_, wc.wr_id);
    return true;
  }

  // The other peer is still there.
  void check_echo() {
    constexpr uint64_t kUnused =
        2 * kDepth + 1;  // buffers that are no receive request's: the echo may come before the send is complete
    static_assert(kTargetBytes >= 3 * kBufferBytes);
    world_.post_receive(echo_qp_, kUnused);
    world_.post_send(echo_qp_, kUnused + 1, 300);
    const auto limit = Clock::now() + kPatience;
    for (echoes_ = 0; echoes_ < 2;) {
      poll_once();
      REQUIRE(Clock::now() < limit);
    }
  }

  std::mt19937 random_;
  World world_;
  Peer echo_;
  ibv_qp* echo_qp_ = nullptr;
  ibv_qp* receiving_ = nullptr;
  std::map<uint64_t, bool> outstanding_;
  uint64_t next_message_ = 0;
  uint64_t total_ = 0;
  unsigned echoes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 3 ? argv[1] : "";
  if (role == "sender") return be_sender(atoi(argv[2]));
  if (role == "receiver") return be_receiver(atoi(argv[2]));
  if (role == "echo") return be_echo(atoi(argv[2]));
  const int rounds = argc > 1 ? atoi(argv[1]) : 100;
  const auto seed = static_cast<unsigned>(argc > 2 ? strtoul(argv[2], nullptr, 0) : std::random_device()());
  printf("seed %u\n", seed);
  fflush(stdout);
  Survivor survivor(seed);
  for (int i = 0; i < rounds; ++i) {
    survivor.lose_sender(i % 2 != 0);
    if (i % 5 == 0) survivor.lose_receiver();
  }
  printf("%d senders and %d receivers killed, %llu messages\n", rounds, (rounds + 4) / 5,
         static_cast<unsigned long long>(survivor.total()));
  return 0;
}
