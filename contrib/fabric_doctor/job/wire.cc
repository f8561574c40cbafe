// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/wire.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

namespace fabric::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kTimeToMeasure = std::chrono::milliseconds(400);
constexpr std::uint32_t kShort = 8;

// wr_ids, none of which looks like a handshake's; that of a receive has its place above.
constexpr std::uint64_t kSent = 1;
constexpr std::uint64_t kReceived = 3;

[[nodiscard]] std::byte pattern(std::uint32_t place, std::uint32_t bytes) noexcept {
  return static_cast<std::byte>(place * 7 + bytes);
}

}  // namespace

Wire::Wire(ibv_pd* pd, cpc::ConnectionKey key, cpc::LinkNumber link, std::function<void()> pump)
    : key_(key), link_(link), pump_(std::move(pump)), memory_(std::size_t{kReceives + 1} * kLargest) {
  region_.reset(ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (!region_) {
    fail("memory for messages cannot be registered: " + describe_errno(errno));
  }
}

void Wire::post_receives(ibv_qp* queue_pair) {
  queue_pair_ = queue_pair;
  for (std::uint32_t place = 0; place < kReceives && region_; ++place) {
    post_receive(place);
  }
}

void Wire::post_receive(std::uint32_t place) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(&memory_[std::size_t{place + 1} * kLargest]), kLargest, region_->lkey};
  ibv_recv_wr request{};
  request.wr_id = std::uint64_t{place} << cpc::kHandshakeTagBits | kReceived;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* rejected = nullptr;
  if (const int error = ibv_post_recv(queue_pair_, &request, &rejected); error != 0) {
    fail("a receive cannot be posted: " + describe_errno(error));
  } else {
    ++posted_;
  }
}

/// The side that may not speak first answers the peer's CTS.
void Wire::link(const cpc::Linked& linked, bool has_cts) {
  has_cts_ = has_cts_ || has_cts;
  handshake_ = linked.handshake;
  post_receives(linked.queue_pairs.front());
  waits_for_cts_ = true;
  if (linked.may_speak_first || has_cts_) {
    send_cts();
  }
  is_connected_ = has_sent_cts_ && has_cts_;
}

void Wire::send_cts() {
  if (const int error =
          post({reinterpret_cast<std::uintptr_t>(handshake_.send), cpc::kHandshakeBytes, handshake_.lkey});
      error != 0) {
    fail("CTS cannot be sent: " + describe_errno(error));
    return;
  }
  has_sent_cts_ = true;
}

/// Sends it. Gives what ibv_post_send() does.
int Wire::post(ibv_sge piece) {
  ibv_send_wr request{};
  request.wr_id = kSent;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* rejected = nullptr;
  const int error = ibv_post_send(queue_pair_, &request, &rejected);
  if (error == 0) {
    ++posted_;
    ++sent_;
  }
  return error;
}

void Wire::fail(const std::string& reason) {
  if (failure_.empty()) {
    failure_ = reason;
  }
}

void Wire::complete(const ibv_wc& completion) {
  const std::uint64_t kind = completion.wr_id & ((1U << cpc::kHandshakeTagBits) - 1);
  const bool is_good = completion.status == IBV_WC_SUCCESS;
  if (!is_good && completion.status != IBV_WC_WR_FLUSH_ERR) {
    fail(ibv_wc_status_str(completion.status));
  }
  if (kind == cpc::kHandshakeTag) {
    has_cts_ = has_cts_ || is_good;
    if (is_good && waits_for_cts_) {
      if (!has_sent_cts_) {
        send_cts();
      }
      is_connected_ = has_sent_cts_;
    }
    return;
  }
  --posted_;
  if (kind == kSent) {
    --sent_;
  } else if (is_good) {
    in_.push_back(completion.byte_len);
    places_.push_back(static_cast<std::uint32_t>(completion.wr_id >> cpc::kHandshakeTagBits));
  }
}

Status Wire::wait(const char* what, const std::function<bool()>& done) {
  const auto end = Clock::now() + kPatience;
  for (unsigned turn = 1; !done(); ++turn) {
    if (!failure_.empty()) {
      return failure(failure_);
    }
    if (is_flushing_) {
      return failure("the peer has given the connection up");
    }
    if (turn % 64 == 0) {
      if (Clock::now() > end) {
        return failure(std::string(what) + " within 5 s");
      }
      std::this_thread::yield();
    }
    pump_();
  }
  return {};
}

