// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of another process, and connections to it by RDMA-CM, for tests that read and write it. The tester sees the same
// memory directly too, so it can compare.
#pragma once

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "common/ports/port_scan.h"
#include "common/rdma/access_flags.h"

namespace fabric::test {

/// Ends the program: nothing can be tested without this.
[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(2);
}
inline void must(bool good, const char* what) {
  if (!good) {
    give_up(what);
  }
}

/// The kind of link of a device's first port.
inline Transport link_of_first_port(ibv_context* device) {
  ibv_port_attr port{};
  must(ibv_query_port(device, 1, &port) == 0, "ibv_query_port");
  if (device->device->transport_type == IBV_TRANSPORT_IWARP) {
    return Transport::kIwarp;
  }
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::kRoce : Transport::kInfiniBand;
}

/// What the target tells whoever connects.
struct TargetMemory {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t unused = 0;
};

/// The other process. Make it before anything of verbs is used: a process that uses a device must not fork.
class RdmaTarget {
 public:
  explicit RdmaTarget(std::size_t bytes) {
    void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int pipes[2][2];
    must(place != MAP_FAILED && pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "memory and pipes");
    memory_ = {static_cast<std::byte*>(place), bytes};
    child_ = fork();
    must(child_ >= 0, "fork");
    if (child_ == 0) {
      close(pipes[1][1]);
      serve(pipes[0][1], pipes[1][0]);
      std::exit(0);
    }
    close(pipes[0][1]);
    close(pipes[1][0]);
    stop_ = pipes[1][1];
    must(read(pipes[0][0], &port_, sizeof port_) == sizeof port_, "the target");
    close(pipes[0][0]);
  }
  RdmaTarget(const RdmaTarget&) = delete;
  RdmaTarget& operator=(const RdmaTarget&) = delete;

  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Ends the process. True if it was content.
  [[nodiscard]] bool stop() {
    close(stop_);
    int status = 1;
    return waitpid(child_, &status, 0) == child_ && status == 0;
  }

 private:
  void serve(int tell, int stop) {
    rdma_event_channel* channel = rdma_create_event_channel();
    must(channel != nullptr, "rdma_create_event_channel");
    rdma_cm_id* listener = nullptr;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    must(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    must(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&any)) == 0 && rdma_listen(listener, 4) == 0, "listen");
    const std::uint16_t port = ntohs(rdma_get_src_port(listener));
    must(write(tell, &port, sizeof port) == sizeof port, "write");
    while (true) {
      pollfd both[2] = {{channel->fd, POLLIN, 0}, {stop, POLLIN, 0}};
      must(poll(both, 2, -1) > 0, "poll");
      if (both[1].revents != 0) {
        return;
      }
      rdma_cm_event* event = nullptr;
      must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
      rdma_cm_id* id = event->id;
      const rdma_cm_event_type type = event->event;
      must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
      if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        accept(id);
      } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
        rdma_disconnect(id);
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
      }
    }
  }

  void accept(rdma_cm_id* id) {
    const Transport link = link_of_first_port(id->verbs);
    if (pd_ == nullptr) {
      pd_ = ibv_alloc_pd(id->verbs);
      cq_ = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
      must(pd_ != nullptr && cq_ != nullptr, "ibv_alloc_pd and ibv_create_cq");
      // The tester's fault rules may be for this process too.
      for (int i = 0; i < 100 && mr_ == nullptr; ++i) {
        mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), static_cast<int>(access_flags(roles(), link)));
      }
      must(mr_ != nullptr, "ibv_reg_mr");
    }
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {1, 1, 1, 1, 0};
    must(rdma_create_qp(id, pd_, &attributes) == 0, "rdma_create_qp");
    TargetMemory told{reinterpret_cast<std::uintptr_t>(memory_.data()), mr_->rkey, 0};
    rdma_conn_param parameters{};
    parameters.private_data = &told;
    parameters.private_data_len = sizeof told;
    parameters.responder_resources = parameters.initiator_depth = 16;
    parameters.rnr_retry_count = 7;
    must(rdma_accept(id, &parameters) == 0, "rdma_accept");
    if (link == Transport::kIwarp) {
      return;
    }
    // Some kernels allow reads and writes only.
    ibv_qp_attr access{};
    access.qp_access_flags = access_flags(roles(), link);
    must(ibv_modify_qp(id->qp, &access, IBV_QP_ACCESS_FLAGS) == 0, "ibv_modify_qp");
  }
  static MemoryRoles roles() { return MemoryRole::kReadSource | MemoryRole::kWriteSink | MemoryRole::kAtomicTarget; }

  std::span<std::byte> memory_;
  pid_t child_ = -1;
  int stop_ = -1;
  std::uint16_t port_ = 0;
  // The child's
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

/// A connection to the target.
class TargetConnection {
 public:
  /// An id with the device that leads to the target; the queue pair comes later.
  explicit TargetConnection(std::uint16_t port) {
    must(channel_ != nullptr && rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&to), 2000) == 0, "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(id_, 2000) == 0, "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  ~TargetConnection() {
    if (id_->qp != nullptr) {
      rdma_destroy_qp(id_);
    }
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  TargetConnection(const TargetConnection&) = delete;
  TargetConnection& operator=(const TargetConnection&) = delete;

  [[nodiscard]] ibv_context* device() const { return id_->verbs; }
  [[nodiscard]] ibv_qp* queue_pair() const { return id_->qp; }

  /// `reads`: outstanding reads and atomics that are asked for.
  [[nodiscard]] TargetMemory connect(ibv_pd* pd, ibv_qp_init_attr attributes, std::uint32_t reads) {
    must(rdma_create_qp(id_, pd, &attributes) == 0, "rdma_create_qp");
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = static_cast<std::uint8_t>(reads);
    parameters.retry_count = 7;
    must(rdma_connect(id_, &parameters) == 0, "rdma_connect");
    TargetMemory told;
    expect(RDMA_CM_EVENT_ESTABLISHED, &told);
    return told;
  }

  void disconnect() { rdma_disconnect(id_); }

 private:
  void expect(rdma_cm_event_type type, TargetMemory* told = nullptr) {
    pollfd fd{channel_->fd, POLLIN, 0};
    rdma_cm_event* event = nullptr;
    must(poll(&fd, 1, 20000) == 1 && rdma_get_cm_event(channel_, &event) == 0, rdma_event_str(type));
    must(event->event == type, rdma_event_str(event->event));
    if (told != nullptr) {
      must(event->param.conn.private_data_len >= sizeof *told, "private data");
      std::memcpy(told, event->param.conn.private_data, sizeof *told);
    }
    rdma_ack_cm_event(event);
  }

  rdma_event_channel* channel_ = rdma_create_event_channel();
  rdma_cm_id* id_ = nullptr;
};

}  // namespace fabric::test
