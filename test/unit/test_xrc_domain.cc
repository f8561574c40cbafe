// SPDX-License-Identifier: BSD-3-Clause
//
// XRC domains of a device of this host. Skipped (status 77) without a device, or if it has no XRC.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/ports/port_scan.h"
#include "common/ports/xrc_domain.h"
#include "test/unit/check_main.h"
#include "test/unit/test_folder.h"

namespace fabric {
namespace {

using Folder = test::TestFolder;

std::shared_ptr<OpenDevice> device() {
  return scan_ports({}).ports.front().device;
}

std::uint64_t id_of(ibv_context* context, const std::string& path) {
  const auto domain = XrcDomain::open(context, path);
  ck_assert_msg(domain.has_value(), "%s", domain ? "" : domain.error().text.c_str());
  ck_assert_ptr_nonnull(domain->handle());
  return domain->id();
}

START_TEST(a_file_is_a_domain) {
  const Folder folder;
  const auto open = device();
  const std::uint64_t id = id_of(open->context.get(), folder.file("a"));
  ck_assert_uint_ne(id, 0);
  ck_assert_uint_eq(id_of(open->context.get(), folder.file("a")), id);
  ck_assert_uint_ne(id_of(open->context.get(), folder.file("b")), id);
  struct stat status {};
  ck_assert_int_eq(stat(folder.file("a").c_str(), &status), 0);
  ck_assert_uint_eq(status.st_mode & 0777, 0600);  // other users have no business with it
}
END_TEST

START_TEST(a_link_is_no_domain) {
  const Folder folder;
  ck_assert_int_eq(symlink(folder.file("b").c_str(), folder.file("a").c_str()), 0);
  const auto open = device();
  const auto domain = XrcDomain::open(open->context.get(), folder.file("a"));
  ck_assert(!domain);
  test::check_text(domain.error().text,
                   "opening the file of the XRC domain: " + folder.file("a") + ": it is a symbolic link");
}
END_TEST

START_TEST(a_file_that_nobody_finished_is_finished) {
  const Folder folder;
  std::ofstream(folder.file("a")) << "abc";
  const auto open = device();
  const std::uint64_t id = id_of(open->context.get(), folder.file("a"));
  ck_assert_uint_eq(id_of(open->context.get(), folder.file("a")), id);
}
END_TEST

/// All who come at once get the same.
START_TEST(processes_agree) {
  const Folder folder;
  int ids[2];
  ck_assert_int_eq(pipe(ids), 0);
  constexpr int kProcesses = 8;
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() == 0) {
      const std::uint64_t id = id_of(device()->context.get(), folder.file("a"));
      _exit(write(ids[1], &id, sizeof id) == sizeof id ? 0 : 1);
    }
  }
  std::uint64_t first = 0;
  for (int i = 0; i < kProcesses; ++i) {
    std::uint64_t id = 0;
    int status = 0;
    ck_assert_int_eq(read(ids[0], &id, sizeof id), sizeof id);
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
    first = i == 0 ? id : first;
    ck_assert_uint_eq(id, first);
  }
}
END_TEST

START_TEST(errors_name_the_file) {
  const auto domain = XrcDomain::open(device()->context.get(), "/nonexistent/a");
  ck_assert(!domain.has_value());
  test::check_text(domain.error().text,
                   "opening the file of the XRC domain: /nonexistent/a: No such file or directory");
}
END_TEST

START_TEST(a_device_without_xrc_says_so) {
  ibv_device_attr attributes{};
  test::check_text(XrcDomain::why_not(attributes),
                   "it has no XRC, and btl_fabric_receive_queues has X queues: use S queues");
  attributes.device_cap_flags = IBV_DEVICE_XRC;
  test::check_text(XrcDomain::why_not(attributes), "");
}
END_TEST

}  // namespace
}  // namespace fabric

/// Asked in a process of its own: tests run in children of this one, and a device does not survive fork().
bool has_xrc() {
  const pid_t asked = fork();
  if (asked == 0) {
    const fabric::PortScan scan = fabric::scan_ports({});
    _exit(!scan.ports.empty() && fabric::XrcDomain::why_not(scan.ports.front().device->attributes).empty() ? 0 : 1);
  }
  int status = 0;
  return waitpid(asked, &status, 0) == asked && status == 0;
}

int main() {
  using namespace fabric;
  if (!has_xrc()) {
    std::puts("skipped: no active port with XRC");
    return 77;
  }
  return test::run_suite(
      "xrc_domain", {a_file_is_a_domain, a_link_is_no_domain, a_file_that_nobody_finished_is_finished, processes_agree,
                     errors_name_the_file, a_device_without_xrc_says_so});
}
