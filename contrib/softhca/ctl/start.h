// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How softhca-run makes a fabric, or takes part in one that has a name.
#include <span>

namespace softhca {

// For the fabric in $SOFTHCA_DIR: writes options, fault rules and the files that programs look for, unless it has options
// already; these have to be the same then. `arguments`: first the file of rules, empty if there is none, then pairs: what was
// written on the command line, and the NAME=VALUE that it means. What is wrong is said in terms of the command line.
void start(std::span<char* const> arguments);

}  // namespace softhca
