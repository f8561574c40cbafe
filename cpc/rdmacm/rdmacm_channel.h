// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of the rdmacm and ibcm CPCs: an id of the communication manager for every queue pair of one attempt (iWARP
// can connect no more than one by one id). The channel is where its slowest id is.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpc/cm/cm_ids.h"
#include "cpc/core/channel.h"
#include "cpc/loop/connect_throttle.h"
#include "cpc/loop/event_loop.h"
#include "cpc/rdmacm/cm_message.h"

namespace fabric::cpc {

/// What the channels of a CPC share; outlives them.
struct CmEnvironment {
  event_base* loop = nullptr;
  rdma_event_channel* events = nullptr;
  ConnectThrottle* throttle = nullptr;  ///< of the channels that we open, until they are answered
  const CpcTraits* cpc = nullptr;
  bool native = false;  ///< InfiniBand addressing: ibcm
  unsigned resolve_timeout_ms = 2000;
};

/// Of messages whose sender has a queue pair of that number; see cm_message.h. 0: of a REJ.
[[nodiscard]] MessageKey cm_key(const JobToken& token, Transport link, std::uint32_t qpn) noexcept;
/// True if the private data, which `message` was decoded from, is signed with that key.
[[nodiscard]] bool is_signed(const CmMessage& message, std::span<const std::byte> private_data,
                             const MessageKey& key) noexcept;

/// A local port, as its channels use it; outlives them.
struct CmPort {
  const PortContext* port = nullptr;
  CmAddress address;        ///< where it listens
  std::uint32_t scope = 0;  ///< of its address, if that is link-local: the interface's index
  std::uint8_t reads_granted = 0;
  std::uint8_t reads_asked = 0;
};

/// Progress thread only. Destroying it destroys the ids: a peer whose queue pairs are up hears that we have
/// disconnected, one that waits for an answer that there will be none.
class RdmaCmChannel final : public Channel, private CmEventHandler {
 public:
  /// A channel to be opened to `target`, when its turn comes. `request.ends` are our queue pairs.
  RdmaCmChannel(const CmEnvironment& environment, const CmPort& port, const ChannelIdentity& identity,
                const CmAddress& target, const Message& request);

  /// A channel that a peer is opening with `queue_count` ids, to be added as they arrive.
  RdmaCmChannel(const CmEnvironment& environment, const CmPort& port, const ChannelIdentity& identity,
                std::size_t queue_count);

  [[nodiscard]] bool has(std::size_t queue) const noexcept { return lanes_[queue].id != nullptr; }
  /// One for each queue.
  void add(CmId id, std::size_t queue, std::uint32_t peer_qpn);
  /// True when every id is there. Then the REQUEST is, too.
  [[nodiscard]] bool is_complete() const noexcept;
  [[nodiscard]] std::size_t queue_count() const noexcept { return lanes_.size(); }
  [[nodiscard]] Message received(MessageType type) const;

  [[nodiscard]] const CpcTraits& cpc() const noexcept override { return *environment_.cpc; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return opener_; }
  [[nodiscard]] bool request_left() const noexcept override { return request_left_; }
  [[nodiscard]] unsigned tried_ms() const noexcept override;
  [[nodiscard]] bool peer_is_busy() const noexcept override { return peer_is_busy_; }
  [[nodiscard]] bool nobody_listens() const noexcept override { return nobody_listens_; }
  void send(Message message) override;
  [[nodiscard]] Status connect(QueuePairs& queue_pairs, const Message& from_peer) override;

 private:
  struct Lane {
    CmId id;
    std::uint32_t own_qpn = 0;
    std::uint32_t peer_qpn = 0;
    bool answered = false;  ///< opener: REP received; listener: RTU received
    bool replied = false;   ///< listener: REP sent
  };

  void on_event(const CmEvent& event) override;
  void start();
  [[nodiscard]] Status start(Lane& lane);
  [[nodiscard]] Status on_address_resolved(const Lane& lane) const;
  [[nodiscard]] Status request(const Lane& lane);
  void on_answer(Lane& lane, const CmEvent& event);
  void on_rejected(const CmEvent& event);
  [[nodiscard]] Status accept(Lane& lane);
  void reject_all(const Message& message);
  [[nodiscard]] Lane* find(const rdma_cm_id* id) noexcept;
  [[nodiscard]] CmMessage own(MessageType type, const Lane& lane) const;
  [[nodiscard]] std::vector<std::byte> signed_bytes(const CmMessage& message, std::uint32_t qpn) const;
  [[nodiscard]] Status check(const CmMessage& message, const Lane& lane, const CmEvent& event) const;
  [[nodiscard]] CmSocketAddress socket_address(const CmAddress& address, bool local) const;
  [[nodiscard]] std::string remote() const;
  void lose(std::string reason);
  void lose_soon(std::string reason);

  const CmEnvironment& environment_;
  const CmPort& port_;
  const bool opener_;
  CmAddress target_;
  std::vector<Lane> lanes_;
  bool lost_ = false;
  bool request_left_ = false;
  bool peer_is_busy_ = false;
  bool nobody_listens_ = false;
  std::chrono::steady_clock::time_point
      began_;  ///< of a channel that we open: when its turn came; not set once it is answered
  std::unique_ptr<ConnectThrottle::Ticket> ticket_;
  std::string failure_;  ///< of what was tried within a call of the owner
  Timer soon_;           ///< the report of failure_
};

}  // namespace fabric::cpc
