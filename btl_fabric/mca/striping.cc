// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/striping.h"

#include <array>

#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "common/rdma/stripes.h"

namespace fabric {

namespace {

/// Ports that one operation is divided among, at most.
constexpr std::size_t kMostStripes = 16;

/// A port that takes a piece, and what it needs for that.
struct Rail {
  Endpoint* endpoint;
  const DeviceKey* key;
  const DeviceMemory* memory;
  std::uint64_t length;  ///< of the piece, bytes
  RdmaRequest* request;  ///< the piece

  [[nodiscard]] RdmaRequestPool& requests() const noexcept { return endpoint->owner().path().rdma().requests; }
};

/// Those of an operation, in the order of the ports.
struct Rails {
  std::array<Rail, kMostStripes> rails{};
  std::array<std::uint32_t, kMostStripes> bandwidths{};
  std::size_t count = 0;

  [[nodiscard]] std::span<Rail> all() noexcept { return {rails.data(), count}; }
};

/// The endpoint of a port to the same peer, in the same context; null if there is none.
Endpoint* endpoint_beside(const Endpoint& lead, Module& port) noexcept {
  const unsigned context = lead.owner().number_of_context();
  Endpoint* const first = port.endpoints().endpoint_to(lead.key().peer, ~std::uint64_t{0});
  return first != nullptr && context < first->contexts() ? first->in_context(context) : nullptr;
}

Rails find_rails(const Endpoint& lead, const Transfer& transfer) noexcept {
  Rails found;
  const Component& component = Component::get();
  for (std::size_t i = 0; i < component.ports() && found.count < kMostStripes; ++i) {
    Module& port = component.port(i);
    const DeviceMemory* const memory = transfer.local.with(port.context().pd);
    Endpoint* const endpoint = memory != nullptr ? endpoint_beside(lead, port) : nullptr;
    const DeviceKey* const key = endpoint != nullptr ? transfer.remote.key_for(endpoint->key().remote_port) : nullptr;
    if (key != nullptr && endpoint->takes_pieces()) {
      found.rails[found.count] = {endpoint, key, memory, 0, nullptr};
      found.bandwidths[found.count] = port.btl_bandwidth;
      ++found.count;
    }
  }
  return found;
}

/// Gives each its length, and drops those that get nothing.
void divide(Rails& rails, std::uint64_t size) noexcept {
  std::array<std::uint64_t, kMostStripes> lengths{};
  split_by_weight(size, {rails.bandwidths.data(), rails.count}, {lengths.data(), rails.count});
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rails.count; ++i) {
    if (lengths[i] > 0) {
      rails.rails[kept] = rails.rails[i];
      rails.rails[kept++].length = lengths[i];
    }
  }
  rails.count = kept;
}

/// A request for each. False, and there are none, if there is no memory for one.
bool make_requests(Rails& rails) noexcept {
  for (Rail& rail : rails.all()) {
    try {
      rail.request = rail.requests().get(rail.endpoint->owner().port().address.link);
    } catch (const std::bad_alloc&) {
      rail.request = nullptr;
    }
    if (rail.request == nullptr) {
      for (Rail& made : rails.all()) {
        if (made.request != nullptr) {
          made.requests().put(made.request);
        }
      }
      return false;
    }
  }
  return true;
}

void fill(const Rail& rail, const Endpoint& lead, const Transfer& transfer, std::uint64_t offset) noexcept {
  RdmaOperation& operation = rail.request->operation;
  operation.kind = transfer.kind;
  operation.pieces = 1;
  operation.local[0] = {static_cast<std::byte*>(transfer.local_address) + offset, rail.length, rail.memory->mr,
                        rail.memory->access};
  operation.remote_address = transfer.remote_address + offset;
  operation.rkey = rail.key->rkey;
  rail.request->local = &transfer.local;
  rail.request->remote = transfer.remote;
  operation.reads_back = transfer.remote.is_aside(*rail.key, lead.key().remote_port);
}

}  // namespace

std::optional<int> submit_striped(Endpoint& lead, RdmaRequest* whole, const Transfer& transfer) noexcept {
  Rails rails = find_rails(lead, transfer);
  divide(rails, transfer.size);
  if (rails.count == 0 || (rails.count == 1 && rails.rails[0].endpoint == &lead) || !make_requests(rails)) {
    return std::nullopt;
  }
  ++lead.owner().path().counters().rdma_striped;
  std::uint64_t offset = 0;
  for (const Rail& rail : rails.all()) {
    fill(rail, lead, transfer, offset);
    lead.adopt_piece(*rail.request, *whole);
    offset += rail.length;
  }
  lead.begin_pieces(*whole, static_cast<std::uint32_t>(rails.count));
  for (const Rail& rail : rails.all()) {
    if (const int result = rail.endpoint->submit(rail.request); result != OPAL_SUCCESS) {
      rail.requests().put(rail.request);
      lead.end_piece(whole, result);
    }
  }
  return OPAL_SUCCESS;
}

}  // namespace fabric
