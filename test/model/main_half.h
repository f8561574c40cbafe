// SPDX-License-Identifier: BSD-3-Clause
//
// The main thread's half of a process: the product's Endpoints and its packet path, on a device of the model, below an upper
// layer that sends messages and closes endpoints. It hears upcalls and says commands.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "btl_fabric/peer/endpoints.h"
#include "test/model/digest.h"
#include "test/model/fabric.h"
#include "test/model/ledger.h"
#include "test/model/numbers.h"
#include "test/model/other_way.h"
#include "test/unit/path_parts.h"

namespace fabric::model {

inline constexpr std::uint32_t kJob = 7;

/// What a main thread has at hand. Processes are called by their ranks.
struct MainEnvironment {
  std::uint8_t self = 0;
  std::uint8_t processes = 0;
  test::FakeDevice& device;
  test::FakeDevice* other_device;  ///< of another port, whose links never break; null: there is none
  const ReceiveQueues& queues;
  bool heals = false;
  bool goes_on = false;  ///< without a peer that cannot be reached (ULFM)
  const cpc::PortContext& port;
  Ledger& ledger;
  Fault& fault;
  std::function<void(cpc::Command)> submit;
  std::function<CpcOffer(std::uint8_t peer)> offer;
};

class MainHalf final : private EndpointServices {
 public:
  explicit MainHalf(const MainEnvironment& environment);
  ~MainHalf();
  MainHalf(const MainHalf&) = delete;
  MainHalf& operator=(const MainHalf&) = delete;

  /// There is a link with the peer through the other port.
  void connect_other_way(std::uint8_t peer, std::vector<ibv_qp*> queue_pairs);
  void on_upcall(const cpc::Upcall& upcall);
  /// By an event of the device.
  void queue_pair_failed(std::uint32_t number);
  /// Takes what has completed, and lets go what is drained.
  void progress();

  // The application
  /// Sends a message, if the BTL accepts it: then the ledger says so.
  void send(std::uint8_t peer);
  /// There is an endpoint for the peer.
  [[nodiscard]] bool can_close(std::uint8_t peer) const { return endpoint_to(peer) != nullptr; }
  /// Open MPI's del_procs.
  void close(std::uint8_t peer);

  /// There is a link with the peer that is idle.
  [[nodiscard]] bool can_rest(std::uint8_t peer) const;
  /// It has asked the peer, which has not answered.
  [[nodiscard]] bool is_resting(std::uint8_t peer) const;
  /// Queue pairs are short.
  void rest(std::uint8_t peer);

  /// The upper layer ends: says goodbye to all, and from now on looks at nothing else.
  void leave();
  [[nodiscard]] bool has_left() const noexcept { return has_left_; }
  /// Some goodbyes are under way.
  [[nodiscard]] bool is_leaving() const noexcept;
  /// They have been for long enough.
  void end_goodbyes();
  [[nodiscard]] bool is_connected(std::uint8_t peer) const;

  /// Messages whose callbacks are due.
  [[nodiscard]] std::size_t messages_under_way(std::uint8_t peer) const { return under_way_[peer].size(); }
  /// The upper layer has been told that the peer cannot be reached.
  [[nodiscard]] bool has_failed(std::uint8_t peer) const { return has_failed_[peer]; }
  /// It remembers queue pairs by messages that have come before it heard of their connection.
  [[nodiscard]] bool remembers_unknown() const;
  void see(PairNumbers& numbers, std::uint8_t peer) const;
  void add_to(Digest& digest, const ProcessNumbers& numbers) const;

 private:
  static constexpr std::uint8_t kTag = 65;
  struct Module : mca_btl_base_module_t {
    MainHalf* half;
  };

  [[nodiscard]] std::chrono::milliseconds heal_timeout() const noexcept;
  [[nodiscard]] std::vector<Endpoints*> modules() noexcept;
  [[nodiscard]] Endpoint* endpoint_to(std::uint8_t peer) const { return endpoints_.endpoint_to({kJob, peer}, 1); }
  void message_arrived(const std::byte* message, std::size_t size);
  void message_ended(std::uint8_t peer, std::uint8_t serial, int status);
  static opal_proc_t* proc_for_name(opal_process_name_t name);
  template <class... Arguments>
  static void received(mca_btl_base_module_t* module, Arguments... arguments);
  static void sent(mca_btl_base_module_t* module, mca_btl_base_endpoint_t* endpoint,
                   mca_btl_base_descriptor_t* descriptor, int status);

  // EndpointServices
  [[nodiscard]] const ProcessInfo& own_info() const noexcept override { return peers_[environment_.self].info; }
  [[nodiscard]] const Peer* peer_of(const opal_proc_t& proc) override { return &peers_[proc.proc_name.vpid]; }
  [[nodiscard]] std::string port_name() const override { return "model:1"; }
  void submit(cpc::Command command) override;
  void tell_upper_layer(opal_proc_t* proc) noexcept override;
  const Awaited* awaited_of(const opal_proc_t& proc) const noexcept override;
  void report_no_connection_method(const opal_proc_t& proc, const std::string& reason) noexcept override;
  void report_not_missed(const Endpoint& /*endpoint*/, const std::string& /*reason*/) noexcept override {}
  void report_detour(const Endpoint& /*endpoint*/, const std::string& /*why*/,
                     const Endpoint& /*way*/) noexcept override {}
  Endpoint* way_beside(const Endpoint& endpoint) const noexcept override;
  bool leads_elsewhere(const Endpoint& /*endpoint*/) const noexcept override { return false; }
  void device_is_gone() noexcept override {}
  Endpoint* endpoint_through(std::uint16_t /*port*/, const ProcessName& peer) noexcept override {
    std::string why_not;  // nothing is said of those through the other port
    return has_left_ ? endpoints_.endpoint_to(peer, 1)
                     : endpoints_.endpoint_for(&procs_[peer.rank], peers_[peer.rank], why_not);
  }
  void report_healed(const Endpoint& /*endpoint*/, const std::string& /*how*/) noexcept override {}
  void report_connected(const Endpoint& /*endpoint*/, std::string_view /*method*/,
                        std::chrono::microseconds /*took*/) noexcept override {}
  void connect_other_ports(const ProcessName& /*peer*/, unsigned /*context*/) noexcept override {}
  void report_connection_failed(const Endpoint& endpoint, const std::string& reason,
                                const std::string& history) noexcept override;
  void report_link_failed(const Endpoint& /*endpoint*/, const LinkFailure& /*failure*/) noexcept override {}
  void report_no_memory() noexcept override { environment_.fault.add("there is no memory"); }

  const MainEnvironment environment_;
  std::array<opal_proc_t, kMostProcesses> procs_{};
  std::array<Peer, kMostProcesses> peers_;
  std::array<std::set<std::uint8_t>, kMostProcesses> under_way_;
  std::array<std::set<std::uint8_t>, kMostProcesses> abandoned_;  ///< with the endpoint that they were sent by
  std::array<bool, kMostProcesses> has_failed_{};
  bool has_left_ = false;
  std::vector<mca_btl_active_message_callback_t> receivers_{256};
  Module module_{};
  test::FakeBuffers buffers_;
  std::vector<test::FakeSharedQueue*> shared_;
  DeviceRdma rdma_;
  AtomicTargets targets_;
  Counters counters_;
  Endpoints endpoints_;
  CompletionQueueRoom room_;
  std::unique_ptr<OtherWay> other_way_;
};

}  // namespace fabric::model
