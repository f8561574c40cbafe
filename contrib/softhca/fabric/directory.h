// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whether a process may take part in the fabric of $SOFTHCA_DIR: one user's, of one PID namespace (processes know each other
// by their numbers), and with one layout of the shared memory. If not, the line that says what was found and what to do.
#include <string>

namespace softhca {

struct SlotHeader;

// What is wrong with the directory; empty: nothing.
std::string problem_of_directory(const std::string& directory);

// What is wrong with this process, which is about to join: `hub` is the header of slot 0, where the first to come leaves its
// layout and its namespace; empty: nothing.
std::string problem_of_member(const std::string& directory, SlotHeader& hub);
// The same for who only looks at the layout, and may be the first.
std::string problem_of_layout(const std::string& directory, const SlotHeader& hub);

}  // namespace softhca
