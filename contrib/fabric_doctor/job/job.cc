// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/job/job.h"

#include <pmix.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace fabric::doctor {
namespace {

pmix_proc_t process(const std::string& name, std::uint32_t rank) {
  pmix_proc_t result{};
  std::strncpy(result.nspace, name.c_str(), sizeof result.nspace - 1);
  result.rank = rank;
  return result;
}

/// srun has started this process as one of several, whatever its PMI.
bool is_one_of_srun() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks != nullptr && std::atoi(tasks) > 1 && std::getenv("SLURM_PROCID") != nullptr;
}

}  // namespace

Result<std::unique_ptr<Job>> Job::join() {
  if (std::getenv("PMIX_NAMESPACE") == nullptr) {
    if (is_one_of_srun()) {
      return failure(
          "srun has started this without PMIx, which Open MPI needs: srun --mpi=pmix (srun --mpi=list shows "
          "what there is)");
    }
    return std::unique_ptr<Job>();
  }
  pmix_proc_t self{};
  if (const pmix_status_t status = PMIx_Init(&self, nullptr, 0); status != PMIX_SUCCESS) {
    return failure(std::string("PMIx_Init fails: ") + PMIx_Error_string(status));
  }
  const pmix_proc_t everyone = process(self.nspace, PMIX_RANK_WILDCARD);
  pmix_value_t* value = nullptr;
  std::uint32_t size = 1;
  if (PMIx_Get(&everyone, PMIX_JOB_SIZE, nullptr, 0, &value) == PMIX_SUCCESS) {
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
  }
  if (size < 2) {
    PMIx_Finalize(nullptr, 0);
    return std::unique_ptr<Job>();
  }
  return std::unique_ptr<Job>(new Job(self.rank, size, self.nspace));
}

Job::~Job() {
  PMIx_Finalize(nullptr, 0);
}

std::vector<std::string> Job::tell_all(const std::string& key, const std::string& mine) {
  pmix_value_t value{};
  value.type = PMIX_STRING;
  value.data.string = const_cast<char*>(mine.c_str());
  PMIx_Put(PMIX_GLOBAL, key.c_str(), &value);
  PMIx_Commit();
  pmix_info_t collect{};
  const bool yes = true;
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  const pmix_proc_t everyone = process(name_, PMIX_RANK_WILDCARD);
  PMIx_Fence(&everyone, 1, &collect, 1);
  std::vector<std::string> all(size_);
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const pmix_proc_t other = process(name_, rank);
    pmix_value_t* said = nullptr;
    if (rank == rank_) {
      all[rank] = mine;
    } else if (PMIx_Get(&other, key.c_str(), nullptr, 0, &said) == PMIX_SUCCESS) {
      all[rank] = said->type == PMIX_STRING ? said->data.string : "";
      PMIX_VALUE_RELEASE(said);
    }
  }
  return all;
}

void Job::meet(std::uint32_t partner) {
  if (!pairs_can_meet()) {
    meet_all();
    return;
  }
  // The same order on both sides: it is how the server knows that they mean the same.
  const std::array both{process(name_, std::min(rank_, partner)), process(name_, std::max(rank_, partner))};
  PMIx_Fence(both.data(), both.size(), nullptr, 0);
}

/// With data, though nobody has any: Slurm takes a fence without for done (SLURM_PMIX_FENCE_BARRIER).
void Job::meet_all() {
  const pmix_proc_t everyone = process(name_, PMIX_RANK_WILDCARD);
  pmix_info_t collect{};
  const bool yes = true;
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  PMIx_Fence(&everyone, 1, &collect, pairs_can_meet() ? 0 : 1);
}

}  // namespace fabric::doctor
