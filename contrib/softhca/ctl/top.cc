// SPDX-License-Identifier: BSD-3-Clause
#include "ctl/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ctl/fabric_view.h"
#include "ctl/usage.h"
#include "fabric/nearest.h"

namespace softhca {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInterval = std::chrono::seconds(1);
constexpr auto kShortInterval = std::chrono::milliseconds(200);  // between the two looks of --once

struct Sample {
  Clock::time_point time;
  std::vector<Usage> processes;
};

Sample take_sample(FabricView& fabric) {
  const Clock::time_point now = Clock::now();
  return {now, usage_of(fabric)};
}

// What each process has done since, per second.
struct Rates {
  double bytes_sent = 0, bytes_received = 0, messages_sent = 0, messages_received = 0;

  void add(const Rates& other) {
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
  }
};

double rate(uint64_t before, uint64_t now, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

Rates rates_of(const Usage& now, const Sample& before, double seconds) {
  for (const Usage& old : before.processes)
    if (old.slot == now.slot && old.incarnation == now.incarnation)
      return {rate(old.bytes_sent, now.bytes_sent, seconds), rate(old.bytes_received, now.bytes_received, seconds),
              rate(old.messages_sent, now.messages_sent, seconds),
              rate(old.messages_received, now.messages_received, seconds)};
  return {};
}

std::string short_number(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; value >= 9999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  snprintf(text, sizeof text, unit != 0 && value < 99.95 ? "%.1f%s" : "%.0f%s", value, kUnits[unit]);
  return text;
}

std::string devices_of(const Usage& usage, const char* separator, const char* quote) {
  std::string text;
  for (const unsigned device : usage.devices)
    text += (text.empty() ? "" : separator) + (quote + ("softhca" + std::to_string(device))) + quote;
  return text;
}

constexpr const char* kRow = "%4s %7s %5s %-15.15s %-9s %5s %8s %8s %8s %8s %8s %8s %8s %8s\n";

void print_row(const Usage& usage, const Rates& rates) {
  const auto count = [](uint64_t n) { return short_number(static_cast<double>(n)); };
  printf(kRow, std::to_string(usage.slot).c_str(), std::to_string(usage.pid).c_str(),
         usage.rank.empty() ? "-" : usage.rank.c_str(), usage.program.c_str(),
         usage.devices.empty() ? "-" : devices_of(usage, ",", "").c_str(), std::to_string(usage.queue_pairs).c_str(),
         count(usage.bytes_sent).c_str(), count(usage.bytes_received).c_str(), count(usage.messages_sent).c_str(),
         count(usage.messages_received).c_str(), short_number(rates.bytes_sent).c_str(),
         short_number(rates.bytes_received).c_str(), short_number(rates.messages_sent).c_str(),
         short_number(rates.messages_received).c_str());
}

// At most `rows` processes, those first that do most.
void print_table(const FabricView& fabric, const Sample& now, const Sample& before, size_t rows) {
  struct Line {
    const Usage* usage;
    Rates rates;
  };
  const double seconds = std::chrono::duration<double>(now.time - before.time).count();
  std::vector<Line> lines;
  Rates all;
  for (const Usage& usage : now.processes) {
    lines.push_back({&usage, rates_of(usage, before, seconds)});
    all.add(lines.back().rates);
  }
  std::ranges::stable_sort(lines, std::greater<>(), [](const Line& line) {
    return line.rates.bytes_sent + line.rates.bytes_received + line.rates.messages_sent;
  });
  printf("%s: %zu processes, %sB/s and %s messages/s sent\n", fabric.directory().c_str(), lines.size(),
         short_number(all.bytes_sent).c_str(), short_number(all.messages_sent).c_str());
  printf(kRow, "SLOT", "PID", "RANK", "PROGRAM", "DEVICE", "QPS", "B SENT", "B RECVD", "M SENT", "M RECVD", "B/S OUT",
         "B/S IN", "M/S OUT", "M/S IN");
  for (size_t i = 0; i < std::min(rows, lines.size()); ++i) print_row(*lines[i].usage, lines[i].rates);
  if (lines.size() > rows) printf("and %zu more\n", lines.size() - rows);
}

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    char escaped[8];
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (byte < 0x20 || byte >= 0x7f)  // names of programs may be of any encoding: each byte is a character
      result += (snprintf(escaped, sizeof escaped, "\\u%04x", byte), escaped);
    else
      result += c;
  }
  return result + "\"";
}

void print_json(const FabricView& fabric, const Sample& now, const Sample& before) {
  const double seconds = std::chrono::duration<double>(now.time - before.time).count();
  printf("{\"fabric\": %s, \"interval_s\": %.3f, \"processes\": [", json_string(fabric.directory()).c_str(), seconds);
  const char* separator = "\n";
  for (const Usage& usage : now.processes) {
    const Rates rates = rates_of(usage, before, seconds);
    const bool is_number = !usage.rank.empty() && usage.rank.find_first_not_of("0123456789") == std::string::npos;
    printf(
        "%s  {\"slot\": %u, \"pid\": %d, \"program\": %s, \"rank\": %s, \"node\": %u, \"devices\": [%s], \"queue_pairs\": %u, "
        "\"bytes_sent\": %llu, \"bytes_received\": %llu, \"messages_sent\": %llu, \"messages_received\": %llu, "
        "\"bytes_sent_per_s\": %.0f, \"bytes_received_per_s\": %.0f, \"messages_sent_per_s\": %.0f, "
        "\"messages_received_per_s\": %.0f}",
        separator, usage.slot, usage.pid, json_string(usage.program).c_str(), is_number ? usage.rank.c_str() : "null",
        usage.node, devices_of(usage, ", ", "\"").c_str(), usage.queue_pairs,
        static_cast<unsigned long long>(usage.bytes_sent), static_cast<unsigned long long>(usage.bytes_received),
        static_cast<unsigned long long>(usage.messages_sent), static_cast<unsigned long long>(usage.messages_received),
        rates.bytes_sent, rates.bytes_received, rates.messages_sent, rates.messages_received);
    separator = ",\n";
  }
  printf("\n]}\n");
}

size_t rows_of_terminal() {
  constexpr size_t kOthers = 4;  // two lines above, one below, and the cursor's
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row <= kOthers) return SIZE_MAX;
  return size.ws_row - kOthers;
}

void watch(FabricView& fabric) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  Sample before = take_sample(fabric);
  if (terminal) printf("\033[2J");
  while (access(fabric.directory().c_str(), F_OK) == 0) {
    std::this_thread::sleep_for(kInterval);
    Sample now = take_sample(fabric);
    if (terminal) printf("\033[H\033[J");
    print_table(fabric, now, before, terminal ? rows_of_terminal() : SIZE_MAX);
    if (!terminal) printf("\n");
    if (fflush(stdout) != 0) return;
    before = std::move(now);
  }
}

}  // namespace

void top(std::span<char* const> arguments) {
  bool once = false, json = false;
  for (const std::string_view argument : arguments) {
    if (argument == "--once")
      once = true;
    else if (argument == "--json")
      json = true;
    else
      give_up("top has no " + quoted(argument) + suggestion(argument, {"--once", "--json"}));
  }
  if (json && !once) give_up("top --json prints one table: top --once --json");
  FabricView fabric;
  if (!once) return watch(fabric);
  const Sample before = take_sample(fabric);
  std::this_thread::sleep_for(kShortInterval);
  const Sample now = take_sample(fabric);
  json ? print_json(fabric, now, before) : print_table(fabric, now, before, SIZE_MAX);
}

}  // namespace softhca
