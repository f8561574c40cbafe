// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What connection managers say to each other: one kind of message in a Mail, with fields of InfiniBand's CM messages
// that matter here. None of it is trusted: `sane` checks ranges, and whoever reads the ids checks whose they are.
#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/layout.h"

namespace softhca::cm {

enum class Kind : uint8_t {
  Req = 1,  // connect
  Rep,      // accepted
  Rtu,      // the answer has arrived: the connection stands
  Rej,      // rejected, or given up
  Mra,      // it has arrived and the program is thinking about it: do not repeat it
  Dreq,     // disconnect
  Drep,     // disconnected
  SidrReq,  // which QP serves this port? (UD)
  SidrRep,
};

// Why a connection was rejected, as InfiniBand numbers it; iWARP has only errors of TCP.
constexpr uint16_t kRejTimeout = 4;
constexpr uint16_t kRejInvalidService = 8;
constexpr uint16_t kRejConsumer = 28;
// SIDR REP.
constexpr uint16_t kSidrUnsupported = 1;
constexpr uint16_t kSidrReject = 2;

// Bytes of private data in each message of InfiniBand. Over IP addresses, requests begin with a header of 36 bytes with
// these addresses, which the user does not see.
constexpr unsigned kIpHeaderBytes = 36;
constexpr unsigned kReqPrivate = 92;
constexpr unsigned kRepPrivate = 196;
constexpr unsigned kRejPrivate = 148;
constexpr unsigned kSidrReqPrivate = 216;
constexpr unsigned kSidrRepPrivate = 136;
constexpr unsigned kMaxPrivate = 255;  // rdma_conn_param has 8 bits for the length

constexpr uint32_t kMessageMagic = 0x636d7331;

struct Message {
  uint32_t magic;
  Kind kind;
  uint8_t qp_type;
  uint8_t family;  // of the addresses
  uint8_t path_mtu;
  uint32_t to_incarnation;
  uint32_t to_id;  // 0: not known yet
  uint32_t from_id;
  uint32_t from_port_id;
  uint32_t to_port_id;
  uint8_t from_address[16];  // IPv6, IPv4 mapped, or a GID
  uint8_t to_address[16];
  uint16_t from_port;  // host order
  uint16_t to_port;
  uint16_t port_space;
  uint16_t status;  // Rej, SidrRep
  uint32_t qpn;
  uint32_t psn;
  uint32_t qkey;
  uint8_t responder_resources;  // of who sends it
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t srq;
  uint8_t private_data_len;
  uint8_t private_data[kMaxPrivate];
};
static_assert(sizeof(Message) <= kMailBytes);

inline bool sane(const Message& m, uint32_t length) {
  const auto port_id_sane = [](uint32_t id) { return id > 0 && id < kPortIds; };
  return length == sizeof(Message) && m.magic == kMessageMagic && m.kind >= Kind::Req && m.kind <= Kind::SidrRep &&
         m.from_id != 0 && port_id_sane(m.from_port_id) && port_id_sane(m.to_port_id) && m.qpn <= 0xffffff &&
         m.psn <= 0xffffff && m.path_mtu <= IBV_MTU_4096 && m.retry_count <= 7 && m.rnr_retry_count <= 7;
}

}  // namespace softhca::cm
