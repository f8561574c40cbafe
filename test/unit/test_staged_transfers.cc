// SPDX-License-Identifier: BSD-3-Clause
//
// Reads and writes of an accelerator's memory, in pieces through buffers. The peer's memory is an array here, and a piece ends when the
// test says so.
#include <cstring>
#include <deque>
#include <vector>

#include "btl_fabric/base/registration.h"
#include "btl_fabric/mca/staged_transfers.h"
#include "test/unit/check_main.h"

using namespace fabric;

namespace {

constexpr std::size_t kPieceSize = StagedTransfers::kPieceSize;

/// What a piece has been asked for with.
struct Posted {
  bool is_write;
  std::byte* buffer;
  std::uint64_t remote;
  std::size_t size;
  mca_btl_base_rdma_completion_fn_t callback;
  void* context;
};

std::vector<std::byte> remote;
std::vector<std::byte> device;
std::deque<Posted> posted;
int answer = OPAL_SUCCESS;  ///< to whoever asks
bool at_once = false;       ///< pieces end before they are posted
int registered = 0;
int copies_until_failure = -1;
std::vector<int> told;  ///< to callers

mca_btl_base_registration_handle_t a_handle;

void finish(const Posted& one, int status) {
  std::byte* const there = remote.data() + one.remote;
  if (status == OPAL_SUCCESS) {
    std::memcpy(one.is_write ? there : one.buffer, one.is_write ? one.buffer : there, one.size);
  }
  one.callback(nullptr, nullptr, one.buffer, &a_handle, one.context, nullptr, status);
}
void finish_first(int status = OPAL_SUCCESS) {
  const Posted one = posted.front();
  posted.pop_front();
  finish(one, status);
}

int post(bool is_write, void* buffer, std::uint64_t address, std::size_t size,
         mca_btl_base_rdma_completion_fn_t callback, void* context) {
  ck_assert(size <= kPieceSize);
  if (answer == OPAL_SUCCESS) {
    const Posted one{is_write, static_cast<std::byte*>(buffer), address, size, callback, context};
    if (at_once) {
      finish(one, OPAL_SUCCESS);
    } else {
      posted.push_back(one);
    }
  }
  return answer;
}

int put(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void* local, std::uint64_t address,
        mca_btl_base_registration_handle_t*, mca_btl_base_registration_handle_t*, size_t size, int, int,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void*) {
  return post(true, local, address, size, callback, context);
}
int get(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void* local, std::uint64_t address,
        mca_btl_base_registration_handle_t*, mca_btl_base_registration_handle_t*, size_t size, int, int,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void*) {
  return post(false, local, address, size, callback, context);
}
mca_btl_base_registration_handle_t* register_mem(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, size_t,
                                                 std::uint32_t) {
  ++registered;
  return &a_handle;
}
int deregister_mem(mca_btl_base_module_t*, mca_btl_base_registration_handle_t* handle) {
  ck_assert_ptr_eq(handle, &a_handle);
  --registered;
  return OPAL_SUCCESS;
}

bool copy(void* to, const void* from, std::size_t size) noexcept {
  std::memcpy(to, from, size);
  return copies_until_failure < 0 || copies_until_failure-- > 0;
}

void hear(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void* address, mca_btl_base_registration_handle_t*, void*,
          void*, int status) {
  ck_assert_ptr_eq(address, device.data());
  told.push_back(status);
}

mca_btl_base_module_t functions() {
  mca_btl_base_module_t module{};
  module.btl_put = put;
  module.btl_get = get;
  module.btl_register_mem = register_mem;
  module.btl_deregister_mem = deregister_mem;
  return module;
}

void begin(std::size_t size) {
  remote.resize(size);
  device.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    remote[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  }
  std::fill(device.begin(), device.end(), std::byte{0});
}

/// The context of a transfer that the upper layer has ended by itself.
int not_awaited = 0;

/// What a test works with. `Transfers` are those of the whole of `remote`.
struct Bench {
  StagedTransfers transfers{functions(), copy,
                            [](const RdmaCall& call) noexcept { return call.context != &not_awaited; }};

  explicit Bench(std::size_t size) { begin(size); }
  ~Bench() {
    ck_assert_int_eq(registered, 0);
    ck_assert(transfers.is_idle() && !transfers.has_waiting());
  }
  void start(bool is_write, mca_btl_base_endpoint_t* endpoint = nullptr, void* context = nullptr) {
    const RdmaCall call{endpoint, device.data(), 0, nullptr, nullptr, hear, context, nullptr};
    ck_assert_int_eq(transfers.start(nullptr, is_write, remote.size(), MCA_BTL_NO_ORDER, call), OPAL_SUCCESS);
  }
};

}  // namespace

START_TEST(a_read_arrives) {
  Bench bench(10 * kPieceSize + 17);
  bench.start(false);
  while (!posted.empty()) {
    ck_assert(told.empty());
    ck_assert(posted.size() <= StagedTransfers::kPiecesOfOne);
    finish_first();
  }
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
  ck_assert(device == remote);
}
END_TEST

