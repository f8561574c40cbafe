// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pairs on the model's devices, as connections have them: of a connection's own, and the two kinds that X queues take. A
// target lives as long as a process of its node has a handle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpc/queue_pairs/queue_pairs.h"
#include "test/model/fabric.h"

namespace fabric::model {

class ModelQueuePairs final : public cpc::QueuePairs {
 public:
  ModelQueuePairs(Fabric& fabric, std::uint8_t process, const ReceiveQueues& queues) : fabric_(fabric) {
    for (const QueueSpec& queue : queues.queues()) {
      pairs_.push_back(&fabric.make(process, queue.kind != QueueKind::kPerPeer));
      ends_.push_back({pairs_.back()->number, pairs_.back()->number});
    }
  }
  ~ModelQueuePairs() override {
    for (QueuePair* pair : pairs_) {
      fabric_.destroy(*pair);
    }
  }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override {
    std::vector<ibv_qp*> handles;
    for (const QueuePair* pair : pairs_) {
      handles.push_back(&pair->posted->verbs);
    }
    return handles;
  }
  /// Before connect().
  void must_listen() noexcept { must_listen_ = true; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (fabric_.takes_failure()) {
      return failure("the device of the model refuses RTR");
    }
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      fabric_.connect(*pairs_[i], ends[i].qpn, must_listen_);
    }
    return {};
  }
  [[nodiscard]] Status post_handshake() override {
    // On iWARP CTS goes over every queue: the side that has accepted must hear over each before it sends over it.
    cts_queues_ = fabric_.is_iwarp() ? pairs_.size() : 1;
    for (std::size_t i = 0; i < cts_queues_; ++i) {
      if (!pairs_[i]->is_shared) {
        fabric_.post_handshake(*pairs_[i], *pairs_.front());
      }
    }
    return {};
  }
  [[nodiscard]] cpc::HandshakeSlot handshake() const noexcept override {
    cpc::HandshakeSlot slot;
    slot.receive = pairs_.front()->handshake.data();
    slot.send = slot.receive + cpc::kHandshakeBytes;
    slot.serial = pairs_.front()->number;
    slot.queues = static_cast<std::uint8_t>(cts_queues_);
    return slot;
  }
  void flush() noexcept override {
    for (QueuePair* pair : pairs_) {
      fabric_.flush(*pair);
    }
  }

 private:
  Fabric& fabric_;
  std::vector<QueuePair*> pairs_;
  std::vector<cpc::QueuePairEnd> ends_;
  std::size_t cts_queues_ = 1;
  bool must_listen_ = false;
};

class ModelSender final : public cpc::QueuePairs {
 public:
  ModelSender(Fabric& fabric, std::uint8_t process)
      : fabric_(fabric), pair_(fabric.make(process, false)), ends_{{pair_.number, pair_.number}} {}
  ~ModelSender() override { fabric_.destroy(pair_); }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {&pair_.posted->verbs}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (fabric_.takes_failure()) {
      return failure("the device of the model refuses RTR");
    }
    fabric_.connect(pair_, ends.front().qpn, false);
    return {};
  }
  void flush() noexcept override { fabric_.flush(pair_); }
  [[nodiscard]] bool are_broken() const noexcept override { return pair_.state == QueuePair::State::kError; }

 private:
  Fabric& fabric_;
  QueuePair& pair_;
  std::vector<cpc::QueuePairEnd> ends_;
};

class ModelTarget final : public cpc::QueuePairs {
 public:
  ModelTarget(Fabric& fabric, std::uint8_t process, QueuePair& target, bool is_new)
      : fabric_(fabric), process_(process), target_(target), is_new_(is_new), ends_{{target.number, target.number}} {}
  ~ModelTarget() override { fabric_.drop_target(target_); }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {nullptr}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (is_new_) {
      fabric_.connect(target_, ends.front().qpn, false);
    }
    return {};
  }
  void flush() noexcept override {}  // others receive through it
  [[nodiscard]] cpc::XrcNumbers xrc_numbers() const override { return {0, {process_}}; }

 private:
  Fabric& fabric_;
  std::uint8_t process_;
  QueuePair& target_;
  bool is_new_;
  std::vector<cpc::QueuePairEnd> ends_;
};

[[nodiscard]] inline cpc::XrcMaker model_xrc_maker(Fabric& fabric, std::uint8_t process) {
  cpc::XrcMaker maker;
  maker.sender = [&fabric, process](const cpc::PortContext&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    return std::make_unique<ModelSender>(fabric, process);
  };
  maker.target = [&fabric, process](const cpc::PortContext& port, const cpc::QueuePairEnd& sender,
                                    std::uint32_t taken) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    if (taken == 0) {
      if (fabric.takes_failure()) {
        return failure("the device of the model has no target left");
      }
      return std::make_unique<ModelTarget>(fabric, process, fabric.make_target(process, port.xrc_domain, sender.qpn),
                                           true);
    }
    QueuePair* const target = fabric.take_target(port.xrc_domain, taken, sender.qpn);
    if (target == nullptr) {
      return failure("there is no such target");
    }
    return std::make_unique<ModelTarget>(fabric, process, *target, false);
  };
  return maker;
}

}  // namespace fabric::model