Status Wire::send(std::uint32_t bytes) {
  if (!failure_.empty()) {
    return failure(failure_);
  }
  const int error = post({reinterpret_cast<std::uintptr_t>(memory_.data()), bytes, region_->lkey});
  return error == 0 ? Status{} : failure("a message cannot be sent: " + describe_errno(error));
}

/// Its bytes are compared with the pattern, if it is not one of a stream.
Status Wire::receive(std::uint32_t bytes) {
  const std::string what = "no message of " + std::to_string(bytes) + " bytes has come";
  if (Status come = wait(what.c_str(), [this] { return !in_.empty(); }); !come) {
    return come;
  }
  const std::uint32_t size = in_.front();
  const std::uint32_t place = places_.front();
  in_.erase(in_.begin());
  places_.erase(places_.begin());
  const std::byte* const message = &memory_[std::size_t{place + 1} * kLargest];
  bool is_right = size == bytes;
  for (std::uint32_t i = 0; is_right && i < size && size != kLargest; ++i) {
    is_right = message[i] == pattern(i, bytes);
  }
  post_receive(place);
  return is_right ? Status()
                  : failure("a message of " + std::to_string(bytes) + " bytes has come with another content");
}

Status Wire::exchange(std::uint32_t bytes, bool is_first) {
  for (std::uint32_t i = 0; i < bytes; ++i) {
    memory_[i] = pattern(i, bytes);
  }
  for (const bool sends : {is_first, !is_first}) {
    if (Status done = sends ? send(bytes) : receive(bytes); !done) {
      return done;
    }
  }
  return wait("a message has not been acknowledged", [this] { return sent_ == 0; });
}

/// Answers a short message with one of the same size. Longer by a byte, it is the last: then `goes_on` is false.
Status Wire::answer(bool& goes_on) {
  if (Status come = wait("no message has come", [this] { return !in_.empty(); }); !come) {
    return come;
  }
  const std::uint32_t bytes = in_.front();
  goes_on = bytes == kShort;
  return bytes > kShort + 1 ? failure("a message of another size has come") : exchange(bytes, false);
}

Result<double> Wire::round_trips(bool is_first) {
  std::vector<double> times;
  const auto end = Clock::now() + kTimeToMeasure;
  constexpr std::size_t kMost = 1000;
  constexpr std::size_t kLeast = 20;
  // The side that begins says by the size of its message that it is the last one.
  for (bool goes_on = true; goes_on;) {
    const auto begin = Clock::now();
    if (is_first) {
      goes_on = times.size() < kMost && (times.size() < kLeast || begin < end);
      const std::uint32_t bytes = goes_on ? kShort : kShort + 1;
      if (Status done = exchange(bytes, true); !done) {
        return tl::unexpected(done.error());
      }
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / 2);
      continue;
    }
    if (Status done = answer(goes_on); !done) {
      return tl::unexpected(done.error());
    }
  }
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 2];
}

Result<double> Wire::stream(bool is_first) {
  constexpr std::uint32_t kWindow = 8;
  constexpr int kMost = 200;
  const auto begin = Clock::now();
  int windows = 0;
  for (bool goes_on = true; goes_on; ++windows) {
    if (is_first) {
      goes_on = windows + 1 < kMost && Clock::now() - begin < kTimeToMeasure;
      for (std::uint32_t i = 0; i < kWindow; ++i) {
        if (Status sent = send(kLargest); !sent) {
          return tl::unexpected(sent.error());
        }
      }
    } else {
      for (std::uint32_t i = 0; i < kWindow; ++i) {
        if (Status come = receive(kLargest); !come) {
          return tl::unexpected(come.error());
        }
      }
    }
    const std::uint32_t bytes = goes_on ? kShort : kShort + 1;
    if (Status done = is_first ? exchange(bytes, true) : answer(goes_on); !done) {
      return tl::unexpected(done.error());
    }
  }
  const double microseconds = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  return double{kWindow} * kLargest * windows / microseconds;
}

Result<Figures> Wire::measure(bool is_first) {
  const Result<double> latency = round_trips(is_first);
  if (!latency) {
    return tl::unexpected(latency.error());
  }
  const Result<double> bandwidth = stream(is_first);
  if (!bandwidth) {
    return tl::unexpected(bandwidth.error());
  }
  return Figures{*latency, *bandwidth};
}

}  // namespace fabric::doctor
