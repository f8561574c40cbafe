// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path of a device that is gone (IBV_EVENT_DEVICE_FATAL). What was under way has no completions any more. They are made
// up here, as those of a queue pair in the error state, so that whatever counts them ends as it does otherwise.
#pragma once

#include <span>
#include <vector>

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
  /// and messages that the device has copied. `contexts`: the paths of the port in all contexts, this one among them; for whoever
  /// holds the locks of them all. A message may go by one and have its buffer of another.
  void flush(std::span<PacketPath* const> contexts);

  /// Tells PathEvents that the device of a link is gone.
  static void note(Link& link) noexcept;

 private:
  void flush_sends(std::span<PacketPath* const> contexts);
  void add_posted(const FragmentPool& pool, std::vector<Fragment*>& posted) const;
  void flush_rdma();
  void flush_receives();
  void fail(std::uint64_t id, std::uint32_t qpn) noexcept;

  PacketPath& path_;
};

}  // namespace fabric