START_TEST(a_write_arrives) {
  Bench bench(3 * kPieceSize + 1);
  device = remote;
  std::fill(remote.begin(), remote.end(), std::byte{0});
  bench.start(true);
  while (!posted.empty()) {
    finish_first();
  }
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
  ck_assert(device == remote);
}
END_TEST

START_TEST(nothing_takes_no_piece) {
  Bench bench(0);
  bench.start(false);
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
}
END_TEST

START_TEST(many_share_the_buffers) {
  Bench bench(6 * kPieceSize);
  const std::size_t count = StagedTransfers::kMostPieces;  // each wants several
  for (std::size_t i = 0; i < count; ++i) {
    bench.start(false);
    ck_assert(posted.size() <= StagedTransfers::kMostPieces);
  }
  ck_assert(bench.transfers.has_waiting());
  while (!posted.empty()) {
    finish_first();
    ck_assert(posted.size() <= StagedTransfers::kMostPieces);
  }
  ck_assert_uint_eq(told.size(), count);
}
END_TEST

START_TEST(what_had_no_room_comes_later) {
  Bench bench(2 * kPieceSize);
  answer = OPAL_ERR_OUT_OF_RESOURCE;
  bench.start(false);
  bench.transfers.go_on();
  ck_assert(posted.empty() && bench.transfers.has_waiting());
  answer = OPAL_SUCCESS;
  bench.transfers.go_on();
  while (!posted.empty()) {
    finish_first();
  }
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
  ck_assert(device == remote);
}
END_TEST

START_TEST(an_error_ends_it_once) {
  Bench bench(20 * kPieceSize);
  bench.start(false);
  finish_first();
  finish_first(OPAL_ERR_UNREACH);
  std::size_t rest = posted.size();
  while (!posted.empty()) {
    ck_assert(told.empty());
    finish_first(OPAL_ERROR);
    ck_assert_uint_eq(posted.size(), --rest);  // no more of it
  }
  ck_assert(told == std::vector<int>{OPAL_ERR_UNREACH});
}
END_TEST

/// ob1 would offer the peer a handle that is none.
/// The peer is gone, and the upper layer has ended it by itself.
START_TEST(who_does_not_wait_hears_nothing) {
  Bench bench(kPieceSize);
  bench.start(false, nullptr, &not_awaited);
  finish_first(OPAL_ERR_UNREACH);
  ck_assert(told.empty());
}
END_TEST

START_TEST(that_it_cannot_be_read_is_another_error) {
  Bench bench(kPieceSize);
  answer = OPAL_ERR_NOT_AVAILABLE;
  bench.start(false);
  ck_assert(told == std::vector<int>{OPAL_ERR_NOT_SUPPORTED});
}
END_TEST

START_TEST(an_accelerator_that_refuses_is_told) {
  Bench bench(2 * kPieceSize);
  copies_until_failure = 1;
  bench.start(false);
  finish_first();
  finish_first();
  ck_assert(told == std::vector<int>{OPAL_ERROR});
  copies_until_failure = 0;
  bench.start(true);
  ck_assert(posted.empty());
  ck_assert(told == (std::vector<int>{OPAL_ERROR, OPAL_ERROR}));
}
END_TEST

/// As those of a process with itself. A stack that grew with them would not hold.
START_TEST(pieces_that_end_at_once) {
  Bench bench(1000 * kPieceSize);
  at_once = true;
  bench.start(false);
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
  ck_assert(device == remote);
}
END_TEST

START_TEST(who_goes_is_forgotten) {
  Bench bench(8 * kPieceSize);
  mca_btl_base_endpoint_t gone;
  mca_btl_base_endpoint_t other;
  bench.start(false, &gone);
  const std::size_t under_way = posted.size();
  answer = OPAL_ERR_OUT_OF_RESOURCE;
  bench.start(false, &gone);  // has a piece that waits
  bench.start(false, &other);
  bench.transfers.forget(&gone);
  answer = OPAL_SUCCESS;
  for (std::size_t i = 0; i < under_way; ++i) {
    finish_first(OPAL_ERR_UNREACH);
  }
  bench.transfers.go_on();
  while (!posted.empty()) {
    finish_first();
  }
  ck_assert(told == std::vector<int>{OPAL_SUCCESS});
}
END_TEST

int main() {
  return fabric::test::run_suite(
      "staged transfers",
      {a_read_arrives, a_write_arrives, nothing_takes_no_piece, many_share_the_buffers, what_had_no_room_comes_later,
       an_error_ends_it_once, who_does_not_wait_hears_nothing, that_it_cannot_be_read_is_another_error,
       an_accelerator_that_refuses_is_told, pieces_that_end_at_once, who_goes_is_forgotten});
}
