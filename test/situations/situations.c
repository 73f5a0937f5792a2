// situations.c: one situation per run that a malloc must survive.
//
//   situations --list                             GROUP.CASE, one per line
//   situations [--under CONDITION]... GROUP.CASE
//
// Prints "ok" and ends with 0; or says on stderr what did not hold and ends with 1; or prints
// why this machine cannot run the case and ends with 77. It does not look at which allocator
// is loaded. The conditions of the case's row are set up first, then those given. After a
// condition that a new program inherits, the program restarts itself, so that the allocator
// starts under it; --bare tells the restarted program that the row's conditions are set up or
// still in its arguments.

#include "situations.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>

bool sit_long;

static const struct {
  const char *name;
  const case_t *cases;
} groups[] = {{"threads", threads_cases},   {"process", process_cases}, {"signals", signals_cases},
              {"loader", loader_cases},     {"limits", limits_cases},   {"memory", memory_cases},
              {"contract", contract_cases}, {"libc", libc_cases},       {"cxx", cxx_cases},
              {"workload", workload_cases}};

void sit_fail(const char *file, int line, const char *what) {
  char text[600];
  const char *slash = strrchr(file, '/');
  int n = snprintf(text, sizeof text, "%s:%d: %s does not hold (errno %d)\n",
                   slash ? slash + 1 : file, line, what, errno);
  if (write(2, text, (size_t)n) != n) _exit(3);
  _exit(1);
}

void sit_skip(const char *why) {
  dprintf(1, "skipped: %s\n", why);
  _exit(77);
}

// ---------------------------------------------------------------------------

static uint64_t word_of(uint64_t seed, size_t i) {
  return (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0x0101010101010101u;
}

// A word at a time, without calls: otherwise most of the suite's time would be spent here.
void fill(void *p, size_t n, uint64_t seed) {
  unsigned char *at = p;
  uint64_t w;
  for (size_t i = 0; i < n; i += sizeof w) {
    w = word_of(seed, i);
    if (n - i >= sizeof w) __builtin_memcpy(at + i, &w, sizeof w);
    else memcpy(at + i, &w, n - i);
  }
}

bool filled(const void *p, size_t n, uint64_t seed) {
  const unsigned char *at = p;
  uint64_t w, found;
  for (size_t i = 0; i < n; i += sizeof w) {
    w = word_of(seed, i);
    if (n - i < sizeof w) return memcmp(at + i, &w, n - i) == 0;
    __builtin_memcpy(&found, at + i, sizeof w);
    if (found != w) return false;
  }
  return true;
}

bool all_zero(const void *p, size_t n) {
  const unsigned char *at = p;
  return n == 0 || (at[0] == 0 && memcmp(at, at + 1, n - 1) == 0);
}

uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}

void *filled_block(size_t n, uint64_t seed) {
  void *p = malloc(n);
  CHECK(p);
  fill(p, n, seed);
  return p;
}

void check_and_free(void *p, size_t n, uint64_t seed) {
  CHECK(filled(p, n, seed));
  free(p);
}

const char *beside(const char *name) {
  static char path[4096];
  Dl_info info;
  CHECK(dladdr((const void *)sit_ctor_size, &info) && strrchr(info.dli_fname, '/'));
  int folder = (int)(strrchr(info.dli_fname, '/') + 1 - info.dli_fname);
  CHECK(snprintf(path, sizeof path, "%.*s%s", folder, info.dli_fname, name) < (int)sizeof path);
  return path;
}

enum { HELD = 64 };

static void churn_up_to(uint64_t seed, size_t operations, size_t largest) {
  static const size_t limits[] = {64, 64, 200, 200, 1000, 1000, 5000, 9000, 40000};
  struct {
    unsigned char *p;
    size_t size;
  } held[HELD] = {{NULL, 0}};
  uint64_t random = seed * 2 + 1;
  for (size_t i = 0; i < operations; i++) {
    size_t at = chance(&random) % HELD;
    size_t size = chance(&random) % limits[chance(&random) % COUNT(limits)];
    if (chance(&random) % 100 == 0) size = chance(&random) % largest;
    CHECK(held[at].p == NULL || filled(held[at].p, held[at].size, at + seed));
    if (held[at].p && chance(&random) % 4 == 0) {
      size_t kept = size < held[at].size ? size : held[at].size;
      unsigned char *p = realloc(held[at].p, size + 1);
      CHECK(p && filled(p, kept, at + seed));
      held[at].p = p;
    } else {
      free(held[at].p);
      CHECK((held[at].p = malloc(size)) != NULL);
    }
    held[at].size = size;
    fill(held[at].p, size, at + seed);
  }
  for (size_t at = 0; at < HELD; at++) free(held[at].p);
}

