// SPDX-License-Identifier: BSD-3-Clause
//
// What programs whose processes are killed have in common. Written against the public verbs API alone, and without Check: their processes
// are started anew, and belong to no test.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace bare_verbs {

inline std::string place;  // what is being done, for messages
inline void require(bool good, const char* what, int line) {
  if (good) return;
  fprintf(stderr, "line %d: %snot so: %s\n", line, place.c_str(), what);
  exit(1);
}
#define REQUIRE(condition) bare_verbs::require(condition, #condition, __LINE__)

// What a process tells another one of its own.
struct Address {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t memory;
  uint16_t lid;
  ibv_gid gid;
};

// The first device, and its first port.
struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_port_attr port{};
  ibv_gid gid{};

  Device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    REQUIRE(list != nullptr && list[0] != nullptr);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    REQUIRE(context != nullptr);
    REQUIRE(ibv_query_port(context, 1, &port) == 0 && ibv_query_gid(context, 1, 0, &gid) == 0);
    pd = ibv_alloc_pd(context);
    REQUIRE(pd != nullptr);
  }

  static ibv_ah_attr path(const Address& to) {
    ibv_ah_attr ah{};
    ah.dlid = to.lid;
    ah.port_num = 1;
    ah.is_global = 1;
    ah.grh.dgid = to.gid;
    ah.grh.hop_limit = 1;
    return ah;
  }
  ibv_srq* make_srq(uint32_t depth) const {
    ibv_srq_init_attr attr{};
    attr.attr = {depth, 1, 0};
    ibv_srq* srq = ibv_create_srq(pd, &attr);
    REQUIRE(srq != nullptr);
    return srq;
  }
  // To a queue pair's own queue, or (nullptr) to the shared one.
  static void post_receive(ibv_qp* qp, ibv_srq* srq, uint64_t id, void* buffer, uint32_t size, uint32_t lkey) {
    ibv_sge sge{reinterpret_cast<uint64_t>(buffer), size, lkey};
    ibv_recv_wr wr{id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE((qp != nullptr ? ibv_post_recv(qp, &wr, &bad) : ibv_post_srq_recv(srq, &wr, &bad)) == 0);
  }
};

}  // namespace bare_verbs
