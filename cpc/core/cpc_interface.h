// SPDX-License-Identifier: BSD-3-Clause
//
// What a connection method ("connect pseudo component") is to everybody else. Each is a folder, and a line in
// cpc/registry/registry.h.
#pragma once

#include <event2/event.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "cpc/core/channel.h"
#include "cpc/core/cpc_traits.h"
#include "cpc/core/settings.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// What a CPC works with from start() to stop(). What it points to outlives the CPC.
struct CpcContext {
  event_base* loop = nullptr;
  const ConnectionSettings* settings = nullptr;
  OnRequest on_request;                                 ///< takes the channels that peers open
  std::function<void(std::string reason)> on_shortage;  ///< see Shortage in cpc.h
  std::function<void(std::string text)> on_remark;      ///< see Remark in cpc.h
};

/// Progress thread only, except for what says otherwise.
class Cpc : public ChannelOpener {
 public:
  Cpc(const CpcTraits& traits, int priority) : traits_(traits), priority_(static_cast<std::uint8_t>(priority)) {}
  Cpc(const Cpc&) = delete;
  Cpc& operator=(const Cpc&) = delete;

  /// Any thread.
  [[nodiscard]] const CpcTraits& traits() const noexcept { return traits_; }
  /// 0 to 100; of the methods that both sides offer, that with the highest is taken. Any thread.
  [[nodiscard]] std::uint8_t priority() const noexcept { return priority_; }

  /// The error says why this host cannot use it; then nothing else is called.
  [[nodiscard]] virtual Status start(const CpcContext& context) = 0;
  /// Closes every listener; no peer is told. Nothing else is called afterwards.
  virtual void stop() noexcept = 0;
  /// From now on peers may connect to `port`, which outlives this. The error says why they cannot.
  [[nodiscard]] virtual Status serve(const PortContext& port) = 0;
  /// What peers must be told to reach those of `ports` (bit i: PortContext::index i) that it serves: the blob of a
  /// CpcOffer, at most kMaxOfferBlob bytes. Any thread, while the progress thread is not in serve().
  [[nodiscard]] virtual std::vector<std::byte> offer(std::uint64_t ports) const = 0;
  /// What of the user's settings does nothing on this host, for the user; empty if all is well. When offer() may be called.
  [[nodiscard]] virtual std::string remark() const { return {}; }

 private:
  const CpcTraits traits_;
  const std::uint8_t priority_;
};

/// The user's parameters by name, without btl_fabric_: those of a CPC are named in its folder and nowhere else but in
/// the table of parameters.
class CpcParameters {
 public:
  [[nodiscard]] virtual int number(std::string_view name) const = 0;
  /// Null if the user has not set it.
  [[nodiscard]] virtual const char* text(std::string_view name) const = 0;

 protected:
  ~CpcParameters() = default;
};

/// How a CPC comes to be known.
struct CpcRegistration {
  CpcTraits traits;
  /// Reads the CPC's parameters. The error names the one that makes no sense.
  Result<std::unique_ptr<Cpc>> (*make)(const CpcParameters& parameters);
};

}  // namespace fabric::cpc
