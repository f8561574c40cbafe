// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "common/accounting/receive_queues.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using test::check_text;

/// The canonical form of `text`, or its error.
std::string parsed(const std::string& text) {
  const auto list = ReceiveQueues::parse(text);
  return list ? list->canonical() : list.error().text;
}

void check_canonical(const char* text, const char* canonical) {
  check_text(parsed(text), canonical);
}

/// Checks the rule of the error about `text`, and its carets: `carets` is the third line.
void check_error(const std::string& text, const std::string& rule, const std::string& carets) {
  const std::string expected = "btl_fabric_receive_queues: " + rule + "\n  " + text + "\n  " + carets;
  check_text(parsed(text), expected);
}

bool obeys_the_rules(const QueueSpec& q) {
  const bool common = q.size >= 1 && q.size <= 1U << 30 && q.rd_num >= 1 && q.rd_num <= 65535 && q.rd_low < q.rd_num;
  if (q.kind == QueueKind::kPerPeer) {
    return common && q.rd_win >= 1 && q.rd_rsv >= 1 && q.rd_rsv <= 65535 && q.rd_init >= 1 && q.rd_init <= q.rd_num;
  }
  return common && q.sd_max >= 1 && q.rd_init >= 1 && q.rd_init <= q.rd_num && q.srq_limit <= q.rd_num;
}

START_TEST(takes_all_fields) {
  const auto list = ReceiveQueues::parse("P,128,256,192,128,4,20:S,65536,1024,1008,64,32,8");
  ck_assert(list.has_value());
  ck_assert_uint_eq(list->count(), 2);
  const QueueSpec per_peer{.kind = QueueKind::kPerPeer,
                           .size = 128,
                           .rd_num = 256,
                           .rd_low = 192,
                           .rd_win = 128,
                           .rd_rsv = 4,
                           .rd_init = 20};
  const QueueSpec shared{.kind = QueueKind::kShared,
                         .size = 65536,
                         .rd_num = 1024,
                         .rd_low = 1008,
                         .sd_max = 64,
                         .rd_init = 32,
                         .srq_limit = 8};
  ck_assert((*list)[0] == per_peer);
  ck_assert(list->queues()[1] == shared);
}
END_TEST

START_TEST(fills_in_defaults) {
  check_canonical("P,128,256", "P,128,256,192,128,4,16");
  check_canonical("P,128,", "P,128,256,192,128,4,16");
  check_canonical("P,128,,,,", "P,128,256,192,128,4,16");
  check_canonical("P,128,256,,10", "P,128,256,192,10,51,16");
  check_canonical("P,128,256,10", "P,128,256,10,492,1,16");
  check_canonical("S,128,256", "S,128,256,192,48,64,12");
  check_canonical("S,128,,,,,", "S,128,256,192,48,64,12");
  check_canonical("S,65536,1024,1008,64", "S,65536,1024,1008,64,256,48");
  check_canonical("X,128,256,,,100", "X,128,256,192,48,100,18");
  check_canonical("S,128,256,,,,0", "S,128,256,192,48,64,0");
}
END_TEST

START_TEST(small_defaults_are_legal) {
  check_canonical("P,1,1", "P,1,1,0,2,1,1");
  check_canonical("P,1,2", "P,1,2,1,2,2,2");
  check_canonical("P,1,3", "P,1,3,2,2,3,3");
  check_canonical("P,1,65535,,1", "P,1,65535,49152,1,65535,4095");
  check_canonical("S,1,1", "S,1,1,0,1,1,1");
  check_canonical("S,1,2", "S,1,2,1,1,1,1");
  check_canonical("S,1,3", "S,1,3,2,1,1,1");
  check_canonical("S,1,8", "S,1,8,6,1,2,1");
}
END_TEST

START_TEST(every_rd_num_gives_legal_defaults) {
  for (unsigned rd_num = 1; rd_num <= 65535; ++rd_num) {
    const auto list = ReceiveQueues::parse("P,64," + std::to_string(rd_num) + ":S,64," + std::to_string(rd_num));
    ck_assert_msg(list && obeys_the_rules((*list)[0]) && obeys_the_rules((*list)[1]), "rd_num %u", rd_num);
  }
}
END_TEST

START_TEST(accepts_the_limits) {
  check_canonical("P,1073741824,65535,65534,4294967295,65535", "P,1073741824,65535,65534,4294967295,65535,4095");
  check_canonical("P,1,1,0,1,1", "P,1,1,0,1,1,1");
  check_canonical("S,1,65535,0,4294967295,65535,65535", "S,1,65535,0,4294967295,65535,65535");
  check_canonical("S,0064,007", "S,64,7,6,1,1,1");
}
END_TEST

START_TEST(queues_may_come_in_any_order) {
  check_canonical("S,65536,256:S,128,256:P,4096,8", "S,65536,256,192,48,64,12:S,128,256,192,48,64,12:P,4096,8,6,4,4,8");
  check_canonical("X,128,64:X,64,64", "X,128,64,48,12,16,3:X,64,64,48,12,16,3");
}
END_TEST

