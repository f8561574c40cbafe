// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/explain.h"

#include <charconv>

#include "common/rdma/verbs_rdma.h"
#include "cpc/queue_pairs/queue_fit.h"

namespace fabric::info {

Result<PlannedOperation> parse_operation(const std::string& text) {
  PlannedOperation operation;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind == "write") {
    operation.kind = RdmaKind::kWrite;
  } else if (kind == "read") {
    operation.kind = RdmaKind::kRead;
  } else if (kind == "add") {
    operation.kind = RdmaKind::kFetchAdd;
  } else if (kind == "swap") {
    operation.kind = RdmaKind::kCompareSwap;
  } else {
    return failure("operation '" + text + "': '" + kind + "' is none of write, read, add and swap");
  }
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), operation.bytes);
  const std::string after(end, rest.data() + rest.size());
  if (error != std::errc() || operation.bytes == 0) {
    return failure("operation '" + text + "': after the colon comes a number of bytes, at least 1");
  }
  if (operation.bytes != 8 && (operation.kind == RdmaKind::kFetchAdd || operation.kind == RdmaKind::kCompareSwap)) {
    return failure("operation '" + text + "': an atomic is of 8 bytes");
  }
  if (!after.empty() && after != ":unregistered") {
    return failure("operation '" + text + "': '" + after + "' is not ':unregistered'");
  }
  operation.is_registered = after.empty();
  return operation;
}

std::string explain(const Question& question, const PlannedOperation& operation, const PortLimits& port,
                    const DeviceCosts& costs) {
  if (port.link == Transport::kIwarp &&
      (operation.kind == RdmaKind::kFetchAdd || operation.kind == RdmaKind::kCompareSwap)) {
    return "atomic of 8 bytes: a message to the target's processor, since iWARP has none";
  }
  VerbsRdma verbs(port.pd);
  MrPool pool(verbs, MrPoolHints{});
  const std::size_t queue = cpc::rdma_queue(question.queues);
  TxCredits credits(cpc::send_space(question.queues, queue, costs, port.max_inline, question.rdma_depth));
  const RdmaPlanner planner(cpc::rdma_limits(port.link, port.max_message, port.max_inline, port.max_reads), credits,
                            pool);
  ibv_mr registration{};  // a plan does not look into it
  RdmaOperation planned;
  planned.kind = operation.kind;
  planned.pieces = 1;
  planned.local[0].address = &planned;
  planned.local[0].length = operation.bytes;
  if (operation.is_registered) {
    planned.local[0].mr = &registration;
    planned.local[0].access = access_flags(local_role(operation.kind), port.link);
  }
  if (port.link == Transport::kIwarp) {
    planned.confirm = {&planned, 1, &registration, access_flags(MemoryRole::kReadSink, port.link)};
  }
  return planner.explain(planned);
}

}  // namespace fabric::info
