// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of an accelerator that there is not: whoever touches it by its address dies of that, as with a GPU's. The program has it, and
// mca_accelerator_fake.so copies from and to it, for Open MPI, through another mapping of the same bytes.
#pragma once

#include <stddef.h>

struct fake_device {
  unsigned char* base;  // addresses that the program gives to MPI
  unsigned char* view;  // where the bytes can be touched
  size_t size;
  unsigned long copies;  // that were asked for
};
