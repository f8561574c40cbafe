// SPDX-License-Identifier: BSD-3-Clause
//
// The map of a job's connections: how reports are read, folded and shown.
#include <string>

#include "contrib/fabric_info/map.h"
#include "test/unit/check_main.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;

Json path(unsigned rank, unsigned host, unsigned peer_host, std::vector<unsigned> peers) {
  const auto node = [](unsigned number) { return "node" + std::to_string(number); };
  const auto gid = [](unsigned number) { return "::ffff:10.0.0." + std::to_string(number); };
  return {{"rank", rank},
          {"host", node(host)},
          {"port", "mlx5_0:1"},
          {"gid", gid(host)},
          {"peer_host", node(peer_host)},
          {"peer_port", "mlx5_0:1"},
          {"peer_gid", gid(peer_host)},
          {"peers_are_of_another_job", false},
          {"method", "oob"},
          {"mtu", 4096},
          {"queue_pairs", 4},
          {"queue_pairs_are_shared", false},
          {"bytes", std::vector<unsigned>(peers.size(), 1000)},
          {"peers", peers}};
}

/// Each process has been connected with each of every other host.
Json report(unsigned hosts, unsigned per_host) {
  Json json{{"versions", Json::array({Json{{"version", "0.1.0"}}})},
            {"processes", hosts * per_host},
            {"of_reporter_alone", false},
            {"silent", Json::array()},
            {"without_btl_fabric", Json::array()},
            {"hosts", Json::array()},
            {"paths", Json::array()}};
  const auto ranks = [per_host](unsigned host) {
    std::vector<unsigned> of_host(per_host);
    for (unsigned i = 0; i < per_host; ++i) {
      of_host[i] = host * per_host + i;
    }
    return of_host;
  };
  for (unsigned host = 0; host < hosts; ++host) {
    json["hosts"].push_back({{"host", "node" + std::to_string(host)}, {"ranks", ranks(host)}});
    for (unsigned peer = 0; peer < hosts; ++peer) {
      for (const unsigned rank : peer == host ? std::vector<unsigned>() : ranks(host)) {
        json["paths"].push_back(path(rank, host, peer, ranks(peer)));
      }
    }
  }
  return json;
}

JobMap map_of(const Json& json) {
  auto map = parse_map(json.dump());
  ck_assert_msg(map.has_value(), "%s", map ? "" : map.error().text.c_str());
  return std::move(*map);
}

void refuses(const std::string& text, const std::string& why) {
  const auto map = parse_map(text);
  ck_assert_msg(!map.has_value(), "taken: %s", text.c_str());
  test::check_text_has(map.error().text, why);
}

