// SPDX-License-Identifier: BSD-3-Clause
//
// What cannot work is refused with one line that says why: fabrics that a process cannot join, and copies that there is no room
// for. What a process has asked another to copy is not done when it is gone, and nothing is left of it for who gets its place.
// Below softhca-run; each test spoils what it needs to and puts it right again.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>

#include "fabric/layout.h"
#include "test/softhca/fabric_file.h"
#include "test/softhca/two_processes.h"

namespace {

using namespace verbs_test;

/// What this process writes to stderr during its lifetime.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)), file_(memfd_create("stderr", 0)) { dup2(file_, STDERR_FILENO); }
  ~Stderr() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(file_);
  }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;
  std::string text() const {
    char buffer[2048];
    const ssize_t n = pread(file_, buffer, sizeof buffer, 0);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))};
  }

 private:
  const int before_;
  const int file_;
};

/// Tries twice to open the first device, in a child: what that says. There must be one line, and no device.
std::string refusal(uid_t user = 0) {
  int answer[2];
  ck_assert_int_eq(pipe(answer), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Stderr lines;
    if (user != 0 && seteuid(user) != 0) _exit(2);
    bool opened = false;
    for (int i = 0; i < 2; ++i)
      if (ibv_device** list = ibv_get_device_list(nullptr); list[0] != nullptr)
        opened = opened || ibv_open_device(list[0]) != nullptr;
    const std::string text = lines.text();
    const bool good = write(answer[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(good && !opened ? 0 : 1);
  }
  ck_assert_int_eq(end_of(child), 0);
  close(answer[1]);
  char buffer[2048];
  const ssize_t n = read(answer[0], buffer, sizeof buffer);
  close(answer[0]);
  const std::string text(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  ck_assert_msg(std::count(text.begin(), text.end(), '\n') == 1 && text.find('\n') == text.size() - 1,
                "not one line: %s", text.c_str());
  fabric::test::check_text_has(text, fabric_directory());
  return text;
}

/// Changes a number of the fabric's file while it exists.
class Changed {
 public:
  Changed(size_t offset, uint64_t value)
      : file_(open((fabric_directory() + "/slots").c_str(), O_RDWR)), offset_(static_cast<off_t>(offset)) {
    ck_assert_int_eq(pread(file_, &before_, sizeof before_, offset_), sizeof before_);
    ck_assert_uint_ne(before_, 0);
    ck_assert_int_eq(pwrite(file_, &value, sizeof value, offset_), sizeof value);
  }
  ~Changed() {
    ck_assert_int_eq(pwrite(file_, &before_, sizeof before_, offset_), sizeof before_);
    close(file_);
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

 private:
  const int file_;
  const off_t offset_;
  uint64_t before_ = 0;
};

/// Somebody has been in the fabric.
void join_in_a_child() {
  ck_assert_int_eq(end_of(play([] {
                     const World w;
                     return 0;
                   })),
                   0);
}

START_TEST(another_layout) {
  join_in_a_child();
  const Changed magic(offsetof(softhca::SlotHeader, magic), 0x736f66746863'0001);
  fabric::test::check_text_has(refusal(), "has another layout (736f667468630001)");
}
END_TEST

START_TEST(another_pid_namespace) {
  join_in_a_child();
  const Changed space(offsetof(softhca::SlotHeader, pid_namespace), 4026530000);
  fabric::test::check_text_has(refusal(), "is of another PID namespace (pid:[4026530000], this process is in pid:[");
}
END_TEST

START_TEST(open_to_others) {
  ck_assert_int_eq(chmod(fabric_directory().c_str(), 0755), 0);
  const std::string text = refusal();
  ck_assert_int_eq(chmod(fabric_directory().c_str(), 0700), 0);
  fabric::test::check_text_has(text, "(mode 0755): chmod 0700 it");
}
END_TEST

/// Needs the right to be somebody else.
START_TEST(another_user) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) return;
  fabric::test::check_text_has(refusal(kNobody), "is of user 0, and this process is of user 65534");
}
END_TEST

START_TEST(no_directory) {
  const std::string before = fabric_directory();
  setenv("SOFTHCA_DIR", "/nonexistent/fabric", 1);
  const std::string text = refusal();
  setenv("SOFTHCA_DIR", before.c_str(), 1);
  fabric::test::check_text_has(text, "/nonexistent/fabric, cannot be used (No such file or directory)");
}
END_TEST

// --- No room

/// From now on this thread cannot copy by way of the kernel, and the fabric's file system is full.
void fill_up() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 1, 2),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
}

/// A copy that there is no memory for fails, and the reason is told once.
START_TEST(no_room_for_a_copy) {
  const Stage stages[2];
  pid_t peers[2];
  for (int i = 0; i < 2; ++i) peers[i] = play([&] { return be_peer(stages[i], kWrite); });
  const Sender senders[2] = {{stages[0], kWrite}, {stages[1], kWrite}};
  std::string text;
  {
    const Stderr lines;
    fill_up();
    alarm(20);  // who looks for room for ever looks at no timer
    for (int i = 0; i < 2; ++i)
      ck_assert_str_eq(ibv_wc_status_str(senders[i].send(*stages[i].board, kWrite).status),
                       ibv_wc_status_str(IBV_WC_LOC_QP_OP_ERR));
    text = lines.text();
  }
  fabric::test::check_text_has(text, "softhca: there is no room in " + fabric_directory() + " for the 256 KiB");
  ck_assert_int_eq(std::count(text.begin(), text.end(), '\n'), 1);
  for (const pid_t peer : peers) {
    kill(peer, SIGKILL);
    end_of(peer);
  }
}
END_TEST

// --- Slots

/// A process that joins, and has a queue pair with that number.
class Joined {
 public:
  Joined()
      : pid_(play([&]() -> int {
          const World w;
          stage_.board->sender_qpn = w.make_qp()->qp_num;
          stage_.reach(1);
          for (;;) pause();
        })) {
    stage_.await(1);
  }
  ~Joined() {
    kill(pid_, SIGKILL);
    end_of(pid_);
  }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  uint32_t qpn() const { return stage_.board->sender_qpn; }

 private:
  const Stage stage_;
  const pid_t pid_;
};

/// Slots are used in turn; the next process gets this one.
void make_next(unsigned slot) {
  constexpr size_t kAt = offsetof(softhca::Slot, arena);
  auto* hub = static_cast<uint8_t*>(map_slot(softhca::kHubSlot, kAt + sizeof(softhca::Hub))) + kAt;
  reinterpret_cast<softhca::Hub*>(hub)->next_slot.store(slot - 1);
}

/// What others have left in a slot was for its last owner, who is gone.
START_TEST(a_new_owner_finds_an_empty_slot) {
  softhca::Slot* slot = nullptr;
  unsigned number = 0;
  {
    const Joined last;
    slot = &slot_of(last.qpn());
    number = softhca::slot_of_qpn(last.qpn());
  }
  constexpr unsigned kSome = 70;
  constexpr uint64_t kItsBit = uint64_t{1} << kSome % 64;
  slot->cq_events.add(kSome);
  slot->qp_events.add(kSome);
  slot->srq_events.add(kSome);
  slot->visitors.add(kSome);
  slot->copies[0].addr = 17;
  ck_assert_uint_eq(slot->visitors.words[kSome / 64].load(), kItsBit);
  make_next(number);
  const Joined next;
  ck_assert_uint_eq(softhca::slot_of_qpn(next.qpn()), number);
  ck_assert_uint_eq(slot->cq_events.words[kSome / 64].load(), 0);
  ck_assert_uint_eq(slot->qp_events.words[kSome / 64].load(), 0);
  ck_assert_uint_eq(slot->srq_events.words[kSome / 64].load(), 0);
  ck_assert_uint_eq(slot->visitors.words[kSome / 64].load(), 0);
  ck_assert_uint_eq(slot->copies[0].addr, 0);
}
END_TEST

/// The last queue pair of the last slot would have the number by which multicast groups are addressed. (Below a sanitizer it takes
/// minutes to come to that.)
START_TEST(no_queue_pair_has_the_number_of_multicast) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  join_in_a_child();
  make_next(softhca::kSlots - 1);
  const World w;
  for (unsigned i = 0; i < softhca::kQpsPerSlot; ++i) {
    ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_UD);
    ck_assert_uint_eq(softhca::slot_of_qpn(qp->qp_num), softhca::kSlots - 1);
    ck_assert_uint_ne(qp->qp_num, 0xffffff);
    ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  }
