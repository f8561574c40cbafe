// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/fabric_top makes of pages and of what adapters count.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "contrib/fabric_top/nic_counters.h"
#include "contrib/fabric_top/text.h"
#include "contrib/fabric_top/view.h"
#include "test/unit/check_main.h"

namespace fabric::top {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kNow = 100 * kSecond;

/// A process whose last half second was just now.
Shown process(std::uint32_t rank) {
  Shown shown;
  shown.state = 'R';
  shown.page.pid = 1000 + static_cast<pid_t>(rank);
  shown.page.image = std::make_unique<Image>();
  Process& process = shown.page.image->process;
  process.now_ns = kNow;
  process.before_ns = kNow - kSecond / 2;
  process.rank = rank;
  process.job = 5;
  process.program.set("solve");
  process.ports = 1;
  shown.page.image->ports[0].device.set("mlx5_0");
  shown.page.image->ports[0].number = 1;
  return shown;
}
Peer& add_peer(Shown& shown, std::uint32_t rank, std::uint64_t bytes) {
  Process& process = shown.page.image->process;
  Peer& peer = shown.page.image->peers[process.peers++];
  process.known_peers = process.peers;
  peer.job = process.job;
  peer.rank = rank;
  peer.now.bytes_sent = 1000 + bytes;
  peer.before.bytes_sent = 1000;
  peer.method.set("oob");
  peer.state.set("Connected");
  return peer;
}
void add_counter(Shown& shown, const char* name, std::uint64_t before, std::uint64_t now) {
  Counter& counter = shown.page.image->counters[shown.page.image->process.counters++];
  counter.name.set(name);
  counter.before = before;
  counter.now = now;
}
template <class... More>
std::vector<Shown> processes(More... more) {
  std::vector<Shown> all;
  (all.push_back(std::move(more)), ...);
  return all;
}

START_TEST(rates_are_of_the_last_interval) {
  Shown one = process(2);
  one.page.image->process.connection_memory = 123456;
  add_peer(one, 3, 500);
  add_counter(one, "messages_sent_inline", 10, 40);
  add_counter(one, "messages_sent_copied", 1, 3);
  add_counter(one, "waits_for_credit", 7, 7);
  const Json view = view_of(processes(std::move(one)), {}, {}, kNow + kSecond);
  const Json& told = view["processes"][0];
  ck_assert_uint_eq(told["messages_sent"], 43);
  ck_assert_uint_eq(told["per_s"]["messages_sent"], 64);
  ck_assert_uint_eq(told["per_s"]["waits_for_credit"], 0);
  ck_assert_uint_eq(told["counters"]["waits_for_credit"], 7);
  ck_assert_uint_eq(told["connection_memory"], 123456);
  test::check_text_has(as_text(view, {}), "    123k -  ");
  ck_assert_uint_eq(told["age_ms"], 1000);
  ck_assert_uint_eq(told["interval_ms"], 500);
  test::check_text(told["state"], "in MPI");
  ck_assert_uint_eq(told["peers"][0]["bytes_sent"], 1500);
  ck_assert_uint_eq(told["peers"][0]["per_s"]["bytes_sent"], 1000);
  test::check_text(told["peers"][0]["port"], "mlx5_0:1");
  ck_assert(!told["peers"][0].contains("credits"));
}
END_TEST

START_TEST(who_is_not_in_mpi_has_no_rates) {
  Shown one = process(0);
  add_peer(one, 1, 500);
  Shown stopped = process(1);
  stopped.state = 'T';
  const Json view = view_of(processes(std::move(one), std::move(stopped)), {}, {}, kNow + 3 * kSecond);
  test::check_text(view["processes"][0]["state"], "outside MPI");
  ck_assert_uint_eq(view["processes"][0]["peers"][0]["per_s"]["bytes_sent"], 0);
  ck_assert_uint_eq(view["processes"][0]["peers"][0]["bytes_sent"], 1500);
  test::check_text(view["processes"][1]["state"], "stopped");
}
END_TEST

/// Numbers of a page may be anything.
START_TEST(what_cannot_be_has_no_rate) {
  Shown one = process(0);
  Process& process = one.page.image->process;
  add_counter(one, "puts", 5, 3);
  add_counter(one, "gets", 0, UINT64_MAX);
  std::swap(process.before_ns, process.now_ns);
  const auto all = processes(std::move(one));
  ck_assert_uint_eq(view_of(all, {}, {}, 0)["processes"][0]["per_s"]["rdma"], 0);
  std::swap(all[0].page.image->process.before_ns, all[0].page.image->process.now_ns);
  ck_assert_uint_gt(view_of(all, {}, {}, kNow)["processes"][0]["per_s"]["rdma"], 0);
}
END_TEST

START_TEST(those_who_do_most_come_first) {
  Shown idle = process(0);
  add_peer(idle, 1, 0);
  Shown busy = process(1);
  add_peer(busy, 0, 100);
  add_peer(busy, 2, 5000).wait_for_credit = 3;
  add_counter(busy, "bytes_sent", 0, 1000);
  const Json view = view_of(processes(std::move(idle), std::move(busy)), {}, {}, kNow);
  ck_assert_uint_eq(view["processes"][0]["rank"], 0);  // the JSON is by rank
  const std::string text = as_text(view, {});
  test::check_text_has(text, "2 processes");
  ck_assert_uint_lt(text.find("\n     1     1001"), text.find("\n     0     1000"));
  ck_assert_uint_lt(text.find("\n     1      2 mlx5_0:1"), text.find("\n     1      0 mlx5_0:1"));
  ck_assert_uint_lt(text.find("\n     1      0 mlx5_0:1"), text.find("\n     0      1 mlx5_0:1"));
  test::check_text_has(text, "3c");
}
END_TEST

START_TEST(tables_keep_to_their_place) {
  std::vector<Shown> all;
  for (std::uint32_t rank = 0; rank < 40; ++rank) {
    all.push_back(process(rank));
    add_peer(all.back(), rank + 1, rank);
    all.back().page.image->process.known_peers = 10;
  }
  const Json view = view_of(all, {}, {}, kNow);
  for (std::size_t lines = 2; lines < 60; ++lines) {
    const std::string text = as_text(view, {lines, 40});
    ck_assert_uint_le(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), lines);
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      ck_assert_uint_le(text.find('\n', begin) - begin, 40);
    }
  }
  test::check_text_has(as_text(view, {24, 80}), "  and 31 more");
  test::check_text_has(as_text(view, {}), "360 peers with less traffic");
}
END_TEST

