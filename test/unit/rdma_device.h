// SPDX-License-Identifier: BSD-3-Clause
//
// One queue pair of a pretended device, for tests of the RDMA planner: it keeps requests in order, checks every key,
// address and access right, moves the bytes, and fails when told to. Reports the first rule that is broken.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/rdma/access_flags.h"
#include "common/rdma/mr_pool.h"

namespace fabric::test {

class RdmaDevice final : public RdmaVerbs {
 public:
  struct Completion {
    std::uint64_t id;
    bool good;
  };

  RdmaDevice(Transport link, std::uint64_t entries, std::uint32_t max_sge, std::uint32_t max_read_sge,
             std::uint64_t max_message, std::size_t remote_bytes)
      : remote(remote_bytes),
        link_(link),
        entries_(entries),
        max_sge_(max_sge),
        max_read_sge_(max_read_sge),
        max_message_(max_message) {}

  static constexpr std::uint64_t kRemoteBase = 0x100000;
  static constexpr std::uint32_t kRemoteKey = 77;

  std::vector<std::byte> remote;
  std::string problem;
  std::uint64_t posted = 0;                 ///< requests, ever
  bool registers = true;                    ///< false: the device is out of memory regions
  std::uint64_t refuse_after = UINT64_MAX;  ///< takes no more requests than these

  [[nodiscard]] std::size_t under_way() const noexcept { return queue_.size(); }
  [[nodiscard]] std::size_t regions() const noexcept { return regions_.size(); }
  [[nodiscard]] std::size_t reads_under_way() const noexcept { return reads_; }

  /// Memory that is registered for good.
  ibv_mr* add_region(void* address, std::size_t length, unsigned access) {
    const std::uint32_t key = next_key_++;
    auto& region = regions_[key];
    region = {reinterpret_cast<std::uintptr_t>(address), length, access, std::make_unique<ibv_mr>()};
    region.mr->lkey = region.mr->rkey = key;
    return region.mr.get();
  }

  int post(ibv_send_wr* first, ibv_send_wr** refused) noexcept override {
    for (ibv_send_wr* request = first; request != nullptr; request = request->next) {
      if (posted == refuse_after) {
        *refused = request;
        return ENOMEM;
      }
      if (occupied_ == entries_) {
        complain("the send queue overran");
        *refused = request;
        return ENOMEM;
      }
      ++occupied_;
      ++posted;
      queue_.push_back(copy_of(*request));
      reads_ += is_read(request->opcode) ? 1 : 0;
    }
    return 0;
  }

  ibv_mr* register_memory(void* address, std::size_t length, unsigned access, RegionUse /*use*/) noexcept override {
    return registers ? add_region(address, length, access) : nullptr;
  }
  void deregister_memory(ibv_mr* mr, RegionUse /*use*/) noexcept override {
    for (const Request& request : queue_) {
      for (const ibv_sge& sge : request.sges) {
        if (!request.is_inline && sge.lkey == mr->lkey && !broken_) {
          complain("memory is deregistered while a request uses it");
        }
      }
    }
    regions_.erase(mr->lkey);
  }
  ibv_mw* make_window() noexcept override {
    auto* window = new ibv_mw{};
    window->rkey = (next_key_++) << 8;
    return window;
  }
  void destroy_window(ibv_mw* window) noexcept override {
    std::erase_if(windows_, [window](const auto& one) { return one.first >> 8 == window->rkey >> 8; });
    delete window;
  }

  /// Does the oldest request. `fails`: the device breaks; everything behind it is flushed.
  void step(bool fails, std::deque<Completion>& completions) {
    Request request = std::move(queue_.front());
    queue_.pop_front();
    reads_ -= is_read(request.opcode) ? 1 : 0;
    ++unretired_;
    broken_ = broken_ || fails;
    if (broken_) {
      completions.push_back({request.id, false});
    } else {
      execute(request);
      if (request.signaled) {
        completions.push_back({request.id, true});
      }
    }
    if (request.signaled || broken_) {
      occupied_ -= unretired_;
      unretired_ = 0;
    }
  }
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  /// A new connection. Nothing must be under way.
  void repair() noexcept {
    broken_ = false;  // windows stay bound
  }
  /// Windows that are bound now.
  [[nodiscard]] std::size_t windows() const noexcept { return windows_.size(); }

 private:
  struct Request {
    std::uint64_t id;
    ibv_wr_opcode opcode;
    std::vector<ibv_sge> sges;
    std::vector<std::byte> inline_data;
    bool is_inline;
    bool signaled;
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint64_t compare_add;
    std::uint64_t swap;
    std::uint32_t window_key;
    std::uint32_t window_region;
    std::uint64_t window_address;
    std::uint64_t window_length;
    unsigned window_access;
  };
  struct Region {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    unsigned access = 0;
    std::unique_ptr<ibv_mr> mr;
  };

