// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/protocol_limits.h"

#include <algorithm>
#include <cstdio>

namespace fabric {

namespace {

// What is good on softhca, soft RoCE and soft iWARP, and where nothing speaks for another choice.
constexpr std::uint64_t kEager = 12 * 1024;
constexpr std::uint64_t kSoftIwarpEager = 14 * 1024;  // measured, see contrib/bench/README.md
constexpr std::uint64_t kPiece = 64 * 1024;
constexpr std::uint64_t kInPlace = 16 * 1024;
constexpr std::uint64_t kPipelineFragment = 1024 * 1024;
constexpr std::uint64_t kMostPipelineFragment = 4 * 1024 * 1024;

/// So often, it is assumed, memory is used before its registration leaves the cache. It is high: where a buffer is used again
/// and again, to copy it instead costs each time.
constexpr double kUses = 64;

std::string bytes(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

std::string microseconds(double time) {
  char text[32];
  std::snprintf(text, sizeof text, time < 10 ? "%.1f us" : "%.0f us", time);
  return text;
}

/// "registering 12288 bytes takes 2.5 us here, copying them from memory 1.2 us"
std::string compare(const RegistrationCost& cost, std::uint64_t size) {
  return "registering " + bytes(size) + " takes " + microseconds(cost.registering(size)) +
         (cost.is_measured ? " here" : " (an assumption)") + ", copying them from memory " +
         microseconds(cost.copying(size));
}

/// True if a message of this size is better copied than registered, over all uses of its memory.
bool is_better_copied(const RegistrationCost& cost, std::uint64_t size) {
  return cost.is_measured && cost.registering(size) > kUses * cost.copying(size);
}

/// The least of `size`, twice that and so on that is worth a registration; at most `most`.
std::uint64_t worth_registering(const RegistrationCost& cost, std::uint64_t size, std::uint64_t most) {
  while (size * 2 <= most && is_better_copied(cost, size)) {
    size *= 2;
  }
  return std::min(size, most);
}

ChosenLimit by_user(Limit limit, std::uint64_t value) {
  return {value, std::string("set by btl_fabric_") + parameter_of(limit)};
}

/// One choice for each limit. What stands before in the order of Limit has been chosen, and may be looked at.
class Choice {
 public:
  Choice(const PortFacts& port, const LimitWishes& wishes) : port_(port), wishes_(wishes) {}

  ProtocolLimits all() {
    for (std::size_t i = 0; i < kLimits; ++i) {
      const auto limit = static_cast<Limit>(i);
      chosen_[limit] = wishes_[limit] ? by_user(limit, *wishes_[limit]) : choose(limit);
      keep_possible(limit, chosen_[limit]);
    }
    return chosen_;
  }

 private:
  [[nodiscard]] ChosenLimit choose(Limit limit) const {
    switch (limit) {
      case Limit::kInline:
        return inlined();
      case Limit::kEager:
        return eager();
      case Limit::kRndvEager:
        return {std::min(kEager, chosen_[Limit::kEager].value),
                "no more than a small message, since its receiver may have to keep it"};
      case Limit::kMaxSend:
        return piece();
      case Limit::kInPlace:
        return in_place();
      case Limit::kGet:
      case Limit::kPut:
        return {port_.max_message, "the longest message of the port, and at most 1 GiB"};
      case Limit::kPipelineSend:
        return {0, "memory is registered while nothing is sent: the device, and not the processor, moves all of it"};
      case Limit::kPipelineFragment:
        return pipeline_fragment();
      case Limit::kLeastPipeline:
        break;
    }
    return {0, "any that is not sent at once may be"};
  }

  [[nodiscard]] ChosenLimit inlined() const {
    if (port_.max_inline < port_.wanted_inline) {
      return {port_.max_inline,
              port_.max_inline == 0 ? "the device has no inline messages" : "the most that the device takes"};
    }
    return {port_.max_inline, "the device takes that, and more would make every entry of its send queues larger"};
  }

  /// A longer message costs a registration on either side and a read, a small one a copy on either side.
  [[nodiscard]] ChosenLimit eager() const {
    const RegistrationCost& cost = port_.registration;
    if (port_.largest_queue < kEager) {
      return {port_.largest_queue, "the longest message that a receive queue takes"};
    }
    if (port_.is_soft_iwarp) {
      return {std::min(kSoftIwarpEager, port_.largest_queue),
              "on soft iWARP a read takes longer than two copies of so much"};
    }
    const std::uint64_t size = worth_registering(cost, kEager, std::min(kPiece, port_.largest_queue));
    const char* why = "longer ones are read, which saves two copies: ";
    if (size > kEager) {
      why = "more than usual, since to read a message registers its memory: ";
    } else if (is_better_copied(cost, size)) {
      why = "more would be better, but no receive queue takes twice as much: ";
    }
    return {size, why + compare(cost, kEager)};
  }

  /// On InfiniBand and RoCE a piece fills its last packet, if it is not most of a packet that this takes. (iWARP has no packets of its
  /// own: TCP cuts the stream.)
  [[nodiscard]] ChosenLimit piece() const {
    const std::uint64_t size = std::min(kPiece, port_.largest_queue);
    std::string reason =
        size < kPiece ? "the longest message that a receive queue takes" : "as copies of it stay in caches";
    if (port_.link == Transport::kIwarp || port_.mtu == 0 || size + port_.packet_header <= port_.mtu) {
      return {size, std::move(reason)};
    }
    const std::uint64_t beyond = (size + port_.packet_header) % port_.mtu;
    const std::uint64_t least = std::max(chosen_[Limit::kEager].value, chosen_[Limit::kRndvEager].value);
    if (beyond == 0 || beyond > port_.mtu / 8 || size - beyond < least) {
      return {size, std::move(reason)};
    }
    const std::uint64_t packets = (size + port_.packet_header) / port_.mtu;
    return {size - beyond, reason + ", in " + std::to_string(packets) + " whole packets of " +
                               std::to_string(port_.mtu) + " with our header"};
  }

  [[nodiscard]] ChosenLimit in_place() const {
    const RegistrationCost& cost = port_.registration;
    const std::uint64_t size = worth_registering(cost, kInPlace, kPiece);
    return {size, (size == kInPlace ? "registrations are kept for the next use: " : "more than usual: ") +
                      compare(cost, kInPlace)};
  }

  /// One piece is registered while another is written. What each registration costs, whatever its length, should be less than a
  /// tenth of the time that the piece takes.
  [[nodiscard]] ChosenLimit pipeline_fragment() const {
    std::uint64_t size = kPipelineFragment;
    if (port_.in_software || !port_.registration.is_measured || port_.mbit_per_second == 0) {
      return {size, port_.in_software ? "the device is made of software, whose speed nobody knows" : "usual"};
    }
    const auto on_the_wire = [this](std::uint64_t length) {
      return static_cast<double>(length) * 8 / port_.mbit_per_second;  // us
    };
    while (size < kMostPipelineFragment && 10 * port_.registration.each > on_the_wire(size)) {
      size *= 2;
    }
    return {size, "it takes " + microseconds(on_the_wire(size)) + " on the wire, each registration " +
                      microseconds(port_.registration.each) + " and more"};
  }

  /// What the device, or a limit before this one, demands of every choice.
  void keep_possible(Limit limit, ChosenLimit& chosen) const {
    switch (limit) {
      case Limit::kInline:
        lower(chosen, port_.max_inline, "but the device takes no more, so the port is not used");
        break;
      case Limit::kGet:
      case Limit::kPut:
        if (chosen.value == 0 && wishes_[limit]) {  // as Open MPI takes it
          chosen.value = UINT64_MAX;
          chosen.reason += " to 0, which is no limit";
        }
        lower(chosen, port_.max_message, "but the port's longest message is of " + bytes(port_.max_message));
        break;
      case Limit::kLeastPipeline: {
        const std::uint64_t least = chosen_[Limit::kEager].value + chosen_[Limit::kPipelineSend].value;
        if (chosen.value < least) {
          chosen.value = least;
          chosen.reason += wishes_[limit] ? ", but shorter ones are sent at once" : "";
        }
        break;
      }
      default:
        break;
    }
  }

  static void lower(ChosenLimit& chosen, std::uint64_t most, const std::string& why) {
    if (chosen.value > most) {
      chosen.value = most;
      chosen.reason += ", " + why;
    }
  }

  const PortFacts& port_;
  const LimitWishes& wishes_;
  ProtocolLimits chosen_;
};

}  // namespace

const char* parameter_of(Limit limit) noexcept {
  switch (limit) {
    case Limit::kInline:
      return "max_inline_data";
    case Limit::kEager:
      return "eager_limit";
    case Limit::kRndvEager:
      return "rndv_eager_limit";
    case Limit::kMaxSend:
      return "max_send_size";
    case Limit::kInPlace:
      return "in_place_size";
    case Limit::kGet:
      return "get_limit";
    case Limit::kPut:
      return "put_limit";
    case Limit::kPipelineSend:
      return "rdma_pipeline_send_length";
    case Limit::kPipelineFragment:
      return "rdma_pipeline_frag_size";
    case Limit::kLeastPipeline:
      break;
  }
  return "min_rdma_pipeline_size";
}

ProtocolLimits choose_limits(const PortFacts& port, const LimitWishes& wishes) {
  return Choice(port, wishes).all();
}

Status check_limits(const LimitWishes& wishes, std::uint64_t largest_queue) {
  for (const Limit limit : {Limit::kEager, Limit::kRndvEager, Limit::kMaxSend}) {
    if (wishes[limit].value_or(0) > largest_queue) {
      return failure(std::string("btl_fabric_") + parameter_of(limit) + " is " + std::to_string(*wishes[limit]) +
                     ", but the largest queue of btl_fabric_receive_queues takes " + std::to_string(largest_queue) +
                     " bytes: raise the size of a queue or lower the limit");
    }
  }
  // ob1's header of a piece takes 32 bytes, and it waits for ever for room for at least one more.
  constexpr std::uint64_t kLeastPiece = 64;
  if (wishes[Limit::kMaxSend].value_or(kLeastPiece) < kLeastPiece) {
    return failure("btl_fabric_max_send_size is " + std::to_string(*wishes[Limit::kMaxSend]) +
                   ", but a piece of a message has to hold Open MPI's header and some of the message: at least " +
                   std::to_string(kLeastPiece));
  }
  return {};
}

}  // namespace fabric