START_TEST(numbers_are_short) {
  test::check_text(short_number(0), "0");
  test::check_text(short_number(9999), "9999");
  test::check_text(short_number(10000), "10.0k");
  test::check_text(short_number(12345678), "12.3M");
  test::check_text(short_number(999999), "999k");
  test::check_text(short_number(UINT64_MAX), "18.4E");
}
END_TEST

START_TEST(what_is_not_shown_is_told) {
  Shown other;
  other.page.path = "/dev/shm/btl_fabric_top.0.1.2.3";
  other.page.why_not = "it is half written";
  Shown stale;
  stale.page.is_stale = true;
  const Json view = view_of(processes(std::move(other), std::move(stale)), {}, {}, kNow);
  ck_assert_uint_eq(view["not_shown"].size(), 1);
  test::check_text_has(as_text(view, {}), "/dev/shm/btl_fabric_top.0.1.2.3 is not shown: it is half written");
}
END_TEST

/// Anybody may give a page a name that a terminal obeys, or that is no UTF-8.
START_TEST(names_of_pages_are_safe_to_print) {
  Shown other;
  other.page.path = "/dev/shm/btl_fabric_top.0.\x1b]0;x\a\xff";
  const Json view = view_of(processes(std::move(other)), {}, {}, kNow);
  test::check_text_has(as_text(view, {}), "/dev/shm/btl_fabric_top.0.?]0;x?? is not shown");
  test::check_text_has(view.dump(), "/dev/shm/btl_fabric_top.0.?]0;x??");
}
END_TEST

