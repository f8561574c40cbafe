// SPDX-License-Identifier: BSD-3-Clause
//
// The report for people.
#include <algorithm>
#include <array>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/mca/job_report.h"
#include "common/base/rank_list.h"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;
using Ranks = std::vector<std::uint32_t>;

/// Lines of a kind, of which the text has no more: a job has many hosts.
constexpr std::size_t kMostLines = 16;

/// "1,234,567"
std::string grouped_digits(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) {
    text.insert(at - 3, 1, ',');
  }
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

/// "12.3"
std::string tenths(double number) {
  const auto scaled = static_cast<std::uint64_t>(number * 10 + 0.5);
  return grouped_digits(scaled / 10) + "." + std::to_string(scaled % 10);
}

std::string counted(std::uint64_t count, const std::string& one, const std::string& several) {
  return grouped_digits(count) + " " + (count == 1 ? one : several);
}

/// "rank 3", "ranks 0-3, 7"
std::string ranks_of(const Json& group) {
  const auto ranks = group.get<Ranks>();
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_of_ranks(ranks);
}

/// A line for each of a list, as far as there is room.
template <class Line>
std::string lines(const std::string& title, const Json& list, Line line) {
  std::string text;
  std::size_t count = 0;
  for (const Json& one : list) {
    if (count == kMostLines) {
      return text + left("", 14) + "... and " + std::to_string(list.size() - count) + " more\n";
    }
    text += left(count++ == 0 ? title : "", 14) + line(one) + '\n';
  }
  return text;
}

std::string port_line(const Json& port) {
  return port["host"].get<std::string>() + ", " + port["port"].get<std::string>() + ": " +
         port["link"].get<std::string>() + ", MTU " + std::to_string(port["mtu"].get<unsigned>()) + ", " +
         tenths(port["mbit_per_second"].get<double>() / 1000) + " Gbit/s, GID " + port["gid"].get<std::string>() +
         " (" + ranks_of(port["ranks"]) + ")";
}

/// What a counter counts, without the remarks.
std::string label_of(std::string_view help) {
  return std::string(help.substr(0, help.find(':')));
}

std::string totals(const Json& summary) {
  if (summary["operations"] == 0 && summary["totals"]["messages_received"] == 0) {
    return "totals        nothing was sent through btl_fabric\n";
  }
  std::string text = "totals\n";
  for (const CounterSpec& spec : kCounterTable) {
    if (const auto value = summary["totals"][spec.name].get<std::uint64_t>(); value != 0) {
      text += right(grouped_digits(value), 18) + "  " + left(spec.name, 26) + "  " + label_of(spec.help) + '\n';
    }
  }
  return text;
}

/// "64 B", "16 KiB"
std::string short_size(std::uint64_t bytes) {
  constexpr std::array kUnits{" B", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  for (; unit + 1 < kUnits.size() && bytes >= 1024 && bytes % 1024 == 0; ++unit) {
    bytes /= 1024;
  }
  return std::to_string(bytes) + kUnits.at(unit);
}

/// The largest group of sizes, and how far they go.
std::string sizes(const Json& of) {
  std::string text;
  for (const char* const kind : {"messages", "writes", "reads"}) {
    const Json& classes = of[kind];
    std::uint64_t sum = 0;
    const Json* most = nullptr;
    for (const Json& one : classes) {
      sum += one["count"].get<std::uint64_t>();
      most = most == nullptr || one["count"].get<std::uint64_t>() > (*most)["count"].get<std::uint64_t>() ? &one : most;
    }
    if (most != nullptr) {
      text += left(text.empty() ? "sizes" : "", 14) + grouped_digits(sum) + " " + kind + " of up to " +
              short_size(classes.back()["up_to"]) + ", " + grouped_digits((*most)["count"]) + " of them of " +
              short_size((*most)["up_to"].get<std::uint64_t>() / 2) + " to " + short_size((*most)["up_to"]) + '\n';
    }
  }
  return text;
}

std::string wait_lines(const Json& wait) {
  std::string text = "  " + wait["counter"].get<std::string>() + ": " + grouped_digits(wait["total"]);
  if (wait.contains("queue")) {
    text += ", most of them on queue " + wait["queue"].get<std::string>();
  }
  text += "\n    " + wait["what"].get<std::string>() + "\n    worst:";
  for (const Json& one : wait["worst"]) {
    text += std::string(text.ends_with(':') ? " " : "; ") + "rank " + std::to_string(one["rank"].get<unsigned>()) +
            " on " + one["host"].get<std::string>() + ", " + grouped_digits(one["count"]);
  }
  if (const std::size_t others = wait["processes"].get<std::size_t>() - wait["worst"].size(); others > 0) {
    text += "; and " + counted(others, "other process", "other processes");
  }
  return text + "\n    what helps: " + wait["parameter"].get<std::string>() + ": " + wait["advice"].get<std::string>() +
         '\n';
}

std::string waits(const Json& summary) {
  std::string text;
  std::string small;
  for (const Json& wait : summary["waits"]) {
    if (wait["matters"]) {
      text += wait_lines(wait);
    } else {
      small += (small.empty() ? "" : ", ") + wait["counter"].get<std::string>() + " " + grouped_digits(wait["total"]);
    }
  }
  if (!small.empty()) {
    small = "  too few to matter: " + small + '\n';
  }
  return text.empty() && small.empty() ? "waits         nobody waited\n" : "who waited, and for what\n" + text + small;
}

}  // namespace

