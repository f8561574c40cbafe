// SPDX-License-Identifier: BSD-3-Clause
//
// A sender is killed after each of the stores by which it changes what the receiver shares with it: the receiver's requests still
// complete once each, and it is told of what has come. The stores are not listed anywhere. The sender is run one instruction
// at a time, and the memory of the receiver, which is this process, is compared after each: a store that is new is
// visited without anybody's help. And it stands still after each of them, while the receiver sets another limit for its requests.
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
#include "test/softhca/stores_world.h"

extern char** environ;

namespace {

using namespace stores_test;

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
    Sending sending = start_sending(index);
    const bool killed = run_to_store(sending, stores);
    end(sending);
    expect_to_be_told(sending.mode);
    account(sending.mode, sending.qp, others_first);
    finish(sending);
    return killed;
  }

  // One sender to the shared queue, which stands still after so many stores. Meanwhile another limit is set: that holds then, for what
  // is taken afterwards. False: the sender has got to the end before.
  bool set_limit_anew(int index, int stores) {
    constexpr uint32_t kNotReached = kDepth - 1;  // by this one message
    Sending sending = start_sending(index);
    const bool stopped = run_to_store(sending, stores);
    set_limit(kNotReached);
    if (stopped) run_to_end(sending);
    end(sending);
    const auto until = Clock::now() + std::chrono::milliseconds(kShortMs);
    while (Clock::now() < until) REQUIRE(limit() == kNotReached);
    account(sending.mode, sending.qp, false);  // takes them all
    expect_limit_event();
    finish(sending);
    return stopped;
  }

 private:
  struct Sending {
    const Mode& mode;
    pid_t pid;
    int socket;
    ibv_qp* qp;                 // the receiver's
    std::set<uint64_t> of_srq;  // requests that are none of its
  };

  // Up to the message whose stores are looked at.
  Sending start_sending(int index) {
    const Mode& mode = kModes[index];
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    Sending sending{mode, start(index, pair), pair[0], world_.make_qp(mode), {}};
    ibv_qp* of_requests = mode.shared ? nullptr : sending.qp;
    if (!mode.shared) {
      sending.of_srq.swap(outstanding_);
      for (uint64_t n = 0; n < kDepth; ++n) post(sending.qp, n);
    }
    const Address peer = exchange(sending.socket, world_.address(sending.qp));
    world_.connect(sending.qp, peer);
    meet(sending.socket);
    post(of_requests, expect_message(kFromPeer));
    arm(mode);
    meet(sending.socket);
    return sending;
  }
  static void end(const Sending& sending) {
    kill(sending.pid, SIGKILL);
    int status = 0;
    while (waitpid(sending.pid, &status, 0) == sending.pid && !WIFSIGNALED(status) && !WIFEXITED(status)) {
    }
    close(sending.socket);
  }
  void finish(Sending& sending) {
    REQUIRE(ibv_destroy_qp(sending.qp) == 0);
    if (sending.mode.shared)
      for (uint64_t n = 0; n < kDepth; ++n) post(nullptr, n);
    else
      outstanding_.swap(sending.of_srq);
  }

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

  bool run_to_store(const Sending& sending, int stores) const {
    const pid_t pid = sending.pid;
    const ibv_qp* qp = sending.qp;
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

  static void run_to_end(const Sending& sending) {
    int status = 0;
    REQUIRE(ptrace(PTRACE_CONT, sending.pid, nullptr, nullptr) == 0);
    REQUIRE(waitpid(sending.pid, &status, 0) == sending.pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
  }

  void set_limit(uint32_t limit) const {
    ibv_srq_attr attr{0, 0, limit};
    REQUIRE(ibv_modify_srq(world_.srq, &attr, IBV_SRQ_LIMIT) == 0);
  }
  uint32_t limit() const {
    ibv_srq_attr attr{};
    REQUIRE(ibv_query_srq(world_.srq, &attr) == 0);
    return attr.srq_limit;
  }
  // The next message or the next loss of requests shall be told.
  void arm(const Mode& mode) {
    while (readable(world_.channel->fd, 0)) take_event();
    REQUIRE(ibv_req_notify_cq(world_.cq, 0) == 0);
    if (mode.shared) set_limit(kDepth);
  }
  void expect_to_be_told(const Mode& mode) {
    const uint32_t next = cq_->head.load();
    if (entry(next).turn.load() == softhca::turn_of(next, cq_->capacity))
      REQUIRE(readable(world_.channel->fd, kPatienceMs));
    while (readable(world_.channel->fd, 0)) take_event();
    if (!mode.shared || srq_->ring.posted.load() - srq_->ring.taken.load() == kDepth) return;
    expect_limit_event();
  }
  void expect_limit_event() const {
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
    int visited = 1;
    const auto after_store = [&] {
      bare_verbs::place = std::string(kModes[mode].name) + ", after store " + std::to_string(visited) + ": ";
      return visited;
    };
    for (; receiver.lose_sender(mode, after_store(), false) && receiver.lose_sender(mode, visited, true); ++visited)
      ++all;
    printf("%s: %d stores\n", kModes[mode].name, visited - 1);
    fflush(stdout);
    for (visited = 1; kModes[mode].shared && receiver.set_limit_anew(mode, after_store());) ++visited;
  }
  return all > 0 ? 0 : 1;
}
