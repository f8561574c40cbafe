// SPDX-License-Identifier: BSD-3-Clause
//
// The two kinds of queue pairs that X queues take, on the model's device. A target lives as long as a process of its node
// has a handle.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "test/model/fabric.h"

namespace fabric::model {

class ModelSender final : public cpc::QueuePairs {
 public:
  ModelSender(Fabric& fabric, std::uint8_t process) : fabric_(fabric), made_(fabric.make(process, false)) {
    ends_.push_back({made_.number, made_.number});
  }
  ~ModelSender() override { fabric_.destroy(ends_.front().qpn); }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {&made_.verbs}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (fabric_.takes_failure()) {
      return failure("the device of the model refuses RTR");
    }
    fabric_.connect(ends_.front().qpn, ends.front().qpn, false);
    return {};
  }
  void flush() noexcept override { fabric_.flush(ends_.front().qpn); }
  [[nodiscard]] bool are_broken() const noexcept override { return made_.state == QueuePair::State::kError; }

 private:
  Fabric& fabric_;
  QueuePair& made_;
  std::vector<cpc::QueuePairEnd> ends_;
};

class ModelTarget final : public cpc::QueuePairs {
 public:
  ModelTarget(Fabric& fabric, std::uint8_t process, const QueuePair& target, bool is_new)
      : fabric_(fabric), process_(process), is_new_(is_new), ends_{{target.number, target.number}} {}
  ~ModelTarget() override { fabric_.drop_target(ends_.front().qpn); }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {nullptr}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (is_new_) {
      fabric_.connect(ends_.front().qpn, ends.front().qpn, false);
    }
    return {};
  }
  void flush() noexcept override {}  // others receive through it
  [[nodiscard]] cpc::XrcNumbers xrc_numbers() const override { return {0, {process_}}; }

 private:
  Fabric& fabric_;
  std::uint8_t process_;
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
      return std::make_unique<ModelTarget>(fabric, process, fabric.make_target(port.xrc_domain, sender.qpn), true);
    }
    const QueuePair* const target = fabric.take_target(port.xrc_domain, taken, sender.qpn);
    if (target == nullptr) {
      return failure("there is no such target");
    }
    return std::make_unique<ModelTarget>(fabric, process, *target, false);
  };
  return maker;
}

}  // namespace fabric::model
