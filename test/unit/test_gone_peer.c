// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI still waits for of a process that is gone, and that it goes on without. In C, as what it tests.
#include <check.h>
#include <stdlib.h>

#include "btl_fabric/base/gone_peer.h"
#include "opal_config.h"

#if OPAL_ENABLE_FT_MPI

#include "ompi/mca/bml/bml.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/proc/proc.h"
#include "opal/mca/btl/btl.h"

enum {
  kMatch = MCA_BTL_TAG_PML + 1,
  kAck = MCA_BTL_TAG_PML + 4,
  kFragment = MCA_BTL_TAG_PML + 6,
  kCid = MCA_BTL_TAG_PML + 10
};

static ompi_proc_t gone, other;
static mca_pml_base_request_t request;
static mca_btl_base_descriptor_t message;

// A send of ob1 to the process that is gone, and what it has asked a BTL for.
static void begin_send(void) {
  request.req_proc = &gone;
  request.req_ompi.req_complete = REQUEST_PENDING;
  request.req_free_called = 0;
  message.des_cbdata = &request;
}
static int told;
static bool is_awaited(unsigned tag) {
  told = OPAL_ERR_UNREACH;
  return fabric_awaits_message(&gone.super, tag, &message, &told);
}

START_TEST(a_request_that_waits_hears_of_its_message) {
  begin_send();
  ck_assert(is_awaited(kMatch));
  ck_assert_int_eq(told, OPAL_SUCCESS);
  ck_assert(is_awaited(kFragment));
  ck_assert_int_eq(told, OPAL_SUCCESS);
}
END_TEST

START_TEST(one_that_ob1_has_ended_does_not) {
  begin_send();
  request.req_ompi.req_complete = REQUEST_COMPLETED;
  ck_assert(!is_awaited(kMatch));
  ck_assert(!is_awaited(kFragment));
}
END_TEST

// The application has let go of it, and the callback gives it back.
START_TEST(one_that_was_freed_does) {
  begin_send();
  request.req_ompi.req_complete = REQUEST_COMPLETED;
  request.req_free_called = 1;
  ck_assert(is_awaited(kMatch));
}
END_TEST

START_TEST(one_that_is_used_for_another_process_does_not) {
  begin_send();
  request.req_proc = &other;
  ck_assert(!is_awaited(kMatch));
}
END_TEST

// Their callback data are of whoever had the descriptor before.
START_TEST(of_other_messages_all_is_heard) {
  begin_send();
  request.req_ompi.req_complete = REQUEST_COMPLETED;
  ck_assert(is_awaited(kAck));
  ck_assert_int_eq(told, OPAL_ERR_UNREACH);
  ck_assert(is_awaited(MCA_BTL_TAG_OSC_RDMA));
  message.des_cbdata = NULL;
  ck_assert(is_awaited(kMatch));
}
END_TEST

// A first fragment on a communicator whose number at the peer is not known, and what tells the number.
START_TEST(numbers_of_communicators_are_told_without_a_request) {
  mca_btl_base_segment_t segment = {.seg_len = 33};
  begin_send();
  message.des_segments = &segment;
  request.req_ompi.req_complete = REQUEST_COMPLETED;
  ck_assert(!is_awaited(kCid));
  segment.seg_len = 32;
  ck_assert(is_awaited(kCid));
}
END_TEST

START_TEST(ob1_hears_of_no_read_or_write) {
  static mca_bml_base_endpoint_t ways;
  static mca_bml_base_btl_t eager[1], rdma[2], another;
  gone.proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML] = NULL;  // it has no way to it any more
  ck_assert(fabric_awaits_rdma(&gone.super, &rdma[1]));
  gone.proc_endpoints[OMPI_PROC_ENDPOINT_TAG_BML] = &ways;
  ways.btl_eager.bml_btls = eager;
  ways.btl_eager.arr_reserve = 1;
  ways.btl_rdma.bml_btls = rdma;
  ways.btl_rdma.arr_reserve = 2;
  ck_assert(!fabric_awaits_rdma(&gone.super, &eager[0]));
  ck_assert(!fabric_awaits_rdma(&gone.super, &rdma[0]));
  ck_assert(!fabric_awaits_rdma(&gone.super, &rdma[1]));
  ck_assert(fabric_awaits_rdma(&gone.super, &another));
  ck_assert(fabric_awaits_rdma(&gone.super, NULL));
}
END_TEST

START_TEST(who_lives_is_not_gone) {
  gone.proc_active = true;
  ck_assert(!fabric_goes_on_without(&gone.super));
}
END_TEST

static void add_all(TCase* all) {
  tcase_add_test(all, a_request_that_waits_hears_of_its_message);
  tcase_add_test(all, one_that_ob1_has_ended_does_not);
  tcase_add_test(all, one_that_was_freed_does);
  tcase_add_test(all, one_that_is_used_for_another_process_does_not);
  tcase_add_test(all, of_other_messages_all_is_heard);
  tcase_add_test(all, numbers_of_communicators_are_told_without_a_request);
  tcase_add_test(all, ob1_hears_of_no_read_or_write);
  tcase_add_test(all, who_lives_is_not_gone);
}

#else  // Open MPI 4.1 goes on without nobody

START_TEST(all_is_heard) {
  int status = -1;
  ck_assert(!fabric_goes_on_without(NULL));
  ck_assert(fabric_awaits_message(NULL, 0, NULL, &status));
  ck_assert_int_eq(status, -1);
  ck_assert(fabric_awaits_rdma(NULL, NULL));
}
END_TEST

static void add_all(TCase* all) {
  tcase_add_test(all, all_is_heard);
}

#endif

int main(void) {
  Suite* const suite = suite_create("a peer that is gone");
  TCase* const all = tcase_create("all");
  add_all(all);
  suite_add_tcase(suite, all);
  SRunner* const runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
