// SPDX-License-Identifier: BSD-3-Clause
//
// What softhca reads as text, and the addresses of its ports.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "device/attributes.h"
#include "device/port.h"
#include "fabric/config.h"
#include "fabric/fabric.h"
#include "faults/faults.h"
#include "faults/rules.h"
#include "test/unit/check_main.h"

namespace {

using namespace softhca;
using fabric::test::check_text;

START_TEST(an_empty_configuration_is_the_default) {
  Config config;
  check_text(parse_config("", config), "");
  check_text(parse_config("\n  # nothing\n\t\n", config), "");
  ck_assert(config.personality == Personality::Roce);
  ck_assert_uint_eq(config.devices, 1);
  ck_assert(config.cma);
}
END_TEST

START_TEST(every_kind_of_option_is_read) {
  Config config;
  check_text(parse_config("personality = iwarp\ndevices=4\n nodes = 64 # many\nseed = 18446744073709551615\n"
                          "cma = no\nnode_from = OMPI_COMM_WORLD_RANK\nmax_qps=0\nasync_us = 50",
                          config),
             "");
  ck_assert(config.personality == Personality::Iwarp);
  ck_assert_uint_eq(config.devices, 4);
  ck_assert_uint_eq(config.nodes, 64);
  ck_assert(config.seed == UINT64_MAX);
  ck_assert(!config.cma);
  check_text(config.node_from, "OMPI_COMM_WORLD_RANK");
  ck_assert_uint_eq(config.async_us, 50);
}
END_TEST

START_TEST(a_wrong_option_is_named_with_its_line) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"devices = 5", "line 1, \"devices = 5\": devices is 1..4, not \"5\"\n"},
      {"\n\ndevices = 0 # none", "line 3, \"devices = 0\": devices is 1..4, not \"0\"\n"},
      {"ports = ", "line 1, \"ports =\": ports is 1..2, not \"\"\n"},
      {"ports = -1", "line 1, \"ports = -1\": ports is 1..2, not \"-1\"\n"},
      {"ports = 1x", "line 1, \"ports = 1x\": ports is 1..2, not \"1x\"\n"},
      {"ports=99999999999999999999",
       "line 1, \"ports=99999999999999999999\": ports is 1..2, not \"99999999999999999999\"\n"},
      {"cma = maybe", "line 1, \"cma = maybe\": cma is yes|no, not \"maybe\"\n"},
      {"personality = RoCE",
       "line 1, \"personality = RoCE\": personality is ib|roce|iwarp, not \"RoCE\"; did you mean \"roce\"?\n"},
      {"max-qp = 3", "line 1, \"max-qp = 3\": there is no option \"max-qp\"; did you mean \"max_qps\"?\n"},
      {"speed", "line 1, \"speed\": \"speed\" is not NAME=VALUE\n"},
      {"node_from =", "line 1, \"node_from =\": node_from is NAME, not \"\"\n"},
      {"node_from = A B", "line 1, \"node_from = A B\": node_from is NAME, not \"A B\"\n"},
      {"cma = 1\nports = 3\n",
       "line 1, \"cma = 1\": cma is yes|no, not \"1\"\nline 2, \"ports = 3\": ports is 1..2, not \"3\"\n"},
  };
  for (const auto& c : kCases) {
    Config config;
    check_text(parse_config(c.text, config), c.error);
  }
}
END_TEST

START_TEST(the_help_has_every_default) {
  Config config;
  for (const char* name :
       {"personality", "devices",     "ports",       "nodes",   "node_from", "seed",     "async_us",
        "cma",         "chaos_order", "max_qps",     "max_cqs", "max_mrs",   "max_srqs", "max_inline",
        "max_wr",      "max_cqe",     "max_message", "lmc",     "landing",   "sm_lid",   "odp",
        "xrc_devices", "sm_sl",       "sm_path",     "sm_us",   "gids",      "fatal_us"})
    ck_assert_msg(config_help().find(std::string("  ") + name + "=") != std::string::npos, "no help for %s", name);
}
END_TEST