/// A report of two processes with something else at a place of its first path.
void refuses_in_path(const char* name, const Json& value, const std::string& why) {
  Json json = report(2, 1);
  json["paths"][0][name] = value;
  refuses(json.dump(), why);
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

START_TEST(a_row_says_who_reaches_whom_by_what) {
  const std::string text = map_as_text(map_of(report(2, 2)));
  test::check_text_has(text, "4 processes on 2 hosts, btl_fabric 0.1.0\n");
  test::check_text_has(
      text,
      "  node0, rank 0  mlx5_0:1  ::ffff:10.0.0.0  node1, ranks 2-3  mlx5_0:1  ::ffff:10.0.0.1  oob  4096"
      "            4  2.0 kB\n");
  ck_assert_uint_eq(count_of(text, "\n"), 2 + 4);
}
END_TEST

START_TEST(a_large_job_is_folded) {
  const std::string by_host = map_as_text(map_of(report(4, 50)));
  test::check_text_has(by_host, "that differ in nothing but the process are one");
  test::check_text_has(by_host, "node3, ranks 150-199");
  test::check_text_has(by_host, "2.5 MB");  // 50 times 50 times 1000
  ck_assert_uint_eq(count_of(by_host, "\n"), 3 + 4 * 3);
  const std::string by_port = map_as_text(map_of(report(100, 4)));
  test::check_text_has(by_port, "that differ in nothing but the process and the host are one");
  test::check_text_has(by_port, "100 hosts, ranks 0-399  mlx5_0:1  100 GIDs");
  ck_assert_uint_eq(count_of(by_port, "\n"), 3 + 1);
}
END_TEST

START_TEST(what_differs_is_not_folded) {
  Json json = report(100, 1);
  json["paths"][17]["mtu"] = 1024;
  json["paths"][4711]["method"] = "rdmacm";
  const std::string text = map_as_text(map_of(json));
  test::check_text_has(text, "node0, rank 0");
  test::check_text_has(text, "  1024  ");
  test::check_text_has(text, "node47, rank 47");
  ck_assert_uint_eq(count_of(text, "\n"), 3 + 3);
}
END_TEST

START_TEST(one_rank_can_be_asked_for) {
  const auto map = map_of_rank(map_of(report(100, 4)), 399);
  ck_assert(map.has_value());
  ck_assert_uint_eq(map->rows.size(), 99);
  const auto refused = map_of_rank(map_of(report(2, 1)), 2);
  ck_assert(!refused.has_value());
  test::check_text(refused.error().text, "--rank 2: the job's ranks are 0 to 1");
}
END_TEST

START_TEST(what_is_not_known_is_said) {
  Json json = report(2, 1);
  json["paths"] = Json::array();
  test::check_text_has(map_as_text(map_of(json)), "nobody was connected with anybody\n");
  json = report(2, 2);
  json["silent"] = {2, 3};
  json["without_btl_fabric"] = {1};
  json["paths"][0]["peer_host"] = json["paths"][0]["peer_port"] = nullptr;
  json["paths"][1]["peers_are_of_another_job"] = true;
  json["paths"][1]["peers"] = {77, 78};
  const std::string text = map_as_text(map_of(json));
  test::check_text_has(text, "nothing is known of ranks 2-3, who did not answer\n");
  test::check_text_has(text, "rank 1 did not use btl_fabric\n");
  test::check_text_has(text, "  ?, ranks 2-3 ");
  test::check_text_has(text, "ranks 77-78 of other jobs");
}
END_TEST

START_TEST(programs_get_every_row) {
  const Json json = map_as_json(map_of(report(10, 4)));
  ck_assert_uint_eq(json["rows"].size(), 40 * 9);
  test::check_text(json["rows"][0]["from"].dump(),
                   R"({"host":"node0","gid":"::ffff:10.0.0.0","ranks":[0],"port":"mlx5_0:1"})");
}
END_TEST

START_TEST(the_picture_has_a_square_for_each_pair) {
  const std::string small = map_as_svg(map_of(report(2, 4)));
  ck_assert_uint_eq(count_of(small, "<title>"), 2 * 4 * 4);
  test::check_text_has(small,
                       "<title>node0 0 to node1 4: mlx5_0:1 to mlx5_0:1, by oob, MTU 4096, 4 queue pairs</title>");
  const std::string by_host = map_as_svg(map_of(report(5, 50)));
  ck_assert_uint_eq(count_of(by_host, "<title>"), 5 * 4);
  const std::string by_group = map_as_svg(map_of(report(200, 1)));
  test::check_text_has(by_group, ">node0 to node3</text>");
  ck_assert_uint_eq(count_of(by_group, "<title>"), 50 * 50);
}
END_TEST

START_TEST(a_name_breaks_no_picture_and_no_terminal) {
  Json json = report(2, 1);
  json["hosts"][0]["host"] = json["paths"][0]["host"] = "<&\">\x1b[2J\n";
  test::check_text_has(map_as_text(map_of(json)), "  <&\">?[2J?, rank 0");
  test::check_text_has(map_as_svg(map_of(json)), "&lt;&amp;&quot;&gt;?[2J? 0");
}
END_TEST

START_TEST(ways_without_a_colour_of_their_own_share_one) {
  Json json = report(5, 4);
  for (std::size_t i = 0; i < json["paths"].size(); ++i) {
    json["paths"][i]["queue_pairs"] = i + 1;
  }
  const std::string picture = map_as_svg(map_of(json));
  test::check_text_has(picture, ", 7 queue pairs</text>");
  test::check_text_has(picture, ">73 other ways</text>");
  ck_assert_uint_eq(count_of(picture, ", 8 queue pairs</text>"), 0);
}
END_TEST

START_TEST(bad_files_are_refused_with_the_place) {
  refuses("", "it is no JSON: parse error at line 1, column 1");
  refuses("{\"processes\": 2,\n\"hosts\" 3}", "line 2, column 9");
  refuses("[]", "it is a list, but must be an object that has \"processes\"");
  refuses("{}", "it has no \"processes\"");
  Json json = report(2, 1);
  json["processes"] = 0;
  refuses(json.dump(), "processes is 0, but must be a whole number from 1 to 16777216");
  json = report(2, 1);
  json.erase("paths");
  refuses(json.dump(), "it has no \"paths\"");
  json = report(2, 1);
  json["hosts"][1]["ranks"][0] = 2;
  refuses(json.dump(), "hosts[1].ranks[0] is 2, but must be a whole number from 0 to 1");
  json["hosts"] = "node1";
  refuses(json.dump(), "hosts is \"node1\", but must be a list");
}
END_TEST

START_TEST(bad_paths_are_refused_with_the_place) {
  refuses_in_path("rank", 2, "paths[0].rank is 2, but must be a whole number from 0 to 1");
  refuses_in_path("rank", -1, "paths[0].rank is -1, but must be a whole number from 0 to 1");
  refuses_in_path("mtu", "x", "paths[0].mtu is \"x\", but must be a whole number from 1 to 65536");
  refuses_in_path("mtu", 1.5, "paths[0].mtu is 1.5, but");
  refuses_in_path("host", Json::object(), "paths[0].host is an object, but must be a text");
  refuses_in_path("queue_pairs_are_shared", 1, "paths[0].queue_pairs_are_shared is 1, but must be true or false");
  refuses_in_path("peers", Json::array(), "paths[0].peers is a list, but must be a list of at least one rank");
  refuses_in_path("peers", {7}, "paths[0].peers[0] is 7, but must be a whole number from 0 to 1");
  refuses_in_path("bytes", {1, 2}, "paths[0].bytes is a list, but must be a list of as many numbers as peers has, 1");
  refuses_in_path("bytes", {std::string(100, 'x')}, "paths[0].bytes[0] is \"" + std::string(59, 'x') + "..., but");
}
END_TEST

}  // namespace
}  // namespace fabric::info

int main() {
  using namespace fabric::info;
  return fabric::test::run_suite(
      "fabric_map", {a_row_says_who_reaches_whom_by_what, a_large_job_is_folded, what_differs_is_not_folded,
                     one_rank_can_be_asked_for, what_is_not_known_is_said, programs_get_every_row,
                     the_picture_has_a_square_for_each_pair, a_name_breaks_no_picture_and_no_terminal,
                     ways_without_a_colour_of_their_own_share_one, bad_files_are_refused_with_the_place,
                     bad_paths_are_refused_with_the_place});
}
