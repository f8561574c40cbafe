// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <cerrno>

#include "cpc/oob/address_filter.h"
#include "cpc/oob/oob.h"
#include "test/unit/cpc_node.h"

namespace fabric::cpc {
namespace {

using test::check_text;
using test::check_text_has;
using test::Node;

const HostAddress kTen{false, 24, {10, 1, 2, 3}};
const HostAddress kHome{false, 16, {192, 168, 0, 9}};
const HostAddress kV6{true, 64, {0xfd, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}};

AddressFilter filter(const char* text, bool include) {
  auto parsed = AddressFilter::parse(text, include);
  ck_assert_msg(parsed.has_value(), "%s: %s", text, parsed ? "" : parsed.error().text.c_str());
  return *parsed;
}

START_TEST(without_a_list_everything_passes) {
  const AddressFilter open;
  ck_assert(open.is_open() && open.passes("eth0", kTen) && open.passes("lo", kV6));
}
END_TEST

START_TEST(an_include_list_lets_only_its_items_pass) {
  const AddressFilter some = filter("eth1,10.0.0.0/8,fd10::/16", true);
  ck_assert(!some.is_open());
  ck_assert(some.passes("eth1", kHome) && some.passes("eth0", kTen) && some.passes("eth0", kV6));
  ck_assert(!some.passes("eth0", kHome) && !some.passes("eth", kHome) && !some.passes("eth11", kHome));
  ck_assert(filter("10.1.2.3", true).passes("eth0", kTen));
  ck_assert(!filter("10.1.2.4", true).passes("eth0", kTen));
  ck_assert(filter("0.0.0.0/0", true).passes("eth0", kHome) && !filter("0.0.0.0/0", true).passes("eth0", kV6));
  ck_assert(filter("10.1.2.128/25", false).passes("eth0", kTen) && !filter("10.1.2.128/24", false).passes("x", kTen));
}
END_TEST

START_TEST(an_exclude_list_stops_only_its_items) {
  const AddressFilter most = filter("eth1,10.0.0.0/8", false);
  ck_assert(!most.is_open());
  ck_assert(!most.passes("eth1", kHome) && !most.passes("eth0", kTen));
  ck_assert(most.passes("eth0", kHome) && most.passes("eth0", kV6));
}
END_TEST

START_TEST(a_wrong_item_is_shown_with_the_rule) {
  const struct {
    const char* text;
    const char* error;
  } wrong[] = {
      {"", "\"\" is neither an interface nor a network"},
      {"eth0,", "\"\" is neither an interface nor a network"},
      {"eth0, eth1", "\" eth1\" has a blank in it"},
      {"eth0,10.0.0.0/33", "\"10.0.0.0/33\" has no prefix length after the slash: it is a number from 0 to 32"},
      {"10.0.0.0/", "\"10.0.0.0/\" has no prefix length"},
      {"10.0.0.0/8x", "\"10.0.0.0/8x\" has no prefix length"},
      {"10.0.0.0/-1", "\"10.0.0.0/-1\" has no prefix length"},
      {"fd00::/129", "\"fd00::/129\" has no prefix length after the slash: it is a number from 0 to 128"},
      {"10.0.0/8", "\"10.0.0/8\" has no IP address before the slash"},
      {"eth0/8", "\"eth0/8\" has no IP address before the slash"},
      {"/8", "\"/8\" has no IP address before the slash"},
      {"a_name_of_16_char", "is too long for the name of an interface, which has at most 15 characters"},
      {"eth\x1b", ""},
  };
  for (const auto& one : wrong) {
    const auto parsed = AddressFilter::parse(one.text, true);
    if (one.error[0] == '\0') {
      ck_assert(parsed.has_value());  // an odd name, but the kernel allows it
      continue;
    }
    ck_assert_msg(!parsed.has_value(), "\"%s\" was accepted", one.text);
    check_text_has(parsed.error().text, one.error);
  }
}
END_TEST

START_TEST(items_of_no_address_are_named) {
  const std::vector<LocalAddress> all{{"lo", {false, 8, {127, 0, 0, 1}}}, {"eth0", {false, 16, {10, 1, 2, 3}}}};
  check_text(AddressFilter::parse("eth0,lo,10.0.0.0/8", true)->idle_items(all), "");
  check_text(AddressFilter::parse("eth1,eth0,fd00::/16,10.2.0.0/16", true)->idle_items(all),
             "eth1, fd00::/16, 10.2.0.0/16");
  check_text(AddressFilter::parse("eth1", false)->idle_items(all), "");
}
END_TEST

/// A second listener on the same address would be refused, and with it oob.
START_TEST(an_address_of_two_interfaces_is_chosen_once) {
  HostAddress narrow = kTen;
  narrow.prefix_bits = 32;
  const std::vector<LocalAddress> all{{"lo", narrow}, {"eth0", kTen}, {"eth0", kV6}, {"eth1", kTen}, {"eth1", kV6}};
  const std::vector<HostAddress> chosen = filter("10.0.0.0/8,eth1", true).choose(all);
  ck_assert(chosen == (std::vector<HostAddress>{narrow, kV6}));
  ck_assert(filter("lo", false).choose(all) == (std::vector<HostAddress>{kTen, kV6}));
  ck_assert(AddressFilter().choose(all) == chosen);
}
END_TEST

/// What a process publishes, and what its peers do with it.
START_TEST(only_what_passes_is_published) {
  auto options = Node::options(2);
  options.parameters.set("oob_if_include", "127.0.0.0/8");
  Node b(options);
  const auto offer = decode_oob_offer(b.target().offer);
  ck_assert(offer.has_value());
  ck_assert_uint_eq(offer->addresses.size(), 1);
  check_text(to_string(offer->addresses[0]), "127.0.0.1");
  Node a(1);
  a.connect(b);
  test::check_connected(a, b);
}
END_TEST

START_TEST(nobody_is_heard_elsewhere) {
  auto options = Node::options(2);
  options.parameters.set("oob_if_exclude", "lo");
  const auto addresses = *local_addresses();
  const bool has_network =
      std::any_of(addresses.begin(), addresses.end(), [](const LocalAddress& one) { return one.interface != "lo"; });
  const std::vector<CpcOffer> refusals = has_network ? std::vector<CpcOffer>() : Node::refusals_of(options);
  if (!has_network) {
    ck_assert(!refusals.empty());
    return;
  }
  Node b(options);
  auto target = b.target();
  auto offer = *decode_oob_offer(target.offer);
  ck_assert(std::none_of(offer.addresses.begin(), offer.addresses.end(), is_loopback));
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 0);
  a.connect(b);  // by the addresses that it publishes
  test::check_connected(a, b);
  offer.addresses = {{false, 8, {127, 0, 0, 1}}};
  target.offer = encode(offer);
  Node c(3, &cpc::ConnectionSettings::retry_time_ms, 0);
  c.connect(c.key_to(b), target);
  ck_assert(test::run_until({&b, &c}, [&] { return c.seen(c.key_to(b)).failed == 1; }));
}
END_TEST

/// An address that is left out has no listener at all: whoever connects there learns nothing of us.
START_TEST(nobody_listens_elsewhere) {
  auto options = Node::options(2);
  options.parameters.set("oob_if_include", "127.0.0.1");
  Node b(options);
  const OobOffer offer = *decode_oob_offer(b.target().offer);
  ck_assert_uint_eq(offer.port_v6, 0);
  const auto connect_to = [&](HostAddress host) {
    const FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage storage;
    const socklen_t size = to_sockaddr({host, offer.port_v4}, storage);
    return connect(made.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
  };
  ck_assert_int_eq(connect_to({false, 8, {127, 0, 0, 1}}), 0);
  ck_assert_int_eq(connect_to({false, 8, {127, 0, 0, 2}}), ECONNREFUSED);
  Node a(1);
  a.connect(b);
  test::check_connected(a, b);
}
END_TEST

START_TEST(a_list_that_leaves_nothing_is_a_reason) {
  auto options = Node::options(1);
  options.parameters.set("oob_if_include", "nosuch0,203.0.113.0/24");
  const std::vector<CpcOffer> refusals = Node::refusals_of(options);
  const auto oob =
      std::find_if(refusals.begin(), refusals.end(), [](const CpcOffer& one) { return one.kind == kOob.kind; });
  ck_assert(oob != refusals.end());
  const std::string why(reinterpret_cast<const char*>(oob->blob.data()), oob->blob.size());
  check_text_has(why,
                 "oob_if_exclude (nosuch0,203.0.113.0/24) leaves no address of this host, which has lo 127.0.0.1/8");
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "address_filter",
      {without_a_list_everything_passes, an_include_list_lets_only_its_items_pass, an_exclude_list_stops_only_its_items,
       a_wrong_item_is_shown_with_the_rule, items_of_no_address_are_named, an_address_of_two_interfaces_is_chosen_once,
       only_what_passes_is_published, nobody_is_heard_elsewhere, nobody_listens_elsewhere,
       a_list_that_leaves_nothing_is_a_reason});
}
