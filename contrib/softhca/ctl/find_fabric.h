// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where the fabric is, for who is not below softhca-run.
#include <string>

namespace softhca {

// The directory of the fabric of that name (softhca-run --join), or, with an empty name, of the only one that this user has
// running now. Ends the program with a message that lists what there is, if that does not say which.
std::string find_fabric(const std::string& name);

}  // namespace softhca
