// SPDX-License-Identifier: BSD-3-Clause
//
// One peer, through one port: the connection as the main thread sees it, and the messages that wait for it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "btl_fabric/endpoint_queue.h"
#include "btl_fabric/opal.h"
#include "cpc/cpc.h"

namespace fabric {

class Module;

/// Everything here belongs to whoever holds the BTL lock. What a connection goes through on the progress thread is in
/// cpc/connection_table.h; this is only what sending needs to know of it.
class Endpoint final : public mca_btl_base_endpoint_t {
 public:
  enum class State {
    kIdle,        ///< nobody has sent anything yet
    kConnecting,  ///< messages wait
    kConnected,
    kFailed,   ///< reported; messages are refused
    kClosing,  ///< being taken down
  };

  Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const cpc::ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] opal_proc_t* proc() const noexcept { return proc_; }
  [[nodiscard]] EndpointQueue& queue(std::size_t index) noexcept { return queues_[index]; }

  // ---- Packet path (endpoint_send.cc)

  /// Sends a fragment, or queues it until it can go. Returns what btl_send() returns: 1 if the upper layer is done with
  /// it, OPAL_SUCCESS if its callback will be called, OPAL_ERR_UNREACH if the connection has failed.
  int send(Fragment& fragment) noexcept;

  /// Packs header and data into a packet that the device copies, if that is possible right now.
  /// False, and nothing has happened, if it is not.
  [[nodiscard]] bool send_immediately(opal_convertor_t* convertor, const void* header, std::size_t header_size,
                                      std::size_t payload_size, mca_btl_base_tag_t tag) noexcept;

  /// Posts what waits on this queue as far as credits and slots allow, then the credits that the peer needs.
  void send_waiting(EndpointQueue& queue) noexcept;

  /// A message or credits arrived on a P queue: `header` is checked and accounted for, receives are posted again.
  [[nodiscard]] bool accept_grant(EndpointQueue& queue, const PacketHeader& header) noexcept;
  void receive_done(EndpointQueue& queue, Fragment* fragment) noexcept;
  /// Posts the receives for which there were no buffers before.
  void refill_all() noexcept;

  // ---- Set-up and teardown (endpoint.cc)

  /// The queue pairs are there: posts every receive. The error says what could not be posted.
  [[nodiscard]] Status post_receives(const std::vector<ibv_qp*>& queue_pairs);
  void connected(std::vector<cpc::QueuePairEnd> remote_ends);

  /// Connects if messages wait for it; for when the last connection with this peer is gone at last.
  void connect_if_wanted() {
    if (state_ == State::kIdle && !waiting_.empty()) {
      want_connection();
    }
  }

  /// Tells the progress thread that the peer is there, since its message is, if that is news.
  void peer_spoke();

  /// Gives the connection up. Messages that wait are dropped; none is accepted any more.
  void close(const std::string& reason);
  /// After Close is answered: asks for completions that come after all others.
  void drain();
  /// True when no completion of this endpoint can come any more.
  [[nodiscard]] bool is_drained() const noexcept;
  void fail() noexcept { state_ = State::kFailed; }

  /// Queue pair numbers of one queue on either side, for messages to users: "QPN 0x000011 -> 0x000012".
  [[nodiscard]] std::string describe_queue(std::uint32_t qpn) const;

 private:
  int send_later(Fragment& fragment) noexcept;
  int post_fragment(EndpointQueue& queue, Fragment& fragment) noexcept;
  void send_credits(EndpointQueue& queue) noexcept;
  bool post_credits(EndpointQueue& queue) noexcept;
  void refill(EndpointQueue& queue) noexcept;
  void want_connection();

  Module& module_;
  opal_proc_t* proc_;
  cpc::ConnectionKey key_;
  cpc::PeerTarget target_;
  State state_ = State::kIdle;
  bool spoke_ = false;  ///< PeerSpoke is sent
  bool draining_ = false;
  FragmentQueue waiting_;             ///< sent before the connection was up, in order
  std::deque<EndpointQueue> queues_;  ///< one per receive queue; a deque, because work requests point at them
  std::vector<cpc::QueuePairEnd> remote_ends_;
};

}  // namespace fabric
