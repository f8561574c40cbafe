// SPDX-License-Identifier: BSD-3-Clause
//
// Two connection managers with real queue pairs on the first usable port of this host, by every CPC that serves it, or by
// those that the command line names, which must:
//   test_cpc_verbs [oob|rdmacm|ibcm]...
// Skipped (status 77) without a port.
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "cpc/cm/cm_ids.h"
#include "cpc/core/unknown_peers.h"
#include "cpc/rdmacm/rdmacm_channel.h"
#include "test/unit/verbs_side.h"

namespace fabric {
namespace {

using test::VerbsSide;

/// From the command line; none: whatever serves the port.
std::vector<CpcKind> wanted_kinds;

/// What `passive` offers of this kind. Null if it need not be tested.
const CpcOffer* find_offer(CpcKind kind, const std::vector<CpcOffer>& offers) {
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const CpcOffer& one) { return one.kind == kind; });
  const bool wanted = std::find(wanted_kinds.begin(), wanted_kinds.end(), kind) != wanted_kinds.end();
  const std::string name(cpc::cpc_name(kind));
  if (found == offers.end()) {
    ck_assert_msg(!wanted, "%s does not serve the port", name.c_str());
    return nullptr;
  }
  return wanted || wanted_kinds.empty() ? &*found : nullptr;
}

/// Messages both ways on every queue, until all completions are in.
void exchange_messages(VerbsSide& a, VerbsSide& b) {
  const auto queues = static_cast<int>(a.queue_count());
  a.expect(2 * queues);
  b.expect(2 * queues);
  for (std::size_t queue = 0; queue < a.queue_count(); ++queue) {
    a.send(queue);
    b.send(queue);
  }
  run_until(a, b, "every completion", [&] { return a.has_all() && b.has_all(); });
  ck_assert_msg(a.heard(b) && b.heard(a), "a message has another content");
}

/// Both close; what is left of the receives of P queues comes back, that of shared queues stays.
void close_both(VerbsSide& a, VerbsSide& b) {
  a.close(b);
  b.close(a);
  run_until(a, b, "Flushing", [&] { return a.is_flushed() && b.is_flushed(); });
  a.destroy();
  b.destroy();
}

/// Others may be: rdmacm on InfiniBand needs IPoIB, and ibcm a kernel with AF_IB.
bool has_to_be_offered(CpcKind kind, Transport link) {
  return kind == cpc::kOob.kind ? link != Transport::kIwarp
                                : kind == cpc::kRdmaCm.kind && link != Transport::kInfiniBand;
}

void connect_by(CpcKind kind, bool at_once) {
  VerbsSide a(1);
  VerbsSide b(2);
  const std::vector<CpcOffer> offers_a = a.offers();
  const std::vector<CpcOffer> offers_b = b.offers();
  const CpcOffer* const to_b = find_offer(kind, offers_b);
  if (to_b == nullptr) {
    ck_assert_msg(!has_to_be_offered(kind, a.link()), "%s is not offered", cpc::find_cpc(kind)->name.data());
    return;
  }
  for (int round = 0; round < 3; ++round) {
    a.connect(b, *to_b);
    if (at_once) {
      b.connect(a, *find_offer(kind, offers_a));
    }
    run_until(a, b, "Connected", [&] { return a.connected() && b.connected(); });
    exchange_messages(a, b);
    close_both(a, b);
  }
}

START_TEST(oob_from_one_side) {
  connect_by(cpc::kOob.kind, false);
}
END_TEST
START_TEST(oob_from_both_sides) {
  connect_by(cpc::kOob.kind, true);
}
END_TEST
START_TEST(rdmacm_from_one_side) {
  connect_by(cpc::kRdmaCm.kind, false);
}
END_TEST
START_TEST(rdmacm_from_both_sides) {
  connect_by(cpc::kRdmaCm.kind, true);
}
END_TEST
START_TEST(ibcm_from_one_side) {
  connect_by(cpc::kIbCm.kind, false);
}
END_TEST
START_TEST(ibcm_from_both_sides) {
  connect_by(cpc::kIbCm.kind, true);
}
END_TEST

