// loader.c: libraries that are loaded and unloaded, other interposers, hostile start-ups.

#include "situations.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

// The library that contains malloc.
static const char *allocator(void) {
  Dl_info info;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) && info.dli_fname[0] == '/');
  return info.dli_fname;
}

static void *load(const char *path, int flags) {
  void *library = dlopen(path, flags);
  if (!library) dprintf(2, "%s\n", dlerror());
  CHECK(library);
  return library;
}

typedef int work_t(int);
static void plugin_works(void *library) {
  work_t *work = (work_t *)(uintptr_t)dlsym(library, "plugin_work");
  CHECK(work && work(10) > 0);
}
static void *plugin_works_in_thread(void *library) { return plugin_works(library), NULL; }

// ---------------------------------------------------------------------------
// The allocator's own library.

static void allocator_again(size_t flags, size_t times) {
  void *before = filled_block(5000, 1);
  for (size_t i = 0; i < times; i++) {
    void *library = load(allocator(), (int)flags);
    void *(*its_malloc)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "malloc");
    CHECK(its_malloc == (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "malloc"));
    void *p = its_malloc(100);
    churn_some(i, 100);
    CHECK(dlclose(library) == 0);
    free(p);
  }
  check_and_free(before, 5000, 1);
}

// A second copy, with a second C library below it; each copy keeps its own blocks.
static void allocator_in_name_space(size_t times, size_t b) {
  (void)b;
  for (size_t i = 0; i < times; i++) {
    void *library = dlmopen(LM_ID_NEWLM, allocator(), RTLD_NOW);
    if (!library) dprintf(2, "%s\n", dlerror());
    CHECK(library);
    void *(*its_malloc)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "malloc");
    void (*its_free)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "free");
    CHECK(its_malloc && its_free && its_malloc != malloc);
    for (size_t n = 1; n < 4 * MIB; n = n * 3 + 1) {
      void *ours = filled_block(n, n), *theirs = its_malloc(n);
      CHECK(theirs);
      fill(theirs, n, n + 1);
      check_and_free(ours, n, n);
      CHECK(filled(theirs, n, n + 1));
      its_free(theirs);
    }
    CHECK(dlclose(library) == 0);
  }
}

// ---------------------------------------------------------------------------
// Other libraries.

static void load_and_unload(size_t flags, size_t threads) {
  size_t before = 0;
  for (int i = 0; i < 60; i++) {
    void *library = load(beside("libsit_plugin.so"), (int)flags);
    plugin_works(library);
    for (size_t t = 0; t < threads; t++) join(start(plugin_works_in_thread, library));
    CHECK(dlclose(library) == 0);
    if (i == 20) before = rss_kib();
  }
  CHECK(rss_kib() < before + 4 * KIB); // from one time to the next it varies by 1 to 2.5 MiB
}

// Blocks allocated by a library outlive it.
static void blocks_outlive_library(size_t size, size_t b) {
  (void)b;
  void *p[20];
  void *library = load(beside("libsit_plugin.so"), RTLD_NOW);
  void *(*block)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_block");
  for (size_t i = 0; i < COUNT(p); i++) CHECK(p[i] = block(size)), fill(p[i], size, i);
  CHECK(dlclose(library) == 0);
  for (size_t i = 0; i < COUNT(p); i++) check_and_free(p[i], size, i);
}

// The library uses whatever malloc it is bound to; its blocks stay with it.
static void deep_binding(size_t kept, size_t b) {
  (void)b;
  for (int i = 0; i < 20; i++) {
    void *library = load(beside("libsit_plugin.so"), RTLD_NOW | RTLD_DEEPBIND);
    plugin_works(library);
    void *(*block)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_block");
    void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "plugin_free");
    void *p = block(3000);
    fill(p, 3000, 3);
    churn_some(3, 100);
    CHECK(filled(p, 3000, 3));
    bool (*owns)(const void *) = (bool (*)(const void *))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_owns");
    if (owns) CHECK(owns(p) == !kept);
    release(p);
    CHECK(dlclose(library) == 0);
  }
}

// What the library allocates the program resizes and frees, and the reverse, as PHP and its modules
// do.
static void deep_binding_exchange(size_t size, size_t b) {
  (void)b;
  void *library = load(beside("libsit_plugin.so"), RTLD_NOW | RTLD_DEEPBIND);
  void *(*block)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_block");
  void *(*resized)(void *, size_t) =
      (void *(*)(void *, size_t))(uintptr_t)dlsym(library, "plugin_resized");
  void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "plugin_free");
  for (size_t i = 0; i < 50; i++) {
    void *theirs = block(size), *ours = filled_block(size, i);
    fill(theirs, size, i);
    CHECK(theirs = realloc(theirs, size + i * 100));
    CHECK(ours = resized(ours, size + i * 100));
    CHECK(filled(theirs, size, i) && filled(ours, size, i));
    free(theirs);
    release(ours);
  }
  CHECK(dlclose(library) == 0);
}

