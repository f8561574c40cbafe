// SPDX-License-Identifier: BSD-3-Clause
//
// One connection to another process of the doctor, and messages over it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/verbs_handle.h"
#include "cpc/core/cpc.h"

namespace fabric::doctor {

/// What a wire carries.
struct Figures {
  double latency_us = 0;  ///< half of the median round trip of 8 bytes
  double mb_per_s = 0;    ///< of messages of 64 KiB, one way, 10^6 bytes
};

class Wire {
 public:
  static constexpr std::uint32_t kLargest = 65536;  ///< bytes of a message
  static constexpr std::uint32_t kReceives = 16;    ///< that are posted at any time

  /// `pump` takes completions and upcalls, and gives them to the wires that they are of.
  Wire(ibv_pd* pd, cpc::ConnectionKey key, cpc::LinkNumber link, std::function<void()> pump);

  // --- What the connector tells it

  void post_receives(ibv_qp* queue_pair);
  /// `has_cts`: the peer's has come already.
  void link(const cpc::Linked& linked, bool has_cts);
  void set_connected() noexcept { is_connected_ = true; }
  void fail(const std::string& reason);
  void complete(const ibv_wc& completion);
  void set_flushing() noexcept { is_flushing_ = true; }

  [[nodiscard]] const cpc::ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] cpc::LinkNumber number() const noexcept { return link_; }
  [[nodiscard]] std::uint32_t qpn() const noexcept { return queue_pair_ == nullptr ? 0 : queue_pair_->qp_num; }
  [[nodiscard]] bool is_connected() const noexcept { return is_connected_; }
  [[nodiscard]] bool is_flushing() const noexcept { return is_flushing_; }
  [[nodiscard]] bool is_drained() const noexcept { return posted_ == 0; }
  [[nodiscard]] const std::string& failure_text() const noexcept { return failure_; }

  // --- What both sides do with it, each at the same time as the other; `is_first`: this side begins

  /// A message of so many bytes each way, with what is in it compared.
  [[nodiscard]] Status exchange(std::uint32_t bytes, bool is_first);
  [[nodiscard]] Result<Figures> measure(bool is_first);

 private:
  [[nodiscard]] Status send(std::uint32_t bytes);
  [[nodiscard]] Status receive(std::uint32_t bytes);
  [[nodiscard]] Status wait(const char* what, const std::function<bool()>& done);
  [[nodiscard]] Status answer(bool& goes_on);
  void post_receive(std::uint32_t place);
  void send_cts();
  [[nodiscard]] int post(ibv_sge piece);
  [[nodiscard]] Result<double> round_trips(bool is_first);
  [[nodiscard]] Result<double> stream(bool is_first);

  cpc::ConnectionKey key_;
  cpc::LinkNumber link_;
  std::function<void()> pump_;
  std::vector<std::byte> memory_;  ///< what is sent, and a place for each receive
  std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>> region_;
  ibv_qp* queue_pair_ = nullptr;
  cpc::HandshakeSlot handshake_;
  bool waits_for_cts_ = false;
  bool has_sent_cts_ = false;
  bool has_cts_ = false;
  bool is_connected_ = false;
  bool is_flushing_ = false;
  std::string failure_;
  int posted_ = 0;                 ///< receives and sends that have not completed
  int sent_ = 0;                   ///< sends under way
  std::vector<std::uint32_t> in_;  ///< bytes of the messages that have come and nobody has taken; their places in order
  std::vector<std::uint32_t> places_;
};

}  // namespace fabric::doctor
