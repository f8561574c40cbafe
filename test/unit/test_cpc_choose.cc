// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "cpc/core/choose.h"
#include "cpc/registry/registry.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

ProcessInfo offering(std::vector<CpcOffer> offers) {
  ProcessInfo info;
  info.offers = std::move(offers);
  return info;
}

START_TEST(highest_priority_of_either_side_wins) {
  const ProcessInfo a = offering({{kOob.kind, 50, 1, {}}, {kRdmaCm.kind, 30, 1, {}}});
  const ProcessInfo b = offering({{kRdmaCm.kind, 80, 1, {}}, {kOob.kind, 10, 1, {}}});
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == &b.offers[0]);
  ck_assert(choose_cpc(kCpcTraits, b, 0, a, 0) == &a.offers[1]);
}
END_TEST

START_TEST(lowest_kind_of_equals_wins) {
  const ProcessInfo a = offering({{kRdmaCm.kind, 50, 1, {}}, {kOob.kind, 50, 1, {}}});
  ck_assert(choose_cpc(kCpcTraits, a, 0, a, 0) == &a.offers[1]);
}
END_TEST

START_TEST(both_ports_must_be_served) {
  const ProcessInfo a = offering({{kOob.kind, 50, 0b01, {}}});
  const ProcessInfo b = offering({{kOob.kind, 50, std::uint64_t{1} << 63, {}}, {kXoob.kind, 90, 1, {}}});
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 63) == &b.offers[0]);
  ck_assert(choose_cpc(kCpcTraits, a, 1, b, 63) == nullptr);
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == nullptr);
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 64) == nullptr);
  ck_assert(choose_cpc(kCpcTraits, a, 0, ProcessInfo(), 0) == nullptr);
}
END_TEST

START_TEST(both_sides_choose_the_same) {
  std::minstd_rand random(17);
  const auto any = [&] {
    std::vector<CpcOffer> offers;
    for (unsigned i = static_cast<unsigned>(random() % 5); i > 0; --i) {
      offers.push_back(
          {static_cast<CpcKind>(1 + random() % 4), static_cast<std::uint8_t>(random() % 3), random() % 4, {}});
    }
    return offering(offers);
  };
  for (int round = 0; round < 10000; ++round) {
    const ProcessInfo a = any();
    const ProcessInfo b = any();
    const CpcOffer* const at_a = choose_cpc(kCpcTraits, a, 0, b, 1);
    const CpcOffer* const at_b = choose_cpc(kCpcTraits, b, 1, a, 0);
    ck_assert((at_a == nullptr) == (at_b == nullptr));
    ck_assert(at_a == nullptr || at_a->kind == at_b->kind);
  }
}
END_TEST

/// An LID leads no further than its subnet: oob must not try.
START_TEST(routers_are_for_communication_managers) {
  ProcessInfo a = offering({{kOob.kind, 90, 1, {}}, {kRdmaCm.kind, 30, 1, {}}});
  a.ports.resize(1);
  a.ports[0].subnet.bits = 64;
  ProcessInfo b = a;
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == &b.offers[0]);
  b.ports[0].subnet.prefix[7] = 1;
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == &b.offers[1]);
  b.offers.pop_back();
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == nullptr);
  const std::string why = why_no_cpc(kCpcTraits, a, 0, b, 0);
  ck_assert_msg(why.find("oob: it connects InfiniBand ports by LID, and these are of different subnets") == 0, "%s",
                why.c_str());
  a.ports[0].link = b.ports[0].link = Transport::kRoce;  // routed by GID
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == &b.offers[0]);
}
END_TEST

START_TEST(names_are_parsed) {
  ck_assert(*parse_cpc_list("rdmacm", kCpcTraits) == set_of(kRdmaCm.kind));
  ck_assert(*parse_cpc_list("ibcm,oob,xoob,rdmacm,oob", kCpcTraits) ==
            (set_of(kOob.kind) | set_of(kXoob.kind) | set_of(kRdmaCm.kind) | set_of(kIbCm.kind)));
  for (const char* bad : {"", "rdma", "oob,", ",oob", "oob, rdmacm", "OOB"}) {
    const auto set = parse_cpc_list(bad, kCpcTraits);
    ck_assert_msg(!set, "\"%s\" was taken", bad);
    ck_assert(set.error().text.find("is no connection method: there are oob, xoob, rdmacm and ibcm") !=
              std::string::npos);
  }
  for (const CpcTraits& one : kCpcTraits) {
    ck_assert(*parse_cpc_list(one.name, kCpcTraits) == set_of(one.kind));
  }
}
END_TEST

std::vector<std::byte> blob_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

START_TEST(says_why_none_fits) {
  const ProcessInfo a = offering({{kOob.kind, 50, 1, {}}, {kRdmaCm.kind, 30, 0, blob_of("no IP address")}});
  const ProcessInfo b = offering({{kRdmaCm.kind, 30, 1, {}}, {kOob.kind, 50, 0, blob_of("excluded\n")}});
  ck_assert(choose_cpc(kCpcTraits, a, 0, b, 0) == nullptr);
  fabric::test::check_text(why_no_cpc(kCpcTraits, a, 0, b, 0),
                           "oob: not at the peer (excluded?); xoob: not here (not offered), not at the peer (not "
                           "offered); rdmacm: not here (no IP address); ibcm: not here (not offered), not at the peer "
                           "(not offered)");
  const ProcessInfo c = offering({{kOob.kind, 50, 2, {}}});
  ck_assert(why_no_cpc(kCpcTraits, c, 0, b, 0).find("oob: not here (it serves other ports only)") == 0);
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "cpc_choose",
      {highest_priority_of_either_side_wins, lowest_kind_of_equals_wins, both_ports_must_be_served,
       both_sides_choose_the_same, routers_are_for_communication_managers, names_are_parsed, says_why_none_fits});
}
