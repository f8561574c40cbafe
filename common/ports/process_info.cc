// SPDX-License-Identifier: BSD-3-Clause
//
// The modex of a process, version 13. Integers are big-endian, nothing is padded:
//
//   u32      magic, "FABI"
//   u16      version, 13
//   u32      length of all of it, bytes
//   16 bytes job token
//   u16      length of receive_queues, at most 4096, and its bytes, printable ASCII
//   u8       level of these queues, or 255 if the user has given the list
//   u8       ports, 1 to 64; for each:
//              u8 link, u16 lid, 16 bytes GID, u8 mtu, 16 bytes subnet prefix, u8 subnet bits, u8 path, 0 to 7,
//              u8 version of RoCE, 1 or 2, or 0, u8 rail
//   u8       contexts of each port, a divisor of the number of ports
//   u8       steering rules, at most 64; for each:
//              u32 first source, u32 last source, u8 first tag, u8 last tag, u8 context
//   u8       offers, at most 16; for each:
//              u8 kind, u8 priority, u64 port mask, u16 length of blob, at most 4096, and its bytes
//
// A change of this layout, of what packets there are, or of the messages of connection set-up takes a new version. A new
// kind of CPC does not: who does not know a kind skips its offers.
#include "common/ports/process_info.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "common/base/wire.h"

namespace fabric {
namespace {

constexpr std::uint32_t kMagic = 0x46414249;
constexpr std::size_t kHeaderSize = 4 + 2 + 4;
constexpr std::size_t kMaxReceiveQueues = 4096;
constexpr std::size_t kMaxOffers = 16;

std::span<const std::byte> bytes_of(const std::array<std::uint8_t, 16>& raw) {
  return std::as_bytes(std::span(raw));
}

std::array<std::uint8_t, 16> get_16(ByteReader& in) {
  std::array<std::uint8_t, 16> raw{};
  in.get_bytes(std::as_writable_bytes(std::span(raw)));
  return raw;
}

std::string hex(std::uint64_t number) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[number & 0xf]);
    number >>= 4;
  } while (number != 0);
  return "0x" + digits;
}

tl::unexpected<Error> bad(const std::string& field, const std::string& value, const std::string& rule) {
  return failure(field + " is " + value + ", must be " + rule);
}

tl::unexpected<Error> bad(const std::string& field, std::uint64_t value, const std::string& rule) {
  return bad(field, std::to_string(value), rule);
}

tl::unexpected<Error> cut_short(const std::string& what) {
  return failure("the data ends inside " + what);
}

/// The lowest `count` bits.
std::uint64_t low_bits(std::size_t count) {
  return count >= 64 ? std::numeric_limits<std::uint64_t>::max() : (std::uint64_t{1} << count) - 1;
}

void put_port(ByteWriter& out, const PortAddress& port) {
  out.put(static_cast<std::uint8_t>(port.link));
  out.put(port.lid);
  out.put_bytes(bytes_of(port.gid.raw));
  out.put(port.mtu);
  out.put_bytes(bytes_of(port.subnet.prefix));
  out.put(port.subnet.bits);
  out.put(port.path);
  out.put(port.roce);
  out.put(port.rail);
}

void put_offer(ByteWriter& out, const CpcOffer& offer) {
  assert(offer.blob.size() <= kMaxOfferBlob);
  out.put(static_cast<std::uint8_t>(offer.kind));
  out.put(offer.priority);
  out.put(offer.ports);
  out.put(static_cast<std::uint16_t>(offer.blob.size()));
  out.put_bytes(offer.blob);
}

Status check_header(ByteReader& in, std::size_t size) {
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  const auto length = in.get<std::uint32_t>();
  if (!in.ok()) {
    return bad("size", size, "at least " + std::to_string(kHeaderSize) + " bytes");
  }
  if (magic != kMagic) {
    return bad("magic", hex(magic), hex(kMagic));
  }
  if (version != kProcessInfoVersion) {
    return bad("version", version, std::to_string(kProcessInfoVersion));
  }
  if (length != size) {
    return bad("length", length, std::to_string(size) + ", the bytes received");
  }
  return {};
}