START_TEST(some_devices_have_xrc) {
  const auto has_xrc = [](const char* text, unsigned device) {
    Config config;
    check_text(parse_config(text, config), "");
    return (device_attributes(config, 0, device).device_cap_flags & IBV_DEVICE_XRC) != 0;
  };
  ck_assert(has_xrc("devices=2\n", 0) && has_xrc("devices=2\n", 1));
  ck_assert(has_xrc("devices=2\nxrc_devices=1\n", 0) && !has_xrc("devices=2\nxrc_devices=1\n", 1));
  ck_assert(!has_xrc("xrc_devices=0\n", 0));
  ck_assert(!has_xrc("personality=iwarp\n", 0));
}
END_TEST

// A fabric of its own in a directory that goes with it.
class OwnFabric {
 public:
  explicit OwnFabric(const std::string& config) {
    char name[] = "/tmp/softhca-test.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(name));
    directory_ = name;
    FILE* file = fopen((directory_ + "/config").c_str(), "w");
    fputs(config.c_str(), file);
    fclose(file);
    setenv("SOFTHCA_DIR", name, 1);
    ck_assert_ptr_nonnull(Fabric::join());
  }
  ~OwnFabric() {
    for (const char* name : {"/config", "/slots", "/locks"}) remove((directory_ + name).c_str());
    remove(directory_.c_str());
  }
  Fabric& operator*() { return *Fabric::get(); }

 private:
  std::string directory_;
};

std::vector<uint32_t> all_ports(const Config& config) {
  std::vector<uint32_t> ports;
  for (unsigned node = 0; node < config.nodes; ++node)
    for (unsigned device = 0; device < config.devices; ++device)
      for (unsigned port = 1; port <= config.ports; ++port) ports.push_back(port_id_of(node, device, port));
  return ports;
}

void check_addresses(Fabric& fabric) {
  const Config& config = fabric.config();
  std::set<std::string> gids;
  std::set<uint16_t> lids;
  for (const uint32_t port_id : all_ports(config)) {
    for (unsigned index = 0; index < gid_count(config); ++index) {
      ibv_gid gid;
      ck_assert(gid_at(fabric, port_id, index, &gid));
      ck_assert_uint_eq(port_with_gid(fabric, gid), port_id);
      gids.emplace(reinterpret_cast<const char*>(gid.raw), sizeof gid.raw);
    }
    ibv_gid beyond;
    ck_assert(!gid_at(fabric, port_id, gid_count(config), &beyond));

    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr = ip_of(port_id);
    ck_assert_uint_eq(port_with_ip(fabric, 0, reinterpret_cast<const sockaddr*>(&address)), port_id);

    const uint16_t lid = lid_of(fabric, port_id);
    ibv_ah_attr ah{};
    ah.port_num = 1;
    if (config.personality == Personality::Ib) {
      ck_assert_uint_gt(lid, 1);  // 0 is none, 1 the subnet manager's
      ck_assert_uint_lt(lid, 0xc000);
      ck_assert_uint_eq(lid % (1U << config.lmc), 0);
      for (unsigned bits = 0; bits < 1U << config.lmc; ++bits) {
        const auto of_path = static_cast<uint16_t>(lid + bits);
        ck_assert(lids.insert(of_path).second);
        ck_assert_uint_eq(port_with_lid(fabric, of_path), port_id);
      }
      ah.dlid = lid;
    } else {
      ck_assert_uint_eq(lid, 0);
      ck_assert_uint_eq(resolve(fabric, port_id_of(0, 0, 1), ah), 0);  // without a global route
      ah.is_global = 1;
      gid_at(fabric, port_id, 0, &ah.grh.dgid);
    }
    ck_assert_uint_eq(resolve(fabric, port_id_of(0, 0, 1), ah), port_id);
  }
  // RoCE: of the link-local address and of the IPv4 address, two types each; iWARP: MAC and IPv4 address.
  const size_t different = config.personality == Personality::Ib ? 1 : 2;
  ck_assert_uint_eq(gids.size(), all_ports(config).size() * different);
  for (const uint16_t lid : std::initializer_list<uint16_t>{0, 1, 0xbfff, 0xffff})
    ck_assert_uint_eq(port_with_lid(fabric, lid), 0);
  const ibv_gid nobody{};
  ck_assert_uint_eq(port_with_gid(fabric, nobody), 0);
}

