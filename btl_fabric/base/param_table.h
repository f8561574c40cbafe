// SPDX-License-Identifier: BSD-3-Clause
//
// Every MCA parameter of the component, declared here and nowhere else. The table registers them with Open MPI
// (params.cc), checks their values (param_values.h), and generates the tables of the README and the manual page (contrib/docs/).
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <span>
#include <string_view>

namespace fabric {

/// The values in force. Open MPI writes them once, at registration; strings belong to it.
struct Params {
  char* receive_queues = nullptr;
  int max_queue_pairs = 0;
  int memory_budget = 0;
  char* if_include = nullptr;
  char* if_exclude = nullptr;
  char* subnets = nullptr;
  char* rails = nullptr;
  int gid_index = 0;
  int allow_different_subnets = 0;
  int warn_default_gid_prefix = 0;
  int ignore_locality = 0;
  int max_ports = 0;
  int paths = 0;
  int mtu = 0;
  int max_inline_data = 0;
  int in_place_size = 0;
  int coalesce_size = 0;
  int coalesce_first = 0;
  int eager_rdma = 0;
  int eager_rdma_peers = 0;
  int eager_rdma_slots = 0;
  int eager_rdma_threshold = 0;
  int stripe_size = 0;
  int rdma_depth = 0;
  int device_atomics = 0;
  int relaxed_ordering = 1;
  int odp = 0;
  int device_memory_direct = 0;
  int force_mr = 0;
  int read_windows = 1;
  char* queue_costs = nullptr;
  int tx_contexts = 0;
  int rx_contexts = 0;
  char* rx_steering = nullptr;
  int cq_size = 0;
  int cq_resize = 0;
  int cq_poll_batch = 0;
  int free_list_num = 0;
  int free_list_max = 0;
  int free_list_inc = 0;
  int pkey = 0;
  int service_level = 0;
  int path_records = 0;
  int traffic_class = 0;
  int timeout = 0;
  int retry_count = 0;
  int rnr_retry = 0;
  int min_rnr_timer = 0;
  char* cpc_include = nullptr;
  char* cpc_exclude = nullptr;
  char* oob_if_include = nullptr;
  char* oob_if_exclude = nullptr;
  int connect_limit = 0;
  int oob_priority = 0;
  int xoob_priority = 0;
  int rdmacm_priority = 0;
  int ibcm_priority = 0;
  int rdmacm_port = 0;
  int rdmacm_resolve_timeout = 0;
  int connect_retry_time = 0;
  int connect_timeout = 0;
  int handshake_timeout = 0;
  int goodbye_timeout = 0;
  int heal_timeout = 60;
  int dump_signal = 0;
  int hang_socket = 1;
  int top = 0;
  int keepalive = 0;
  char* trace = nullptr;
  char* report = nullptr;
};

/// A word that stands for a number.
struct ParamWord {
  std::string_view word;
  int number;
};
inline constexpr std::array kAutoWord{ParamWord{"auto", -1}};
inline constexpr std::array kSignalWords{ParamWord{"SIGUSR1", SIGUSR1}, ParamWord{"USR1", SIGUSR1},
                                         ParamWord{"SIGUSR2", SIGUSR2}, ParamWord{"USR2", SIGUSR2}};
inline constexpr std::array kMtuWords{ParamWord{"256", 1}, ParamWord{"512", 2}, ParamWord{"1024", 3},
                                      ParamWord{"2048", 4}, ParamWord{"4096", 5}};

/// Of a time; "ms", "s" or "min" may follow it.
enum class TimeUnit : std::uint8_t { kNone, kMilliseconds, kSeconds };

/// One parameter: either a number within [min, max] or a text.
struct ParamSpec {
  const char* name;     ///< without the btl_fabric_ in front
  int Params::*number;  ///< null for a text
  char* Params::*text;  ///< null for a number
  int default_number;
  const char* default_text;
  int min;
  int max;
  int level;  ///< MPI_T verbosity level: 1 to 3 users, 4 to 6 tuners, 7 to 9 developers
  const char* help;
  std::span<const ParamWord> words = {};  ///< that are taken too
  TimeUnit unit = TimeUnit::kNone;
  int hole = 0;                    ///< a number between min and max that is no value
  const char* why_hole = nullptr;  ///< that follows "is 0, but"; null: there is none
};

/// A number that may be a word too.
constexpr ParamSpec or_words(ParamSpec spec, std::span<const ParamWord> words) {
  spec.words = words;
  return spec;
}
/// A number that is no value, though greater and less ones are.
constexpr ParamSpec but_not(int hole, const char* why, ParamSpec spec) {
  spec.hole = hole;
  spec.why_hole = why;
  return spec;
}
constexpr ParamSpec time_param(TimeUnit unit, ParamSpec spec) {
  spec.unit = unit;
  return spec;
}

constexpr ParamSpec number_param(const char* name, int Params::*where, int initial, int min, int max, int level,
                                 const char* help) {
  return {name,    where,
          nullptr, initial,
          nullptr, min,
          max,     level,
          help,    min == -1 && initial == -1 ? std::span<const ParamWord>(kAutoWord) : std::span<const ParamWord>()};
}

constexpr ParamSpec text_param(const char* name, char* Params::*where, const char* initial, int level,
                               const char* help) {
  return {name, nullptr, where, 0, initial, 0, 0, level, help};
}

inline constexpr int kNoLimit = 0x7fffffff;

inline constexpr std::array kParamTable = {
    text_param(
        "receive_queues", &Params::receive_queues, "auto", 3,
        "Receive queues of an endpoint: auto chooses by the number of processes, the device and "
        "memory_budget. Or a list, separated by colons: P,size,rd_num[,rd_low[,rd_win[,rd_rsv[,rd_init]]]]: buffers per "
        "peer, guarded by credits; S,size,rd_num[,rd_low[,sd_max[,rd_init[,srq_limit]]]]: buffers shared by all "
        "peers; X,...: the same, and a queue pair for all peers of a host (XRC). Any number and order of queues, but X not "
        "with P or S; all processes of a job need the same list, or auto"),
    number_param(
        "memory_budget", &Params::memory_budget, 0, 0, kNoLimit, 3,
        "Most memory for receive buffers and connections to all processes of the job, bytes per process; 0 sets no "
        "limit. Receive queues are chosen, and get fewer shared receives, by it"),
    number_param(
        "max_queue_pairs", &Params::max_queue_pairs, 0, 0, kNoLimit, 5,
        "Queue pairs of connections of a process, through each port, above which idle connections make room for others, and are "
        "made again when something is sent; 0: its part of the device. More are made only where no peer gives one up for 250 ms"),
    text_param("if_include", &Params::if_include, nullptr, 1,
               "Devices or ports to use, separated by commas: rxe0,mlx5_0:1. Not together with if_exclude"),
    text_param(
        "if_exclude", &Params::if_exclude, nullptr, 1,
        "Devices or ports not to use, separated by commas; those that a host does not have are passed over. Not together "
        "with if_include"),
    text_param(
        "subnets", &Params::subnets, nullptr, 1,
        "Networks to use, separated by commas: 10.1.0.0/16,fd00:1::/32. Of each port the GIDs on these, or whose network "
        "interface is (IPoIB, iWARP); ports without one are left out"),
    text_param(
        "rails", &Params::rails, nullptr, 3,
        "Which ports belong together where subnets do not tell, separated by commas: mlx5_0=1,mlx5_1:2=2. A port talks to "
        "ports of the same rail, 1 to 255, of its subnet only; those not named are on rail 0, and those that a host does not "
        "have are passed over"),
    number_param(
        "gid_index", &Params::gid_index, -1, -1, 255, 3,
        "GID table entry of every port; -1 chooses: on Ethernet RoCE v2 before v1, and IPv4 addresses before others"),
    number_param("allow_different_subnets", &Params::allow_different_subnets, 0, 0, 1, 3,
                 "1 pairs ports of different subnets: for routed networks"),
    number_param("warn_default_gid_prefix", &Params::warn_default_gid_prefix, 1, 0, 1, 3,
                 "1 warns where two InfiniBand ports of a host are on different subnets that have the same GID prefix, "
                 "so that ports may be paired that do not reach each other; 0 does not"),
    number_param(
        "ignore_locality", &Params::ignore_locality, 0, 0, 1, 4,
        "0 weighs ports by their bandwidth and the NUMA distance of their device from the process's processor, and "
        "leaves out those of which a nearer one on the same network has twice the weight; 1 uses all, as if they were "
        "near"),
    but_not(
        0, "a process needs at least 1 (-1: all that there are)",
        number_param("max_ports", &Params::max_ports, -1, -1, 64, 4, "Most ports that a process uses; -1 uses all")),
    number_param(
        "paths", &Params::paths, 1, 1, 8, 4,
        "Paths of each port, with queue pairs of their own, so that bonded links (LAG), routers (ECMP) and InfiniBand subnets with "
        "several LIDs to a port (LMC) carry them different ways. Small messages take the first"),
    or_words(
        number_param(
            "mtu", &Params::mtu, 0, 0, 5, 5,
            "Path MTU in bytes: 256, 512, 1024, 2048 or 4096; or as the code of InfiniBand, 1 to 5 for the same; 0 "
            "uses that of the port"),
        kMtuWords),
    number_param("max_inline_data", &Params::max_inline_data, -1, -1, 1024, 5,
                 "Largest message copied into the work request, bytes; -1 asks the device, up to 256"),
    number_param(
        "in_place_size", &Params::in_place_size, -1, -1, kNoLimit, 4,
        "Fragments of at least this many bytes are sent from the user's memory, which is registered for it, instead of "
        "being copied; 0 always copies; -1 chooses by what registrations cost: 16384 or more"),
    number_param(
        "coalesce_size", &Params::coalesce_size, -1, -1, 65536, 4,
        "Bytes of a packet that carries several small messages to one peer; 0 sends each message alone. -1: 2048. In packets go "
        "messages that must wait for a credit or for room anyway, and those behind the first four that are sent with no call "
        "in between that waits or tests. What such a packet delays: it leaves when it is full, with the next call that waits or "
        "tests, or after 4 milliseconds"),
    number_param(
        "coalesce_first", &Params::coalesce_first, -1, -1, 65536, 6,
        "Messages with which the first of these packets leaves though it is not full, so that the peer can work on them while "
        "others are sent; each after it holds twice as many. 0: as many as fit. -1: 16, unless posting a request takes more "
        "than a microsecond"),
    number_param(
        "eager_rdma", &Params::eager_rdma, -1, -1, 1, 4,
        "1 has peers write their small messages into memory of this process, which it polls: no receive and no completion. Never "
        "on iWARP. 0 does not. -1: where the last byte of a write is known to be stored last, by the driver of the adapter "
        "(ibv_query_qp_data_in_order) or by a table, and that is no slower (not on softhca)"),
    number_param("eager_rdma_peers", &Params::eager_rdma_peers, 16, 1, 1024, 5,
                 "Most peers, of a port, that may do so at the same time: those that send most"),
    number_param("eager_rdma_slots", &Params::eager_rdma_slots, 32, 2, 4096, 6, "Messages that each may write ahead"),
    number_param("eager_rdma_threshold", &Params::eager_rdma_threshold, 16, 1, kNoLimit, 6,
                 "Small messages from a peer before it is asked to do so"),
    number_param(
        "stripe_size", &Params::stripe_size, 262144, 0, kNoLimit, 4,
        "RDMA reads and writes of at least this many bytes are divided among all ports (and paths) to the peer, by their "
        "bandwidth. For that, memory from this size on is registered with up to four devices at once; 0 divides none"),
    number_param("rdma_depth", &Params::rdma_depth, 64, 1, 16384, 5,
                 "RDMA reads, writes and atomics under way to one peer; more wait"),
    number_param("device_atomics", &Params::device_atomics, -1, -1, 1, 6,
                 "1 has atomics executed by the device where it can, 0 by the target's processor; -1: by the device "
                 "unless all processes of the job are on one host. Each process chooses for its own memory"),
    number_param(
        "relaxed_ordering", &Params::relaxed_ordering, 1, 0, 1, 5,
        "1 lets the device write memory in any order (IBV_ACCESS_RELAXED_ORDERING) where this process looks at it only after "
        "a completion of its own: buffers of messages and what reads fetch into, never what peers write, atomics or eager "
        "RDMA. Where device or kernel cannot, nothing changes. 0: never"),
    number_param(
        "odp", &Params::odp, 0, 0, 1, 5,
        "1 registers the program's memory on demand (ODP) where the device can: it is not pinned, and counts against no "
        "limit, but pages that the device does not know cost microseconds each. 0 pins it, as buffers of messages always are"),
    number_param(
        "device_memory_direct", &Params::device_memory_direct, 0, 0, 1, 5,
        "1 registers the memory of GPUs with the device where its driver exports it (dma-buf) and ibv_reg_dmabuf_mr takes it, "
        "so that large messages go from and into it directly; never tried with a GPU. 0: through the processor's memory"),
    number_param("force_mr", &Params::force_mr, 0, 0, 1, 8,
                 "1 registers the local memory of every RDMA operation anew, to exercise that path"),
    number_param(
        "read_windows", &Params::read_windows, 1, 0, 1, 7,
        "1 binds a memory window for every RDMA read on iWARP into memory that no peer is to write to otherwise, "
        "if the device has windows of type 2, and closes it when the data have come; 0 registers such memory for "
        "writing by peers, which iWARP needs else, for as long as it is registered"),
    text_param("queue_costs", &Params::queue_costs, nullptr, 7,
               "What operations take of a send queue, op_size,iov_size,alignment in bytes (32,16,32); an op_size of 0: "
               "entries of one size. Three more numbers say the same of receive queues (32,16,32,0,0,16). By default "
               "from a table of devices"),
    but_not(0, "an endpoint needs at least 1 (-1: one for each processor)",
            number_param(
                "tx_contexts", &Params::tx_contexts, 1, -1, 64, 4,
                "Transmit contexts of an endpoint, each with queue pairs, completion queues, buffers and a lock of its "
                "own, for MPI_THREAD_MULTIPLE: threads are given them in turn. -1: one for each processor of this "
                "process")),
    number_param(
        "rx_contexts", &Params::rx_contexts, 0, -1, 64, 4,
        "Receive contexts of an endpoint, each with completion queues, shared receives and a lock of its own: threads are at "
        "home in one each, in turn, and look there first. 0: as many as transmit contexts, which is the least; -1: one for "
        "each processor of this process"),
    text_param(
        "rx_steering", &Params::rx_steering, nullptr, 4,
        "Receive contexts that messages to this process go to, by rules separated by semicolons, of which the first that "
        "matches counts: source=0-3,tag=match:1;tag=fin:0;*:2. Sources are ranks, tags numbers of BTL messages or pml, osc, "
        "usr, match, rndv, rget, ack, nack, frag, get, put, fin, cid. What no rule matches goes where the sender's thread "
        "sends"),
    number_param("cq_size", &Params::cq_size, 8192, 16, kNoLimit, 5,
                 "Entries of a completion queue at first. It grows with the number of connections"),
    number_param(
        "cq_resize", &Params::cq_resize, 1, 0, 1, 7,
        "1 resizes a completion queue that is full. 0 makes another one, as is done anyway where the device cannot resize "
        "them, or makes none that is larger"),
    number_param("cq_poll_batch", &Params::cq_poll_batch, 32, 1, 256, 6, "Completions taken at once"),
    number_param("free_list_num", &Params::free_list_num, 8, 0, kNoLimit, 6,
                 "Message buffers of each size made at first"),
    number_param(
        "free_list_max", &Params::free_list_max, 1024, 0, kNoLimit, 6,
        "Most send buffers of each size; 0 sets no limit. More messages wait in Open MPI, with less memory. What the "
        "component itself has to say, and acknowledgements, have others"),
    number_param("free_list_inc", &Params::free_list_inc, 32, 1, kNoLimit, 6, "Message buffers made when they run out"),
    but_not(0x8000, "that is membership without a partition (0: the first of the table)",
            number_param("pkey", &Params::pkey, 0, 0, 0xffff, 4,
                         "Partition key, without regard to the membership bit; 0 uses the first of the port's table")),
    number_param("service_level", &Params::service_level, 0, 0, 15, 4, "InfiniBand service level"),
    number_param(
        "path_records", &Params::path_records, 0, 0, 1, 4,
        "1: connections over TCP between InfiniBand ports take service level (if service_level is 0), LIDs, MTU and rate of the "
        "path that the subnet administrator gives, which the kernel's communication manager asks once for each pair of "
        "ports. 0: nobody is asked"),
    number_param(
        "traffic_class", &Params::traffic_class, -1, -1, 255, 4,
        "Traffic class of packets with a global header: on RoCE v2 the IP type of service (DSCP * 4). -1: on RoCE what the "
        "administrator gave the port for the kernel's communication manager (default_roce_tos in configfs), else 0"),
    number_param("timeout", &Params::timeout, 18, 0, 31, 5,
                 "Wait for an acknowledgement before sending again: 4.096 microseconds * 2^timeout; 0 waits for ever"),
    number_param(
        "retry_count", &Params::retry_count, 7, 0, 7, 5,
        "Times a packet is sent again before the connection fails (soft RoCE: at most 6, since there 7 is for ever)"),
    number_param(
        "rnr_retry", &Params::rnr_retry, 7, 0, 7, 5,
        "Times a message to a shared queue without buffers is sent again; 7 is for ever. P queues never need it"),
    number_param("min_rnr_timer", &Params::min_rnr_timer, 12, 0, 31, 5,
                 "Pause before such a message is sent again, as the code of InfiniBand: 1 = 0.01 ms, 12 = 0.64 ms, 25 "
                 "= 81.92 ms"),
    text_param(
        "cpc_include", &Params::cpc_include, nullptr, 3,
        "Connection methods to use, separated by commas: oob, xoob, rdmacm, ibcm. Not together with cpc_exclude"),
    text_param("cpc_exclude", &Params::cpc_exclude, nullptr, 3,
               "Connection methods not to use, separated by commas. Not together with cpc_include"),
    text_param("oob_if_include", &Params::oob_if_include, nullptr, 2,
               "Network interfaces and networks that connections are set up over TCP on, separated by commas: "
               "eth0,10.0.0.0/8,fd00::/16. Not together with oob_if_exclude"),
    text_param(
        "oob_if_exclude", &Params::oob_if_exclude, nullptr, 2,
        "Network interfaces and networks that connections are not set up over TCP on, separated by commas; those "
        "that a host does not have are passed over. Not together with oob_if_include"),
    number_param(
        "connect_limit", &Params::connect_limit, 128, 1, 65536, 5,
        "Connections that a process opens at once; with oob the peers that it connects to at once, each by one "
        "TCP socket for all ports and contexts, and those that it lets connect to it; more wait for their turn"),
    number_param("oob_priority", &Params::oob_priority, 50, 0, 100, 6, "Priority of connection set-up over TCP"),
    number_param("xoob_priority", &Params::xoob_priority, 60, 0, 100, 6,
                 "Priority of connection set-up over TCP for X queues"),
    number_param("rdmacm_priority", &Params::rdmacm_priority, 30, 0, 100, 6,
                 "Priority of connection set-up by the kernel's communication manager, addressed by IP"),
    number_param("ibcm_priority", &Params::ibcm_priority, 20, 0, 100, 6,
                 "Priority of connection set-up by the kernel's communication manager, addressed by InfiniBand GID"),
    number_param("rdmacm_port", &Params::rdmacm_port, 0, 0, 64511, 5,
                 "First port number that rdmacm listens on; processes of a node take the next ones. 0: any"),
    time_param(TimeUnit::kMilliseconds,
               number_param("rdmacm_resolve_timeout", &Params::rdmacm_resolve_timeout, 2000, 1, kNoLimit, 5,
                            "Wait for the address of a peer, and for the route to it, milliseconds")),
    time_param(
        TimeUnit::kMilliseconds,
        number_param(
            "connect_retry_time", &Params::connect_retry_time, 60000, 0, kNoLimit, 5,
            "Time for which the set-up of a connection is tried again when the peer cannot be reached or does not take "
            "it yet, milliseconds; waiting for a turn or for a peer that computes does not count")),
    time_param(TimeUnit::kMilliseconds,
               number_param("connect_timeout", &Params::connect_timeout, 10000, 1, kNoLimit, 5,
                            "Wait for the TCP connection of a connection's set-up, milliseconds")),
    time_param(TimeUnit::kMilliseconds,
               number_param(
                   "goodbye_timeout", &Params::goodbye_timeout, 1000, 0, 60000, 5,
                   "Wait at the end for a peer's adapter to take the message that this process leaves, milliseconds")),
    time_param(
        TimeUnit::kSeconds,
        number_param(
            "heal_timeout", &Params::heal_timeout, 60, 0, kNoLimit, 4,
            "Seconds for which a process tries to connect again when a connection breaks; what had not arrived is sent again, and every "
            "message arrives once and in order. 0: the job fails, as with other transports. An "
            "atomic operation of the device that is under way when the connection breaks is an error all the same")),
    time_param(
        TimeUnit::kSeconds,
        number_param(
            "keepalive", &Params::keepalive, -1, -1, 86400, 5,
            "Seconds of silence after which a peer's adapter is asked whether it is there, so that who only waits for messages "
            "learns that the peer or the way to it is gone. 0: never. -1: 20 with heal_timeout; never without it, when an idle "
            "connection outlives a break that nobody notices")),
    time_param(TimeUnit::kMilliseconds,
               number_param("handshake_timeout", &Params::handshake_timeout, 60000, 1, kNoLimit, 5,
                            "Wait for a peer that broke off in the middle of the set-up to come back, milliseconds; "
                            "three times as long for one that only lets others go first")),
    or_words(number_param(
                 "dump_signal", &Params::dump_signal, 0, 0, 64, 7,
                 "Signal on which a process that is inside MPI says what its connections wait for: USR1 or USR2, which "
                 "mpirun passes on to all processes, or the number of another one; 0: none"),
             kSignalWords),
    number_param(
        "hang_socket", &Params::hang_socket, 1, 0, 1, 7,
        "1: this user and root may ask the process what it waits for, by fabric_hang, over a socket that only they are "
        "answered on. 0: nobody can"),
    number_param(
        "top", &Params::top, 0, 0, 1, 7,
        "1: the process shows this user and root, by fabric_top, what it sends to each peer and waits for, in a page of "
        "shared memory that it writes twice a second while it is inside MPI. 0: it counts and shows nothing"),
    text_param(
        "trace", &Params::trace, nullptr, 7,
        "File for a timeline of connection set-up, written at the end for Chrome's or Perfetto's trace viewer and "
        "contrib/wireup/draw; %r in it stands for the rank, %j for the job's number under mpirun"),
    text_param(
        "report", &Params::report, nullptr, 2,
        "1: when the job ends, rank 0 says for the whole job what it ran on, how much it has sent, and who waited for what, with "
        "the parameter that helps. 2: a line when a connection comes about, too. A file that ends in .json: the same, for "
        "programs; %j in it stands for the job's number under mpirun. Nothing or 0: no report"),
};

}  // namespace fabric