Result<std::string> get_receive_queues(ByteReader& in) {
  std::string list = in.get_string();
  if (!in.ok()) {
    return cut_short("receive_queues");
  }
  if (list.size() > kMaxReceiveQueues) {
    return bad("length of receive_queues", list.size(), "at most " + std::to_string(kMaxReceiveQueues));
  }
  // Errors show the list of a peer beside our own.
  const auto control = std::find_if(list.begin(), list.end(), [](char c) { return c < ' ' || c > '~'; });
  if (control != list.end()) {
    return bad("byte " + std::to_string(control - list.begin()) + " of receive_queues",
               hex(static_cast<unsigned char>(*control)), "printable ASCII");
  }
  return list;
}

Result<PortAddress> get_port(ByteReader& in) {
  const auto link = in.get<std::uint8_t>();
  PortAddress port;
  port.link = static_cast<Transport>(link);
  port.lid = in.get<std::uint16_t>();
  port.gid.raw = get_16(in);
  port.mtu = in.get<std::uint8_t>();
  port.subnet.prefix = get_16(in);
  port.subnet.bits = in.get<std::uint8_t>();
  port.path = in.get<std::uint8_t>();
  port.roce = in.get<std::uint8_t>();
  port.rail = in.get<std::uint8_t>();
  if (!in.ok()) {
    return failure("the data ends inside it");
  }
  if (port.link != Transport::kInfiniBand && port.link != Transport::kRoce && port.link != Transport::kIwarp) {
    return bad("link", link, "1 (InfiniBand), 2 (RoCE) or 3 (iWARP)");
  }
  if (port.mtu < 1 || port.mtu > 5) {
    return bad("mtu", port.mtu, "1 to 5");
  }
  if (port.subnet.bits > 128) {
    return bad("subnet bits", port.subnet.bits, "at most 128");
  }
  if (port.path >= kMaxPaths) {
    return bad("path", port.path, "less than " + std::to_string(kMaxPaths));
  }
  if (port.roce > 2) {
    return bad("version of RoCE", port.roce, "0 to 2");
  }
  return port;
}

/// An offer of a kind that only later versions know is left out; what its fields mean is not ours to judge.
Status get_offer(ByteReader& in, std::size_t ports, bool (*is_known)(CpcKind), std::vector<CpcOffer>& offers) {
  CpcOffer offer;
  offer.kind = static_cast<CpcKind>(in.get<std::uint8_t>());
  offer.priority = in.get<std::uint8_t>();
  offer.ports = in.get<std::uint64_t>();
  const auto blob_size = in.get<std::uint16_t>();
  if (blob_size > kMaxOfferBlob) {
    return bad("length of blob", blob_size, "at most " + std::to_string(kMaxOfferBlob));
  }
  const auto blob = in.take(blob_size);
  if (!in.ok()) {
    return failure("the data ends inside it");
  }
  if (!is_known(offer.kind)) {
    return {};
  }
  if (offer.priority > 100) {
    return bad("priority", offer.priority, "at most 100");
  }
  if ((offer.ports & ~low_bits(ports)) != 0) {
    return bad("port mask", hex(offer.ports), "within " + hex(low_bits(ports)) + ", the ports there are");
  }
  offer.blob.assign(blob.begin(), blob.end());
  offers.push_back(std::move(offer));
  return {};
}

Status get_ports(ByteReader& in, std::vector<PortAddress>& ports) {
  const auto count = in.get<std::uint8_t>();
  if (!in.ok()) {
    return cut_short("the number of ports");
  }
  if (count < 1 || count > kMaxPorts) {
    return bad("number of ports", count, "1 to " + std::to_string(kMaxPorts));
  }
  for (unsigned i = 0; i < count; ++i) {
    const Result<PortAddress> port = get_port(in);
    if (!port) {
      return failure("port " + std::to_string(i), port.error());
    }
    ports.push_back(*port);
  }
  return {};
}

Status get_offers(ByteReader& in, std::size_t ports, bool (*is_known)(CpcKind), std::vector<CpcOffer>& offers) {
  const auto count = in.get<std::uint8_t>();
  if (!in.ok()) {
    return cut_short("the number of offers");
  }
  if (count > kMaxOffers) {
    return bad("number of offers", count, "at most " + std::to_string(kMaxOffers));
  }
  for (unsigned i = 0; i < count; ++i) {
    if (Status taken = get_offer(in, ports, is_known, offers); !taken) {
      return failure("offer " + std::to_string(i), taken.error());
    }
  }
  return {};
}

