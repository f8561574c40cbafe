// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI does here: which components it chooses, and by which parameters. Nothing of that is guessed: a child process calls
// MPI_Init as a job of one, in this process's environment, and says what has come of it.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fabric::doctor {

/// A parameter as Open MPI has read it.
struct MpiSetting {
  std::string name;
  std::string value;
  std::string source;   ///< "the environment", or the file that sets it
  bool is_set = false;  ///< otherwise it has its default
};

/// A BTL that has been chosen.
struct MpiBtl {
  std::string name;
  std::uint32_t exclusivity = 0;  ///< the highest of those that reach a peer carries everything to it
};

struct OpenMpiView {
  std::string failure;  ///< why there is nothing else; empty: MPI_Init has succeeded
  std::string version;  ///< "4.1.4"
  std::string pml;      ///< the one that was chosen
  std::vector<MpiBtl> btls;
  std::vector<MpiSetting> settings;  ///< pml and btl, the priorities of PMLs, its files, and all of btl_fabric
  std::vector<std::string> folders;  ///< in which components are looked for
  std::string component;             ///< the file of ours that is found there first; empty: none is
  std::string component_version;
  std::string load_error;  ///< why it cannot be loaded
  std::string said;        ///< what MPI_Init printed about btl_fabric, as one line

  /// Null if it is not known.
  [[nodiscard]] const MpiSetting* find(const std::string& name) const noexcept;
};

/// Parameters that name files of a job. The child has none of them, or it would write over what the last job has left there.
inline constexpr std::array<std::string_view, 2> kFilesOfAJob = {"btl_fabric_report", "btl_fabric_trace"};

/// Runs the child. Its errors are OpenMpiView::failure.
[[nodiscard]] OpenMpiView ask_open_mpi();

/// The option of the command line that makes a process the child; the number of a descriptor to write the answer to follows.
inline constexpr const char* kAnswerOption = "--answer-for-open-mpi";
/// The child: its exit status.
[[nodiscard]] int answer_for_open_mpi(int descriptor);

void to_json(nlohmann::ordered_json& json, const OpenMpiView& view);
void from_json(const nlohmann::ordered_json& json, OpenMpiView& view);

}  // namespace fabric::doctor
