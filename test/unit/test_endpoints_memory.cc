// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints that get no memory.
#include <cstdint>
#include <cstdlib>
#include <new>
#include <set>

#include "cpc/rdmacm/rdmacm.h"
#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

/// Allocations that are granted before one is refused; negative: all are.
long allocations_left = -1;
bool refuses_one_only = true;
/// Larger allocations are refused.
std::size_t largest = SIZE_MAX;

}  // namespace

// The program's own, so that it can say no.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (size > largest) {
    throw std::bad_alloc();
  }
  if (fakes_at_work == 0 && allocations_left == 0) {
    allocations_left = refuses_one_only ? -1 : 0;
    throw std::bad_alloc();
  }
  allocations_left -= fakes_at_work == 0 && allocations_left > 0 ? 1 : 0;
  if (void* const memory = std::malloc(size != 0 ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

/// Wherever there is no memory, somebody is told, everything ends, and nobody dies.
START_TEST(no_memory_is_an_error) {
  refuses_one_only = _i % 2 == 0;
  for (long granted = 0; granted < 64; ++granted) {
    EndpointsBench bench;
    bench.commands.reserve(16);
    bench.sends_ended.reserve(16);
    bench.rdma.requests.put(bench.rdma.requests.get(Transport::kInfiniBand));  // so that there are some
    (void)bench.endpoint();
    unsigned waiting = 0;
    int result = OPAL_ERR_OUT_OF_RESOURCE;  // of what is done to the peer's memory
    const auto step = [&](auto action) {
      allocations_left = granted;
      action();
      allocations_left = -1;
    };
    switch (_i / 2) {
      case 0:
        step([&] { waiting += bench.send() == OPAL_SUCCESS ? 1 : 0; });
        ck_assert(waiting == 1 || bench.said<cpc::Connect>() == 0);
        break;
      case 1:
        waiting += bench.send() == OPAL_SUCCESS ? 1 : 0;
        bench.make_queue_pairs();
        {
          const cpc::Upcall upcall = cpc::PostReceives{EndpointsBench::key(), bench.link, bench.handles};
          step([&] { bench.tell(upcall); });
        }
        break;
      case 2:
        step([&] { result = bench.submit(); });
        ck_assert(result == OPAL_SUCCESS || result == OPAL_ERR_OUT_OF_RESOURCE);
        // What waits has a connection to wait for.
        ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), bench.said<cpc::Connect>());
        ck_assert((result == OPAL_SUCCESS) == (bench.said<cpc::Connect>() == 1));
        break;
      default:
        waiting += bench.send() == OPAL_SUCCESS ? 1 : 0;
        bench.post_receives();
        {
          const cpc::Upcall upcall =
              cpc::Connected{EndpointsBench::key(), bench.link, std::vector<cpc::QueuePairEnd>(bench.queues.count())};
          step([&] { bench.tell(upcall); });
        }
        break;
    }
    const bool failed = bench.reports_of_no_memory > 0;
    ck_assert_uint_eq(bench.upper_layer_told, failed ? 1 : 0);
    ck_assert_uint_eq(bench.sends_ended.size(), failed ? waiting : 0);
    take_away(bench);
    ck_assert_uint_eq(bench.device.completions.size(), 0);
    ck_assert_uint_eq(bench.requests_ended, result == OPAL_SUCCESS ? 1 : 0);
  }
}
END_TEST

/// The connection is given up all the same, as soon as there is memory again: else there would never be another.
START_TEST(no_memory_for_a_close) {
  refuses_one_only = true;
  for (long granted = 0; granted < 8; ++granted) {
    EndpointsBench bench;
    bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
    bench.send_and_connect();
    bench.messages_arrive();
    bench.endpoints.remove(&bench.endpoint());
    bench.device.complete_send(bench.pair(0));
    bench.device.complete_send(bench.pair(1));
    bench.commands.shrink_to_fit();
    allocations_left = granted;
    bench.endpoints.progress();
    allocations_left = -1;
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  }
}
END_TEST

/// Smaller things get some. The endpoint fails, and what comes over its queue pairs is nobody's.
START_TEST(no_memory_for_a_link) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  (void)bench.endpoint();
  cpc::Linked linked = bench.linked(5);
  linked.handshake.serial = 77;
  const cpc::Upcall upcall = linked;
  ibv_wc flushed{};
  flushed.wr_id = linked.handshake.serial << cpc::kHandshakeTagBits | cpc::kHandshakeTag;
  flushed.status = IBV_WC_WR_FLUSH_ERR;
  flushed.qp_num = bench.pair().verbs.qp_num;
  bench.device.completions.push_back(flushed);
  largest = sizeof(EndpointLink) - 1;
  bench.tell(upcall);
  bench.endpoints.progress();
  largest = SIZE_MAX;
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// The first CTS may be here before its connection is known.
START_TEST(no_memory_for_an_early_cts) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  if (_i == 0) {
    FakeQueuePair unknown;
    unknown.verbs.qp_num = 0x999;
    bench.cts_arrives(unknown, 5);
  } else {
    bench.handshake_arrives(77);
  }
  allocations_left = 0;
  refuses_one_only = true;
  bench.endpoints.progress();
  allocations_left = -1;
  ck_assert_uint_eq(bench.reports_of_no_memory, 1);
  ck_assert_uint_eq(bench.upper_layer_told, 1);
}
END_TEST

/// Requests of RDMA operations, beside 64 << `_i` that are in use (none, if `_i` is 0). What is refused leaves nothing behind, and
/// all have one memory region.
START_TEST(no_memory_for_requests) {
  const std::size_t in_use = _i == 0 ? 0 : std::size_t{64} << _i;
  refuses_one_only = true;
  long granted = 0;
  for (bool refused = true; refused; ++granted) {
    FakeDevice device;
    VerbsRdma verbs(device.pd());
    {
      RdmaRequestPool pool(verbs);
      std::set<RdmaRequest*> taken;
      const auto take = [&](std::size_t number) {
        for (std::size_t i = 0; i < number; ++i) {
          RdmaRequest* const request = pool.get(Transport::kInfiniBand);
          ck_assert(request != nullptr && taken.insert(request).second);
          ck_assert_ptr_eq(request->operation.confirm.address, (*taken.begin())->operation.confirm.address);
          ck_assert_ptr_nonnull(request->operation.confirm.mr);
        }
      };
      take(in_use);
      RdmaRequest* request = nullptr;
      allocations_left = granted;
      try {
        request = pool.get(Transport::kInfiniBand);
      } catch (const std::bad_alloc&) {
      }
      refused = allocations_left < 0;
      allocations_left = -1;
      ck_assert((request == nullptr) == refused);
      ck_assert_uint_le(device.regions, 1);
      take(100);
      ck_assert_uint_eq(device.regions, 1);
    }
    ck_assert_uint_eq(device.regions, 0);
  }
  ck_assert_int_ge(granted, _i == 0 ? 3 : 1);
}
END_TEST

int main() {
  return run_suite("endpoints: no memory", {{no_memory_is_an_error, 8},
                                            no_memory_for_a_close,
                                            no_memory_for_a_link,
                                            {no_memory_for_an_early_cts, 2},
                                            {no_memory_for_requests, 5}});
}