// A library that loads another one by its name finds it where its RUNPATH says.
static void found_by_its_caller(size_t flags, size_t b) {
  (void)b;
  void *library = load(beside("libsit_plugin.so"), RTLD_NOW);
  void *(*loads)(int) = (void *(*)(int))(uintptr_t)dlsym(library, "plugin_loads");
  CHECK(!dlopen("libsit_inner.so", (int)flags) && dlerror());
  void *inner = loads((int)flags);
  if (!inner) dprintf(2, "%s\n", dlerror());
  CHECK(inner);
  void *(*block)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(inner, "inner_block");
  void *p = block(100);
  fill(p, 100, 1);
  CHECK(dlclose(inner) == 0 && dlclose(library) == 0);
  if (!(flags & RTLD_DEEPBIND)) check_and_free(p, 100, 1);
}

static void name_spaces(size_t number, size_t b) {
  (void)b;
  void *library[12];
  for (size_t i = 0; i < number; i++) {
    library[i] = dlmopen(LM_ID_NEWLM, beside("libsit_plugin.so"), RTLD_NOW);
    if (!library[i]) dprintf(2, "%s\n", dlerror());
    CHECK(library[i]);
    plugin_works(library[i]);
    churn_some(i, 100);
  }
  for (size_t i = 0; i < number; i++) plugin_works(library[i]), CHECK(dlclose(library[i]) == 0);
}

// Copies of one library, as many as a large program loads.
static void many_libraries(size_t number, size_t b) {
  (void)b;
  static void *library[100];
  struct stat of;
  int from = open(beside("libsit_plugin.so"), O_RDONLY);
  CHECK(from >= 0 && fstat(from, &of) == 0);
  void *contents = mmap(NULL, (size_t)of.st_size, PROT_READ, MAP_PRIVATE, from, 0);
  for (size_t i = 0; i < number; i++) {
    char name[40];
    int fd = memfd_create("copy", 0);
    if (fd < 0) sit_skip("no memfd_create");
    CHECK(write(fd, contents, (size_t)of.st_size) == of.st_size);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    library[i] = load(name, RTLD_NOW | RTLD_LOCAL);
    plugin_works(library[i]);
  }
  for (size_t i = 0; i < number; i += 2) plugin_works(library[i]), CHECK(dlclose(library[i]) == 0);
  for (size_t i = 1; i < number; i += 2) plugin_works(library[i]), CHECK(dlclose(library[i]) == 0);
}

// Running threads get the library's thread-local memory when they first use it.
static pthread_barrier_t loaded;
static void *late;
static void *use_late_library(void *seed) {
  churn_some(AS_NUMBER(seed), 100);
  pthread_barrier_wait(&loaded);
  plugin_works(late);
  return NULL;
}
static void loaded_while_threads_run(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[16];
  pthread_barrier_init(&loaded, NULL, (unsigned)threads + 1);
  for (size_t i = 0; i < threads; i++) thread[i] = start(use_late_library, AS_ARGUMENT(i));
  late = load(beside("libsit_plugin.so"), RTLD_NOW);
  pthread_barrier_wait(&loaded);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
  CHECK(dlclose(late) == 0);
}

