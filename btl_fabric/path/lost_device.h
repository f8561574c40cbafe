// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path of a device that is gone (IBV_EVENT_DEVICE_FATAL). What was under way has no completions any more. They are made
// up here, as those of a queue pair in the error state, so that whatever counts them ends as it does otherwise.
#pragma once

#include "btl_fabric/path/packet_path.h"

namespace fabric {

/// A packet path, for that purpose. Belongs to whoever holds the context's lock. Not while progress() runs.
class LostDevice {
 public:
  explicit LostDevice(PacketPath& path) noexcept : path_(path) {}

  /// What has completed has been taken: nothing is polled from now on.
  void stop() noexcept;
  /// After that, and when all links are stopped: makes up the completions of sends, reads, writes, atomics, and of the receives of P
  /// queues. Those of drain markers follow with Link::post_drain_markers(). Nobody waits for the rest: the receives of shared queues,
  /// and messages that the device has copied.
  void flush();

  /// Tells PathEvents that the device of a link is gone.
  static void note(Link& link) noexcept;

 private:
  void flush_sends();
  void flush_rdma();
  void flush_receives();
  void fail(std::uint64_t id, std::uint32_t qpn) noexcept;

  PacketPath& path_;
};

}  // namespace fabric