#endif
}
END_TEST

// --- Copies that somebody has asked for who is gone

/// This process's slot as others see it, and what somebody has asked it to copy who has been killed meanwhile.
class AskedByTheDead {
 public:
  AskedByTheDead(const World& w, uint8_t* target) : request_(request_in(w.pair()[0]->qp_num)) {
    const Stage stage;
    const pid_t child = play([&] {
      const World own;
      stage.board->sender_qpn = own.pair()[0]->qp_num;
      stage.reach(1);
      pause();
      return 1;
    });
    stage.await(1);
    const unsigned number = softhca::slot_of_qpn(stage.board->sender_qpn);
    request_.asker = stamp_of(stage.board->sender_qpn);
    request_.to_target = 1;
    request_.length = sizeof(uint64_t);
    request_.file_offset = softhca::Fabric::file_offset(number, 0);
    request_.addr = reinterpret_cast<uint64_t>(target);
    kill(child, SIGKILL);
    end_of(child);
  }
  std::atomic<uint32_t>& state() { return request_.state; }
  /// This process hears of it, or has begun with it.
  void ask(softhca::CopyState state) {
    request_.state.store(state);
    slot_->header.copies_asked.fetch_add(1);
  }

 private:
  softhca::CopyRequest& request_in(uint32_t qpn) {
    slot_ = &slot_of(qpn);
    return slot_->copies[5];
  }