static void *load_repeatedly(void *unused) {
  (void)unused;
  for (int i = 0; i < 20; i++) {
    void *library = load(beside("libsit_plugin.so"), RTLD_NOW);
    plugin_works(library);
    CHECK(dlclose(library) == 0);
  }
  return NULL;
}
static void loaded_in_one_thread_while_others_allocate(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[8], loader = start(load_repeatedly, NULL);
  for (size_t i = 0; i < threads; i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  for (size_t i = 0; i < threads; i++) join(thread[i]);
  join(loader);
}

static void *fail_to_load(void *times) {
  for (size_t i = 0; i < AS_NUMBER(times); i++) {
    CHECK(dlopen("/no/such/library.so", RTLD_NOW) == NULL);
    CHECK(strstr(dlerror(), "/no/such/library.so"));
    CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere") == NULL && dlerror());
  }
  return NULL;
}
static void errors(size_t times, size_t threads) {
  fail_to_load(AS_ARGUMENT(times));
  size_t before = exact_rss_kib();
  for (size_t i = 0; i < threads; i++) join(start(fail_to_load, AS_ARGUMENT(times)));
  fail_to_load(AS_ARGUMENT(times));
  CHECK(exact_rss_kib() < before + KIB);
}

static int allocate_per_library(struct dl_phdr_info *info, size_t size, void *count) {
  (void)size;
  char *name = strdup(info->dlpi_name);
  CHECK(name);
  free(name);
  churn_some(1, 50);
  ++*(size_t *)count;
  return 0;
}
static void allocating_while_the_list_is_held(size_t times, size_t b) {
  (void)b;
  size_t count = 0;
  for (size_t i = 0; i < times; i++) dl_iterate_phdr(allocate_per_library, &count);
  CHECK(count >= 2 * times);
}

// ---------------------------------------------------------------------------
// Ways to start a process. The conditions of the rows are the test.

static void ordinary(size_t operations, size_t b) {
  (void)b;
  churn(1, operations);
  for (size_t i = 0; i < CTOR_SIZES; i++) CHECK(sit_ctor_block[i]);
  pthread_t thread[3];
  for (size_t i = 0; i < COUNT(thread); i++) thread[i] = start(churn_thread, AS_ARGUMENT(i));
  for (size_t i = 0; i < COUNT(thread); i++) join(thread[i]);
  pid_t pid = fork();
  if (pid == 0) churn(2, 200), exit(0);
  wait_for(pid, 0);
  malloc_trim(0);
}

static void wrapped(size_t first, size_t b) {
  _Atomic size_t *calls = dlsym(RTLD_DEFAULT, "wrapper_calls");
  CHECK(calls);
  size_t before = *calls;
  ordinary(500, b);
  if (first) CHECK(*calls > before);
}

const case_t loader_cases[] = {
    {"allocator_again_lazy", allocator_again, RTLD_LAZY, 50},
    {"allocator_again_now_global", allocator_again, RTLD_NOW | RTLD_GLOBAL, 50},
    {"allocator_again_deep_binding", allocator_again, RTLD_NOW | RTLD_DEEPBIND, 50},
    {"allocator_again_nodelete", allocator_again, RTLD_NOW | RTLD_NODELETE, 50},
    {"allocator_in_name_space", allocator_in_name_space, 1},
    {"allocator_in_3_name_spaces", allocator_in_name_space, 3},
    {"load_and_unload_lazy", load_and_unload, RTLD_LAZY | RTLD_LOCAL, 0},
    {"load_and_unload_global", load_and_unload, RTLD_NOW | RTLD_GLOBAL, 0},
    {"load_and_unload_with_threads", load_and_unload, RTLD_NOW, 3},
    EACH_RANGE("blocks_outlive_library", blocks_outlive_library, 0),
    {"deep_binding", deep_binding, 0},
    {"deep_binding_kept", deep_binding, 1, 0, "deep_binding_kept"},
    EACH_RANGE("deep_binding_exchange", deep_binding_exchange, 0),
    {"found_by_its_caller", found_by_its_caller, RTLD_NOW},
    {"found_by_its_caller_lazy", found_by_its_caller, RTLD_LAZY | RTLD_GLOBAL},
    {"found_by_its_caller_deep_binding", found_by_its_caller, RTLD_NOW | RTLD_DEEPBIND},
    {"name_spaces", name_spaces, 8},
    {"many_libraries", many_libraries, 60},
    {"loaded_while_threads_run", loaded_while_threads_run, 12},
    {"loaded_while_others_allocate", loaded_in_one_thread_while_others_allocate, 4},
    {"errors", errors, 300, 0},
    {"errors_in_threads", errors, 300, 5},
    {"allocating_while_the_list_is_held", allocating_while_the_list_is_held, 30},
    {"bind_now", ordinary, 500, 0, "bind_now"},
    {"no_environment", ordinary, 500, 0, "no_environment"},
    {"large_environment", ordinary, 500, 0, "large_environment"},
    {"malloc_perturb", ordinary, 500, 0, "malloc_perturb"},
    {"malloc_arena_1", ordinary, 500, 0, "malloc_arena_1"},
    {"glibc_tunables", ordinary, 500, 0, "glibc_tunables"},
    {"no_rseq", ordinary, 500, 0, "no_rseq"},
    {"closed_stdin", ordinary, 500, 0, "closed_0"},
    {"closed_stderr", ordinary, 500, 0, "closed_2"},
    {"closed_stdio", ordinary, 500, 0, "closed_0_to_2"},
    {"closed_everything", ordinary, 500, 0, "closed_all"},
    {"hostile_libc_before", ordinary, 500, 0, "hostile_libc_first"},
    {"hostile_libc_after", ordinary, 500, 0, "hostile_libc_last"},
    {"hostile_libc_bind_now", ordinary, 500, 0, "hostile_libc_first bind_now"},
    {"second_interposer_before", wrapped, 1, 0, "wrapper_first"},
    {"second_interposer_after", wrapped, 0, 0, "wrapper_last"},
    {"second_interposer_and_hostile_libc", wrapped, 1, 0, "hostile_libc_first wrapper_first"},
    {NULL},
};
