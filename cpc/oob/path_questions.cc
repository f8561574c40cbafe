// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/path_questions.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "common/base/verbs_handle.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/queue_pair_path.h"

namespace fabric::cpc {

/// About one path. It is asked for in two steps, of which the first is local with InfiniBand's own addresses.
class PathQuestions::Question final : public CmEventHandler {
 public:
  Question(PathQuestions& all, const PortContext& port, const Gid& peer)
      : all_(all), port_(port), peer_(peer), end_(all.loop_, [this] { all_.finish(*this, std::nullopt, failure_); }) {}

  /// The kernel counts the time too. This one is for whatever the kernel forgets: connections wait for the end of a question.
  void begin() {
    constexpr std::uint64_t kSpareMilliseconds = 1000;
    const std::uint64_t longest = 2 * std::uint64_t{all_.timeout_ms_} + kSpareMilliseconds;
    failure_ = "no answer";
    end_.start(static_cast<unsigned>(std::min<std::uint64_t>(longest, UINT_MAX)));
    if (Status asked = resolve(); !asked) {
      fail_soon(std::move(asked).error().text);
    }
  }
  void on_event(const CmEvent& event) override;

  [[nodiscard]] const PortContext& port() const noexcept { return port_; }
  [[nodiscard]] const Gid& peer() const noexcept { return peer_; }
  [[nodiscard]] std::list<Wait*>& waiting() noexcept { return waiting_; }

 private:
  [[nodiscard]] Status resolve();
  [[nodiscard]] std::optional<PathRecord> path() const;
  /// Not within a call of who asks.
  void fail_soon(std::string why) {
    failure_ = std::move(why);
    end_.start(0);
  }

  PathQuestions& all_;
  const PortContext& port_;
  const Gid peer_;
  CmId id_;
  Timer end_;  ///< without an answer
  std::string failure_;
  std::list<Wait*> waiting_;
};

Status PathQuestions::Question::resolve() {
  if (all_.unanswered_ >= kMostUnanswered) {
    return failure("nobody has answered others");
  }
  if (all_.events_.channel() == nullptr) {
    if (Status opened = all_.events_.open(all_.loop_); !opened) {
      return opened;
    }
  }
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(all_.events_.channel(), &made, static_cast<CmEventHandler*>(this), RDMA_PS_IB) != 0) {
    return verbs_failure("creating an id of the communication manager", errno);
  }
  id_.reset(made);
  CmSocketAddress source = ib_address(port_.address.gid.raw, port_.pkey, 0);
  CmSocketAddress target = ib_address(peer_.raw, port_.pkey, 0);
  if (rdma_resolve_addr(made, source.get(), target.get(), static_cast<int>(all_.timeout_ms_)) != 0) {
    return verbs_failure("asking for the peer's address (AF_IB)", errno);
  }
  return {};
}

void PathQuestions::Question::on_event(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_.get(), static_cast<int>(all_.timeout_ms_)) != 0) {
        fail_soon("asking for a path: " + describe_errno(errno));
      }
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      all_.finish(*this, path(), "the answer has no path within the subnet");
      return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      all_.finish(*this, std::nullopt, describe(event));
      return;
    default:
      return;
  }
}

/// The first, which is the one that the kernel itself would use.
std::optional<PathRecord> PathQuestions::Question::path() const {
  constexpr unsigned kMostPathBits = 127;
  const rdma_route& route = id_->route;
  if (route.num_paths < 1 || route.path_rec == nullptr || route.path_rec->dlid == 0) {
    return std::nullopt;
  }
  const ibv_sa_path_rec& record = *route.path_rec;
  PathRecord path;
  path.service_level = record.sl & 0xf;
  const unsigned base = port_.address.lid - port_.path_bits;
  const unsigned bits = ntohs(record.slid) - base;  // wraps around for one that is not ours
  path.path_bits = bits <= kMostPathBits ? static_cast<std::uint8_t>(bits) : port_.path_bits;
  path.mtu = record.mtu;
  path.rate = record.rate;
  return path;
}

PathQuestions::PathQuestions(event_base* loop, unsigned timeout_ms, std::function<void(std::string reason)> tell)
    : loop_(loop), timeout_ms_(timeout_ms), tell_(std::move(tell)) {}

PathQuestions::~PathQuestions() = default;

void PathQuestions::add(const PortContext& port) {
  if (port.path_table != nullptr && port.address.link == Transport::kInfiniBand) {
    ports_[port.index] = &port;
  }
}

std::unique_ptr<PathQuestions::Wait> PathQuestions::ask(std::uint16_t port, const Gid& peer,
                                                        std::function<void()> done) {
  const auto from = ports_.find(port);
  if (from == ports_.end()) {
    return nullptr;
  }
  assert_on_progress_thread();
  const PortContext& ours = *from->second;
  if (peer == Gid() || ours.path_table->is_known(peer)) {
    return nullptr;
  }
  if (unanswered_ >= kMostUnanswered && !questions_.contains({port, peer})) {
    ours.path_table->note(peer, std::nullopt);  // also when others are answered again: the peer is told of one path
    return nullptr;
  }
  std::unique_ptr<Question>& question = questions_[{port, peer}];
  if (!question) {
    question = std::make_unique<Question>(*this, ours, peer);
    line_.push_back(question.get());
  }
  auto wait = std::make_unique<Wait>(question->waiting(), std::move(done));
  begin_next();
  return wait;
}

void PathQuestions::begin_next() {
  while (under_way_ < kMostAtOnce && !line_.empty()) {
    Question& next = *line_.front();
    line_.pop_front();
    ++under_way_;
    next.begin();
  }
}

void PathQuestions::fill_in(std::uint16_t port, const Gid& peer, PortAddress& address) const {
  if (const auto from = ports_.find(port); from != ports_.end()) {
    address = address_for(*from->second, peer);
  }
}

/// Ends the question, and with it whatever called this. All who wait hear of it, whatever becomes of the others.
void PathQuestions::finish(Question& question, std::optional<PathRecord> path, const std::string& why_not) {
  const PortContext& port = question.port();
  port.path_table->note(question.peer(), path);
  const auto ended = questions_.extract({port.index, question.peer()});
  --under_way_;
  unanswered_ = path ? 0 : unanswered_ + 1;
  while (!question.waiting().empty()) {
    Wait& first = *question.waiting().front();
    question.waiting().pop_front();
    first.list_ = nullptr;
    const auto done = std::move(first.done_);
    run_or_lose(done);
  }
  if (const auto tell = path ? nullptr : std::exchange(tell_, nullptr)) {
    tell("btl_fabric_path_records: " + device_name(port) + ": the subnet administrator gives no path to a peer (" +
         why_not + "): the connection has btl_fabric_service_level, and the LIDs that the ports publish");
  }
  begin_next();
}

}  // namespace fabric::cpc