std::string as_text(const Json& summary) {
  std::string text = "---------------- btl_fabric: what this job did\n";
  text += lines("versions", summary["versions"], [&](const Json& one) {
    return "btl_fabric " + one["version"].get<std::string>() + ", Open MPI " + one["open_mpi"].get<std::string>() +
           (summary["versions"].size() > 1 ? " (" + ranks_of(one["ranks"]) + ")" : "");
  });
  text += left("job", 14) + counted(summary["processes"], "process", "processes") + " on " +
          counted(summary["hosts"].size(), "host", "hosts") + '\n';
  if (summary["of_reporter_alone"]) {
    text += left("told by", 14) + "rank " + std::to_string(summary["reporter"].get<unsigned>()) +
            " of itself alone: who has started the job does not pass on what others say (PMIx_Publish)\n";
  } else if (summary["reporter"] != 0) {
    text += left("told by", 14) + "rank " + std::to_string(summary["reporter"].get<unsigned>()) +
            ", since no rank before it can\n";
  }
  if (!summary["silent"].empty()) {
    text += left("no answer", 14) + "from " + ranks_of(summary["silent"]) +
            ": dead, or not at the end of MPI_Finalize; what follows lacks them\n";
  }
  if (!summary["without_btl_fabric"].empty()) {
    text += left("without", 14) + ranks_of(summary["without_btl_fabric"]) +
            ": not running btl_fabric, or not asked to report\n";
  }
  text += lines("hosts", summary["hosts"],
                [](const Json& one) { return one["host"].get<std::string>() + " (" + ranks_of(one["ranks"]) + ")"; });
  text += lines("ports", summary["ports"], port_line);
  text += lines("queues", summary["receive_queues"], [&](const Json& one) {
    return one["list"].get<std::string>() + ": " + one["why"].get<std::string>() +
           (summary["receive_queues"].size() > 1 ? " (" + ranks_of(one["ranks"]) + ")" : "");
  });
  std::string methods;
  for (const auto& [name, count] : summary["methods"].items()) {
    methods += (methods.empty() ? "" : ", ") + name + " " + grouped_digits(count);
  }
  text += left("connections", 14) + (methods.empty() ? "none" : "by " + methods + " (counted on either side)") + '\n';
  if (const Json& slowest = summary["slowest_connection"]; !slowest.is_null()) {
    text += left("", 14) + "the slowest took " + tenths(slowest["milliseconds"]) + " ms: rank " +
            std::to_string(slowest["rank"].get<unsigned>()) + " on " + slowest["host"].get<std::string>() +
            " with rank " + std::to_string(slowest["peer"].get<unsigned>()) +
            (slowest["peer_is_of_another_job"] ? " of another job\n" : "\n");
  }
  return text + sizes(summary["sizes"]) + totals(summary) + waits(summary) +
         "---------------- end of btl_fabric's report\n";
}

}  // namespace fabric
