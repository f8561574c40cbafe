# SPDX-License-Identifier: BSD-3-Clause
"""check_fork.py: processes of an MPI job have children as Python's modules make them, and communicate on.

  check_fork.py fork             os.fork(), and a child that ends by os._exit()
  check_fork.py exit             the same, and the child ends by sys.exit(), which runs exit handlers
  check_fork.py multiprocessing  processes and pools of multiprocessing, which are forks too
  check_fork.py subprocess       other programs

With "thread" as a second argument another thread has the children, while the main thread waits for it.
"""
import multiprocessing
import os
import subprocess
import sys
import threading

import mpi4py

mpi4py.rc.finalize = False  # or a child that ends by sys.exit() calls MPI_Finalize, and waits there for ever, with any BTL
from mpi4py import MPI  # noqa: E402

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def fail(what):
    print(f"check_fork.py: rank {rank}: {what}", file=sys.stderr, flush=True)
    world.Abort(1)


def exchange(number):
    """Messages of several sizes from each to each, and a sum."""
    for length in (10, 5000, 300000):
        def text(a, b, length=length):
            return bytes([(number + 3 * a + 5 * b) % 251]) * length
        if world.alltoall([text(rank, peer) for peer in range(size)]) != [text(peer, rank) for peer in range(size)]:
            fail(f"a message of {length} bytes has other contents")
    if world.allreduce(rank + number) != size * (size - 1) // 2 + size * number:
        fail("the sum is another")


def square(x):
    return x * x


def by_fork(leave):
    # sys.exit() ends only the thread that calls it, if that is not the main one. It is the only one of the child, which so ends by
    # exit(0) of the C library.
    expected = 0 if by_thread and leave is sys.exit else 7
    pid = os.fork()
    if pid == 0:
        leave(7)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != expected:
        fail(f"a child has ended in another way: {status}")


def by_multiprocessing():
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        if pool.map(square, range(10)) != [x * x for x in range(10)]:
            fail("a pool gives other results")
    process = context.Process(target=square, args=(3,))
    process.start()
    process.join()
    if process.exitcode != 0:
        fail(f"a process has ended in another way: {process.exitcode}")


def by_subprocess():
    if subprocess.run(["echo", "42"], capture_output=True, check=True).stdout != b"42\n":
        fail("a program says something else")


by_thread = sys.argv[2:] == ["thread"]
children = {
    "fork": lambda: by_fork(os._exit),
    "exit": lambda: by_fork(sys.exit),
    "multiprocessing": by_multiprocessing,
    "subprocess": by_subprocess,
}


def have_children():
    if not by_thread:
        children[sys.argv[1]]()
        return
    done = []
    thread = threading.Thread(target=lambda: done.append(children[sys.argv[1]]()))
    thread.start()
    thread.join()
    if not done:
        fail("the thread has ended by an exception")


have_children()
exchange(1)
have_children()
exchange(2)
MPI.Finalize()
if rank == 0:
    print(f"check_fork.py: 2 exchanges, children of {'a thread' if by_thread else 'the main thread'}", flush=True)