START_TEST(every_port_is_found_by_all_its_addresses) {
  static const char* const kPersonalities[] = {"ib", "roce", "iwarp", "ib\nlmc = 3"};
  OwnFabric own(std::string("personality = ") + kPersonalities[_i] + "\nnodes = 64\ndevices = 4\nports = 2\n");
  check_addresses(*own);
  // After a change of all addresses too, and the old ones are nobody's.
  Fabric& fabric = *own;
  const uint32_t first = port_id_of(0, 0, 1);
  ibv_gid old;
  ck_assert(gid_at(fabric, first, 0, &old));
  const uint16_t old_lid = lid_of(fabric, first);
  for (PortShared& port : fabric.hub().ports) {
    port.lid_offset.store(3 * 1024);
    port.gid_salt.store(7);
  }
  check_addresses(fabric);
  ck_assert_uint_eq(port_with_gid(fabric, old), 0);
  ck_assert_uint_eq(port_with_lid(fabric, old_lid), 0);
}
END_TEST

START_TEST(ports_that_do_not_exist_have_no_address) {
  OwnFabric own("personality = ib\nnodes = 2\n");
  Fabric& fabric = *own;
  ibv_gid gid;
  for (const uint32_t port_id :
       {0U, port_id_of(2, 0, 1), port_id_of(0, 1, 1), port_id_of(0, 0, 2), kPortIds, UINT32_MAX}) {
    ck_assert(!gid_at(fabric, port_id, 0, &gid));
    ck_assert_uint_eq(lid_of(fabric, port_id), 0);
    ck_assert(!port_up(fabric, port_id));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = ip_of(port_id_of(2, 0, 1));
  ck_assert_uint_eq(port_with_ip(fabric, 0, reinterpret_cast<const sockaddr*>(&address)), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ck_assert_uint_eq(port_with_ip(fabric, 1, reinterpret_cast<const sockaddr*>(&address)), port_id_of(1, 0, 1));
  address.sin_addr.s_addr = htonl(0x08080808);
  ck_assert_uint_eq(port_with_ip(fabric, 1, reinterpret_cast<const sockaddr*>(&address)), 0);
}
END_TEST

START_TEST(every_kind_of_rule_is_read) {
  std::vector<faults::Rule> rules;
  check_text(faults::parse_rules("drop\n"
                                 "delay us=50 op=write every=3   # sometimes\n"
                                 "rnr op=send count=2 qpn=77\n\n"
                                 "error status=IBV_WC_REM_ACCESS_ERR nth=1 node=1 device=2\n"
                                 "error status=REM_OP_ERR prob=0.25 seed=9\n"
                                 "fail call=ibv_create_qp errno=ENOMEM nth=3\n"
                                 "cm action=silence\n"
                                 "kill at=middle min_bytes=4096 slot=2\n"
                                 "kill\n"
                                 "kill at=completed\n"
                                 "lose op=send nth=4",
                                 rules),
             "");
  ck_assert_uint_eq(rules.size(), 11);
  ck_assert_uint_eq(rules[1].us, 50);
  ck_assert_uint_eq(rules[1].ops, faults::kOpWrite);
  ck_assert_int_eq(rules[3].status, IBV_WC_REM_ACCESS_ERR);
  ck_assert_uint_eq(rules[3].line, 5);
  ck_assert_int_eq(rules[4].status, IBV_WC_REM_OP_ERR);
  ck_assert(rules[4].prob == 0.25);
  ck_assert_int_eq(rules[5].error, ENOMEM);
  ck_assert(rules[6].silent);
  ck_assert(rules[7].kill_at == KillAt::Middle);
  ck_assert(rules[8].kill_at == KillAt::Before);
  ck_assert(rules[9].kill_at == KillAt::Completed);
  ck_assert(rules[10].action == faults::Action::Lose);
}
END_TEST

START_TEST(a_wrong_rule_is_named_with_its_line) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"explode", "there is no action \"explode\"; there are drop, lose, delay, rnr, error, kill, fail and cm"},
      {"drpo", "there is no action \"drpo\"; did you mean \"drop\"?"},
      {"op=send", "there is no action \"op=send\"; there are drop, lose, delay, rnr, error, kill, fail and cm"},
      {"cm often", "\"often\" is not NAME=VALUE; there are action, node, slot, nth, every, count, prob and seed"},
      {"drop nth", "\"nth\" needs a value: nth=1..18446744073709551615"},
      {"drop min-byte=3", "drop has no \"min-byte\"; did you mean \"min_bytes\"?"},
      {"drop op=recv", "op is send|write|read|atomic|any, not \"recv\""},
      {"drop us=3", "us has no meaning in a rule with drop, only with delay"},
      {"drop nth=1 nth=2", "nth is there twice"},
      {"drop nth=0", "nth is 1..18446744073709551615, not \"0\""},
      {"drop nth=-1", "nth is 1..18446744073709551615, not \"-1\""},
      {"drop prob=1.5", "prob is 0..1, not \"1.5\""},
      {"drop prob=nan", "prob is 0..1, not \"nan\""},
      {"drop qpn=4294967296", "qpn is 0..4294967295, not \"4294967296\""},
      {"delay", "delay needs us=0..4294967295"},
      {"error", "error needs status=the name of an ibv_wc_status"},
      {"error status=SUCCESS", "status is the name of an ibv_wc_status, not \"SUCCESS\", for example REM_OP_ERR"},
      {"error status=REM_ACESS_ERR",
       "status is the name of an ibv_wc_status, not \"REM_ACESS_ERR\"; did you mean \"REM_ACCESS_ERR\"?"},
      {"fail call=ibv_reg_mr", "fail needs errno=the name of an errno"},
      {"fail call=malloc errno=ENOMEM", "call is ibv_... or rdma_..., not \"malloc\", for example rdma_create_qp"},
      {"fail call=ibv_reg_mrs errno=ENOMEM",
       "call is ibv_... or rdma_..., not \"ibv_reg_mrs\"; did you mean \"ibv_reg_mr\"?"},
      {"fail call=ibv_reg_mr errno=enomem", "errno is the name of an errno, not \"enomem\"; did you mean \"ENOMEM\"?"},
      {"fail call=ibv_reg_mr errno=ENOMEM op=send",
       "op has no meaning in a rule with fail, only with drop, lose, delay, rnr, error and kill"},
      {"cm action=ignore", "action is reject|silence, not \"ignore\""},
      {"kill at=end", "at is before|middle|completing|completed, not \"end\""},
  };
  for (const auto& c : kCases)
    check_text(faults::check(std::string("drop\n ") + c.text + " # why"),
               "line 2, \"" + std::string(c.text) + "\": " + c.error + "\n");
}
END_TEST

}  // namespace

int main() {
  // Each test, and each run of the last one, is in a process of its own: a process joins one fabric.
  return fabric::test::run_suite("softhca_tables", {an_empty_configuration_is_the_default,
                                                    every_kind_of_option_is_read,
                                                    a_wrong_option_is_named_with_its_line,
                                                    the_help_has_every_default,
                                                    some_devices_have_xrc,
                                                    ports_that_do_not_exist_have_no_address,
                                                    every_kind_of_rule_is_read,
                                                    a_wrong_rule_is_named_with_its_line,
                                                    {every_port_is_found_by_all_its_addresses, 4}});
}
