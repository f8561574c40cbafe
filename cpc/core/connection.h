// SPDX-License-Identifier: BSD-3-Clause
//
// One connection: it turns what happens into events of the connection table, and the table's actions into deeds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/transition_history.h"
#include "cpc/core/channel.h"
#include "cpc/core/connection_table.h"
#include "cpc/core/cpc.h"
#include "cpc/core/incarnations.h"
#include "cpc/core/settings.h"
#include "cpc/loop/event_loop.h"
#include "cpc/queue_pairs/xrc_senders.h"

namespace fabric::cpc {

class Connection;

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

/// Who keeps a connection; outlives it.
class ConnectionOwner {
 public:
  /// Something has happened, and all that follows from it. May destroy the connection.
  virtual void on_event(Connection& connection) = 0;

 protected:
  ~ConnectionOwner() = default;
};

/// What a connection that has ended leaves to a newer one.
struct Succession {
  std::optional<PeerTarget> wish;    ///< the main thread wants to connect
  std::unique_ptr<Channel> channel;  ///< the peer does, by this request; null: it is ours that goes on
  Message request;
};

/// The queues of a connection that a peer asks for, or (null) that goes to `target`. Both sides want the same, since both know of
/// each other what they can have. If the peer asks for others, that is seen when the main thread gets them.
[[nodiscard]] const QueueSubset& wanted_queues(const PortContext& port, const Message* request,
                                               const PeerTarget* target);

/// Progress thread only. Each function is an event; connection_table.h says what it leads to.
class Connection final : private ChannelHandler {
 public:
  /// `incarnations`: those of the key; outlives the connection.
  Connection(const ConnectionKey& key, LinkNumber link, const ConnectionEnvironment& environment,
             Incarnations& incarnations, ConnectionOwner& owner);
  /// Closes the channel, tells nobody, and destroys the queue pairs.
  ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The main thread's commands
  void connect(PeerTarget target);
  void receives_posted() { apply(Event::kReceivesPosted); }
  void peer_spoke() { apply(Event::kPeerSpoke); }
  void close(std::string reason, bool is_final);
  void destroy() { apply(Event::kDestroyWanted); }
  /// The main thread wants no connection any more. It does not know of this one yet.
  void withdraw(std::string reason);

  /// What the connection is to have, made before it begins.
  void provide(std::unique_ptr<QueuePairs> queue_pairs) noexcept { prepared_ = std::move(queue_pairs); }
  /// A peer asks, on `channel`. The manager has checked that the port exists and the number of queues fits. `wish`: that
  /// of the connection before this one.
  void request_arrived(std::unique_ptr<Channel> channel, Message request, std::optional<PeerTarget> wish = {});

  [[nodiscard]] const ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] LinkNumber link() const noexcept { return link_; }
  [[nodiscard]] std::uint32_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  /// The last transitions, oldest first.
  [[nodiscard]] std::string history() const { return history_.text(); }
  [[nodiscard]] bool exchanges() const noexcept { return exchanges_; }
  /// For a newer connection, if one is to take its place. Once.
  [[nodiscard]] std::optional<Succession> take_succession() { return std::exchange(succession_, std::nullopt); }

 private:
  void on_message(Channel& channel, Message message) override;
  void on_lost(Channel& channel, std::string reason, bool confirm_taken) override;
  void on_answer(Event event, Message answer);
  void on_refusal(Message refusal);
  [[nodiscard]] Status check_answer(Event event, const Message& answer) const;
  [[nodiscard]] bool take_target(const Message& request);
  void on_timer();

  /// The last call of whoever calls it. `detail` is for the user, should the event lead to a failure.
  void apply(Event event, std::string detail = {});
  /// The only function that writes the state.
  [[nodiscard]] Actions enter(Event event, std::string detail);
  [[nodiscard]] Guards guards() const;
  [[nodiscard]] Status perform(Action action);
  [[nodiscard]] Status perform_or_fail(Action action);
  [[nodiscard]] bool costs_an_attempt(State from, Action action, const Error& error) const noexcept;