  static bool is_atomic(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  static bool is_read(ibv_wr_opcode opcode) noexcept { return opcode == IBV_WR_RDMA_READ || is_atomic(opcode); }

  void complain(const char* text) noexcept {
    if (problem.empty()) {
      problem = text;
    }
  }

  Request copy_of(const ibv_send_wr& from) noexcept {
    Request request{};
    request.id = from.wr_id;
    request.opcode = from.opcode;
    request.sges.assign(from.sg_list, from.sg_list + from.num_sge);
    request.is_inline = (from.send_flags & IBV_SEND_INLINE) != 0;
    request.signaled = (from.send_flags & IBV_SEND_SIGNALED) != 0;
    if (request.is_inline) {
      for (const ibv_sge& sge : request.sges) {
        const auto* bytes = reinterpret_cast<const std::byte*>(sge.addr);
        request.inline_data.insert(request.inline_data.end(), bytes, bytes + sge.length);
      }
    }
    if (is_atomic(from.opcode)) {
      request.address = from.wr.atomic.remote_addr;
      request.rkey = from.wr.atomic.rkey;
      request.compare_add = from.wr.atomic.compare_add;
      request.swap = from.wr.atomic.swap;
    } else if (from.opcode == IBV_WR_BIND_MW) {
      request.window_key = from.bind_mw.rkey;
      request.window_region = from.bind_mw.bind_info.mr->lkey;
      request.window_address = from.bind_mw.bind_info.addr;
      request.window_length = from.bind_mw.bind_info.length;
      request.window_access = from.bind_mw.bind_info.mw_access_flags;
    } else if (from.opcode == IBV_WR_LOCAL_INV) {
      request.window_key = from.invalidate_rkey;
    } else {
      request.address = from.wr.rdma.remote_addr;
      request.rkey = from.wr.rdma.rkey;
    }
    return request;
  }

  /// The key must cover the memory, and allow what the role needs.
  void check_key(const ibv_sge& sge, MemoryRole role) {
    const Region* region = nullptr;
    if (const auto found = regions_.find(sge.lkey); found != regions_.end()) {
      region = &found->second;
    } else if (const auto bound = windows_.find(sge.lkey); bound != windows_.end()) {
      region = &bound->second;
    }
    if (region == nullptr) {
      return complain("a key that does not exist");
    }
    if (sge.addr < region->address || sge.addr + sge.length > region->address + region->length) {
      return complain("a key that does not cover the memory");
    }
    if (!suffices(region->access, role, link_)) {
      complain("a key that does not allow it");
    }
  }

  void execute(const Request& request) {
    if (request.opcode == IBV_WR_BIND_MW) {
      const auto whole = regions_.find(request.window_region);
      if (link_ != Transport::kIwarp || whole == regions_.end() || (whole->second.access & IBV_ACCESS_MW_BIND) == 0) {
        return complain("a window that cannot be bound, or is of no use");
      }
      if (std::any_of(windows_.begin(), windows_.end(),
                      [&](const auto& one) { return one.first >> 8 == request.window_key >> 8; })) {
        return complain("binds a window that is bound");
      }
      windows_[request.window_key] = {request.window_address, request.window_length, request.window_access, nullptr};
      return;
    }
    if (request.opcode == IBV_WR_LOCAL_INV) {
      if (windows_.erase(request.window_key) == 0) {
        complain("invalidates what is not bound");
      }
      return;
    }
    const bool writes = request.opcode == IBV_WR_RDMA_WRITE;
    const std::uint32_t most = writes ? max_sge_ : link_ == Transport::kIwarp ? 1 : max_read_sge_;
    std::uint64_t bytes = 0;
    for (const ibv_sge& sge : request.sges) {
      bytes += sge.length;
      if (!request.is_inline) {
        check_key(sge, writes ? MemoryRole::kWriteSource : MemoryRole::kReadSink);
      }
    }
    if (request.sges.size() > most) {
      return complain("too many pieces");
    }
    if (bytes > max_message_) {
      return complain("too long a message");
    }
    if (request.rkey != kRemoteKey || request.address < kRemoteBase ||
        request.address + bytes > kRemoteBase + remote.size()) {
      return complain("not the peer's memory");
    }
    std::byte* there = remote.data() + (request.address - kRemoteBase);
    if (request.is_inline) {
      std::copy(request.inline_data.begin(), request.inline_data.end(), there);
    } else if (is_atomic(request.opcode)) {
      execute_atomic(request, there);
    } else {
      for (const ibv_sge& sge : request.sges) {
        auto* here = reinterpret_cast<std::byte*>(sge.addr);
        std::memcpy(writes ? there : here, writes ? here : there, sge.length);
        there += sge.length;
      }
    }
  }

  void execute_atomic(const Request& request, std::byte* there) {
    if (request.sges.size() != 1 || request.sges[0].length != 8) {
      return complain("an atomic that is not of 8 bytes");
    }
    std::uint64_t old = 0;
    std::memcpy(&old, there, 8);
    std::memcpy(reinterpret_cast<void*>(request.sges[0].addr), &old, 8);
    std::uint64_t next = old + request.compare_add;
    if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      next = old == request.compare_add ? request.swap : old;
    }
    std::memcpy(there, &next, 8);
  }

  Transport link_;
  std::uint64_t entries_;
  std::uint32_t max_sge_;
  std::uint32_t max_read_sge_;
  std::uint64_t max_message_;
  std::uint64_t occupied_ = 0;   ///< entries that no completion has freed
  std::uint64_t unretired_ = 0;  ///< of these: done, but without a completion
  std::size_t reads_ = 0;
  bool broken_ = false;
  std::uint32_t next_key_ = 1000;
  std::map<std::uint32_t, Region> regions_;
  std::map<std::uint32_t, Region> windows_;
  std::deque<Request> queue_;
};

}  // namespace fabric::test
