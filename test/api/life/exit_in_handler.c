// exit_in_handler.c: ends in a signal handler, MICROSECONDS after its start, usually in the
// middle of malloc or free. exit is not meant for that, but programs use it that way; nothing
// here allocates from then on.

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static void end(int number) { exit(number == SIGALRM ? 0 : 1); }

int main(int argc, char **argv) {
  static void *p[4000];
  enum { BLOCKS = sizeof p / sizeof *p };
  if (argc != 2 || signal(SIGALRM, end) == SIG_ERR) return 2;
  struct itimerval timer = {.it_value.tv_usec = atoi(argv[1])};
  setitimer(ITIMER_REAL, &timer, NULL);
  for (unsigned round = 0;; round++) {
    size_t size = 700 + round % 40 * 16;
    for (unsigned i = 0; i < BLOCKS; i++) {
      if (!(p[i] = malloc(size))) return 3;
      memset(p[i], 0x5a, size);
    }
    for (unsigned i = 0; i < BLOCKS; i++) free(p[i]);
  }
}
