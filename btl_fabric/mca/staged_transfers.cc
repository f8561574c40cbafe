// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/staged_transfers.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "btl_fabric/base/counter_table.h"

namespace fabric {

namespace {

constexpr std::size_t kPageSize = 4096;

/// This thread is in go_on(): a piece that ends at once does not begin the next one, but leaves it to the loop there.
thread_local bool goes_on = false;

/// What an upper layer would answer by other means that need the memory's handle, which is none.
int told(int status) noexcept {
  return status == OPAL_ERR_NOT_AVAILABLE ? OPAL_ERR_NOT_SUPPORTED : status;
}

}  // namespace

int StagedTransfers::start(mca_btl_base_module_t* btl, bool is_write, std::size_t size, int order,
                           const RdmaCall& call) noexcept {
  transfers_staged.fetch_add(1, std::memory_order_relaxed);
  if (size == 0) {
    if (call.callback != nullptr) {
      call.callback(btl, call.endpoint, call.local_address, call.local_handle, call.context, call.data, OPAL_SUCCESS);
    }
    return OPAL_SUCCESS;
  }
  try {
    const std::lock_guard guard(mutex_);
    if (spare_.empty()) {
      spare_.emplace_back();
    }
    spare_.front() = {btl, is_write, size, order, call};
    active_.fetch_add(1, std::memory_order_relaxed);
    waiting_.splice(waiting_.end(), spare_, spare_.begin());
    note_waiting();
  } catch (const std::bad_alloc&) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  go_on();
  return OPAL_SUCCESS;
}

void StagedTransfers::go_on() noexcept {
  if (goes_on) {
    return;
  }
  goes_on = true;
  for (Piece* piece = next(); piece != nullptr && send(*piece); piece = next()) {
  }
  goes_on = false;
}

/// A piece that could not be sent before, or one of the first transfer that may have more; null: there is none now.
StagedTransfers::Piece* StagedTransfers::next() noexcept {
  const std::lock_guard guard(mutex_);
  const auto stalled = std::find_if(pieces_.begin(), pieces_.end(),
                                    [](const auto& piece) { return piece->state == Piece::State::kStalled; });
  if (stalled != pieces_.end()) {
    (*stalled)->state = Piece::State::kBusy;
    note_waiting();
    return stalled->get();
  }
  const auto transfer =
      std::find_if(waiting_.begin(), waiting_.end(), [](const Transfer& one) { return one.pieces < kPiecesOfOne; });
  Piece* const piece = transfer != waiting_.end() ? spare_piece() : nullptr;
  if (piece == nullptr) {
    return nullptr;
  }
  piece->state = Piece::State::kBusy;
  piece->transfer = transfer;
  piece->offset = transfer->claimed;
  piece->length = std::min(kPieceSize, transfer->size - transfer->claimed);
  piece->is_filled = false;
  ++transfer->pieces;
  transfer->claimed += piece->length;
  if (transfer->claimed == transfer->size) {
    claimed_.splice(claimed_.end(), waiting_, transfer);
    note_waiting();
  }
  return piece;
}

/// Null if all are in use, or there is no memory.
StagedTransfers::Piece* StagedTransfers::spare_piece() noexcept try {
  const auto spare = std::find_if(pieces_.begin(), pieces_.end(),
                                  [](const auto& piece) { return piece->state == Piece::State::kSpare; });
  if (spare != pieces_.end()) {
    return spare->get();
  }
  if (pieces_.size() == kMostPieces) {
    return nullptr;
  }
  auto piece = std::make_unique<Piece>();
  piece->owner = this;
  piece->buffer.reset(static_cast<std::byte*>(std::aligned_alloc(kPageSize, kPieceSize)));
  if (piece->buffer == nullptr) {
    return nullptr;
  }
  pieces_.push_back(std::move(piece));
  return pieces_.back().get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

/// False if there is no room for it now, and so for no other.
bool StagedTransfers::send(Piece& piece) noexcept {
  const Transfer& whole = *piece.transfer;  // what start() has said does not change
  std::byte* const buffer = piece.buffer.get();
  if (piece.handle == nullptr) {
    piece.handle =
        functions_.btl_register_mem(whole.btl, whole.call.endpoint, buffer, kPieceSize, MCA_BTL_REG_FLAG_LOCAL_WRITE);
  }
  if (piece.handle == nullptr) {
    return stall(piece);
  }
  if (whole.is_write && !piece.is_filled) {
    if (!copy_(buffer, static_cast<const std::byte*>(whole.call.local_address) + piece.offset, piece.length)) {
      end(piece, OPAL_ERROR);
      return true;
    }
    piece.is_filled = true;
  }
  auto* const remote = const_cast<mca_btl_base_registration_handle_t*>(whole.call.remote_handle);
  const std::uint64_t there = whole.call.remote_address + piece.offset;
  const auto transfer = whole.is_write ? functions_.btl_put : functions_.btl_get;
  const int status = transfer(whole.btl, whole.call.endpoint, buffer, there, piece.handle, remote, piece.length, 0,
                              whole.order, ended, &piece, nullptr);
  if (status == OPAL_ERR_OUT_OF_RESOURCE) {
    return stall(piece);
  }
  if (status < 0) {
    end(piece, status);
  }
  return true;
}

bool StagedTransfers::stall(Piece& piece) noexcept {
  const std::lock_guard guard(mutex_);
  piece.state = Piece::State::kStalled;
  note_waiting();
  return false;
}

void StagedTransfers::ended(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* /*endpoint*/, void* address,
                            mca_btl_base_registration_handle_t* /*handle*/, void* context, void* /*data*/,
                            int status) noexcept {
  Piece& piece = *static_cast<Piece*>(context);
  StagedTransfers& owner = *piece.owner;
  const Transfer& whole = *piece.transfer;
  if (status == OPAL_SUCCESS && !whole.is_write &&
      !owner.copy_(static_cast<std::byte*>(whole.call.local_address) + piece.offset, address, piece.length)) {
    status = OPAL_ERROR;
  }
  owner.end(piece, status);
  owner.go_on();
}

/// With the last piece the transfer ends. After an error there are no more.
void StagedTransfers::end(Piece& piece, int status) noexcept {
  functions_.btl_deregister_mem(piece.transfer->btl, piece.handle);
  piece.handle = nullptr;
  Transfer over;
  {
    const std::lock_guard guard(mutex_);
    const Place transfer = piece.transfer;
    piece.state = Piece::State::kSpare;
    --transfer->pieces;
    if (status != OPAL_SUCCESS && transfer->status == OPAL_SUCCESS) {
      transfer->status = told(status);
      stop(transfer);
    }
    if (transfer->pieces > 0 || transfer->claimed < transfer->size) {
      return;
    }
    over = *transfer;
    spare_.splice(spare_.end(), claimed_, transfer);
  }
  const RdmaCall& call = over.call;
  if (call.callback != nullptr && is_awaited_(call)) {
    call.callback(over.btl, call.endpoint, call.local_address, call.local_handle, call.context, call.data, over.status);
  }
  if (!over.is_forgotten) {
    active_.fetch_sub(1, std::memory_order_release);
  }
}

/// No more pieces of it.
void StagedTransfers::stop(Place transfer) noexcept {
  if (transfer->claimed < transfer->size) {
    transfer->claimed = transfer->size;
    claimed_.splice(claimed_.end(), waiting_, transfer);
    note_waiting();
  }
}

/// Pieces that the endpoint has are told of by it, or never.
void StagedTransfers::forget(const mca_btl_base_endpoint_t* endpoint) noexcept {
  const std::lock_guard guard(mutex_);
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    const auto one = place++;
    if (one->call.endpoint == endpoint) {
      stop(one);
    }
  }
  for (const auto& piece : pieces_) {
    if (piece->state == Piece::State::kStalled && piece->transfer->call.endpoint == endpoint) {
      if (piece->handle != nullptr) {
        functions_.btl_deregister_mem(piece->transfer->btl, piece->handle);
        piece->handle = nullptr;
      }
      piece->state = Piece::State::kSpare;
      --piece->transfer->pieces;
    }
  }
  for (auto place = claimed_.begin(); place != claimed_.end();) {
    const auto one = place++;
    if (one->call.endpoint == endpoint && !one->is_forgotten) {
      active_.fetch_sub(1, std::memory_order_release);
      one->is_forgotten = true;
      one->call.callback = nullptr;
      if (one->pieces == 0) {
        spare_.splice(spare_.end(), claimed_, one);
      }
    }
  }
  note_waiting();
}

/// For whoever holds the lock.
void StagedTransfers::note_waiting() noexcept {
  const bool has_some = !waiting_.empty() || std::any_of(pieces_.begin(), pieces_.end(), [](const auto& piece) {
    return piece->state == Piece::State::kStalled;
  });
  has_waiting_.store(has_some, std::memory_order_release);
}

}  // namespace fabric