  softhca::Slot* slot_ = nullptr;
  softhca::CopyRequest& request_;
};

/// It would be written to memory that is perhaps no region's any more.
START_TEST(a_copy_for_the_dead_is_not_made) {
  const World w;
  uint64_t word = 17;
  AskedByTheDead copy(w, reinterpret_cast<uint8_t*>(&word));
  copy.ask(softhca::kCopyAsked);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc wc;
  while (copy.state().load() == softhca::kCopyAsked) {
    ck_assert_int_eq(ibv_poll_cq(w.cq, 1, &wc), 0);
    ck_assert(std::chrono::steady_clock::now() < end);
  }
  while (copy.state().load() == softhca::kCopyRunning) ck_assert(std::chrono::steady_clock::now() < end);
  ck_assert_uint_eq(word, 17);
}
END_TEST

/// One that has begun before is waited for, when a region ends.
START_TEST(a_region_ends_after_a_copy_for_the_dead) {
  const World w;
  const auto qps = w.pair();
  ibv_mr* mr = register_area(w);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, reinterpret_cast<uint64_t>(area), mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  AskedByTheDead copy(w, area);
  copy.ask(softhca::kCopyRunning);
  std::atomic<bool> copied{false};
  std::thread copier([&] {
    for (int i = 0; i < 50; ++i) Stage::pause_a_moment();
    copied.store(true);
    copy.state().store(softhca::kCopyDone);
  });
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  ck_assert(copied.load());
  copier.join();
}
END_TEST

/// A peer that writes through a queue pair is waited for, even while another thread destroys that queue pair.
START_TEST(a_region_ends_after_a_write_through_a_queue_pair_that_goes) {
  const World w;
  const auto first = w.pair();
  const auto second = w.pair();
  ibv_mr* mr = register_area(w);
  for (ibv_qp* qp : {first[0], second[0]}) {
    ck_assert_int_eq(w.post_rdma(qp, IBV_WR_RDMA_WRITE, 1, 8, reinterpret_cast<uint64_t>(area), mr->rkey), 0);
    w.expect(1, IBV_WC_SUCCESS);
  }
  // Who writes holds the lock meanwhile.
  const uint32_t number = first[1]->qp_num;
  softhca::RobustLock& lock = slot_of(number).qps[softhca::index_of_qpn(number)].lock;
  ck_assert(lock.try_lock(stamp_of(number)));
  std::thread destroyer([&] { ck_assert_int_eq(ibv_destroy_qp(first[1]), 0); });
  for (int i = 0; i < 50; ++i) Stage::pause_a_moment();
  std::atomic<bool> written{false};
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) Stage::pause_a_moment();
    written.store(true);
    lock.unlock();
  });
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  ck_assert(written.load());
  writer.join();
  destroyer.join();
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_fabric",
      {another_layout, another_pid_namespace, open_to_others, another_user, no_directory, no_room_for_a_copy,
       a_new_owner_finds_an_empty_slot, no_queue_pair_has_the_number_of_multicast, a_copy_for_the_dead_is_not_made,
       a_region_ends_after_a_copy_for_the_dead, a_region_ends_after_a_write_through_a_queue_pair_that_goes});
}