  [[nodiscard]] Status make_queue_pairs();
  [[nodiscard]] const QueueSubset& queues_of_connection(const PortContext& port) const;
  [[nodiscard]] Status join_sender(const PortContext& port);
  [[nodiscard]] Status connect_queue_pairs();
  [[nodiscard]] Status open_channel();
  void adopt_channel();
  void refuse_new_channel(RefuseReason reason, const std::string& text);
  void send(MessageType type);
  void start_timer(Event event, unsigned milliseconds);
  [[nodiscard]] unsigned handshake_time_ms() const noexcept;
  void ask_for_receives();
  void tell_connected();
  void tell_linked();
  void tell_failed();
  void destroy_queue_pairs();
  [[nodiscard]] Message own_ends(MessageType type) const;
  [[nodiscard]] unsigned next_pause_ms() const noexcept;
  unsigned spend_pause() noexcept;
  void forgive() noexcept;

  const ConnectionKey key_;
  const LinkNumber link_;
  const ConnectionEnvironment& environment_;
  Incarnations& incarnations_;
  ConnectionOwner& owner_;
  State state_ = State::kClosed;
  TransitionHistory<State, Event> history_;
  std::string detail_;  ///< the reason at hand, for refusals and failures
  RefuseReason refuse_reason_ = RefuseReason::kFailed;

  std::optional<PeerTarget> target_;  ///< from Connect
  bool wanted_ = false;               ///< it has neither been withdrawn nor come true
  bool exchanges_ = false;            ///< the CPC exchanges CTS
  bool opened_by_us_ = false;         ///< the channel that the queue pairs were connected over
  std::uint32_t cts_ = 0;             ///< what CTS over them carries; 0 before they are connected
  std::unique_ptr<QueuePairs> queue_pairs_;
  XrcShare* share_ = nullptr;       ///< kOutgoing: what queue_pairs_ is
  std::uint32_t named_target_ = 0;  ///< kOutgoing: by our latest REQUEST
  std::unique_ptr<QueuePairs>
      taken_target_;  ///< kIncoming: the target that a REQUEST names, until there are queue pairs
  PortAddress remote_address_;
  std::unique_ptr<QueuePairs> prepared_;   ///< until the connection begins
  std::vector<QueuePairEnd> remote_ends_;  ///< what our queue pairs are connected to; empty before
  std::uint32_t incarnation_ = 0;          ///< 0 before there was a REQUEST
  std::uint32_t attempt_ = 0;              ///< of our latest REQUEST
  bool request_left_ = false;              ///< the peer may have seen a REQUEST of ours, of this incarnation
  std::uint32_t peer_attempt_ = 0;         ///< of the peer's latest REQUEST that was adopted
  bool peer_pauses_ = false;
  unsigned pauses_ = 0;  ///< since the peer was last heard of
  /// A port may have been taken down and up again at the wrong moment.
  static constexpr unsigned kMostUnheard = 4;
  /// About seven seconds: for so long no progress thread leaves a backlog full.
  static constexpr unsigned kMostUnheardOnIwarp = 8;
  unsigned unheard_ = 0;  ///< attempts one after the other in which nobody listened
  [[nodiscard]] bool peer_has_ended() const noexcept;
  [[nodiscard]] bool is_device_gone() const noexcept;
  bool is_unwanted_ = false;    ///< the peer has refused for good
  bool has_no_device_ = false;  ///< the peer: its device is gone
  unsigned spent_ms_ = 0;       ///< in them, and in attempts that did not get through

  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Channel> new_channel_;  ///< only within request_arrived()
  std::optional<Message> incoming_;       ///< the message that is being handled, if it is one to look into
  std::optional<Succession> succession_;
  Timer timer_;
  Event timer_event_ = Event::kRetryTimer;
};

}  // namespace fabric::cpc
