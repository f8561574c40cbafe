// SPDX-License-Identifier: BSD-3-Clause
//
// Who of the processes of a job says what they all have to say.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "btl_fabric/mca/first_to_say.h"
#include "test/unit/check_main.h"

using fabric::first_to_say;
using fabric::share_said_list;

namespace {

/// A session folder, as mpirun makes one for each job.
class SessionFolder {
 public:
  SessionFolder() {
    ck_assert_ptr_nonnull(mkdtemp(path_.data()));
    share_said_list(path_.c_str());
  }
  ~SessionFolder() {
    share_said_list(nullptr);
    remove();
  }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void remove() const { ck_assert_int_eq(std::system(("rm -rf '" + path_ + "'").c_str()), 0); }

 private:
  std::string path_ = "/tmp/first_to_say.XXXXXX";
};

/// `folder`: the process comes to the list by itself; null: it was forked with it.
[[nodiscard]] bool is_first_in_another_process(const char* text, const char* folder = nullptr) {
  const pid_t child = fork();
  if (child == 0) {
    if (folder != nullptr) {
      share_said_list(folder);
    }
    _exit(first_to_say(text) ? 1 : 0);
  }
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return status != 0;
}

}  // namespace

START_TEST(one_process_says_it) {
  const SessionFolder folder;
  ck_assert(is_first_in_another_process("short of memory", folder.path().c_str()));
  ck_assert(!is_first_in_another_process("short of memory", folder.path().c_str()));
  ck_assert(!first_to_say("short of memory"));
  ck_assert(first_to_say("short of something else"));
  ck_assert(!first_to_say("short of something else"));
}
END_TEST

/// mpirun deletes the folder when a process has died, before the others have said what they know.
START_TEST(one_process_says_it_when_the_folder_is_gone) {
  const SessionFolder folder;
  folder.remove();
  ck_assert(is_first_in_another_process("short of memory"));
  ck_assert(!is_first_in_another_process("short of memory"));
  ck_assert(!first_to_say("short of memory"));
}
END_TEST

/// There may be none: the process was not started by mpirun, or there is no room.
START_TEST(without_a_folder_each_process_says_it) {
  for (const char* const folder : {static_cast<const char*>(nullptr), "/proc/no/such"}) {
    share_said_list(folder);
    ck_assert(is_first_in_another_process("short of memory"));
    ck_assert(is_first_in_another_process("short of memory"));
  }
  ck_assert(first_to_say("short of memory"));
  ck_assert(!first_to_say("short of memory"));
}
END_TEST

/// A full list loses nothing.
START_TEST(what_has_no_place_is_said) {
  const SessionFolder folder;
  for (int i = 0; i < 1000; ++i) {
    ck_assert(first_to_say("reason " + std::to_string(i)));
  }
  ck_assert(!is_first_in_another_process("reason 1", folder.path().c_str()));
  ck_assert(is_first_in_another_process("reason 1000", folder.path().c_str()));
}
END_TEST

int main() {
  return fabric::test::run_suite("first_to_say", {one_process_says_it, one_process_says_it_when_the_folder_is_gone,
                                                  without_a_folder_each_process_says_it, what_has_no_place_is_said});
}
