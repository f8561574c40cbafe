// SPDX-License-Identifier: BSD-3-Clause
//
// Every two processes connect, talk and close, again and again, as an upper layer of the BTL:
//   mpirun -np N check_again ROUNDS FILE [KILLED]
// FILE is empty, all processes can write to it, and they meet in it. Rounds are those of a pair: each pair goes through its own,
// whatever the others do. In a round each of the two sends the other some messages. Who has all that the other has sent, and
// the callbacks of all its own, is through; then one of the two closes its endpoint, or both, or neither, and the next round
// begins. Who goes first then, and who must wait for what, is all that they agree on:
//   both have closed     who has opened again sends when the other has closed, too
//   one has closed       it sends first, on a new connection; the other keeps its endpoint and answers on it
// Messages of a pair arrive once and whole, and the callback of each is called once. (The order is the PML's business.) Nobody is told of a failure; but
// the rank KILLED, if there is one, kills itself halfway, and whoever sends to it then is told. Rank 0 prints how many
// connections it has closed.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "btl_user.h"

enum { tag = MCA_BTL_TAG_MAX - 1, most_peers = 64, most_messages = 3, patience = 120 };

struct message {
  uint32_t from, round, index, bytes;
  unsigned char rest[];
};

// What all processes see.
struct meeting {
  _Atomic uint32_t closed[most_peers][most_peers];  // [process][peer]: rounds after which it has closed
  _Atomic uint32_t over[most_peers];                // nothing more to do
  _Atomic uint32_t gone[most_peers];                // about to kill itself
  _Atomic uint32_t ready;                           // so many can receive: nobody sends before all can
};

struct peer {
  opal_proc_t* proc;
  struct mca_btl_base_endpoint_t* endpoint;
  uint32_t round, sent, ended;
  uint32_t received[2];  // bit n: message n of an even or odd round is here; the peer may be a round ahead
  int told;              // that it cannot be reached
  double tried;          // when that was last looked for
};

static mca_btl_base_module_t* btl;
static uint32_t rank, size, rounds, killed = UINT32_MAX;
static struct meeting* meeting;
static struct peer peers[most_peers];
static long closes, deliveries;

static uint32_t mixed(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t x = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du ^ d * 0x27d4eb2fu;
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return x ^ (x >> 13);
}

static void quit(const char* what, uint32_t peer, uint32_t a, uint32_t b) {
  fprintf(stderr, "check_again: rank %u, peer %u, round %u: %s (%u, %u)\n", rank, peer, peers[peer].round, what, a, b);
  fail(what);
}

