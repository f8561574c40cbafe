// SPDX-License-Identifier: BSD-3-Clause
//
// Files that only their owner has a say in.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/base/private_file.h"
#include "cpc/core/trace.h"
#include "test/unit/check_main.h"
#include "test/unit/test_folder.h"

namespace fabric {
namespace {

using Folder = test::TestFolder;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  ck_assert_int_eq(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

void check_refused(const std::string& path, const std::string& why) {
  const Result<int> file = open_private_file(path);
  ck_assert_msg(!file, "%s was opened", path.c_str());
  test::check_text(file.error().text, path + ": " + why);
}

START_TEST(a_file_is_its_owners_alone) {
  const Folder folder;
  umask(0);
  const Result<int> file = open_private_file(folder.file("a"));
  ck_assert_msg(file.has_value(), "%s", file ? "" : file.error().text.c_str());
  ck_assert_uint_eq(mode_of(folder.file("a")), 0600);
  ck_assert_int_ne(fcntl(*file, F_GETFD) & FD_CLOEXEC, 0);
  close(*file);
}
END_TEST

START_TEST(what_is_in_it_stays) {
  const Folder folder;
  std::ofstream(folder.file("a")) << "text";
  ck_assert_int_eq(chmod(folder.file("a").c_str(), 0666), 0);
  const Result<int> file = open_private_file(folder.file("a"));
  ck_assert(file.has_value());
  char text[5] = {};
  ck_assert_int_eq(read(*file, text, sizeof text), 4);
  test::check_text(text, "text");
  ck_assert_uint_eq(mode_of(folder.file("a")), 0600);
  close(*file);
}
END_TEST

START_TEST(what_is_no_file_is_refused) {
  const Folder folder;
  ck_assert_int_eq(symlink(folder.file("b").c_str(), folder.file("a").c_str()), 0);
  check_refused(folder.file("a"), "it is a symbolic link");
  ck_assert_int_ne(access(folder.file("b").c_str(), F_OK), 0);
  ck_assert_int_eq(mkfifo(folder.file("b").c_str(), 0600), 0);
  check_refused(folder.file("b"), "it is no regular file");
  check_refused(folder.file("c/d"), "No such file or directory");
}
END_TEST

START_TEST(a_file_of_another_user_is_refused) {
  if (geteuid() != 0) {
    std::puts("SKIP a_file_of_another_user_is_refused: only root can give files to others");
    return;
  }
  const Folder folder;
  std::ofstream(folder.file("a")) << "text";
  ck_assert_int_eq(chown(folder.file("a").c_str(), 1, 1), 0);
  check_refused(folder.file("a"), "it belongs to user 1");
}
END_TEST

START_TEST(a_trace_is_written_to_such_a_file) {
  const Folder folder;
  std::ofstream(folder.file("b")) << "another's";
  const auto trace = cpc::Trace::open(folder.file("%r"), {1, 0});
  ck_assert(trace.has_value());
  ck_assert_uint_eq(mode_of(folder.file("0")), 0600);
  ck_assert_int_eq(unlink(folder.file("0").c_str()), 0);
  ck_assert_int_eq(symlink(folder.file("b").c_str(), folder.file("0").c_str()), 0);
  const auto followed = cpc::Trace::open(folder.file("%r"), {1, 0});
  ck_assert_int_eq(unlink(folder.file("0").c_str()), 0);
  ck_assert(!followed);
  test::check_text(followed.error().text, folder.file("0") + ": it is a symbolic link");
  std::string kept;
  std::getline(std::ifstream(folder.file("b")), kept);
  test::check_text(kept, "another's");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("private_file", {a_file_is_its_owners_alone, what_is_in_it_stays, what_is_no_file_is_refused,
                                          a_file_of_another_user_is_refused, a_trace_is_written_to_such_a_file});
}
