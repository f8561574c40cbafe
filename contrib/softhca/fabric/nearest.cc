// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace softhca {
namespace {

char plain(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Letters to change, add, leave out or swap with their neighbour (the optimal string alignment distance).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = plain(a[i - 1]) != plain(b[j - 1]) ? 1 : 0;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) && plain(a[i - 2]) == plain(b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string_view nearest(std::string_view wrong, const std::vector<std::string_view>& words) {
  constexpr size_t kLongest = 64;  // who writes more has not mistyped a name
  if (wrong.empty() || wrong.size() > kLongest) return {};
  std::string_view found;
  size_t best = 0;
  for (const std::string_view word : words) {
    const size_t changes = distance(wrong, word);
    // Up to a third of the letters; the dashes of an option are none.
    const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
    const size_t most = (std::max(wrong.size(), word.size()) - dashes + 1) / 3;
    if (changes <= most && (found.empty() || changes < best)) found = word, best = changes;
  }
  // The beginning of one word alone.
  if (found.empty() && wrong.size() >= 2) {
    const auto begins = [&](std::string_view word) { return word.substr(0, wrong.size()) == wrong; };
    const auto first = std::ranges::find_if(words, begins);
    if (first != words.end() && std::find_if(first + 1, words.end(), begins) == words.end()) found = *first;
  }
  return found;
}

std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& words) {
  if (const std::string_view near = nearest(wrong, words); !near.empty()) return "; did you mean " + quoted(near) + "?";
  std::string all = "; there are ";
  for (size_t i = 0; i < words.size(); ++i)
    all += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + std::string(words[i]);
  return all;
}

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

}  // namespace softhca