START_TEST(refuses_what_is_no_queue) {
  check_error("", "the list is empty", "^");
  check_error(":", "a queue is empty", "^");
  check_error("P,128,16::S,128,16", "a queue is empty", "         ^");
  check_error("P,128,16:", "a queue is empty", "         ^");
  check_error("Q,128,16", "a queue must begin with P, S or X", "^");
  check_error("S,128,16:p,128,16", "a queue must begin with P, S or X", "         ^");
  check_error("SRQ,128,16", "a queue must begin with P, S or X", "^^^");
  check_error(",128,16", "a queue must begin with P, S or X", "^");
}
END_TEST

START_TEST(refuses_wrong_numbers_of_fields) {
  check_error("P", "size is missing", " ^");
  check_error("P,", "size is missing", "  ^");
  check_error("P,,16", "size is missing", "  ^");
  check_error("P:S,128,16", "size is missing", " ^");
  check_error("P,128", "rd_num is missing (write a comma after size to get 256)", "     ^");
  check_error("P,1,8,1,1,1,1,1", "P queues have at most 7 fields", "              ^");
  check_error("P,1,8,1,1,1,2,22,,3:S,1,8", "P queues have at most 7 fields", "              ^^^^^");
  check_error("S,1,8,1,1,1,1,", "S queues have at most 7 fields", "              ^");
  check_error("X,1,8,1,1,1,1,9", "X queues have at most 7 fields", "              ^");
}
END_TEST

START_TEST(refuses_what_is_no_number) {
  for (const char* field : {"x", "+1", "-1", "0x10", "1k", "1.0", "1 6", " 16", "16 ", "99999999999x"}) {
    const std::string carets(std::string(field).size(), '^');
    check_error(std::string("P,") + field + ",16:S,1,1", "size must be a decimal number", "  " + carets);
    check_error(std::string("S,1,8,1,1,1,") + field + ":S,1,1", "srq_limit must be a decimal number",
                "            " + carets);
  }
}
END_TEST

START_TEST(refuses_what_is_out_of_range) {
  check_error("P,128,256,300,128:S,65536,64", "rd_low must be less than rd_num (256)", "          ^^^");
  check_error("P,0,16", "size must be 1 to 1073741824", "  ^");
  check_error("P,1073741825,16", "size must be 1 to 1073741824", "  ^^^^^^^^^^");
  check_error("P,18446744073709551617,16", "size must be 1 to 1073741824", "  ^^^^^^^^^^^^^^^^^^^^");
  check_error("P,128,0", "rd_num must be 1 to 65535", "      ^");
  check_error("P,128,65536", "rd_num must be 1 to 65535", "      ^^^^^");
  check_error("P,128,16,16", "rd_low must be less than rd_num (16)", "         ^^");
  check_error("P,128,16,1,0", "rd_win must be 1 to 4294967295", "           ^");
  check_error("P,128,16,1,1,0", "rd_rsv must be 1 to 65535", "             ^");
  check_error("P,128,16,1,1,65536", "rd_rsv must be 1 to 65535", "             ^^^^^");
  check_error("P,128,16,1,1,1,0", "rd_init must be 1 to rd_num (16)", "               ^");
  check_error("P,128,16,1,1,1,17", "rd_init must be 1 to rd_num (16)", "               ^^");
  check_error("S,128,16,1,0", "sd_max must be 1 to 4294967295", "           ^");
  check_error("S,128,16,1,1,0", "rd_init must be 1 to rd_num (16)", "             ^");
  check_error("S,128,16,1,1,17", "rd_init must be 1 to rd_num (16)", "             ^^");
  check_error("X,128,16,1,1,1,17", "srq_limit must be at most rd_num (16)", "               ^^");
}
END_TEST

START_TEST(refuses_outer_blanks) {
  check_error(" P,128,16", "blanks are not allowed", "^");
  check_error("P,128,16  ", "blanks are not allowed", "        ^^");
  check_error("   ", "blanks are not allowed", "^^^");
}
END_TEST

START_TEST(refuses_mixed_xrc) {
  const char* const rule = "X queues cannot be mixed with P or S queues";
  check_error("P,1,8:X,1,8", rule, "      ^");
  check_error("X,1,8:X,1,8:S,1,8", rule, "            ^");
}
END_TEST

START_TEST(refuses_too_many_queues) {
  std::string list = "S,1,8";
  for (std::size_t i = 1; i < kMaxQueues; ++i) {
    list += ":S,1,8";
  }
  ck_assert_uint_eq(ReceiveQueues::parse(list)->count(), kMaxQueues);
  const std::string error = parsed(list + ":S,1,8");
  ck_assert_ptr_nonnull(std::strstr(error.c_str(), "there may be at most 16 queues\n"));
  check_text(error.substr(error.size() - 8), "   ^^^^^");
}
END_TEST