void churn(uint64_t seed, size_t operations) { churn_up_to(seed, operations, 400000); }
void churn_some(uint64_t seed, size_t operations) { churn_up_to(seed, operations, 64 * KIB); }

void *churn_thread(void *seed) {
  churn(AS_NUMBER(seed), 2000);
  return NULL;
}

bool try_start(pthread_t *thread, void *(*function)(void *), void *argument) {
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
  int error = pthread_create(thread, &attributes, function, argument);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

pthread_t start(void *(*function)(void *), void *argument) {
  pthread_t thread;
  CHECK(try_start(&thread, function, argument));
  return thread;
}

void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

void wait_for(pid_t pid, int expected) {
  int status = -1;
  CHECK(pid > 0);
  while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
  if (status != expected) dprintf(2, "a child's status is 0x%x, not 0x%x\n", status, expected);
  CHECK(status == expected);
}

// ---------------------------------------------------------------------------

static void list(void) {
  for (size_t g = 0; g < COUNT(groups); g++)
    for (const case_t *c = groups[g].cases; c->name; c++)
      dprintf(1, "%s.%s\n", groups[g].name, c->name);
}

static const case_t *find(const char *name) {
  for (size_t g = 0; g < COUNT(groups); g++) {
    size_t length = strlen(groups[g].name);
    if (strncmp(name, groups[g].name, length) != 0 || name[length] != '.') continue;
    for (const case_t *c = groups[g].cases; c->name; c++)
      if (strcmp(c->name, name + length + 1) == 0) return c;
  }
  return NULL;
}

enum { USAGE = 64, NO_RESTART = 65, NO_OUTPUT = 66, ARGUMENTS = 32 };

// The arguments with the row's conditions spelled out. They survive an exec.
static void spell_out(const case_t *c, char **argv, char **spelled) {
  static char names[200];
  int n = 0;
  spelled[n++] = argv[0];
  spelled[n++] = (char *)"--bare";
  if (c->under) CHECK(snprintf(names, sizeof names, "%s", c->under) < (int)sizeof names);
  for (char *at = strtok(names, " "); at && n < ARGUMENTS - 4; at = strtok(NULL, " ")) {
    spelled[n++] = (char *)"--under";
    spelled[n++] = at;
  }
  for (int i = 1; argv[i] && n < ARGUMENTS - 1; i++) spelled[n++] = argv[i];
  spelled[n] = NULL;
}

static int usage(void) {
  dprintf(2, "usage: situations [--under CONDITION]... GROUP.CASE; situations --list names the cases\n");
  return USAGE;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) return list(), 0;
  const case_t *c = argc < 2 ? NULL : find(argv[argc - 1]);
  if (!c) return usage();
  char *program = argv[0], *spelled[ARGUMENTS];
  if (strcmp(argv[1], "--bare") != 0) spell_out(c, argv, spelled), argv = spelled;
  for (argv += 1; argv[1] && strcmp(argv[1], "--under") == 0; argv += 2) {
    bool restart = false;
    if (!condition(argv[2], &restart)) return usage();
    if (!restart) continue;
    argv[1] = program, argv[2] = (char *)"--bare";
    execv("/proc/self/exe", argv + 1), execv(program, argv + 1), _exit(NO_RESTART);
  }
  sit_long = getenv("SITUATIONS_LONG") != NULL;
  c->run(c->a, c->b);
  if (write(1, "ok\n", 3) != 3 && fcntl(1, F_GETFD) != -1) return NO_OUTPUT;
  return 0;
}