static uint32_t lower(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
static uint32_t higher(uint32_t a, uint32_t b) {
  return a < b ? b : a;
}

// Whether process `who` closes after that round of the pair.
static int closes_after(uint32_t who, uint32_t other, uint32_t round) {
  const uint32_t way = mixed(lower(who, other), higher(who, other), round, 1) % 5;
  return way == 0 || way == 1 || way == (who < other ? 2 : 3);
}

// Messages that one sends the other in a round: some always, or one of the two would run ahead.
static uint32_t messages_of(uint32_t from, uint32_t to, uint32_t round) {
  return 1 + mixed(from, to, round, 2) % most_messages;
}

static uint32_t bytes_of(uint32_t from, uint32_t to, uint32_t round, uint32_t index) {
  static const uint32_t sizes[] = {0, 8, 100, 1000, 4000, 12000};
  return (uint32_t)sizeof(struct message) + sizes[mixed(from, to, round, 3 + index) % 6];
}

static unsigned char byte_of(const struct message* message, uint32_t i) {
  return (unsigned char)mixed(message->from, message->round, message->index, i);
}

static int is_alive(uint32_t peer) {
  return !peers[peer].told;
}

static void receive(mca_btl_base_module_t* module, mca_btl_base_tag_t which, mca_btl_base_descriptor_t* descriptor,
                    void* data) {
  (void)module, (void)which, (void)data;
  const struct message* message = descriptor->des_segments[0].seg_addr.pval;
  const uint32_t length = (uint32_t)descriptor->des_segments[0].seg_len;
  if (length < sizeof *message || message->from >= size) quit("a message of nobody", rank, length, message->from);
  const uint32_t from = message->from;
  struct peer* peer = &peers[from];
  if (message->round != peer->round && message->round != peer->round + 1)
    quit("a message of another round", from, message->round, message->index);
  if (message->index >= messages_of(from, rank, message->round))
    quit("a message that nobody has sent", from, message->round, message->index);
  uint32_t* const received = &peer->received[message->round % 2];
  if ((*received >> message->index & 1) != 0) quit("a message has arrived twice", from, message->round, message->index);
  if (length != bytes_of(from, rank, message->round, message->index))
    quit("a message has another length", from, length, message->index);
  for (uint32_t i = 0; i < length - sizeof *message; i++)
    if (message->rest[i] != byte_of(message, i)) quit("a message has other contents", from, length, i);
  *received |= 1u << message->index;
  deliveries++;
}

static int everybody_is_over(void) {
  for (uint32_t p = 0; p < size; p++)
    if (!atomic_load(&meeting->over[p]) && !atomic_load(&meeting->gone[p])) return 0;
  return 1;
}

static void failed(mca_btl_base_module_t* module, int32_t flags, opal_proc_t* process, char* what) {
  (void)module, (void)flags, (void)what;
  if (killed != UINT32_MAX && everybody_is_over()) return;  // it has left by _exit(), as we are about to
  for (uint32_t p = 0; p < size; p++)
    if (peers[p].proc == process) {
      if (p != killed || atomic_load(&meeting->gone[p]) == 0) quit("a peer that is there is said to be gone", p, 0, 0);
      if (peers[p].told++ != 0) quit("it is said twice that a peer is gone", p, 0, 0);
      return;
    }
  quit("the error callback names no process", rank, 0, 0);
}

static void done(mca_btl_base_module_t* module, struct mca_btl_base_endpoint_t* endpoint,
                 mca_btl_base_descriptor_t* descriptor, int status) {
  (void)module, (void)endpoint;
  struct peer* peer = descriptor->des_cbdata;
  if (status != OPAL_SUCCESS && !peer->told) quit("a message has failed", (uint32_t)(peer - peers), 0, 0);
  if (++peer->ended > peer->sent) quit("a callback is called twice", (uint32_t)(peer - peers), peer->ended, 0);
}

static struct mca_btl_base_endpoint_t* opened(uint32_t p) {
  if (peers[p].endpoint == NULL) peers[p].endpoint = endpoint_of(btl, p);
  return peers[p].endpoint;
}

// False: there is no buffer now.
static int send_one(uint32_t p, uint32_t index) {
  struct peer* peer = &peers[p];
  const uint32_t bytes = bytes_of(rank, p, peer->round, index);
  const uint32_t flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  mca_btl_base_descriptor_t* descriptor = btl->btl_alloc(btl, opened(p), MCA_BTL_NO_ORDER, bytes, flags);
  if (descriptor == NULL) return 0;
  struct message* message = descriptor->des_segments[0].seg_addr.pval;
  *message = (struct message){rank, peer->round, index, bytes};
  for (uint32_t i = 0; i < bytes - sizeof *message; i++) message->rest[i] = byte_of(message, i);
  descriptor->des_cbfunc = done;
  descriptor->des_cbdata = peer;
  peer->sent++;
  const int result = btl->btl_send(btl, opened(p), descriptor, tag);
  if (result < 0 && !peer->told) quit("a message was not taken", p, index, (uint32_t)-result);
  if (result < 0) {
    peer->ended++;
    btl->btl_free(btl, descriptor);
  }
  return 1;
}

// There is one if the peer has connected to us, too.
static int close_none(mca_btl_base_module_t* module, size_t count, opal_proc_t** processes,
                      struct mca_btl_base_endpoint_t** endpoints) {
  (void)module, (void)count, (void)processes, (void)endpoints;
  return 0;
}

static void close_endpoint(uint32_t p) {
  opened(p);
  btl->btl_del_procs(btl, 1, &peers[p].proc, &peers[p].endpoint);
  peers[p].endpoint = NULL;
  closes++;
}

static uint32_t received_from(uint32_t p) {
  return (uint32_t)__builtin_popcount(peers[p].received[peers[p].round % 2]);
}

// May the first message of this round go?
static int may_send(uint32_t p) {
  const uint32_t round = peers[p].round;
  if (round == 0 || !closes_after(p, rank, round - 1)) return 1;
  if (closes_after(rank, p, round - 1)) return atomic_load(&meeting->closed[p][rank]) >= round;
  return received_from(p) > 0;
}

// What can be done with a peer now. True if that was something.
static int go_on(uint32_t p) {
  struct peer* peer = &peers[p];
  if (peer->round == rounds || !is_alive(p)) return 0;
  if (peer->sent < messages_of(rank, p, peer->round)) return may_send(p) && send_one(p, peer->sent);
  if (peer->ended < peer->sent || received_from(p) < messages_of(p, rank, peer->round)) return 0;
  const int closing = closes_after(rank, p, peer->round);
  peer->received[peer->round % 2] = 0;
  peer->round++;
  peer->sent = peer->ended = 0;
  if (closing) {
    close_endpoint(p);
    atomic_store(&meeting->closed[rank][p], peer->round);
  }
  return 1;
}

// Sends to the one that is gone until we are told; then its endpoint goes, too.
static int bury(uint32_t p) {
  struct peer* peer = &peers[p];
  if (!atomic_load(&meeting->gone[p]) || peer->round == rounds) return 0;
  if (!peer->told) {
    // Not as fast as can be: until the device has noticed, it takes them, and without credits nothing would be tried again.
    if (peer->ended == peer->sent && MPI_Wtime() - peer->tried > 0.02) {
      peer->tried = MPI_Wtime();
      send_one(p, 0);
    }
    return 0;
  }
  if (peer->ended < peer->sent) return 0;
  close_endpoint(p);
  peer->round = rounds;
  return 1;
}

static int all_over(void) {
  for (uint32_t p = 0; p < size; p++)
    if (p != rank && peers[p].round != rounds) return 0;
  return 1;
}

static void tell_of_a_stall(void) {
  for (uint32_t p = 0; p < size; p++)
    if (p != rank && peers[p].round != rounds)
      fprintf(stderr, "rank %u, peer %u, round %u: sent %u of %u, ended %u, received %u of %u, %s\n", rank, p,
              peers[p].round, peers[p].sent, messages_of(rank, p, peers[p].round), peers[p].ended, received_from(p),
              messages_of(p, rank, peers[p].round), may_send(p) ? "may send" : "must wait");
  fail("nothing has happened for too long");
}

int main(int argc, char** argv) {
  int number;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &number);
  rank = (uint32_t)number;
  MPI_Comm_size(MPI_COMM_WORLD, &number);
  size = (uint32_t)number;
  if (argc < 3 || size > most_peers) fail("usage: check_again ROUNDS FILE [KILLED], by 64 processes at most");
  rounds = (uint32_t)atoi(argv[1]);
  if (argc > 3) killed = (uint32_t)atoi(argv[3]);
  const int file = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof *meeting) != 0) fail("the file cannot be written");
  meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (meeting == MAP_FAILED) fail("the file cannot be mapped");

  mca_btl_base_active_message_trigger[tag].cbfunc = receive;
  btl = fabric_module();
  btl->btl_register_error(btl, failed);
  for (uint32_t p = 0; p < size; p++) peers[p].proc = process_of(p);

  atomic_fetch_add(&meeting->ready, 1);
  while (atomic_load(&meeting->ready) < size) sched_yield();

  double last = MPI_Wtime();
  while (!everybody_is_over()) {
    int moved = 0;
    opal_progress();
    for (uint32_t d = 1; d < size; d++) {
      const uint32_t p = (rank + d) % size;
      moved |= p == killed && atomic_load(&meeting->gone[p]) ? bury(p) : go_on(p);
    }
    if (rank == killed && peers[(rank + 1) % size].round >= rounds / 2) {
      atomic_store(&meeting->gone[rank], 1);
      raise(SIGKILL);
    }
    if (all_over()) atomic_store(&meeting->over[rank], 1);
    if (moved)
      last = MPI_Wtime();
    else if (MPI_Wtime() - last > patience && !all_over())
      tell_of_a_stall();
    else
      sched_yield();
  }
  if (rank == 0)
    printf("%u rounds with each of %u peers: %ld connections closed, %ld messages received\n", rounds, size - 1, closes,
           deliveries);
  fflush(stdout);
  if (killed != UINT32_MAX) _exit(0);
  // Open MPI has endpoints of its own, of before MPI_Init has ended: those that we have closed are not there any more.
  btl->btl_del_procs = close_none;
  MPI_Finalize();
  return 0;
}
