// SPDX-License-Identifier: BSD-3-Clause
//
// By PMIx_Publish and PMIx_Lookup, which MPI_Publish_name uses too: mpirun keeps what is published, of all hosts of the job, also when
// the process has ended. Why not otherwise:
// - A fence with data (PMIx_Commit, PMIx_Fence) waits for every process, a dead one too.
// - PMIx_Put and PMIx_Get: of a key that a process has put after its first commit another host's server may never hear, and a
//   PMIx_Get of a process that has died or has ended waits for its timeout, once for each of them.
// - Files in the session folder are of one host.
// A launcher that does not publish (Slurm's srun) leaves each process with what it knows itself.
//
// 4.1 calls PMIx through opal_pmix, and closes the BTLs before it ends its use of PMIx. 5.0 calls PMIx itself, and has called
// PMIx_Finalize when it closes the BTLs. PMIx counts who has called PMIx_Init, so one call of ours keeps it until close().
#include "btl_fabric/base/job_notes.h"

#include "btl_fabric/base/opal.h"

namespace fabric::job_notes {
namespace {

/// Of no other job: one data server may be of many.
std::string full(const std::string& name) {
  return "btl_fabric." + std::to_string(OPAL_PROC_MY_NAME.jobid) + "." + name;
}

}  // namespace

#if OPAL_MAJOR_VERSION == 4

namespace {

/// A list of Open MPI's objects, which go with it.
class List {
 public:
  List() noexcept { OBJ_CONSTRUCT(&list_, opal_list_t); }
  ~List() { OPAL_LIST_DESTRUCT(&list_); }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  void add(opal_list_item_t& item) noexcept { opal_list_append(&list_, &item); }
  [[nodiscard]] opal_list_t* get() noexcept { return &list_; }

 private:
  opal_list_t list_;
};

}  // namespace

bool open() noexcept {
  return opal_pmix.publish != nullptr && opal_pmix.lookup != nullptr && opal_pmix.initialized() != 0;
}

bool leave(const std::string& name, const std::string& text) {
  List list;
  auto* const value = OBJ_NEW(opal_value_t);
  value->key = strdup(full(name).c_str());
  value->type = OPAL_STRING;
  value->data.string = strdup(text.c_str());
  list.add(value->super);
  return opal_pmix.publish(list.get()) == OPAL_SUCCESS;
}

std::optional<std::string> read(const std::string& name) {
  List list;
  auto* const found = OBJ_NEW(opal_pmix_pdata_t);
  found->value.key = strdup(full(name).c_str());
  list.add(found->super);
  if (opal_pmix.lookup(list.get(), nullptr) != OPAL_SUCCESS || found->value.type != OPAL_STRING ||
      found->value.data.string == nullptr) {
    return std::nullopt;
  }
  return found->value.data.string;
}

void close() noexcept {}

#else

bool open() noexcept {
  pmix_proc_t self;
  return PMIx_Initialized() != 0 && PMIx_Init(&self, nullptr, 0) == PMIX_SUCCESS;
}

bool leave(const std::string& name, const std::string& text) {
  pmix_info_t note;
  PMIX_INFO_LOAD(&note, full(name).c_str(), text.c_str(), PMIX_STRING);
  const pmix_status_t status = PMIx_Publish(&note, 1);
  PMIX_INFO_DESTRUCT(&note);
  return status == PMIX_SUCCESS;
}

std::optional<std::string> read(const std::string& name) {
  pmix_pdata_t found;
  PMIX_PDATA_CONSTRUCT(&found);
  PMIX_LOAD_KEY(found.key, full(name).c_str());
  std::optional<std::string> text;
  if (PMIx_Lookup(&found, 1, nullptr, 0) == PMIX_SUCCESS && found.value.type == PMIX_STRING &&
      found.value.data.string != nullptr) {
    text = found.value.data.string;
  }
  PMIX_PDATA_DESTRUCT(&found);
  return text;
}

void close() noexcept {
  (void)PMIx_Finalize(nullptr, 0);
}

#endif

}  // namespace fabric::job_notes
