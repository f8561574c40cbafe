// SPDX-License-Identifier: BSD-3-Clause
//
// RDMA of a module: completions, atomics that come as messages, and the way to ourselves.
#include <algorithm>
#include <cstring>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

namespace fabric {

namespace {

/// True if Open MPI has another way for messages to ourselves.
bool has_btl_self() noexcept {
  for (opal_list_item_t* item = opal_list_get_first(&mca_btl_base_modules_initialized);
       item != opal_list_get_end(&mca_btl_base_modules_initialized); item = opal_list_get_next(item)) {
    const auto* selected = reinterpret_cast<const mca_btl_base_selected_module_t*>(item);
    if (std::strcmp(selected->btl_component->btl_version.mca_component_name, "self") == 0) {
      return true;
    }
  }
  return false;
}

/// True if all processes of the job are on this host.
bool is_on_one_host() noexcept {
  const std::uint32_t processes = job_size();
  return processes > 0 && std::int64_t{opal_process_info.num_local_peers} + 1 >= std::int64_t{processes};
}

}  // namespace

std::uint32_t job_size() noexcept {
  opal_process_name_t whole_job = OPAL_PROC_MY_NAME;
  whole_job.vpid = OPAL_VPID_WILDCARD;
  std::uint32_t processes = 0;
  std::uint32_t* place = &processes;
  int rc = OPAL_SUCCESS;
  OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, kJobSizeKey, &whole_job, &place, kJobSizeType);
  return rc == OPAL_SUCCESS ? processes : 0;
}

void Module::learn_rdma_limits() noexcept {
  constexpr std::uint64_t kMost = 1U << 30;  // what fits a work request's length, and pins no more than that at once
  ibv_port_attr attributes{};
  max_message_ = kMost;
  if (ibv_query_port(port_.device->context.get(), port_.port_num, &attributes) == 0 && attributes.max_msg_sz > 0) {
    max_message_ = std::min<std::uint64_t>(kMost, attributes.max_msg_sz);
  }
  // Open MPI 4.1's osc/rdma, when all processes of a window are on one host, mixes our atomics with the processor's: a
  // compare and swap of a process on its own memory is then its own.
  const int wanted = params().device_atomics;
  atomics_by_device_ = has_atomics() && (wanted == 1 || (wanted < 0 && !is_on_one_host()));
  cache_.set_atomics_by_device(atomics_by_device_);
}

std::uint32_t Module::rdma_outstanding() const noexcept {
  std::uint32_t sum = self_ ? self_->rdma().outstanding() : 0;
  for (const auto& [key, endpoint] : endpoints_) {
    sum += endpoint->rdma().outstanding();
  }
  return sum;
}

[[gnu::cold]] void Module::start_waiting_rdma() noexcept {
  rdma_waits_ = false;
  for (const auto& [key, endpoint] : endpoints_) {
    endpoint->rdma().send_waiting();
  }
  if (self_) {
    self_->rdma().send_waiting();
  }
  std::erase_if(pending_replies_, [this](const PendingReply& pending) {
    const auto alive = std::any_of(endpoints_.begin(), endpoints_.end(),
                                   [&](const auto& entry) { return entry.second.get() == pending.endpoint; });
    return !alive || send_reply(*pending.endpoint, pending.reply);
  });
  if (!pending_replies_.empty()) {
    note_rdma_waits();
  }
}

void Module::rdma_completed(std::uint64_t id, bool good) noexcept {
  auto* request = reinterpret_cast<RdmaRequest*>(id & ~kSendTagMask);
  request->endpoint->rdma().completed(request, good);
}

// ---- Atomics that come as messages

AtomicReply Module::execute(const AtomicMessage& message) const noexcept {
  AtomicReply reply{message.place, message.serial, 0, false};
  if (!cache_.allows_atomic(message.rkey, message.address, message.bytes())) {
    return reply;
  }
  const auto op = static_cast<AtomicOp>(message.op);
  if (message.is_32_bit) {
    const auto old =
        execute_atomic(*reinterpret_cast<std::int32_t*>(message.address), op,
                       static_cast<std::int32_t>(message.operand), static_cast<std::int32_t>(message.compare));
    reply.done = old.has_value();
    reply.value = static_cast<std::uint32_t>(old.value_or(0));
  } else {
    const auto old =
        execute_atomic(*reinterpret_cast<std::int64_t*>(message.address), op,
                       static_cast<std::int64_t>(message.operand), static_cast<std::int64_t>(message.compare));
    reply.done = old.has_value();
    reply.value = static_cast<std::uint64_t>(old.value_or(0));
  }
  return reply;
}

void Module::take_atomic(EndpointQueue& queue, const Fragment& fragment, std::uint32_t length) noexcept {
  AtomicMessage message;
  if (!message.read(fragment.packet + PacketHeader::kSize, length - PacketHeader::kSize)) {
    report_bad_packet(*this, queue, fragment.packet, length);
    fail(queue.endpoint);
    return;
  }
  const AtomicReply reply = execute(message);
  ++counters().atomics_executed;
  if (!pending_replies_.empty() || !send_reply(queue.endpoint, reply)) {
    pending_replies_.push_back({&queue.endpoint, reply});
    note_rdma_waits();
  }
}

/// False if there is no buffer now.
bool Module::send_reply(Endpoint& endpoint, const AtomicReply& reply) noexcept {
  Fragment* fragment = get_send(queue_for(AtomicReply::kSize));
  if (fragment == nullptr) {
    return false;
  }
  reply.write(fragment->packet + PacketHeader::kSize);
  (void)endpoint.send_internal(*fragment, PacketKind::kAtomicReply, AtomicReply::kSize);  // a failure is reported
  return true;
}

void Module::take_atomic_reply(EndpointQueue& queue, const Fragment& fragment, std::uint32_t length) noexcept {
  AtomicReply reply;
  if (!reply.read(fragment.packet + PacketHeader::kSize, length - PacketHeader::kSize) ||
      !queue.endpoint.rdma().replied(reply)) {
    report_bad_packet(*this, queue, fragment.packet, length);
    fail(queue.endpoint);
  }
}

// ---- Ourselves, and others

Endpoint* Module::self_endpoint(opal_proc_t* self) {
  if (!self_ && has_btl_self()) {
    const cpc::ConnectionKey key{name_of(*self), context_.index, context_.index};
    self_ = std::make_unique<Endpoint>(*this, self, key, cpc::PeerTarget{}, 1);
  }
  return self_.get();
}

void Module::connect_self() {
  auto loopback = cpc::make_loopback(context_, send_space(cpc::rdma_queue(queues_)));
  if (!loopback) {
    report_connection_failed(*this, *self_, loopback.error().text, "");
    fail(*self_);
    return;
  }
  loopback_.emplace(std::move(*loopback));
  self_->connected_to_self(loopback_->near.get());
}

Endpoint* Module::endpoint_to(const ProcessName& peer, std::uint64_t remote_ports) const noexcept {
  for (const auto& [key, endpoint] : endpoints_) {
    if (key.peer == peer && (remote_ports >> (key.remote_port % 64) & 1) != 0) {
      return endpoint.get();
    }
  }
  return nullptr;
}

}  // namespace fabric
