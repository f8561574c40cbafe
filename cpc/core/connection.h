// SPDX-License-Identifier: BSD-3-Clause
//
// One connection: it turns what happens into events of the connection table, and the table's actions into deeds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpc/core/channel.h"
#include "cpc/core/connection_table.h"
#include "cpc/core/cpc.h"
#include "cpc/core/settings.h"
#include "cpc/core/transition_history.h"
#include "cpc/loop/event_loop.h"
#include "cpc/queue_pairs/xrc_senders.h"

namespace fabric::cpc {

/// What all connections of a process use. Outlives them.
struct ConnectionEnvironment {
  event_base* loop = nullptr;
  const ConnectionSettings* settings = nullptr;
  const QueuePairMaker* make_queue_pairs = nullptr;
  XrcSenders* senders = nullptr;                                ///< connections that go one way
  std::function<const PortContext*(std::uint16_t index)> port;  ///< null if there is none with that index
  std::function<ChannelOpener*(CpcKind kind)> opener;           ///< null if this process does not run that CPC
  std::function<void(Upcall)> say;                              ///< to the main thread
};

/// Progress thread only. Each function is an event; connection_table.h says what it leads to.
class Connection final : private ChannelHandler {
 public:
  Connection(const ConnectionKey& key, const ConnectionEnvironment& environment);
  /// Closes the channel without a word and destroys the queue pairs.
  ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The main thread's commands
  void connect(PeerTarget target);
  void receives_posted() { apply(Event::kReceivesPosted); }
  void peer_spoke() { apply(Event::kPeerSpoke); }
  void close(std::string reason) { apply(Event::kCloseWanted, std::move(reason)); }
  void destroy() { apply(Event::kDestroyWanted); }

  /// A peer asks, on `channel`. The manager has checked that the port exists and the number of queues fits.
  void request_arrived(std::unique_ptr<Channel> channel, Message request);

  [[nodiscard]] State state() const noexcept { return state_; }

 private:
  void on_message(Channel& channel, Message message) override;
  void on_lost(Channel& channel, std::string reason, bool confirm_taken) override;
  void on_answer(Event event, Message answer);
  void on_refusal(const Message& refusal);
  [[nodiscard]] Status check_answer(Event event, const Message& answer) const;
  [[nodiscard]] bool take_target(const Message& request);
  void on_timer();

  /// The only function that writes the state. `detail` is for the user, should the event lead to a failure.
  void apply(Event event, std::string detail = {});
  [[nodiscard]] Guards guards() const;
  [[nodiscard]] Status perform(Action action);

  [[nodiscard]] Status make_queue_pairs();
  [[nodiscard]] Status join_sender(const PortContext& port);
  [[nodiscard]] Status connect_queue_pairs();
  [[nodiscard]] Status open_channel();
  void adopt_channel();
  void refuse_new_channel(RefuseReason reason, std::string text);
  void send(MessageType type);
  void start_timer(Event event, unsigned milliseconds);
  void ask_for_receives();
  void tell_connected();
  void tell_linked();
  void tell_failed();
  [[nodiscard]] Message own_ends(MessageType type) const;
  [[nodiscard]] unsigned retry_delay_ms() const;

  ConnectionKey key_;
  const ConnectionEnvironment& environment_;
  State state_ = State::kClosed;
  TransitionHistory history_;
  std::string detail_;  ///< the reason at hand, for refusals and failures

  std::optional<PeerTarget> target_;  ///< from Connect
  bool exchanges_ = false;            ///< the CPC exchanges CTS
  bool opened_by_us_ = false;         ///< the channel that the queue pairs were connected over
  std::unique_ptr<QueuePairs> queue_pairs_;
  XrcShare* share_ = nullptr;       ///< kOutgoing: what queue_pairs_ is
  std::uint32_t named_target_ = 0;  ///< kOutgoing: by our latest REQUEST
  std::unique_ptr<QueuePairs>
      taken_target_;  ///< kIncoming: the target that a REQUEST names, until there are queue pairs
  PortAddress remote_address_;
  std::vector<QueuePairEnd> remote_ends_;  ///< what our queue pairs are connected to; empty before
  std::uint32_t attempt_ = 0;              ///< of our latest REQUEST
  bool request_left_ = false;              ///< the peer may have seen a REQUEST of ours
  std::uint32_t peer_attempt_ = 0;         ///< of the peer's latest REQUEST that was adopted

  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Channel> new_channel_;  ///< only within request_arrived()
  std::optional<Message> incoming_;       ///< the REQUEST or REPLY that is being handled
  Timer timer_;
  Event timer_event_ = Event::kRetryTimer;
};

}  // namespace fabric::cpc
