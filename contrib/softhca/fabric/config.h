// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What softhca-run was told, as every process of the fabric reads it from the file `config` in $SOFTHCA_DIR: lines
// "name = value", '#' comments. One table (config.cc) has every name with its values and its help, which softhca-run prints.
#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/quantity.h"

namespace softhca {

enum class Personality { Ib, Roce, Iwarp };

struct Config {
  Personality personality = Personality::Roce;
  unsigned devices = 1;  // of each node, up to kMaxDevices
  unsigned ports = 1;    // of each device, up to kMaxPorts
  unsigned nodes = 1;    // virtual nodes, up to kMaxNodes
  std::string
      node_from;  // name of an environment variable with the rank that chooses the node (rank % nodes); else round robin
  uint64_t seed = 1;         // of everything random
  unsigned async_us = 0;     // work requests start up to this much later, in the engine; 0: in the call that posts them
  bool cma = true;           // false: act as if process_vm_readv were forbidden
  bool chaos_order = false;  // RDMA WRITE writes the last byte first: catches who polls memory and relies on order
  unsigned landing = 8448;   // bytes up to which a SEND lands by way of shared memory
  // The link of each port (link/link.h); zero: as if there were none.
  PerPort bandwidth;     // bits per second
  PerPort latency;       // nanoseconds, one way
  PerPort jitter;        // nanoseconds: up to so much more
  PerPort loss;          // of kWhole messages
  unsigned max_qps = 0;  // limits of the device, to test what happens at them; 0: the built-in limit
  unsigned max_cqs = 0;
  unsigned max_mrs = 0;
  unsigned max_srqs = 0;
  unsigned xrc_devices = kMaxDevices;  // of each node, the first: the others have no XRC
  unsigned max_inline = 220;
  unsigned max_wr = 16384;
  unsigned max_cqe = 65536;
  unsigned max_message = 1U << 30;  // bytes of a message
  unsigned lmc = 0;                 // InfiniBand: a port has 2^lmc LIDs
  bool odp = false;                 // memory may be registered on demand (on-demand paging)
  unsigned gids = 0;                // entries of a port's GID table, empty ones behind the others; 0: none is empty
  PerPort sm_lid;                   // InfiniBand: what a port says is the LID of its subnet manager; 0: 1
  unsigned sm_sl = 0;               // InfiniBand: service level of the paths that the subnet manager gives
  unsigned sm_path = 0;             // and which of the 2^lmc LIDs of both ports they have
  uint64_t sm_us = 0;               // how long it takes for one
  uint64_t fatal_us = 0;            // after a device has failed: when its event comes
};

// Sets one option. What is wrong with it, and what would be right; empty: nothing.
std::string set_option(std::string_view name, std::string_view value, Config& config);
// Its value, as it would be written; empty: there is no such option, or it is not set.
std::string option_of(std::string_view name, const Config& config);
// Errors are one line each, `line N, "TEXT": ...`; empty when all is well.
std::string parse_config(const std::string& text, Config& config);
// The same for the file `config` in that directory; also when it cannot be read.
std::string load_config(const std::string& directory, Config& config);
// The table as text: for softhca-run --help and the manual page.
std::string config_help();

}  // namespace softhca
