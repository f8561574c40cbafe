// SPDX-License-Identifier: BSD-3-Clause
//
// Events of the communication manager, read without memory. The functions of librdmacm that read them are the test's.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/rdmacm/rdmacm.h"
#include "test/unit/check_main.h"

namespace {

bool no_memory = false;      ///< for operator new
int read_error = 0;          ///< of the next rdma_get_cm_event()
int events_waiting = 0;      ///< in the kernel
int unacknowledged = 0;      ///< read
rdma_event_channel channel;  ///< the only one
rdma_cm_event next_event{};

}  // namespace

// The program's own, so that it can say no.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = no_memory ? nullptr : std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

extern "C" {
#pragma GCC visibility push(default)

rdma_event_channel* rdma_create_event_channel() {
  channel.fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);  // readable as long as it is
  return &channel;
}
void rdma_destroy_event_channel(rdma_event_channel* /*channel*/) {
  close(channel.fd);
}
int rdma_get_cm_event(rdma_event_channel* /*channel*/, rdma_cm_event** event) {
  errno = read_error != 0 ? std::exchange(read_error, 0) : EAGAIN;
  if (errno != EAGAIN || events_waiting == 0) {
    return -1;
  }
  --events_waiting;
  ++unacknowledged;
  *event = &next_event;
  return 0;
}
int rdma_ack_cm_event(rdma_cm_event* /*event*/) {
  --unacknowledged;
  return 0;
}

#pragma GCC visibility pop
}

namespace fabric::cpc {
namespace {

/// Counts its events. All must be acknowledged by then.
struct Handler final : CmEventHandler {
  void on_event(const CmEvent& event) override {
    ck_assert_int_eq(unacknowledged, 0);
    ck_assert_uint_eq(event.private_data().size(), 3);
    ck_assert(event.private_data()[2] == std::byte{'c'});
    ++count;
  }
  int count = 0;
};

/// Reads an event that waits, after `prepare`. Gives how often memory was missed.
int read_one(const std::function<void()>& prepare) {
  int missed = 0;
  const auto read = [&](event_base* loop) -> Status {
    Handler handler;
    rdma_cm_id id{};
    id.context = static_cast<CmEventHandler*>(&handler);
    next_event.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
    next_event.id = &id;
    next_event.param.conn.private_data = "abc";
    next_event.param.conn.private_data_len = 3;
    const ConnectionSettings settings;
    CpcContext context;
    context.loop = loop;
    context.settings = &settings;
    RdmaCm rdmacm(kRdmaCm, {});
    if (Status started = rdmacm.start(context); !started) {
      return started;
    }
    events_waiting = 1;
    prepare();
    for (int turn = 0; turn < 3; ++turn) {
      event_base_loop(loop, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    no_memory = false;
    ck_assert_int_eq(unacknowledged, 0);
    ck_assert_int_eq(handler.count, 1);
    return {};
  };
  const auto thread = ProgressThread::start({read, [] {}, [] {}, [&] { ++missed; }});
  ck_assert(thread.has_value());
  return missed;
}

/// rdma_destroy_id() waits for the acknowledgement of what is read: nothing may come between.
START_TEST(what_is_read_is_acknowledged) {
  ck_assert_int_eq(read_one([] { no_memory = true; }), 0);
}
END_TEST

/// librdmacm had none: the event waits in the kernel, and is read when there is memory.
START_TEST(an_event_is_read_later) {
  ck_assert_int_eq(read_one([] { read_error = ENOMEM; }), 1);
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite("rdmacm_memory", {what_is_read_is_acknowledged, an_event_is_read_later});
}
