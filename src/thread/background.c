// background.c: the helper thread of HAKMEM_BACKGROUND=1 (row S9). It allocates nothing and has no
// heap. Other threads would do all of its work too, only later.

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
#define PRESSED 1 // per cent of the time in which some task waited for memory
#define STACK_SIZE ((size_t)128 << 10)

static void *helper(void *unused) {
  (void)unused;
  for (;;) {
    hak_os_sleep_ms(PERIOD_MS);
    if (hak_pressure() >= PRESSED) hak_heap_reclaim_all(NULL, 0);
    else hak_pool_trim_idle(0);
    hak_huge_cache_tend();
  }
  return NULL;
}

void hak_background_start(void) {
  if (!hak_option(BACKGROUND)) return;
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  // The program's signals are for its own threads.
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  (void)pthread_create(&thread, &attributes, helper, NULL); // on failure there is no helper
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}
