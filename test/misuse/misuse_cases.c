// misuse_cases.c: what a program can do wrong with its heap, one misuse per run.
//
//   misuse_cases --list       the names: KIND.VARIANT.SIZE
//   misuse_cases NAME         does it, works on with the heap, frees everything
//
// It prints "SURVIVED" and ends with status 0 if nothing stopped it, and "REFUSED" with status
// 2 if a call that must fail on such a pointer did fail. It prints nothing on stderr itself.
// Any allocator can be loaded; score.py counts. Nothing is printed through stdio: only the
// misuse touches the heap.

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROW = 16, VICTIM = 8, WORK = 300 };

// Hides the misuse from the compiler.
static void *hide(const void *p) {
  const void *volatile hidden = p;
  return (void *)(uintptr_t)hidden;
}

_Noreturn static void end(const char *text, int status) {
  if (write(1, text, strlen(text)) < 0) _exit(5);
  _exit(status);
}
_Noreturn static void refused(void) { end("REFUSED\n", 2); }

// ---------------------------------------------------------------------------
// Surroundings: a row of blocks of one size, and work after the misuse.

static unsigned char *row[ROW];

static unsigned char *make_row(size_t size) {
  for (size_t i = 0; i < ROW; i++) {
    if (!(row[i] = malloc(size))) end("NO MEMORY\n", 4);
    memset(row[i], 0x11, size);
  }
  return row[VICTIM];
}

static void free_row(size_t but) {
  for (size_t i = 0; i < ROW; i++)
    if (i != but) free(row[i]);
}

// A few hundred allocations of that size and others, all written to and freed.
static void work(size_t size) {
  static const size_t other[] = {16, 24, 100, 300, 1000, 5000, 40000};
  static void *p[WORK];
  size_t n = size > 100000 ? 40 : WORK;
  for (size_t i = 0; i < n; i++) {
    size_t wanted = i % 3 ? size : other[i / 3 % (sizeof other / sizeof *other)];
    if (!(p[i] = malloc(wanted))) end("NO MEMORY\n", 4);
    memset(p[i], 0x22, wanted);
    if (i % 4 == 3) free(p[i - 1]), p[i - 1] = NULL;
  }
  for (size_t i = 0; i < n; i++) free(p[i]);
}

static void finish(size_t size) {
  work(size);
  work(size);
}

static void on_thread(void *(*function)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, argument) != 0) end("NO THREAD\n", 4);
  pthread_join(thread, NULL);
}

static void *free_there(void *p) { return free(hide(p)), NULL; }

// ---------------------------------------------------------------------------
// Each misuse is a function of a size and a number from its table.

static void double_immediate(size_t size, long n) {
  (void)n;
  void *p = make_row(size);
  free(p);
  free(hide(p));
  finish(size);
}

// n other blocks are freed between.
static void double_others(size_t size, long n) {
  void *p = make_row(size);
  static void *other[100];
  for (long i = 0; i < n; i++) other[i] = malloc(size);
  free(p);
  for (long i = 0; i < n; i++) free(other[i]);
  free(hide(p));
  finish(size);
}

// The block is handed out again; then its old and its new holder both free it.
static void double_reused(size_t size, long n) {
  (void)n;
  void *p = make_row(size);
  free(p);
  void *q = malloc(size);
  memset(q, 0x33, size);
  free(hide(p));
  free(q);
  finish(size);
}

// n mixed operations in between; none of them takes the block if the allocator serves the
// other sizes from elsewhere.
static void double_delayed(size_t size, long n) {
  void *p = make_row(size);
  void *held[64] = {NULL};
  free(p);
  for (long i = 0; i < n; i++) {
    size_t at = (size_t)i * 7 % 64;
    free(held[at]);
    held[at] = malloc(size * 3 + (size_t)i % 64);
  }
  free(hide(p));
  for (size_t i = 0; i < 64; i++) free(held[i]);
  finish(size);
}

static void double_threads(size_t size, long n) {
  void *p = make_row(size);
  if (n & 1) on_thread(free_there, p);
  else free(p);
  if (n & 2) on_thread(free_there, p);
  else free(hide(p));
  finish(size);
}

static void free_inside(size_t size, long n) {
  unsigned char *p = make_row(size);
  free(hide(p + (n > 0 ? (size_t)n : (size / 2 & ~(size_t)15))));
  finish(size);
}

enum { STACK, GLOBAL, LITERAL, BREAK, WILD_10, WILD_BEEF, WILD_NON_CANONICAL, WILD_HIGHEST,
       MAPPING, MAPPING_16, UNMAPPED, FUNCTION };

static long global[64] = {1, 2, 3};

static void *foreign(long n, void *stack) {
  switch (n) {
  case STACK: return stack;
  case GLOBAL: return &global[16];
  case LITERAL: return hide("a literal that is long enough to hold a header");
  case BREAK: return (char *)sbrk(4096) + 64;
  case WILD_10: return (void *)16;
  case WILD_BEEF: return (void *)0xdeadbee0;
  case WILD_NON_CANONICAL: return (void *)0x4141414141414140;
  case WILD_HIGHEST: return (void *)-16L;
  case FUNCTION: return (void *)((uintptr_t)&free_row & ~(uintptr_t)15);
  }
  char *map = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (n == UNMAPPED) munmap(map, 1 << 16);
  return map + (n == MAPPING_16 ? 16 : 0);
}

