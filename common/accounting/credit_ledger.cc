// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/credit_ledger.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace fabric {

void TxLedgerBook::take(std::uint64_t amount) {
  free_ -= amount;
  unsignaled_ += amount;
  balance();
}

void TxLedgerBook::take(std::uint64_t amount, const void* owner) {
  free_ -= amount;
  held_.push_back({owner, unsignaled_ + amount});
  unsignaled_ = 0;
  balance();
}

void TxLedgerBook::give_back(std::uint64_t amount, const void* owner) {
  const auto of_owner = [owner](const Entry& entry) { return entry.owner == owner; };
  const auto oldest = std::find_if(held_.begin(), held_.end(), of_owner);
  if (oldest == held_.end()) {
    return complain(std::to_string(amount) + " are given back by one who holds none");
  }
  if (oldest->amount != amount) {
    return complain(std::to_string(amount) + " are given back by one who holds " + std::to_string(oldest->amount));
  }
  held_.erase(oldest);
  free_ += amount;
  balance();
}

void TxLedgerBook::compare(std::uint64_t free) {
  if (free != free_) {
    complain("the counter says that " + std::to_string(free) + " are free");
  }
}

void TxLedgerBook::balance() {
  const std::uint64_t held = std::accumulate(held_.begin(), held_.end(), std::uint64_t{0},
                                             [](std::uint64_t sum, const Entry& entry) { return sum + entry.amount; });
  if (free_ > total_ || free_ + unsignaled_ + held != total_) {
    complain("the sum is not " + std::to_string(total_));
  }
}

std::string TxLedgerBook::describe() const {
  std::string text = std::to_string(free_) + " of " + std::to_string(total_) + " free, " + std::to_string(unsignaled_) +
                     " wait for a completion to be asked for";
  for (const Entry& entry : held_) {
    char owner[64];
    std::snprintf(owner, sizeof owner, ", %llu with %p", static_cast<unsigned long long>(entry.amount), entry.owner);
    text += owner;
  }
  return text;
}

void TxLedgerBook::complain(const std::string& text) {
  if (problem_.empty()) {
    problem_ = text + "; " + describe();
  }
}

void RxLedgerBook::take(std::uint64_t amount, const void* buffer) {
  if (amount > free_) {
    return complain(std::to_string(amount) + " are taken");
  }
  if (!held_.emplace(buffer, amount).second) {
    return complain(std::to_string(amount) + " are taken by a buffer that is posted already");
  }
  free_ -= amount;
}

void RxLedgerBook::give_back(std::uint64_t amount, const void* buffer) {
  const auto found = held_.find(buffer);
  if (found == held_.end()) {
    return complain(std::to_string(amount) + " are given back by a buffer that is not posted");
  }
  if (found->second != amount) {
    return complain(std::to_string(amount) + " are given back by a buffer that holds " + std::to_string(found->second));
  }
  held_.erase(found);
  free_ += amount;
}

void RxLedgerBook::compare(std::uint64_t free, std::uint64_t posted) {
  if (free != free_) {
    complain("the counter says that " + std::to_string(free) + " are free");
  }
  if (posted != held_.size()) {
    complain("the counter says that " + std::to_string(posted) + " receives are posted");
  }
}

std::string RxLedgerBook::describe() const {
  return std::to_string(free_) + " of " + std::to_string(total_) + " free, the rest with " +
         std::to_string(held_.size()) + " buffers";
}

void RxLedgerBook::complain(const std::string& text) {
  if (problem_.empty()) {
    problem_ = text + "; " + describe();
  }
}

std::string WindowLedgerBook::check(std::uint32_t owed, std::uint32_t consumed, std::uint32_t ours) const {
  if (std::uint64_t{peers_} + owed + consumed != receives_) {
    return std::to_string(receives_) + " receives, but the peer has " + std::to_string(peers_) + ", owed are " +
           std::to_string(owed) + ", consumed " + std::to_string(consumed);
  }
  // A peer's queue that has grown gives more credits than were spent: then `spent_` is below zero, as a number of 32 bits.
  if (spent_ + ours != credits_) {
    return std::to_string(credits_) + " credits, but we have " + std::to_string(ours) + ", and spent are " +
           std::to_string(spent_);
  }
  return {};
}

void ledger_is_wrong(const char* which, const std::string& problem) noexcept {
  std::fprintf(stderr, "btl_fabric: the ledger of %s does not balance: %s\n", which, problem.c_str());
  std::abort();
}

}  // namespace fabric