/// Who knows the way to the listener but not its token is refused, and leaves nothing behind there.
void refuse_stranger(CpcKind kind) {
  cpc::ConnectionSettings settings;
  settings.retry_time_ms = 0;
  VerbsSide stranger(3, settings, {});
  VerbsSide a(1);
  VerbsSide b(2);
  const std::vector<CpcOffer> offers = b.offers();
  const CpcOffer* const to_b = find_offer(kind, offers);
  if (to_b == nullptr) {
    return;
  }
  const std::uint64_t before = cpc::unknown_peers_refused;
  stranger.make_stranger();
  stranger.expect_failure();
  stranger.connect(b, *to_b);
  run_until(stranger, b, "refused", [&] { return !stranger.failure().empty(); });
  ck_assert(!b.has_queue_pairs());
  ck_assert_uint_gt(cpc::unknown_peers_refused, before);
  if (kind != cpc::kOob.kind) {
    test::check_text_has(stranger.failure(), "you do not belong to this job");
  }
  a.connect(b, *to_b);
  run_until(a, b, "Connected", [&] { return a.connected() && b.connected(); });
}
START_TEST(oob_refuses_strangers) {
  refuse_stranger(cpc::kOob.kind);
}
END_TEST
START_TEST(rdmacm_refuses_strangers) {
  refuse_stranger(cpc::kRdmaCm.kind);
}
END_TEST
START_TEST(ibcm_refuses_strangers) {
  refuse_stranger(cpc::kIbCm.kind);
}
END_TEST

