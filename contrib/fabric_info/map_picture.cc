// SPDX-License-Identifier: BSD-3-Clause
//
// The map as a picture: a line for who sends, a column for whom to, and a colour for the way.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "contrib/fabric_info/map.h"

namespace fabric::info {
namespace {

/// The last one is of all ways beyond. Told apart by people who do not see red and green as two colours, too.
constexpr std::array kColours{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#888888"};
constexpr int kTextHeight = 12;  ///< pixels, as are all lengths
constexpr int kCharacter = 7;    ///< width
constexpr int kMargin = 12;
constexpr int kLargestSquare = 40;
constexpr int kSquares = 640;  ///< all of a line together, if they may be smaller than the largest

/// A process, a host or several hosts.
struct MapLine {
  std::string name;
  std::vector<std::uint32_t> ranks;
};

std::vector<MapLine> lines_of(const JobMap& map) {
  std::vector<MapLine> lines;
  std::size_t ranks = 0;
  for (const MapHost& host : map.hosts) {
    ranks += host.ranks.size();
  }
  if (ranks <= kMostMapLines) {
    for (const MapHost& host : map.hosts) {
      for (const std::uint32_t rank : host.ranks) {
        lines.push_back({host.name + " " + std::to_string(rank), {rank}});
      }
    }
    return lines;
  }
  const std::size_t together = (map.hosts.size() + kMostMapLines - 1) / kMostMapLines;
  for (std::size_t i = 0; i < map.hosts.size(); ++i) {
    if (i % together == 0) {
      lines.push_back({map.hosts[i].name, {}});
    } else if (i % together == together - 1 || i + 1 == map.hosts.size()) {
      lines.back().name += " to " + map.hosts[i].name;
    }
    lines.back().ranks.insert(lines.back().ranks.end(), map.hosts[i].ranks.begin(), map.hosts[i].ranks.end());
  }
  return lines;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string text_at(int x, int y, const std::string& text, const char* more = "") {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\"" + more + ">" + escaped(text) +
         "</text>\n";
}

std::string box(double x, double y, double width, double height, const char* colour, const std::string& title) {
  char head[160];
  std::snprintf(head, sizeof head, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"", x, y,
                width, height, colour);
  return head + (title.empty() ? "/>\n" : "><title>" + escaped(title) + "</title></rect>\n");
}

std::string text_of(const MapWay& way) {
  return way.port + " to " + way.peer_port + ", by " + way.method + ", MTU " + std::to_string(way.mtu) + ", " +
         std::to_string(way.queue_pairs) + (way.queue_pairs == 1 ? " queue pair" : " queue pairs") +
         (way.are_shared ? " for all processes of a host" : "");
}

/// From a line to a column, by its names.
using Place = std::pair<std::size_t, std::size_t>;

class Picture {
 public:
  explicit Picture(const JobMap& map) : lines_(lines_of(map)) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      widest_ = std::max(widest_, lines_[i].name.size());
      for (const std::uint32_t rank : lines_[i].ranks) {
        line_of_[rank] = i;
      }
    }
    for (const MapRow& row : map.rows) {
      add(row);
    }
  }

  [[nodiscard]] std::string draw(const std::string& title) const {
    const int count = static_cast<int>(std::max<std::size_t>(1, lines_.size()));
    const int square = std::clamp(kSquares / count, kTextHeight - 2, kLargestSquare);
    const int left = kMargin + static_cast<int>(widest_) * kCharacter + kMargin;
    const int top = kMargin + 2 * kTextHeight + left;
    const int side = square * count;
    const int legend = top + side + 2 * kTextHeight;
    const int height = legend + (static_cast<int>(shown_ways()) + 3) * (kTextHeight + 4) + kMargin;
    std::size_t widest_text = title.size();
    for (const auto& [way, number] : ways_) {
      widest_text = std::max(widest_text, text_of(way).size() + 4);
    }
    const int width = std::max(left + side, static_cast<int>(widest_text) * kCharacter + kMargin) + kMargin;
    std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) + "\" height=\"" +
                      std::to_string(height) + "\" font-family=\"monospace\" font-size=\"" +
                      std::to_string(kTextHeight - 1) + "\">\n";
    svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    svg += text_at(kMargin, kMargin + kTextHeight, title);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const int y = top + static_cast<int>(i) * square;
      const int middle = static_cast<int>(i) * square + square / 2 + kTextHeight / 3;
      const int above = top - kMargin / 2;
      const std::string turned =
          " transform=\"rotate(-90 " + std::to_string(left + middle) + " " + std::to_string(above) + ")\"";
      svg += text_at(left - kMargin / 2, top + middle, lines_[i].name, " text-anchor=\"end\"");
      svg += text_at(left + middle, above, lines_[i].name, turned.c_str());
      for (std::size_t column = 0; column < lines_.size(); ++column) {
        svg += draw_square({i, column}, left + static_cast<int>(column) * square, y, square);
      }
    }
    return svg + draw_legend(legend) + "</svg>\n";
  }

