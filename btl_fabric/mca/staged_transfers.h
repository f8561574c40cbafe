// SPDX-License-Identifier: BSD-3-Clause
//
// Reads into, and writes from, memory of this process that neither its processor may touch nor its RDMA device knows: a GPU's. Open
// MPI's ob1 reads large messages into it if the sender's memory is the processor's, and osc/rdma reads and writes what origins of
// one-sided operations have there. They go in pieces through buffers, which the accelerator copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/mca/rdma_call.h"

namespace fabric {

/// For all threads. No callback comes with its lock.
class StagedTransfers {
 public:
  /// As memcpy, from and to any memory; false if that cannot be.
  using Copy = bool (*)(void* to, const void* from, std::size_t size) noexcept;

  static constexpr std::size_t kPieceSize = 256 * 1024;  ///< bytes of a buffer
  static constexpr std::size_t kMostPieces = 64;         ///< buffers of all transfers
  static constexpr unsigned kPiecesOfOne = 4;            ///< those of one: while one is copied, others are on their way

  /// Whether somebody still waits for the callback.
  using IsAwaited = bool (*)(const RdmaCall& call) noexcept;

  /// `functions`: of those, put, get, register_mem and deregister_mem are for the pieces.
  StagedTransfers(const mca_btl_base_module_t& functions, Copy copy, IsAwaited is_awaited) noexcept
      : functions_(functions), copy_(copy), is_awaited_(is_awaited) {}
  /// Without transfers under way: the devices are gone.
  ~StagedTransfers() = default;
  StagedTransfers(const StagedTransfers&) = delete;
  StagedTransfers& operator=(const StagedTransfers&) = delete;

  /// A put (`is_write`) or get of `size` bytes, as Open MPI asks for it. OPAL_SUCCESS: what becomes of it is told by the callback,
  /// which may come before this returns. OPAL_ERR_OUT_OF_RESOURCE: there is no memory.
  [[nodiscard]] int start(mca_btl_base_module_t* btl, bool is_write, std::size_t size, int order,
                          const RdmaCall& call) noexcept;

  /// Some bytes have not been asked for yet: go_on() is due whenever there may be room for more.
  [[nodiscard]] bool has_waiting() const noexcept { return has_waiting_.load(std::memory_order_acquire); }
  void go_on() noexcept;

  /// No transfer is under way, nor its callback.
  [[nodiscard]] bool is_idle() const noexcept { return active_.load(std::memory_order_acquire) == 0; }

  /// The endpoint is going. What it has not been asked for it never is, and nobody hears of it.
  void forget(const mca_btl_base_endpoint_t* endpoint) noexcept;

 private:
  /// What Open MPI has asked for.
  struct Transfer {
    mca_btl_base_module_t* btl = nullptr;
    bool is_write = false;
    std::size_t size = 0;
    int order = 0;
    RdmaCall call{};
    std::size_t claimed = 0;  ///< bytes that pieces have, or have had; all of them: it is not in waiting_
    unsigned pieces = 0;      ///< that have not ended
    int status = OPAL_SUCCESS;
    bool is_forgotten = false;
  };
  using Place = std::list<Transfer>::iterator;

  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  /// A buffer, and what it is for.
  struct Piece {
    enum class State { kSpare, kBusy, kStalled };
    State state = State::kSpare;
    StagedTransfers* owner = nullptr;
    std::unique_ptr<std::byte, Free> buffer;
    mca_btl_base_registration_handle_t* handle = nullptr;
    Place transfer{};
    std::size_t offset = 0;
    std::size_t length = 0;
    bool is_filled = false;  ///< with what is to be written
  };

  [[nodiscard]] Piece* next() noexcept;
  [[nodiscard]] Piece* spare_piece() noexcept;
  [[nodiscard]] bool send(Piece& piece) noexcept;
  [[nodiscard]] bool stall(Piece& piece) noexcept;
  void end(Piece& piece, int status) noexcept;
  static void ended(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* address,
                    mca_btl_base_registration_handle_t* handle, void* context, void* data, int status) noexcept;
  void stop(Place transfer) noexcept;
  void note_waiting() noexcept;

  const mca_btl_base_module_t functions_;
  const Copy copy_;
  const IsAwaited is_awaited_;
  std::atomic<bool> has_waiting_ = false;
  std::atomic<std::uint32_t> active_ = 0;
  std::mutex mutex_;  ///< of all that follows, but of what a busy piece has
  std::list<Transfer> waiting_;
  std::list<Transfer> claimed_;
  std::list<Transfer> spare_;
  std::vector<std::unique_ptr<Piece>> pieces_;
};

/// The component's; null if Open MPI has found no accelerator.
inline StagedTransfers* staged_transfers = nullptr;

}  // namespace fabric