/// A REQ with queue pair number `qpn`, as from a peer of rank 9, and what is answered.
class RawRequest {
 public:
  RawRequest(const cpc::CmAddress& address, cpc::CmMessage request, const JobToken& token, Transport link,
             std::uint32_t qpn)
      : request_(std::move(request)), qpn_(qpn) {
    rdma_cm_id* made = nullptr;
    ck_assert_int_eq(rdma_create_id(events_.get(), &made, nullptr, RDMA_PS_TCP), 0);
    id_.reset(made);
    cpc::CmSocketAddress source = cpc::ip_address(address.address, 0, 0);
    cpc::CmSocketAddress target = cpc::ip_address(address.address, static_cast<std::uint16_t>(address.service), 0);
    ck_assert_int_eq(rdma_resolve_addr(made, source.get(), target.get(), 2000), 0);
    ck_assert_int_eq(wait().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    ck_assert_int_eq(rdma_resolve_route(made, 2000), 0);
    ck_assert_int_eq(wait().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    std::vector<std::byte> data = encode(request_);
    cpc::cm_key(token, link, qpn_).sign(data);
    rdma_conn_param parameters{};
    parameters.private_data = data.data();
    parameters.private_data_len = static_cast<std::uint8_t>(data.size());
    parameters.qp_num = qpn_;
    ck_assert_int_eq(rdma_connect(made, &parameters), 0);
  }
  struct Answer {
    rdma_cm_event_type type;
    int status;
    std::vector<std::byte> data;
  };
  Answer wait() {
    rdma_cm_event* event = nullptr;
    ck_assert_int_eq(rdma_get_cm_event(events_.get(), &event), 0);
    Answer answer{event->event, event->status, {}};
    const auto* bytes = static_cast<const std::byte*>(event->param.conn.private_data);
    if (bytes != nullptr && event->event == RDMA_CM_EVENT_REJECTED) {
      answer.data.assign(bytes, bytes + event->param.conn.private_data_len);
    }
    rdma_ack_cm_event(event);
    return answer;
  }

 private:
  cpc::CmEventChannel events_{rdma_create_event_channel()};
  cpc::CmId id_;
  cpc::CmMessage request_;
  std::uint32_t qpn_;
};

/// Somebody repeats a REQ that it has heard, and comes first: the peer whose REQ it is comes again, and is told so by an answer that
/// is good for no other attempt.
START_TEST(a_repeated_req_does_not_end_the_connection) {
  VerbsSide b(2);
  const std::vector<CpcOffer> offers = b.offers();
  const CpcOffer* const to_b = find_offer(cpc::kRdmaCm.kind, offers);
  if (to_b == nullptr) {
    return;
  }
  const cpc::CmAddress address = cpc::decode_cm_addresses(to_b->blob)->front();
  cpc::CmMessage request;
  request.header.sender = {1, 9};
  request.header.target = b.name();
  request.header.attempt = 1;
  request.header.incarnation = 5;
  request.queue_count = 2;
  RawRequest first(address, request, b.token(), b.link(), 17);
  RawRequest again(address, request, b.token(), b.link(), 17);
  const RawRequest::Answer answer = again.wait();
  ck_assert_int_eq(answer.type, RDMA_CM_EVENT_REJECTED);
  constexpr int kStaleConnection = 10;  // InfiniBand's reason: the kernel knows the queue pair, and has not asked us
  if (answer.status == kStaleConnection) {
    return;
  }
  const auto refusal = cpc::decode_cm_message(answer.data);
  ck_assert(refusal.has_value() && refusal->reason == cpc::RefuseReason::kOutdated && refusal->newest == 5);
  ck_assert(refusal->header.sender == b.name() && refusal->header.target.rank == 9);
  ck_assert(refusal->header.attempt == 1 && refusal->header.incarnation == 5);
  ck_assert(cpc::cm_key(b.token(), b.link(), 0).has_signed(std::span(answer.data).first(refusal->header.length)));
  ck_assert_int_eq(first.wait().type, RDMA_CM_EVENT_REJECTED);
}
END_TEST

/// Somebody who has the listener's port and never answers: the turns of those who want others do not wait for that.
START_TEST(a_request_without_answer_holds_nobody_up) {
  cpc::ConnectionSettings settings;
  settings.connect_limit = 1;
  VerbsSide a(1, settings, {});
  VerbsSide b(2);
  const std::vector<CpcOffer> offers = b.offers();
  const CpcOffer* const to_b = find_offer(cpc::kRdmaCm.kind, offers);
  if (to_b == nullptr) {
    return;
  }
  cpc::CmAddress address = cpc::decode_cm_addresses(to_b->blob)->front();
  const cpc::CmEventChannel events(rdma_create_event_channel());
  rdma_cm_id* made = nullptr;
  ck_assert_int_eq(rdma_create_id(events.get(), &made, nullptr, RDMA_PS_TCP), 0);
  const cpc::CmId silent(made);
  ck_assert_int_eq(rdma_bind_addr(made, cpc::ip_address(address.address, 0, 0).get()), 0);
  ck_assert_int_eq(rdma_listen(made, 16), 0);
  address.service = ntohs(rdma_get_src_port(made));
  CpcOffer to_silent = *to_b;
  to_silent.blob = encode(std::span(&address, 1));
  a.connect({{1, 9}, 0, 0}, to_silent);
  a.connect(b, *to_b);
  run_until(a, b, "Connected", [&] { return a.connected() && b.connected(); });
}
END_TEST

/// Looks in a child of its own: a process that has used a device must not fork, as Check does for every test.
bool has_port() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(scan_ports({}).ports.empty() ? 1 : 0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace
}  // namespace fabric

int main(int argc, char** argv) {
  using namespace fabric;
  for (int i = 1; i < argc; ++i) {
    for (const cpc::CpcTraits& one : cpc::kCpcTraits) {
      if (one.name == argv[i]) {
        wanted_kinds.push_back(one.kind);
      }
    }
  }
  if (wanted_kinds.size() != static_cast<std::size_t>(argc - 1)) {
    std::puts("usage: test_cpc_verbs [oob|rdmacm|ibcm]...");
    return 2;
  }
  if (!has_port()) {
    std::puts("skipped: no active port");
    return 77;
  }
  return test::run_suite(
      "cpc_verbs",
      {oob_from_one_side, oob_from_both_sides, rdmacm_from_one_side, rdmacm_from_both_sides, ibcm_from_one_side,
       ibcm_from_both_sides, oob_refuses_strangers, rdmacm_refuses_strangers, ibcm_refuses_strangers,
       a_repeated_req_does_not_end_the_connection, a_request_without_answer_holds_nobody_up});
}
