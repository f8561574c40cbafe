# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Processes that have children, and processes that end without having finished MPI.

# forks HOW : a job whose processes have children in this way (check_fork.c), by the thread that uses MPI and by another.
forks() {
  stock check_fork || return 1
  local by
  for by in '' thread; do
    # shellcheck disable=SC2086 # nothing, or a word
    LIMIT=120 fabric 3 "$programs/check_fork" "$1" $by && says 'check_fork: 3 exchanges' ||
      { echo "child made by: ${by:-the main thread}"; return 1; }
  done
}
case_fork_and_exec() { forks exec; }
case_fork_and_exit() { forks exit; }
case_fork_and_exit_at_once() { forks _exit; }
case_fork_by_system() { forks system; }
case_fork_by_popen() { forks popen; }
case_fork_child_outlives_parent() { forks outlives; }
case_fork_is_not_prepared() { # told to who wants to hear, and the job goes on
  stock no_fork.so || return 1
  fabric 2 --mca btl_base_verbose 5 env LD_PRELOAD="$programs/no_fork.so${LD_PRELOAD:+:$LD_PRELOAD}" "$check" $small && says 'checks passed' &&
    says 'ibv_fork_init: Cannot allocate memory: messages under way while this process forks may be wrong'
}

# python_forks HOW : the same of a program in Python.
python_forks() {
  local python=/usr/bin/python3 by # the one that Debian's mpi4py belongs to
  "$python" -c 'import mpi4py' 2> /dev/null || { echo 'SKIP mpi4py (package python3-mpi4py) is not installed'; exit 77; }
  for by in '' thread; do
    # shellcheck disable=SC2086 # nothing, or a word
    LIMIT=120 fabric 2 "$python" "$here/../stock/check_fork.py" "$1" $by && says 'check_fork.py: 2 exchanges' &&
      says "children of ${by:+a }${by:-the main thread}" || { echo "child made by: ${by:-the main thread}"; return 1; }
  done
}
case_fork_by_python() {
  local how
  for how in fork exit multiprocessing subprocess; do
    python_forks $how || { echo "by $how"; return 1; }
  done
}

# leaves HOW STATUS : processes end in this way (check_exit.c), the thread that uses MPI and another making the last call. It is not
# a signal that ends them.
leaves() {
  stock check_exit || return 1
  local by status
  for by in '' thread; do
    # shellcheck disable=SC2086 # nothing, or a word
    LIMIT=120 fabric 3 "$programs/check_exit" "$1" $by
    status=$?
    [ $status -eq "$2" ] && says "check_exit: $1" && says_not ignal ||
      { echo "last call by: ${by:-the main thread}, status $status"; return 1; }
  done
}
case_leaves_tools_interface_open() { leaves mpi_t 0 && leaves mpi_t_later 0; }
case_leaves_by_exit() { leaves exit 5; }
case_leaves_by_exit_of_one() { leaves one_exits 5; }
case_leaves_by_abort() { leaves abort 5; }
