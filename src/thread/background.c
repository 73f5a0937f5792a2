// background.c: the helper thread of HAKMEM_BACKGROUND=1 (row S9). It allocates nothing and has no
// heap, unless the program's exit handlers run in it. Other threads would do all of its work too,
// only later.

#include <pthread.h>
#include <signal.h>

#include "core/options.h"
#include "core/pressure.h"
#include "os/os.h"
#include "pool/huge_cache.h"
#include "superslab/shared_pool.h"
#include "thread/heap.h"
#include "thread/process.h"

#define PERIOD_MS 1000
#define PRESSED 1                    // per cent of the time in which some task waited for memory
#define STACK_SIZE ((size_t)1 << 20) // the program's exit handlers may run on it

static const char *skip_word(const char *at) {
  while (*at && *at != ' ') at++;
  return *at ? at + 1 : at;
}

// Whether the program's threads have all ended: the first one is a zombie until the process ends,
// and this is the only other. Then the C library ends the process when this one ends.
static bool is_alone(void) {
  char text[512];
  if (!hak_os_read_text("/proc/self/stat", text, sizeof text)) return false;
  const char *at = text, *state = text; // behind the name, which may be anything
  for (; *at; at++)
    if (*at == ')') state = at + 1;
  if (state[0] != ' ' || state[1] != 'Z') return false;
  enum { STATE = 3, THREADS = 20 }; // fields, see proc(5)
  at = state + 1;
  for (unsigned field = STATE; field < THREADS; field++) at = skip_word(at);
  return at[0] == '2' && at[1] == ' ';
}

static sigset_t mask; // of the thread that started the helper

static void *helper(void *unused) {
  (void)unused;
  while (!is_alone()) {
    hak_os_sleep_ms(PERIOD_MS);
    if (hak_pressure() >= PRESSED) hak_heap_reclaim_all(NULL, 0);
    else hak_pool_trim_idle(0);
    hak_huge_cache_tend();
  }
  pthread_sigmask(SIG_SETMASK, &mask, NULL); // the program ends in this thread
  return NULL;
}

void hak_background_start(void) {
  if (!hak_option(BACKGROUND)) return;
  sigset_t all;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  // The program's signals are for its own threads.
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  (void)pthread_create(&thread, &attributes, helper, NULL); // on failure there is no helper
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  pthread_attr_destroy(&attributes);
}
