// SPDX-License-Identifier: BSD-3-Clause
//
// Parses the receive_queues list. A field left empty, or left off at the end, takes its default:
//
//   field      of    range            default                        why the default is legal
//   size       all   1..2^30          none, must be given
//   rd_num     all   1..65535         256
//   rd_low     all   0..rd_num-1      rd_num - rd_num/4              at most rd_num-1 (matters for rd_num 1 to 3)
//   rd_win     P     1..2^32-1        (rd_num - rd_low) * 2          rd_low < rd_num makes it at least 2
//   rd_rsv     P     1..65535         rd_num * 2 / rd_win            0 becomes 1; at most 65535 (matters for rd_win 1)
//   sd_max     S, X  1..2^32-1        rd_low / 4                     0 becomes 1
//   rd_init    P     1..rd_num        rd_num / 16                    at least 16, or rd_num if that is less
//   rd_init    S, X  1..rd_num        rd_num / 4                     0 becomes 1, which is no more than rd_num
//   srq_limit  S, X  0..rd_num        (rd_init - rd_init/4) / 4      0 becomes 1; less than rd_init if that is above 1
//
// Divisions round down. A formula uses the values in force, so rd_low given as 10 changes the default of rd_win. A
// default of 0 is legal for rd_low only (rd_num 1: post again when none is left). srq_limit given as 0: no event.
#include "common/accounting/receive_queues.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

namespace fabric {
namespace {

constexpr std::uint32_t kMaxSize = 1U << 30;
constexpr std::uint32_t kMaxCount = 65535;  // what the credit fields of packet headers hold
constexpr std::uint32_t kMaxNumber = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kDefaultRdNum = 256;
constexpr std::uint32_t kLeastAtFirst =
    16;  // of a P queue: enough for a ping-pong and some packets of several messages
/// The same of a shared queue that is run as a P queue: most messages are not for it, or there are many peers.
constexpr std::uint32_t kSharedAtFirst = 4;
constexpr std::size_t kMaxShown = 100;    // of the list, in an error
constexpr std::size_t kShownBefore = 40;  // of these, in front of the caret

/// The part of a long list that an error shows.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Window window_around(std::size_t at, std::size_t text_size) {
  if (text_size <= kMaxShown) {
    return {0, text_size};
  }
  const std::size_t begin = std::min(at - std::min(at, kShownBefore), text_size - kMaxShown);
  return {begin, begin + kMaxShown};
}

/// Lists come from files and environments: nothing in them may reach a terminal as a control sequence. And a byte must
/// be one column wide for the caret to stand right, so that UTF-8 is not shown either.
std::string printable(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

/// The error about `wrong`, a part of `text`: the rule, the list, carets.
Error error_at(std::string_view text, std::string_view wrong, const std::string& rule) {
  const auto at = static_cast<std::size_t>(wrong.data() - text.data());
  const Window window = window_around(at, text.size());
  const std::string before = window.begin > 0 ? "..." : "";
  const std::string after = window.end < text.size() ? "..." : "";
  const std::size_t indent = before.size() + at - window.begin;
  const std::size_t room = window.end - std::min(at, window.end);
  const std::size_t carets = std::max<std::size_t>(1, std::min(wrong.size(), room));
  return {"btl_fabric_receive_queues: " + rule + "\n  " + before +
          printable(text.substr(window.begin, window.end - window.begin)) + after + "\n  " + std::string(indent, ' ') +
          std::string(carets, '^')};
}

/// The parts of `text` between separators; never empty. The last of `most` parts is all the rest.
std::vector<std::string_view> split(std::string_view text, char separator, std::size_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos || parts.size() + 1 == most) {
      parts.push_back(text);
      return parts;
    }
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
}

/// What a field may hold.
struct Rule {
  const char* name;
  std::uint32_t least;
  std::uint32_t most;
  std::string text;  ///< the range in words, after "must be"
};

/// Parses one queue of a list. The first error stays; fields after it read as their defaults, which are always legal,
/// so that formulas need no check of their own.
class QueueParser {
 public:
  /// `queue` is a part of `text`, the whole list.
  QueueParser(std::string_view text, std::string_view queue) : text_(text), queue_(queue) {}