Result<SteeringRule> get_rule(ByteReader& in) {
  SteeringRule rule;
  rule.first_source = in.get<std::uint32_t>();
  rule.last_source = in.get<std::uint32_t>();
  rule.first_tag = in.get<std::uint8_t>();
  rule.last_tag = in.get<std::uint8_t>();
  rule.context = in.get<std::uint8_t>();
  if (!in.ok()) {
    return failure("the data ends inside it");
  }
  if (rule.first_source > rule.last_source) {
    return bad("first source", rule.first_source, "at most the last, " + std::to_string(rule.last_source));
  }
  if (rule.first_tag > rule.last_tag) {
    return bad("first tag", rule.first_tag, "at most the last, " + std::to_string(rule.last_tag));
  }
  if (rule.context > kMostSteeredContext) {
    return bad("context", rule.context, "at most " + std::to_string(kMostSteeredContext));
  }
  return rule;
}

Status get_rules(ByteReader& in, std::vector<SteeringRule>& rules) {
  const auto count = in.get<std::uint8_t>();
  if (!in.ok()) {
    return cut_short("the number of steering rules");
  }
  if (count > kMostSteeringRules) {
    return bad("number of steering rules", count, "at most " + std::to_string(kMostSteeringRules));
  }
  for (unsigned i = 0; i < count; ++i) {
    const Result<SteeringRule> rule = get_rule(in);
    if (!rule) {
      return failure("steering rule " + std::to_string(i), rule.error());
    }
    rules.push_back(*rule);
  }
  return {};
}

Result<ProcessInfo> decode(std::span<const std::byte> bytes, bool (*is_known)(CpcKind)) {
  ByteReader in(bytes);
  if (const Status header = check_header(in, bytes.size()); !header) {
    return tl::unexpected<Error>(header.error());
  }
  ProcessInfo info;
  in.get_bytes(info.token);
  if (!in.ok()) {
    return cut_short("the job token");
  }
  Result<std::string> list = get_receive_queues(in);
  if (!list) {
    return tl::unexpected<Error>(list.error());
  }
  info.receive_queues = std::move(*list);
  info.queue_level = in.get<std::uint8_t>();
  if (const Status ports = get_ports(in, info.ports); !ports) {
    return tl::unexpected<Error>(ports.error());
  }
  info.contexts = in.get<std::uint8_t>();
  if (!in.ok()) {
    return cut_short("the number of contexts");
  }
  if (info.contexts < 1 || info.ports.size() % info.contexts != 0) {
    return bad("number of contexts", info.contexts,
               "a divisor of " + std::to_string(info.ports.size()) + ", the number of ports");
  }
  if (const Status rules = get_rules(in, info.steering); !rules) {
    return tl::unexpected<Error>(rules.error());
  }
  if (const Status offers = get_offers(in, info.ports.size(), is_known, info.offers); !offers) {
    return tl::unexpected<Error>(offers.error());
  }
  if (in.remaining() > 0) {
    return bad("number of bytes after the last offer", in.remaining(), "0");
  }
  return info;
}

}  // namespace

std::vector<std::byte> encode(const ProcessInfo& info) {
  assert(info.receive_queues.size() <= kMaxReceiveQueues);
  assert(!info.ports.empty() && info.ports.size() <= kMaxPorts && info.ports.size() % info.contexts == 0);
  assert(info.steering.size() <= kMostSteeringRules && info.offers.size() <= kMaxOffers);
  ByteWriter body;
  body.put_bytes(info.token);
  body.put_string(info.receive_queues);
  body.put(info.queue_level);
  body.put(static_cast<std::uint8_t>(info.ports.size()));
  for (const PortAddress& port : info.ports) {
    put_port(body, port);
  }
  body.put(info.contexts);
  body.put(static_cast<std::uint8_t>(info.steering.size()));
  for (const SteeringRule& rule : info.steering) {
    body.put(rule.first_source);
    body.put(rule.last_source);
    body.put(rule.first_tag);
    body.put(rule.last_tag);
    body.put(rule.context);
  }
  body.put(static_cast<std::uint8_t>(info.offers.size()));
  for (const CpcOffer& offer : info.offers) {
    put_offer(body, offer);
  }
  ByteWriter out;
  out.put(kMagic);
  out.put(kProcessInfoVersion);
  out.put(static_cast<std::uint32_t>(kHeaderSize + body.bytes().size()));
  out.put_bytes(body.bytes());
  return out.take();
}

Result<ProcessInfo> decode_process_info(std::span<const std::byte> bytes, bool (*is_known)(CpcKind)) {
  Result<ProcessInfo> info = decode(bytes, is_known);
  if (!info) {
    return failure("process info", info.error());
  }
  return info;
}

}  // namespace fabric