 private:
  void add(const MapRow& row) {
    if (row.is_of_another_job) {
      ++beyond_;
      return;
    }
    std::set<std::size_t> columns;
    for (const std::uint32_t rank : row.to.ranks) {
      if (const auto known = line_of_.find(rank); known != line_of_.end()) {
        columns.insert(known->second);
      } else {
        ++beyond_;
      }
    }
    const auto line = line_of_.find(*row.from.ranks.begin());
    if (line == line_of_.end()) {
      return;
    }
    if (ways_.try_emplace(row.way, ways_.size()).second) {
      in_order_.push_back(row.way);
    }
    for (const std::size_t column : columns) {
      squares_[{line->second, column}].insert(row.way);
    }
  }

  [[nodiscard]] std::size_t shown_ways() const { return std::min(in_order_.size(), kColours.size()); }
  [[nodiscard]] const char* colour_of(const MapWay& way) const {
    return kColours.at(std::min(ways_.at(way), kColours.size() - 1));
  }

  /// Ways beside each other; nothing where there is no connection.
  [[nodiscard]] std::string draw_square(Place place, int x, int y, int size) const {
    const auto known = squares_.find(place);
    if (known == squares_.end()) {
      return box(x, y, size - 1, size - 1, place.first == place.second ? "#dddddd" : "#f4f4f4", "");
    }
    std::string svg;
    const double width = static_cast<double>(size - 1) / static_cast<double>(known->second.size());
    double at = x;
    for (const MapWay& way : known->second) {
      svg += box(at, y, width, size - 1, colour_of(way),
                 lines_[place.first].name + " to " + lines_[place.second].name + ": " + text_of(way));
      at += width;
    }
    return svg;
  }

  [[nodiscard]] std::string draw_legend(int y) const {
    std::string svg = text_at(kMargin, y, "a line for who sends, a column for whom to; grey: not connected");
    for (std::size_t i = 0; i < shown_ways(); ++i) {
      const bool is_of_others = i + 1 == kColours.size() && i + 1 < in_order_.size();
      y += kTextHeight + 4;
      svg += box(kMargin, y - kTextHeight + 2, kTextHeight, kTextHeight, kColours.at(i), "");
      svg += text_at(2 * kMargin + kTextHeight, y,
                     is_of_others ? std::to_string(in_order_.size() - i) + " other ways" : text_of(in_order_[i]));
    }
    if (beyond_ > 0) {
      svg += text_at(kMargin, y + kTextHeight + 4, "and processes of other jobs, or such that have told nothing");
    }
    return svg;
  }

  const std::vector<MapLine> lines_;
  std::size_t widest_ = 0;
  std::map<std::uint32_t, std::size_t> line_of_;
  std::map<MapWay, std::size_t> ways_;  ///< numbered as they come
  std::vector<MapWay> in_order_;
  std::map<Place, std::set<MapWay>> squares_;
  std::size_t beyond_ = 0;
};

}  // namespace

std::string map_as_svg(const JobMap& map) {
  return Picture(map).draw(std::to_string(map.processes) + (map.processes == 1 ? " process" : " processes") +
                           " of btl_fabric: who reaches whom by what");
}

}  // namespace fabric::info
