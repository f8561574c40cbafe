// SPDX-License-Identifier: BSD-3-Clause
//
// Who of the processes of a job says what they all have to say.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/mca/first_to_say.h"
#include "test/unit/check_main.h"

using fabric::first_to_say;

namespace {

/// A session folder, as mpirun makes one for each job.
class SessionFolder {
 public:
  SessionFolder() {
    ck_assert_ptr_nonnull(mkdtemp(path_.data()));
    opal_process_info.job_session_dir = path_.data();
  }
  ~SessionFolder() {
    remove();
    opal_process_info.job_session_dir = nullptr;
  }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  void remove() const { ck_assert_int_eq(std::system(("rm -rf '" + path_ + "'").c_str()), 0); }

 private:
  std::string path_ = "/tmp/first_to_say.XXXXXX";
};

[[nodiscard]] bool is_first_in_another_process(const char* text) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(first_to_say(text) ? 1 : 0);
  }
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return status != 0;
}

}  // namespace

START_TEST(one_process_says_it) {
  const SessionFolder folder;
  ck_assert(is_first_in_another_process("short of memory"));
  ck_assert(!is_first_in_another_process("short of memory"));
  ck_assert(!first_to_say("short of memory"));
  ck_assert(first_to_say("short of something else"));
  ck_assert(!first_to_say("short of something else"));
}
END_TEST

/// mpirun may make none, and deletes it when a process has died, before the others have said what they know.
START_TEST(without_a_folder_each_process_says_it) {
  const SessionFolder folder;
  folder.remove();
  ck_assert(is_first_in_another_process("short of memory"));
  ck_assert(first_to_say("short of memory"));
  ck_assert(!first_to_say("short of memory"));
}
END_TEST

int main() {
  return fabric::test::run_suite("first_to_say", {one_process_says_it, without_a_folder_each_process_says_it});
}
