// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Before the definition of a function that programs find instead of libibverbs' or librdmacm's.
#define SOFTHCA_EXPORT extern "C" __attribute__((visibility("default")))
