// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "contrib/fabric_info/apply_settings.h"
#include "contrib/fabric_info/fit.h"
#include "contrib/fabric_info/report.h"
#include "contrib/fabric_info/settings.h"
#include "test/unit/check_main.h"

namespace fabric::info {
namespace {

START_TEST(settings_are_read_as_by_mpirun) {
  const char* const environment[] = {"HOME=/",
                                     "OMPI_MCA_btl=fabric,self",
                                     "OMPI_MCA_btl_fabric_eager_limit=4k",
                                     "OMPI_MCA_btl_fabric_mtu=3",
                                     "OMPI_MCA_btl_fabric_get_limit=5",
                                     nullptr};
  Settings settings = Settings::in_environment(environment);
  ck_assert(settings.add("btl_fabric_get_limit", "0x10"));  // stronger than the environment
  ck_assert(settings.add("btl_fabric_in_place_size", "-1"));
  ck_assert(settings.add("btl_tcp_eager_limit", "what tcp takes"));
  ck_assert(settings.add("btl_fabric_flags", "1"));
  const LimitWishes wishes = *settings.limit_wishes();
  ck_assert_uint_eq(*wishes[Limit::kEager], 4096);
  ck_assert_uint_eq(*wishes[Limit::kGet], 16);
  ck_assert(!wishes[Limit::kInPlace]);
  ck_assert(!wishes[Limit::kPut]);
  ck_assert_int_eq(static_cast<int>(**settings.number("mtu")), 3);
  ck_assert(!*settings.number("rdma_depth"));
  ck_assert(!settings.text("receive_queues"));
}
END_TEST

START_TEST(bad_settings_are_named) {
  Settings settings;
  test::check_error_has(settings.add("btl_fabric_egaer_limit", "1"),
                        "--mca btl_fabric_egaer_limit 1: btl_fabric has no such parameter");
  ck_assert(settings.add("btl_fabric_mtu", "6"));
  test::check_error_has(settings.number("mtu"), "btl_fabric_mtu is 6, but must be between 0 and 5");
  for (const char* none : {"-1", "18446744073709551615"}) {  // as ompi_info shows it
    ck_assert(settings.add("btl_fabric_put_limit", none));
    ck_assert_uint_eq(settings.limit_wishes().value()[Limit::kPut].value(), INT64_MAX);
  }
  ck_assert(settings.add("btl_fabric_put_limit", ""));
  ck_assert(!settings.limit_wishes().value()[Limit::kPut]);
  ck_assert(settings.add("btl_fabric_put_limit", "12x"));
  test::check_error_has(settings.limit_wishes(), "btl_fabric_put_limit is \"12x\", but must be a number");
}
END_TEST

/// What is asked when these parameters are set: of a host with 4 processors.
Result<Question> asked(std::initializer_list<std::pair<const char*, const char*>> parameters,
                       std::optional<std::uint64_t> memory = std::nullopt) {
  Settings settings;
  for (const auto& [name, value] : parameters) {
    ck_assert(settings.add(std::string("btl_fabric_") + name, value));
  }
  Question question;
  question.node.cores = 4;
  if (const Status applied = apply_settings(settings, memory, question); !applied) {
    return tl::unexpected(applied.error());
  }
  return question;
}

START_TEST(nothing_set_is_the_defaults) {
  const Question question = *asked({});
  ck_assert(question.are_queues_chosen && question.contexts == EndpointAttributes());
  ck_assert_uint_eq(question.rdma_depth, 64);
  ck_assert_uint_eq(question.cq_size, 8192);
  ck_assert_uint_eq(question.memory, 0);
  ck_assert_int_eq(question.gid_index, -1);
  ck_assert(!question.costs);
}
END_TEST

START_TEST(every_parameter_that_matters_is_taken) {
  const Question question = *asked({{"tx_contexts", "8"},
                                    {"rx_contexts", "9"},
                                    {"rdma_depth", "7"},
                                    {"cq_size", "1k"},
                                    {"mtu", "1024"},
                                    {"gid_index", "3"},
                                    {"max_inline_data", "64"},
                                    {"memory_budget", "1000000"},
                                    {"queue_costs", "64,32,64"},
                                    {"receive_queues", "P,4096,16"}});
  ck_assert(question.contexts == (EndpointAttributes{8, 9}));
  ck_assert_uint_eq(question.rdma_depth, 7);
  ck_assert_uint_eq(question.cq_size, 1024);
  ck_assert_int_eq(question.mtu, 3);
  ck_assert_int_eq(question.gid_index, 3);
  ck_assert_uint_eq(question.wanted_inline, 64);
  ck_assert_uint_eq(question.memory, 1000000);
  ck_assert_uint_eq(question.costs->operation.op_size, 64);
  ck_assert(!question.are_queues_chosen);
  ck_assert_uint_eq(question.queues.count(), 1);
  ck_assert_uint_eq(asked({{"memory_budget", "1000000"}}, 5)->memory, 5);
}
END_TEST

/// A budget that is too little is a verdict, not only a choice.
START_TEST(a_budget_is_a_limit) {
  const auto fits_in = [](const char* budget) {
    return as_json(*asked({{"memory_budget", budget}, {"receive_queues", "P,4096,16"}}), HostRoom{})["fits"]
        .get<bool>();
  };
  ck_assert(fits_in("100m"));
  ck_assert(!fits_in("1000"));
}
END_TEST

START_TEST(minus_one_is_a_context_for_each_processor) {
  Question question = *asked({{"tx_contexts", "-1"}, {"receive_queues", "P,4096,16:S,8192,16"}});
  ck_assert(granted_contexts(question, 1000) == (EndpointAttributes{4, 0}));
  ck_assert(granted_contexts(question, 6) == (EndpointAttributes{3, 0}));  // of two queue pairs each
  ck_assert(granted_contexts(question, 0) == (EndpointAttributes{1, 0}));
  question.contexts = {2, -1};
  ck_assert(granted_contexts(question, 1000) == (EndpointAttributes{2, 4}));
}
END_TEST

START_TEST(every_number_is_checked) {
  test::check_error_has(asked({{"retry_count", "99"}}), "btl_fabric_retry_count is 99, but must be between 0 and 7");
  test::check_error_has(asked({{"rdma_depth", "0"}}), "btl_fabric_rdma_depth is 0, but must be between 1 and 16384");
  test::check_error_has(asked({{"cq_size", "0"}}), "btl_fabric_cq_size is 0, but must be at least 16");
  test::check_error_has(asked({{"tx_contexts", "65"}}), "btl_fabric_tx_contexts is 65, but must be between -1 and 64");
  test::check_error_has(asked({{"tx_contexts", "0"}}), "btl_fabric_tx_contexts is 0, but an endpoint needs at least 1");
  test::check_error_has(asked({{"max_ports", "0"}}), "btl_fabric_max_ports is 0, but a process needs at least 1");
  test::check_error_has(asked({{"pkey", "0x8000"}}), "btl_fabric_pkey is 0x8000, but that is membership without");
  ck_assert(!asked({{"queue_costs", ""}})->costs);  // empty: as Open MPI has it, not set
  test::check_error_has(asked({{"queue_costs", "1,2"}}), "btl_fabric_queue_costs: ");
  test::check_error_has(asked({{"receive_queues", "Q,1"}}), "Q");
}
END_TEST

}  // namespace
}  // namespace fabric::info

int main() {
  using namespace fabric;
  using namespace fabric::info;
  return test::run_suite("fabric_info_settings",
                         {settings_are_read_as_by_mpirun, bad_settings_are_named, nothing_set_is_the_defaults,
                          every_parameter_that_matters_is_taken, a_budget_is_a_limit,
                          minus_one_is_a_context_for_each_processor, every_number_is_checked});
}
