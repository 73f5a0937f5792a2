#include "thread/process.h"

#include <pthread.h>

#include "core/options.h"
#include "core/pressure.h"
#include "core/print.h"
#include "os/os.h"
#include "pool/huge_cache.h"
#include "superslab/seal.h"
#include "superslab/shared_pool.h"
#include "superslab/superslab.h"
#include "thread/guard.h"
#include "thread/heap.h"

_Atomic uint32_t hak_process_state; // 0, 1: a thread is initialising, 2: done
static int process_id;              // not that of a child of vfork
static _Atomic uintptr_t set_up_by; // the thread that is initialising: where its heap pointer is

void hak_process_fit(size_t limit) {
  if (hak_os_pid() == process_id) hak_superslab_fit(limit);
}

static void after_fork_in_child(void) {
  process_id = hak_os_pid();
  // The layers below the heaps come first: heaps may give slabs back to them.
  hak_huge_cache_after_fork();
  hak_pool_rebuild();
  hak_heap_after_fork();
}

void hak_process_init_slow(void) {
  uint32_t state = 0;
  if (!hak_cas_acquire(&hak_process_state, &state, 1)) { // nobody stored before: for 2, as below
    // Relaxed: only the thread itself must find its own address.
    if (hak_load_relaxed(&set_up_by) == (uintptr_t)&hak_tls_heap) {
      hak_message("malloc called amid the first malloc's set-up: by a signal handler, or by what "
                  "replaces getauxval, getrlimit or mmap");
      hak_os_abort();
    }
    // Only a program that starts threads before its first malloc gets here.
    // Acquire: pairs with the release below.
    while (hak_load_acquire(&hak_process_state) != 2) hak_os_yield();
    return;
  }
  hak_store_relaxed(&set_up_by, (uintptr_t)&hak_tls_heap);
  process_id = hak_os_pid();
  hak_os_init();
  hak_print_init();
  hak_options_init();
  hak_seal_init();
  hak_superslab_init();
  // Release: pairs with the acquire in hak_process_init.
  hak_store_release(&hak_process_state, 2);
  hak_store_relaxed(&set_up_by, (uintptr_t)0);
  // The calls below enter the C library, which may allocate: that works from here on.
  hak_heap_init_keys();
  // Registered at the first malloc, usually the loader's: handlers run in the order in which they
  // were registered, and those of other libraries may allocate.
  pthread_atfork(NULL, NULL, after_fork_in_child);
}

// The constructor usually runs after the first malloc. Whatever may print waits until here.
__attribute__((constructor(101))) static void start(void) {
  hak_process_init();
  hak_options_report();
  hak_pressure_init();
  hak_guard_start();
  hak_background_start();
}
