// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/chosen_queues.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/port_share.h"
#include "btl_fabric/mca/report.h"
#include "cpc/queue_pairs/queue_choice.h"

namespace fabric {
namespace {

std::int64_t peers() noexcept {
  return std::max<std::int64_t>(1, std::int64_t{job_size()} - 1);
}

/// Modules of a port: one for each context, of those that are asked for.
std::int64_t contexts() noexcept {
  return std::max({1, params().tx_contexts, params().rx_contexts});
}

/// Messages of so many bytes must have a queue, since the user wants them to be sent in one piece.
std::uint32_t longest_wanted(const LimitWishes& wishes) noexcept {
  std::uint64_t longest = 0;
  for (const Limit limit : {Limit::kEager, Limit::kRndvEager, Limit::kMaxSend}) {
    longest = std::max(longest, wishes[limit].value_or(0));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(longest, UINT32_MAX));
}

}  // namespace

Result<ChosenQueues> ChosenQueues::read() {
  const char* const text = params().receive_queues == nullptr ? "" : params().receive_queues;
  ChosenQueues made;
  if (std::string_view(text) == cpc::kAutoQueues) {
    made.level_ = 0;
    made.list_ = cpc::queues_of_level(0);
    return made;
  }
  auto list = ReceiveQueues::parse(text);
  if (!list) {
    return tl::unexpected(std::move(list).error());
  }
  made.list_ = std::move(*list);
  made.why_ = "as btl_fabric_receive_queues says";
  return made;
}

void ChosenQueues::choose(std::span<const UsablePort> ports, const LimitWishes& wishes, Xrc xrc) {
  const std::int64_t on_each = contexts();
  const auto modules = static_cast<std::uint64_t>(on_each) * ports.size();
  longest_ = longest_wanted(wishes);
  memory_ = static_cast<std::uint64_t>(params().memory_budget) / modules;
  for (const UsablePort& port : ports) {
    modules_[port.device.get()] += on_each;
  }
  std::vector<cpc::QueueRoom> rooms;
  for (const UsablePort& port : ports) {
    rooms.push_back(room(port));
  }
  std::string shortfall;
  if (level_ != kListGiven) {
    cpc::QueueChoice choice = cpc::choose_level_of_all(rooms);
    if (xrc == Xrc::kOnly || (xrc == Xrc::kToo && choice.is_cached)) {
      for (std::size_t i = 0; i < ports.size(); ++i) {
        rooms[i].has_xrc = ports[i].address.link != Transport::kIwarp && open_xrc_domain(ports[i]).has_value();
      }
      choice = xrc == Xrc::kOnly ? cpc::choose_xrc(rooms) : cpc::choose_level_of_all(rooms);
    }
    level_ = choice.level;
    list_ = cpc::queues_of_level(level_);
    why_ = choice.why;
    report_queues_chosen(list_, why_);
    shortfall = std::move(choice.shortfall);
  } else if (memory_ != 0 && !list_.has_xrc()) {
    for (const cpc::QueueRoom& one : rooms) {
      std::string here = cpc::shortfall(list_, one);
      shortfall = here.empty() ? std::move(shortfall) : std::move(here);
    }
  }
  if (!shortfall.empty()) {
    report_queues_too_large(list_, shortfall);
  }
}

/// What a module of the port has.
cpc::QueueRoom ChosenQueues::room(const UsablePort& port) const {
  cpc::QueueRoom room;
  room.link = port.address.link;
  room.settings = queue_pair_settings(port);
  room.peers = peers();
  room.processes = std::int64_t{opal_process_info.num_local_peers} + 1;
  room.queue_pairs = share(port);
  room.memory = memory_;
  room.longest = longest_;
  return room;
}

/// Of the device, or of what the user allows.
std::int64_t ChosenQueues::share(const UsablePort& port) const {
  const std::int64_t part = share_device(port, list_, {contexts(), 0}).queue_pairs() / modules_.at(port.device.get());
  const std::int64_t most = params().max_queue_pairs;
  return most > 0 ? std::min(part, most) : part;
}

std::int64_t ChosenQueues::queue_pairs(const UsablePort& port) const {
  const ReceiveQueues run = on(port);
  const cpc::QueueRoom all = room(port);
  if (!run.has_others() || (memory_ == 0 && !run.has_xrc())) {
    return all.queue_pairs;
  }
  const auto each = static_cast<std::int64_t>(run.count() - run.xrc_count());
  return std::min(all.queue_pairs, cpc::most_connections(run, all) * each);
}

ReceiveQueues ChosenQueues::on(const UsablePort& port) const {
  const ReceiveQueues run = port.address.link == Transport::kIwarp ? list_.without_shared() : list_;
  return memory_ == 0 || !run.has_others() ? run : cpc::within_memory(run, room(port));
}

std::vector<QueueSubset> ChosenQueues::subsets(const ReceiveQueues& run) const {
  return level_ == kListGiven ? std::vector{QueueSubset::all(run)} : cpc::subsets_of_level(level_, run);
}

Result<std::uint8_t> ChosenQueues::subset_with(const std::string& theirs, std::uint8_t their_level) const {
  if (level_ == kListGiven && theirs == list_.canonical()) {
    return std::uint8_t{0};
  }
  if (level_ == kListGiven || their_level > cpc::kXrcLevel || theirs != cpc::queues_of_level(their_level).canonical()) {
    return failure("its receive queues differ");
  }
  const std::uint8_t common = std::min<std::uint8_t>(std::max(level_, their_level), cpc::kQueueLevels - 1);
  if (cpc::queues_of_level(common).largest() < longest_) {
    return failure("it has no queue for messages of " + std::to_string(longest_) + " bytes");
  }
  return cpc::common_subset(level_, their_level);
}

}  // namespace fabric