static void free_foreign(size_t size, long n) {
  long stack[64] __attribute__((aligned(16))) = {5};
  make_row(size);
  free(hide(foreign(n, &stack[16])));
  finish(size);
}

static void realloc_freed(size_t size, long n) {
  void *p = make_row(size);
  free(p);
  void *q = realloc(hide(p), n > 0 ? size * (size_t)n : 10);
  if (!q) refused();
  memset(q, 0x44, 10);
  finish(size);
  free(q);
}

static void realloc_inside(size_t size, long n) {
  unsigned char *p = make_row(size);
  if (!realloc(hide(p + n), size * 2)) refused();
  finish(size);
}

static void realloc_foreign(size_t size, long n) {
  long stack[64] __attribute__((aligned(16))) = {5};
  make_row(size);
  if (!realloc(hide(foreign(n, &stack[16])), size * 2)) refused();
  finish(size);
}

static void usable_freed(size_t size, long n) {
  void *p = make_row(size);
  free(p);
  if (n) work(3 * size);
  if (malloc_usable_size(hide(p)) == 0) refused();
  finish(size);
}

// Sized frees, by the names that the C and C++ libraries would call. A system without the name
// frees without a check of the size.
static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void sized(size_t size, long n) {
  void *p = make_row(size);
  void (*f)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)find("free_sized");
  if (f) f(p, n > 0 ? size * (size_t)n + 64 : size / (size_t)-n);
  else free(p);
  finish(size);
  free_row(VICTIM);
}

static void aligned_sized(size_t size, long n) {
  make_row(size);
  void *p = aligned_alloc(64, size);
  void (*f)(void *, size_t, size_t) =
      (void (*)(void *, size_t, size_t))(uintptr_t)find("free_aligned_sized");
  if (f) f(p, 64, n > 0 ? size * (size_t)n + 64 : size / (size_t)-n);
  else free(p);
  finish(size);
}

static void delete_sized(size_t size, long n) {
  make_row(size);
  void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)find("_Znwm");
  void (*drop)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)find("_ZdlPvm");
  if (!make || !drop) end("NO OPERATORS\n", 4);
  void *p = make(size);
  drop(p, n > 0 ? size * (size_t)n + 64 : size / (size_t)-n);
  finish(size);
}

static void delete_aligned(size_t size, long n) {
  make_row(size);
  void *(*make)(size_t, size_t) = (void *(*)(size_t, size_t))(uintptr_t)find("_ZnwmSt11align_val_t");
  void (*drop)(void *, size_t, size_t) =
      (void (*)(void *, size_t, size_t))(uintptr_t)find("_ZdlPvmSt11align_val_t");
  if (!make || !drop) end("NO OPERATORS\n", 4);
  void *p = make(size, 64);
  drop(p, n > 0 ? size * (size_t)n + 64 : size / (size_t)-n, 64);
  finish(size);
}

// Writes n bytes beyond what malloc_usable_size grants.
static void overflow(size_t size, long n) {
  unsigned char *p = make_row(size);
  memset(hide(p + malloc_usable_size(p)), 0x41, (size_t)n);
  free(p);
  free(row[VICTIM - 1]), free(row[VICTIM + 1]);
  row[VICTIM] = row[VICTIM - 1] = row[VICTIM + 1] = NULL;
  finish(size);
  free_row(VICTIM);
}

static void underflow(size_t size, long n) {
  unsigned char *p = make_row(size);
  memset(hide(p - n), 0x41, (size_t)n);
  free(p);
  free(row[VICTIM - 1]), free(row[VICTIM + 1]);
  row[VICTIM] = row[VICTIM - 1] = row[VICTIM + 1] = NULL;
  finish(size);
  free_row(VICTIM);
}

enum { FIRST_8, FIRST_16, MIDDLE, END };

static void write_freed(size_t size, long n) {
  unsigned char *p = make_row(size);
  size_t usable = malloc_usable_size(p);
  free(row[VICTIM - 2]);
  free(p);
  free(row[VICTIM + 2]);
  row[VICTIM - 2] = row[VICTIM] = row[VICTIM + 2] = NULL;
  p = hide(p);
  if (n == FIRST_8) memset(p, 0x41, 8);
  if (n == FIRST_16) memset(p, 0x41, 16);
  if (n == MIDDLE) memset(p + (usable / 2 & ~(size_t)7), 0x41, 8);
  if (n == END) memset(p + usable - 8, 0x41, 8);
  finish(size);
  free_row(VICTIM);
}

