// SPDX-License-Identifier: BSD-3-Clause
//
// Message rate of MPI_THREAD_MULTIPLE: each of N threads of one process sends 8 bytes to its partner in the other, a window
// at a time, over a communicator of its own. Prints messages per second, all threads together.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { window = 64 };

static int rank, count;
static pthread_barrier_t start;

struct job {
    pthread_t thread;
    MPI_Comm comm;
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "threads: %s (rank %d)\n", what, rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static void windows(MPI_Comm comm, int number)
{
    long out[window], in[window];
    MPI_Request requests[window];
    for (int i = 0; i < number; i++) {
        for (int j = 0; j < window; j++) {
            out[j] = (long)i * window + j;
            if (rank == 0)
                MPI_Isend(&out[j], 1, MPI_LONG, 1, j, comm, &requests[j]);
            else
                MPI_Irecv(&in[j], 1, MPI_LONG, 0, j, comm, &requests[j]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        for (int j = 0; rank == 1 && j < window; j++)
            if (in[j] != (long)i * window + j)
                fail("wrong content");
        MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - rank, window, NULL, 0, MPI_BYTE, 1 - rank, window, comm, MPI_STATUS_IGNORE);
    }
}

static void *thread_main(void *arg)
{
    const struct job *job = arg;
    windows(job->comm, count / 10 + 1);
    pthread_barrier_wait(&start);
    windows(job->comm, count);
    return NULL;
}

int main(int argc, char **argv)
{
    const int threads = argc == 3 ? atoi(argv[1]) : 0;
    int have;
    count = argc == 3 ? atoi(argv[2]) / window : 0;
    if (threads < 1 || count < 1) {
        fprintf(stderr, "usage: mpirun -np 2 threads THREADS MESSAGES   (of each thread)\n");
        return 2;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &have);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (have != MPI_THREAD_MULTIPLE)
        fail("this MPI has no MPI_THREAD_MULTIPLE");
    struct job *jobs = calloc((size_t)threads, sizeof *jobs);
    if (jobs == NULL)
        fail("no memory");
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
        if (pthread_create(&jobs[i].thread, NULL, thread_main, &jobs[i]) != 0)
            fail("no thread");
    }
    pthread_barrier_wait(&start);
    const double before = MPI_Wtime();
    for (int i = 0; i < threads; i++)
        pthread_join(jobs[i].thread, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.0f\n", (double)threads * count * window / (MPI_Wtime() - before));
    for (int i = 0; i < threads; i++)
        MPI_Comm_free(&jobs[i].comm);
    MPI_Finalize();
    free(jobs);
    return 0;
}