  Result<QueueSpec> parse() {
    QueueSpec spec;
    if (queue_.empty()) {
      fail(queue_, "a queue is empty");
    } else if (parse_kind(spec) && check_field_count(spec.kind)) {
      parse_receives(spec);
      if (spec.kind == QueueKind::kPerPeer) {
        parse_per_peer(spec);
      } else {
        parse_shared(spec);
      }
    }
    if (failed_) {
      return tl::unexpected<Error>(error_);
    }
    return spec;
  }

 private:
  static constexpr std::size_t kMaxFields = 7;  // of every kind, the letter included

  bool parse_kind(QueueSpec& spec) {
    fields_ = split(queue_, ',', kMaxFields + 1);
    const std::string_view letter = fields_[0];
    if (letter != "P" && letter != "S" && letter != "X") {
      fail(letter, "a queue must begin with P, S or X");
      return false;
    }
    spec.kind = static_cast<QueueKind>(letter[0]);
    return true;
  }

  bool check_field_count(QueueKind kind) {
    if (fields_.size() > kMaxFields) {
      const std::string_view extra =
          queue_.substr(static_cast<std::size_t>(fields_[kMaxFields].data() - queue_.data()));
      fail(extra,
           std::string(1, static_cast<char>(kind)) + " queues have at most " + std::to_string(kMaxFields) + " fields");
    } else if (fields_.size() < 3) {
      const bool has_size = fields_.size() == 2 && !fields_[1].empty();
      // An absent field has its place at the end; an empty one where it is.
      const std::string_view place = has_size || fields_.size() < 2 ? queue_.substr(queue_.size()) : fields_[1];
      fail(place, has_size ? "rd_num is missing (write a comma after size to get 256)" : "size is missing");
    }
    return !failed_;
  }

  void parse_receives(QueueSpec& spec) {
    if (fields_[1].empty()) {
      fail(fields_[1], "size is missing");
    }
    spec.size = number(1, {"size", 1, kMaxSize, "1 to 1073741824"}, 1);
    spec.rd_num = number(2, {"rd_num", 1, kMaxCount, "1 to 65535"}, kDefaultRdNum);
    rd_num_text_ = "rd_num (" + std::to_string(spec.rd_num) + ")";
    spec.rd_low = number(3, {"rd_low", 0, spec.rd_num - 1, "less than " + rd_num_text_},
                         std::min(spec.rd_num - spec.rd_num / 4, spec.rd_num - 1));
  }

  void parse_per_peer(QueueSpec& spec) {
    spec.rd_win = number(4, {"rd_win", 1, kMaxNumber, "1 to 4294967295"}, (spec.rd_num - spec.rd_low) * 2);
    spec.rd_rsv = number(5, {"rd_rsv", 1, kMaxCount, "1 to 65535"},
                         std::clamp<std::uint32_t>(spec.rd_num * 2 / spec.rd_win, 1, kMaxCount));
    spec.rd_init = number(6, {"rd_init", 1, spec.rd_num, "1 to " + rd_num_text_},
                          std::max(spec.rd_num / 16, std::min(spec.rd_num, kLeastAtFirst)));
  }

  void parse_shared(QueueSpec& spec) {
    spec.sd_max = number(4, {"sd_max", 1, kMaxNumber, "1 to 4294967295"}, std::max(spec.rd_low / 4, 1U));
    spec.rd_init = number(5, {"rd_init", 1, spec.rd_num, "1 to " + rd_num_text_}, std::max(spec.rd_num / 4, 1U));
    spec.srq_limit = number(6, {"srq_limit", 0, spec.rd_num, "at most " + rd_num_text_},
                            std::max((spec.rd_init - spec.rd_init / 4) / 4, 1U));
  }

  /// Field `index`, or `standard` if it is empty, left off or wrong.
  std::uint32_t number(std::size_t index, const Rule& rule, std::uint32_t standard) {
    if (index >= fields_.size() || fields_[index].empty()) {
      return standard;
    }
    const std::string_view field = fields_[index];
    const char* const end = field.data() + field.size();
    std::uint32_t value = 0;
    const auto [stop, code] = std::from_chars(field.data(), end, value);
    const std::string must_be = std::string(rule.name) + " must be ";
    if (stop != end || code == std::errc::invalid_argument) {
      fail(field, must_be + "a decimal number");
    } else if (code == std::errc::result_out_of_range || value < rule.least || value > rule.most) {
      fail(field, must_be + rule.text);
    } else {
      return value;
    }
    return standard;
  }