class Sysfs {
 public:
  Sysfs() { ck_assert_ptr_nonnull(mkdtemp(name_)); }
  ~Sysfs() { std::filesystem::remove_all(name_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;
  [[nodiscard]] std::string name() const { return name_; }
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(name_) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }

 private:
  char name_[32] = "/tmp/btl_fabric.XXXXXX";
};

START_TEST(adapters_are_asked_for_what_they_count) {
  const Sysfs sysfs;
  const std::string port = "mlx5_0/ports/1/";
  sysfs.put(port + "counters/port_xmit_data", "1000");
  sysfs.put(port + "counters/symbol_error", "N/A (no PMA)");
  sysfs.put(port + "hw_counters/packet_seq_err", "4");
  sysfs.put(port + "hw_counters/rx_read_requests", "77");
  sysfs.put(port + "hw_counters/lifespan", "10");
  const auto all = processes(process(0));
  Nics before = look_at_nics(all, sysfs.name());
  ck_assert_uint_eq(before.size(), 1);
  const NicName name{"mlx5_0", 1};
  ck_assert((before.at(name).counters ==
             NicCounters{{"port_xmit_data", 1000}, {"packet_seq_err", 4}, {"rx_read_requests", 77}}));

  sysfs.put(port + "counters/port_xmit_data", "501000");
  sysfs.put(port + "hw_counters/packet_seq_err", "6");
  const Nics now = look_at_nics(all, sysfs.name());
  before.at(name).when = now.at(name).when - std::chrono::seconds(2);
  const Json view = view_of(all, now, before, kNow);
  ck_assert_uint_eq(view["ports"][0]["counters"]["port_xmit_data"], 501000);
  ck_assert_uint_eq(view["ports"][0]["per_s"]["port_xmit_data"], 250000);
  test::check_text_has(as_text(view, {}), "mlx5_0:1: 1.0MB/s out, 0B/s in; packet_seq_err 6 (1/s)\n");
}
END_TEST

START_TEST(a_device_that_counts_nothing_is_told_of) {
  const Sysfs sysfs;
  const auto all = processes(process(0));
  const Nics nics = look_at_nics(all, sysfs.name());
  test::check_text_has(as_text(view_of(all, nics, {}, kNow), {}), "mlx5_0:1: the device counts nothing");
}
END_TEST

/// Names come out of pages.
START_TEST(names_lead_nowhere_else) {
  const Sysfs sysfs;
  sysfs.put("secret/ports/1/counters/number", "1");
  std::filesystem::create_directory(sysfs.name() + "/sys");
  ck_assert_uint_eq(look_at_nic({"secret", 1}, sysfs.name()).counters.size(), 1);
  ck_assert_uint_eq(look_at_nic({"../secret", 1}, sysfs.name() + "/sys").counters.size(), 0);
  ck_assert_uint_eq(look_at_nic({"", 1}, sysfs.name()).counters.size(), 0);
  ck_assert_uint_eq(look_at_nic({"..", 1}, sysfs.name()).counters.size(), 0);
}
END_TEST

}  // namespace
}  // namespace fabric::top

int main() {
  using namespace fabric::top;
  using fabric::test::run_suite;
  return run_suite("fabric_top",
                   {rates_are_of_the_last_interval, who_is_not_in_mpi_has_no_rates, what_cannot_be_has_no_rate,
                    those_who_do_most_come_first, tables_keep_to_their_place, numbers_are_short,
                    what_is_not_shown_is_told, names_of_pages_are_safe_to_print, adapters_are_asked_for_what_they_count,
                    a_device_that_counts_nothing_is_told_of, names_lead_nowhere_else});
}