// The attack: a word of a free block is set to an address that the attacker wants malloc to
// return. Counts as survived if malloc goes on, whether or not it ever returns the address.
static void poison_list(size_t size, long n) {
  static char target[4096] __attribute__((aligned(64)));
  unsigned char *p = make_row(size);
  void *wanted = target + 1024;
  free(row[VICTIM - 2]);
  free(p);
  p = hide(p);
  memcpy(p + n, &wanted, sizeof wanted);
  for (size_t i = 0; i < 200; i++) {
    char *q = malloc(size);
    if (q && q > target && q < target + sizeof target) end("SURVIVED, target returned\n", 0);
    if (q) memset(q, 0x55, size);
  }
  free_row(VICTIM);
  finish(size);
}

static void write_moved(size_t size, long n) {
  unsigned char *p = make_row(size);
  unsigned char *q = realloc(p, size * 4 + 100);
  row[VICTIM] = q;
  p = hide(p);
  if (p == q) end("SURVIVED, not moved\n", 0);
  memset(p, 0x41, (size_t)n);
  finish(size);
  free_row(ROW);
}

// ---------------------------------------------------------------------------

typedef struct {
  const char *variant;
  long n;
} variant_t;
typedef struct {
  const char *kind;
  void (*run)(size_t, long);
  const size_t *sizes;
  variant_t variants[13];
} kind_t;

static const size_t all[] = {24, 100, 1000, 5000, 40000, 200000, 0};
static const size_t more[] = {16, 24, 100, 500, 1000, 4000, 5000, 40000, 200000, 5 << 20, 0};
static const size_t four[] = {24, 1000, 5000, 200000, 0};
static const size_t small[] = {24, 100, 1000, 5000, 0};
static const size_t inside[] = {100, 1000, 5000, 200000, 0};
static const size_t two[] = {100, 5000, 0};
static const size_t one[] = {100, 0};

#define WRONG_SIZES {"smaller", -2}, {"larger", 2}
static const kind_t kinds[] = {
    {"double_free", double_immediate, more, {{"at_once", 0}}},
    {"double_free_apart", double_others, all, {{"1_between", 1}, {"20_between", 20}}},
    {"double_free_reused", double_reused, all, {{"same_size", 0}}},
    {"double_free_threads", double_threads, four,
     {{"other_then_own", 1}, {"own_then_other", 2}, {"other_twice", 3}}},
    {"double_free_delayed", double_delayed, small, {{"100_later", 100}, {"5000_later", 5000}}},
    {"free_inside", free_inside, inside, {{"by_1", 1}, {"by_8", 8}, {"by_16", 16}, {"half", 0}}},
    {"free_foreign", free_foreign, one,
     {{"stack", STACK}, {"global", GLOBAL}, {"literal", LITERAL}, {"break", BREAK},
      {"wild_10", WILD_10}, {"wild_beef", WILD_BEEF}, {"wild_non_canonical", WILD_NON_CANONICAL},
      {"wild_highest", WILD_HIGHEST}, {"mapping", MAPPING}, {"mapping_16", MAPPING_16},
      {"unmapped", UNMAPPED}, {"function", FUNCTION}}},
    {"realloc_freed", realloc_freed, all, {{"larger", 2}}},
    {"realloc_inside", realloc_inside, two, {{"by_16", 16}}},
    {"realloc_foreign", realloc_foreign, one,
     {{"stack", STACK}, {"global", GLOBAL}, {"wild_beef", WILD_BEEF}, {"mapping", MAPPING}}},
    {"usable_size_freed", usable_freed, four, {{"at_once", 0}}},
    {"free_sized", sized, four, {WRONG_SIZES}},
    {"free_aligned_sized", aligned_sized, two, {WRONG_SIZES}},
    {"delete_sized", delete_sized, two, {WRONG_SIZES}},
    {"delete_aligned", delete_aligned, two, {WRONG_SIZES}},
    {"overflow", overflow, all,
     {{"by_1", 1}, {"by_2", 2}, {"by_8", 8}, {"by_16", 16}, {"by_32", 32}}},
    {"underflow", underflow, small, {{"by_1", 1}, {"by_8", 8}, {"by_16", 16}}},
    {"write_freed", write_freed, small,
     {{"first_8", FIRST_8}, {"first_16", FIRST_16}, {"middle", MIDDLE}, {"end", END}}},
    {"poison_list", poison_list, small, {{"word_0", 0}, {"word_1", 8}}},
    {"write_moved", write_moved, small, {{"first_16", 16}}},
};

int main(int argc, char **argv) {
  if (argc != 2) return 64;
  bool list = strcmp(argv[1], "--list") == 0;
  for (const kind_t *k = kinds; k < kinds + sizeof kinds / sizeof *kinds; k++) {
    for (const variant_t *v = k->variants; v->variant; v++) {
      for (const size_t *size = k->sizes; *size; size++) {
        char name[128];
        snprintf(name, sizeof name, "%s.%s.%zu", k->kind, v->variant, *size);
        if (list) {
          dprintf(1, "%s\n", name);
        } else if (strcmp(name, argv[1]) == 0) {
          k->run(*size, v->n);
          if (write(1, "SURVIVED\n", 9) != 9) return 5;
          return 0; // as programs end: by exit
        }
      }
    }
  }
  return list ? 0 : 64;
}
