// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <thread>
#include <vector>

#include "btl_fabric/base/atomic_message.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

START_TEST(messages_survive_the_wire) {
  AtomicMessage message{1, 2, 3, 0xfedcba9876543210, 5, 6, static_cast<std::uint16_t>(AtomicOp::kSwap), true};
  std::byte bytes[AtomicMessage::kSize];
  message.write(bytes);
  AtomicMessage read;
  ck_assert(read.read(bytes, sizeof bytes) && read == message);
  ck_assert(!read.read(bytes, sizeof bytes - 1));
  bytes[39] = std::byte{2};
  ck_assert(!read.read(bytes, sizeof bytes));

  AtomicReply reply{1, 2, 0xfedcba9876543210, true};
  reply.write(bytes);
  AtomicReply got;
  ck_assert(got.read(bytes, AtomicReply::kSize) && got == reply);
  ck_assert(!got.read(bytes, AtomicReply::kSize + 1));
  bytes[16] = std::byte{1};
  ck_assert(!got.read(bytes, AtomicReply::kSize));
}
END_TEST

START_TEST(operations_do_what_they_say) {
  struct Row {
    AtomicOp op;
    std::int64_t old, operand, compare, result;
  };
  const Row rows[] = {
      {AtomicOp::kCompareSwap, 5, 9, 5, 9},  {AtomicOp::kCompareSwap, 5, 9, 6, 5},
      {AtomicOp::kAdd, -1, 3, 0, 2},         {AtomicOp::kAdd, INT64_MAX, 1, 0, INT64_MIN},
      {AtomicOp::kAnd, 12, 10, 0, 8},        {AtomicOp::kOr, 12, 10, 0, 14},
      {AtomicOp::kXor, 12, 10, 0, 6},        {AtomicOp::kLogicalAnd, 12, 10, 0, 1},
      {AtomicOp::kLogicalAnd, 12, 0, 0, 0},  {AtomicOp::kLogicalOr, 0, 10, 0, 1},
      {AtomicOp::kLogicalXor, 12, 10, 0, 0}, {AtomicOp::kSwap, 12, 10, 0, 10},
  };
  for (const Row& row : rows) {
    std::int64_t wide = row.old;
    ck_assert(execute_atomic(wide, row.op, row.operand, row.compare) == row.old);
    ck_assert_int_eq(wide, row.result);
    auto narrow = static_cast<std::int32_t>(row.old);
    const auto before = narrow;
    ck_assert(execute_atomic(narrow, row.op, static_cast<std::int32_t>(row.operand),
                             static_cast<std::int32_t>(row.compare)) == before);
    if (row.old != INT64_MAX) {
      ck_assert_int_eq(narrow, static_cast<std::int32_t>(row.result));
    }
  }
}
END_TEST

START_TEST(unknown_operations_change_nothing) {
  std::int64_t value = 7;
  for (unsigned op = 0; op < 0x10000; ++op) {
    const auto before = value;
    if (!execute_atomic(value, static_cast<AtomicOp>(op), std::int64_t{1}, std::int64_t{0})) {
      ck_assert_int_eq(value, before);
      continue;
    }
    ck_assert_msg(op <= static_cast<unsigned>(AtomicOp::kSwap), "%#x is executed", op);
  }
}
END_TEST

START_TEST(threads_lose_no_update) {
  std::int64_t sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&sum] {
      for (int k = 0; k < 20000; ++k) {
        (void)execute_atomic(sum, AtomicOp::kAdd, std::int64_t{1}, std::int64_t{0});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ck_assert_int_eq(sum, 80000);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("atomic_message", {messages_survive_the_wire, operations_do_what_they_say,
                                            unknown_operations_change_nothing, threads_lose_no_update});
}