START_TEST(shows_a_window_of_a_long_list) {
  std::string list;
  for (int i = 0; i < 9; ++i) {
    list += "P,4096,1024,512:";  // 16 characters
  }
  list += "P,4096,1024,5000:P,4096,1024,512:P,4096,1024,512:P,4096,1024,512:P,4096,1,0";
  const std::string error = parsed(list);
  check_text(error,
             "btl_fabric_receive_queues: rd_low must be less than rd_num (1024)\n"
             "  ...96,1024,512:P,4096,1024,512:P,4096,1024,5000:P,4096,1024,512:P,4096,1024,512:"
             "P,4096,1024,512:P,4096,...\n"
             "                                             ^^^^");
}
END_TEST

START_TEST(shows_the_end_of_a_long_list) {
  const std::string error = parsed("P," + std::string(5000, '0') + "1,16,16");
  check_text(error, "btl_fabric_receive_queues: rd_low must be less than rd_num (16)\n  ..." + std::string(93, '0') +
                        "1,16,16\n  " + std::string(101, ' ') + "^^");
}
END_TEST

START_TEST(clips_the_carets_of_a_long_field) {
  const std::string error = parsed("P," + std::string(5000, '9') + ",16");
  check_text(error, "btl_fabric_receive_queues: size must be 1 to 1073741824\n  P," + std::string(98, '9') +
                        "...\n    " + std::string(98, '^'));
}
END_TEST

START_TEST(shows_no_control_characters) {
  const std::string error = parsed(std::string("P,\x1b[2J\0\n\xc3\xbc,16", 12));
  check_text(error, "btl_fabric_receive_queues: size must be a decimal number\n  P,?[2J????,1\n    ^^^^^^^^");
}
END_TEST

START_TEST(finds_queues_by_size) {
  const auto list = ReceiveQueues::parse("S,4096,8:S,128,8:P,65536,8:S,128,16");
  ck_assert(list.has_value());
  ck_assert_uint_eq(list->largest(), 65536);
  ck_assert_uint_eq(list->smallest_fitting(0), 1);
  ck_assert_uint_eq(list->smallest_fitting(128), 1);
  ck_assert_uint_eq(list->smallest_fitting(129), 0);
  ck_assert_uint_eq(list->smallest_fitting(65536), 2);
  ck_assert_uint_eq(list->smallest_fitting(65537), list->count());
  ck_assert_uint_eq(ReceiveQueues().largest(), 0);
  ck_assert_uint_eq(ReceiveQueues().smallest_fitting(0), 0);
}
END_TEST

/// A list that may or may not be right.
std::string random_list(std::mt19937& random) {
  static const char* const kPieces[] = {"P", "S",   "X",     ",",     ",",          ",",   ":", "0",
                                        "1", "128", "65536", "65535", "1073741824", "256", " ", "-1"};
  std::string list = "P,";
  const std::size_t pieces = random() % 24;
  for (std::size_t i = 0; i < pieces; ++i) {
    list += kPieces[random() % std::size(kPieces)];
  }
  return list;
}

START_TEST(shared_queues_have_a_form_without) {
  const auto list = ReceiveQueues::parse("S,128,256,192,48:P,2048,64,32,16,4:S,4096,2,1:S,65536,16,8,99");
  ck_assert(list.has_value());
  test::check_text(list->without_shared().canonical(),
                   "P,128,48,36,24,4,4:P,2048,64,32,16,4,16:P,4096,1,0,2,1,1:P,65536,16,12,8,4,4");
  ck_assert(list->without_shared().without_shared().queues() == list->without_shared().queues());
}
END_TEST

START_TEST(random_lists_parse_to_themselves_or_say_why) {
  std::mt19937 random(20240601);
  unsigned accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    const std::string text = random_list(random);
    const auto list = ReceiveQueues::parse(text);
    if (!list) {
      ck_assert_int_eq(std::count(list.error().text.begin(), list.error().text.end(), '\n'), 2);
      continue;
    }
    ++accepted;
    ck_assert(std::all_of(list->queues().begin(), list->queues().end(), obeys_the_rules));
    const auto again = ReceiveQueues::parse(list->canonical());
    ck_assert_msg(again && again->queues() == list->queues(), "%s", text.c_str());
  }
  ck_assert_uint_gt(accepted, 200);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("receive_queues", {takes_all_fields,
                                            fills_in_defaults,
                                            small_defaults_are_legal,
                                            every_rd_num_gives_legal_defaults,
                                            accepts_the_limits,
                                            queues_may_come_in_any_order,
                                            refuses_what_is_no_queue,
                                            refuses_wrong_numbers_of_fields,
                                            refuses_what_is_no_number,
                                            refuses_what_is_out_of_range,
                                            refuses_outer_blanks,
                                            refuses_mixed_xrc,
                                            refuses_too_many_queues,
                                            shows_a_window_of_a_long_list,
                                            shows_the_end_of_a_long_list,
                                            clips_the_carets_of_a_long_field,
                                            shows_no_control_characters,
                                            finds_queues_by_size,
                                            shared_queues_have_a_form_without,
                                            random_lists_parse_to_themselves_or_say_why});
}
