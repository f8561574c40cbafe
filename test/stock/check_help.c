// SPDX-License-Identifier: BSD-3-Clause
//
// Has Open MPI show a text of a help file that is not there, as some of its packages lack some: what it says then names the place where
// it has looked.
#include "btl_user.h"
#include "opal/util/show_help.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  opal_show_help("help-that-is-not-there.txt", "some topic", 1);
  MPI_Finalize();
  return 0;
}
