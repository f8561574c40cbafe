// SPDX-License-Identifier: BSD-3-Clause
//
// A device whose verbs are the test's: what is posted is kept until the test says what becomes of it, and completions are
// polled in the order in which the test makes them. fake_verbs.cc defines the functions of libibverbs that are called.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fabric::test {

/// Not 0 while a fake works: what it allocates, a device would not.
inline int fakes_at_work = 0;
struct FakeAtWork {
  FakeAtWork() { ++fakes_at_work; }
  ~FakeAtWork() { --fakes_at_work; }
};

/// A request as it was when it was posted.
struct FakeSend {
  std::uint64_t id = 0;
  ibv_wr_opcode opcode{};
  unsigned flags = 0;
  std::vector<std::byte> bytes;  ///< of a send, or a write that is copied: all pieces
  std::uint32_t remote_srqn = 0;
  std::uint64_t remote_address = 0;  ///< of a write
  std::uint32_t rkey = 0;
};

struct FakeReceive {
  std::uint64_t id = 0;
  ibv_sge memory{};
};

/// A queue that receives are posted on.
using FakeReceives = std::deque<FakeReceive>;

class FakeDevice;

struct FakeQueuePair {
  ibv_qp verbs{};              ///< its qp_context is this
  std::deque<FakeSend> sends;  ///< posted and not completed
  FakeReceives receives;
  std::vector<FakeSend> all_sends;  ///< ever posted
  bool is_destroyed = false;        ///< nothing may be posted any more
  unsigned modified = 0;            ///< times that ibv_modify_qp() was called for it
};

struct FakeSharedQueue {
  ibv_srq verbs{};
  FakeReceives receives;
};

/// What it made goes with it.
class FakeDevice {
 public:
  FakeDevice();
  ~FakeDevice() = default;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  [[nodiscard]] ibv_context* context() noexcept { return &context_; }
  [[nodiscard]] ibv_pd* pd() noexcept { return &pd_; }
  [[nodiscard]] FakeQueuePair& make_queue_pair();
  [[nodiscard]] bool has_shared_queue() const noexcept { return !shared_queues_.empty(); }
  /// The one that ibv_create_srq() made last.
  [[nodiscard]] FakeSharedQueue& shared_queue() noexcept { return shared_queues_.back(); }

  // ---- What becomes of what was posted

  /// The oldest sends complete, up to the first that has a completion; that comes to the completion queue.
  void complete_send(FakeQueuePair& pair);
  /// The oldest send fails, and is the first: everything before it has completed.
  void fail_send(FakeQueuePair& pair, ibv_wc_status status);
  /// A message comes in: the oldest receive takes it.
  void receive(FakeQueuePair& pair, std::span<const std::byte> message) { receive(pair.receives, pair, message); }
  /// The same on a shared queue, through the queue pair.
  void receive(FakeSharedQueue& queue, const FakeQueuePair& pair, std::span<const std::byte> message) {
    receive(queue.receives, pair, message);
  }
  void fail_receive(FakeQueuePair& pair, ibv_wc_status status) { fail_receive(pair.receives, pair, status); }
  void fail_receive(FakeSharedQueue& queue, const FakeQueuePair& pair, ibv_wc_status status) {
    fail_receive(queue.receives, pair, status);
  }
  /// The queue pair is in the error state: all that is posted on it is flushed.
  void flush(FakeQueuePair& pair);

  /// The next `after` requests to send are taken, those after them refused with this error (0: none is).
  void refuse_sends(int error_number, unsigned after = 0) noexcept {
    send_error = error_number;
    posts_before_error = after;
  }

  // For the functions of fake_verbs.cc
  int send_error = 0;
  unsigned posts_before_error = 0;
  int receive_error = 0;           ///< if not 0, posts of receives are refused
  bool registers = true;           ///< false: no memory can be registered
  bool writes_in_order = false;    ///< as ibv_query_qp_data_in_order() says
  std::deque<ibv_wc> completions;  ///< to be polled
  unsigned empty_polls = 0;        ///< that found nothing
  unsigned regions = 0;            ///< registered now
  std::list<FakeQueuePair> queue_pairs;

  /// The one that a context, or what was made from it, is of.
  [[nodiscard]] static FakeDevice& of(const ibv_context* context) noexcept {
    return *static_cast<const Context*>(context)->device;
  }
  [[nodiscard]] FakeSharedQueue& make_shared_queue();

 private:
  struct Context : ibv_context {
    FakeDevice* device;
  };
  void receive(FakeReceives& receives, const FakeQueuePair& pair, std::span<const std::byte> message);
  void fail_receive(FakeReceives& receives, const FakeQueuePair& pair, ibv_wc_status status);

  Context context_{};
  ibv_pd pd_{};
  std::list<FakeSharedQueue> shared_queues_;
};

}  // namespace fabric::test
