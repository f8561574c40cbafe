// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_streams.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/oob_channel.h"

namespace fabric::cpc {
namespace {

/// Not one wake-up for each.
constexpr unsigned kFreeingMilliseconds = 20;

}  // namespace

OobStreams::OobStreams(Environment environment)
    : environment_(std::move(environment)),
      idle_ends_(environment_.dialing.loop, [this] { end_idle(); }),
      freeing_(environment_.dialing.loop, [this] { closed_.clear(); }) {}

OobStreams::~OobStreams() {
  for (List* const list : {&busy_, &idle_}) {
    while (!list->empty()) {
      list->front()->close();
    }
  }
}

/// One that is open goes before one that may yet come to nothing.
OobStream* OobStreams::find(const ProcessName& peer, const JobToken& token) const noexcept {
  OobStream* found = nullptr;
  const auto [begin, end] = by_peer_.equal_range(peer);
  for (auto one = begin; one != end; ++one) {
    OobStream& stream = *one->second;
    // Who has proved that it knows our token has no need of its own.
    if (stream.is_accepted() || stream.token() == token) {
      found = found == nullptr || stream.is_open() ? &stream : found;
    }
  }
  return found;
}

void OobStreams::join(OobChannel& channel, const ProcessName& peer, const JobToken& token,
                      const std::vector<SocketAddress>& addresses) {
  assert_on_progress_thread();
  if (OobStream* const there = find(peer, token); there != nullptr) {
    there->join(channel);
    return;
  }
  OobStream& made = keep(std::make_unique<OobStream>(*this, peer, token, addresses));
  try {
    by_peer_.emplace(peer, &made);
    made.join(channel);
  } catch (...) {
    made.close();
    throw;
  }
}

OobStream& OobStreams::accept(FileDescriptor socket, const SocketAddress& from, OobHost& host) {
  assert_on_progress_thread();
  return keep(std::make_unique<OobStream>(*this, std::move(socket), from, host));
}

OobStream& OobStreams::keep(std::unique_ptr<OobStream> stream) {
  busy_.push_back(std::move(stream));
  busy_.back()->is_in_ = &busy_;
  busy_.back()->place_ = std::prev(busy_.end());
  return *busy_.back();
}

bool OobStreams::close_idle() noexcept {
  if (idle_.empty()) {
    return false;
  }
  idle_.front()->close();
  return true;
}

void OobStreams::on_known(OobStream& stream) {
  by_peer_.emplace(*stream.peer(), &stream);
}

void OobStreams::take_over(OobStream& stream) {
  std::vector<OobStream*> calling;
  const auto [begin, end] = by_peer_.equal_range(*stream.peer());
  std::for_each(begin, end, [&](const auto& one) {
    if (!one.second->is_open()) {
      calling.push_back(one.second);
    }
  });
  for (OobStream* const other : calling) {
    while (!other->channels().empty() && stream.is_open()) {
      OobChannel& channel = *other->channels().front();
      other->drop(channel);  // with the last one it is closed
      stream.join(channel);
    }
  }
}

void OobStreams::on_idle(OobStream& stream) noexcept {
  move(stream, idle_);
  if (idle_.size() > kMostIdle) {
    idle_.front()->close();
  }
  if (!idle_ends_.running()) {
    idle_ends_.start(static_cast<unsigned>(environment_.idle.count()));
  }
}

void OobStreams::on_busy(OobStream& stream) noexcept {
  move(stream, busy_);
}

void OobStreams::on_closed(OobStream& stream) noexcept {
  if (stream.peer()) {
    const auto [begin, end] = by_peer_.equal_range(*stream.peer());
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == &stream; });
    if (found != end) {
      by_peer_.erase(found);
    }
  }
  move(stream, closed_);
  if (!freeing_.running()) {
    freeing_.start(kFreeingMilliseconds);
  }
}

void OobStreams::move(OobStream& stream, List& to) noexcept {
  to.splice(to.end(), *stream.is_in_, stream.place_);
  stream.is_in_ = &to;
}

void OobStreams::end_idle() noexcept {
  const auto now = std::chrono::steady_clock::now();
  while (!idle_.empty() && idle_.front()->since() + environment_.idle <= now) {
    idle_.front()->close();
  }
  if (!idle_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(idle_.front()->since() + environment_.idle - now);
    idle_ends_.start(static_cast<unsigned>(left.count()));
  }
}

}  // namespace fabric::cpc