  void fail(std::string_view wrong, const std::string& rule) {
    if (!failed_) {
      failed_ = true;
      error_ = error_at(text_, wrong, rule);
    }
  }

  std::string_view text_;
  std::string_view queue_;
  std::vector<std::string_view> fields_;
  std::string rd_num_text_;  // "rd_num (256)"
  bool failed_ = false;
  Error error_;
};

/// Blanks at the ends come from quoting gone wrong; they get an error that says so.
std::string_view outer_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first != 0) {
    return text.substr(0, first);
  }
  return text.substr(text.find_last_not_of(kBlanks) + 1);
}

void append_queue(std::string& list, const QueueSpec& spec) {
  list += static_cast<char>(spec.kind);
  const auto append = [&list](std::uint32_t number) { list += "," + std::to_string(number); };
  append(spec.size);
  append(spec.rd_num);
  append(spec.rd_low);
  if (spec.kind == QueueKind::kPerPeer) {
    append(spec.rd_win);
    append(spec.rd_rsv);
    append(spec.rd_init);
  } else {
    append(spec.sd_max);
    append(spec.rd_init);
    append(spec.srq_limit);
  }
}

}  // namespace

Result<ReceiveQueues> ReceiveQueues::parse(std::string_view text) {
  const auto fail = [text](std::string_view wrong, const std::string& rule) {
    return tl::unexpected<Error>(error_at(text, wrong, rule));
  };
  if (text.empty()) {
    return fail(text, "the list is empty");
  }
  if (const std::string_view blanks = outer_blanks(text); !blanks.empty()) {
    return fail(blanks, "blanks are not allowed");
  }
  ReceiveQueues list;
  for (const std::string_view queue : split(text, ':', kMaxQueues + 1)) {
    if (list.count() == kMaxQueues) {
      return fail(queue, "there may be at most " + std::to_string(kMaxQueues) + " queues");
    }
    const Result<QueueSpec> spec = QueueParser(text, queue).parse();
    if (!spec) {
      return tl::unexpected<Error>(spec.error());
    }
    const bool is_xrc = spec->kind == QueueKind::kXrc;
    if (list.count() > 0 && is_xrc != (list[0].kind == QueueKind::kXrc)) {
      return fail(queue.substr(0, 1), "X queues cannot be mixed with P or S queues");
    }
    list.queues_.push_back(*spec);
  }
  return list;
}

std::string ReceiveQueues::canonical() const {
  std::string list;
  for (const QueueSpec& spec : queues_) {
    if (!list.empty()) {
      list += ':';
    }
    append_queue(list, spec);
  }
  return list;
}

ReceiveQueues ReceiveQueues::without_shared() const {
  std::string list;
  for (const QueueSpec& spec : queues_) {
    list += list.empty() ? "" : ":";
    if (spec.kind == QueueKind::kShared) {
      const std::uint32_t count = std::min(spec.sd_max, spec.rd_num);
      list += "P," + std::to_string(spec.size) + "," + std::to_string(count) + ",,,," +
              std::to_string(std::min(count, kSharedAtFirst));
    } else {
      append_queue(list, spec);
    }
  }
  return *parse(list);  // good: it has the sizes and counts of a good list
}

std::uint32_t ReceiveQueues::largest() const noexcept {
  std::uint32_t size = 0;
  for (const QueueSpec& spec : queues_) {
    size = std::max(size, spec.size);
  }
  return size;
}

std::size_t ReceiveQueues::smallest_fitting(std::size_t size) const noexcept {
  std::size_t best = count();
  for (std::size_t i = 0; i < count(); ++i) {
    if (queues_[i].size >= size && (best == count() || queues_[i].size < queues_[best].size)) {
      best = i;
    }
  }
  return best;
}

}  // namespace fabric
