// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI waits for by PMIx is waited for with progress. PMIx is the test's here, and so is opal_progress().
#include <thread>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/pmix_waits.h"
#include "test/unit/check_main.h"

#if OPAL_MAJOR_VERSION == 4

namespace {

constexpr int kStatus = -17;  // what PMIx says at the end
constexpr int kRounds = 3;    // of progress until then

int rounds = 0;
int blocked = 0;
bool refuses = false;
opal_list_t* processes_asked_for = nullptr;
opal_pmix_op_cbfunc_t to_tell = nullptr;
void* of_whom = nullptr;

int begin(opal_list_t* processes, opal_pmix_op_cbfunc_t callback, void* data) {
  if (refuses) {
    return OPAL_ERR_NOT_SUPPORTED;
  }
  processes_asked_for = processes;
  to_tell = callback;
  of_whom = data;
  return OPAL_SUCCESS;
}
int fence_nb(opal_list_t* processes, int /*collect_data*/, opal_pmix_op_cbfunc_t callback, void* data) {
  return begin(processes, callback, data);
}
int connect_nb(opal_list_t* processes, opal_pmix_op_cbfunc_t callback, void* data) {
  return begin(processes, callback, data);
}
int blocking_fence(opal_list_t* /*processes*/, int /*collect_data*/) {
  ++blocked;
  return OPAL_SUCCESS;
}
int blocking_connect(opal_list_t* /*processes*/) {
  ++blocked;
  return OPAL_SUCCESS;
}

/// Open MPI's table of functions, as the launcher has filled it.
void set_pmix() {
  rounds = blocked = 0;
  refuses = false;
  opal_pmix.fence = blocking_fence;
  opal_pmix.fence_nb = fence_nb;
  opal_pmix.connect = blocking_connect;
  opal_pmix.connect_nb = connect_nb;
}

}  // namespace

/// What others wait for leaves; then they come too, of which another thread tells.
void opal_progress() {
  if (++rounds == kRounds) {
    std::thread([] { to_tell(kStatus, of_whom); }).join();
  }
}

namespace fabric {
namespace {

START_TEST(progress_is_made_meanwhile) {
  set_pmix();
  progress_while_pmix_waits();
  progress_while_pmix_waits();
  opal_list_t processes;
  ck_assert_int_eq(opal_pmix.fence(&processes, 0), kStatus);
  ck_assert_ptr_eq(processes_asked_for, &processes);
  ck_assert_int_eq(rounds, kRounds);
  rounds = 0;
  ck_assert_int_eq(opal_pmix.connect(&processes), kStatus);
  ck_assert_int_eq(rounds, kRounds);
  ck_assert_int_eq(blocked, 0);
  leave_pmix_waits();
  leave_pmix_waits();
  ck_assert(opal_pmix.fence == &blocking_fence && opal_pmix.connect == &blocking_connect);
}
END_TEST

START_TEST(without_other_functions_it_stays_as_it_was) {
  set_pmix();
  opal_pmix.fence_nb = nullptr;
  opal_pmix.connect_nb = nullptr;
  progress_while_pmix_waits();
  ck_assert(opal_pmix.fence == &blocking_fence && opal_pmix.connect == &blocking_connect);
  set_pmix();
  refuses = true;
  progress_while_pmix_waits();
  ck_assert_int_eq(opal_pmix.fence(nullptr, 0), OPAL_SUCCESS);
  ck_assert_int_eq(opal_pmix.connect(nullptr), OPAL_SUCCESS);
  ck_assert_int_eq(blocked, 2);
  leave_pmix_waits();
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("waits by PMIx", {progress_is_made_meanwhile, without_other_functions_it_stays_as_it_was});
}

#else

/// 5.0 calls PMIx itself.
int main() {
  fabric::progress_while_pmix_waits();
  fabric::leave_pmix_waits();
}

#endif
