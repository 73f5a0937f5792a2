// test_glibc.c: glibc's view of the whole heap (mallinfo and others), the names that must
// resolve into libhakmem, and the libc functions whose results a program frees.

#include "testing.h"

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <sys/socket.h>
#include <time.h>
#include <wchar.h>

static void mallinfo2_follows(void **state) {
  (void)state;
  enum { N = 2000, SIZE = 1000 };
  static void *p[N];
  struct mallinfo2 before = mallinfo2();
  for (size_t i = 0; i < N; i++) assert_non_null(p[i] = malloc(SIZE));
  struct mallinfo2 full = mallinfo2();
  assert_true(full.uordblks >= before.uordblks + N * SIZE);
  assert_true(full.uordblks <= before.uordblks + N * SIZE * 5 / 4);
  assert_true(full.arena >= full.uordblks);
  for (size_t i = 0; i < N; i += 2) free(p[i]);
  assert_true(mallinfo2().ordblks + 256 >= full.ordblks + N / 2); // the secure library holds some
  for (size_t i = 1; i < N; i += 2) free(p[i]);
  struct mallinfo2 after = mallinfo2();
  assert_true(after.uordblks <= before.uordblks + 16 * KIB);
  void *huge = malloc(40 * MIB);
  struct mallinfo2 mapped = mallinfo2();
  assert_int_equal(mapped.hblks, after.hblks + 1);
  assert_true(mapped.hblkhd >= after.hblkhd + 40 * MIB);
  assert_true(mapped.hblkhd < after.hblkhd + 44 * MIB);
  free(huge);
  assert_int_equal(mallinfo2().hblks, before.hblks);
  assert_int_equal(mallinfo2().hblkhd, before.hblkhd);
}

static _Atomic bool watched;
static void *comes_and_goes(void *blocks) {
  void **p = blocks;
  while (!watched) {
    for (size_t i = 0; i < 400; i++) p[i] = malloc(500000);
    for (size_t i = 0; i < 400; i++) free(p[i]);
    malloc_trim(0);
  }
  return NULL;
}

// Whatever other threads do between two readings, no part exceeds the whole.
static void mallinfo2_of_a_busy_program(void **state) {
  (void)state;
  static void *blocks[2][400];
  pthread_t thread[2];
  if (!on_hakmem()) skip();
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, comes_and_goes, blocks[i]), 0);
  for (time_t end = time(NULL) + 2; time(NULL) < end;) {
    struct mallinfo2 now = mallinfo2();
    if (now.fordblks > now.arena) fail_msg("%zu of %zu bytes are free", now.fordblks, now.arena);
  }
  watched = true;
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
}

static void mallinfo_follows(void **state) {
  (void)state;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  struct mallinfo before = mallinfo();
  void *small = malloc(50000), *huge = malloc(5 * MIB);
  struct mallinfo full = mallinfo();
  assert_true(full.uordblks >= before.uordblks + 50000);
  assert_true(full.hblkhd >= before.hblkhd + (int)(5 * MIB));
  free(small), free(huge);
  assert_true(mallinfo().uordblks <= before.uordblks + (int)(16 * KIB));
#pragma GCC diagnostic pop
}

static void live_figures_are_exact(void **state) {
  (void)state;
  if (!on_hakmem()) skip();
  void *one = malloc(1);
  bool sealed = malloc_usable_size(one) == 1; // the secure library's blocks are larger than that
  free(one);
  if (sealed) skip();
  for (size_t t = 0; t < COUNT(tier_sizes); t++) {
    void *p[20];
    struct mallinfo2 before = mallinfo2();
    size_t usable = 0;
    for (size_t i = 0; i < COUNT(p); i++) {
      p[i] = malloc(tier_sizes[t]);
      usable += malloc_usable_size(p[i]);
    }
    struct mallinfo2 full = mallinfo2();
    assert_int_equal(full.uordblks + full.hblkhd, before.uordblks + before.hblkhd + usable);
    for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
    assert_int_equal(mallinfo2().uordblks, before.uordblks);
    assert_int_equal(mallinfo2().hblkhd, before.hblkhd);
  }
}

// HAKMEM_GUARD=1: guarded blocks have pages of their own, which are in no SuperSlab.
static void guarded_blocks_are_in_the_arena(void **state) {
  (void)state;
  const char *guard = getenv("HAKMEM_GUARD");
  if (!on_hakmem() || !guard || strcmp(guard, "1")) skip();
  void *p[20];
  struct mallinfo2 before = mallinfo2();
  for (size_t i = 0; i < COUNT(p); i++) p[i] = malloc(100);
  struct mallinfo2 full = mallinfo2();
  assert_true(full.arena >= before.arena + COUNT(p) * (size_t)sysconf(_SC_PAGESIZE));
  assert_int_equal(full.uordblks + full.fordblks, full.arena);
  for (size_t i = 0; i < COUNT(p); i++) free(p[i]);
  assert_int_equal(mallinfo2().arena, before.arena);
}

static void trim_gives_idle_memory_back(void **state) {
  (void)state;
  enum { N = 4000, SIZE = 20000 };
  static char *p[N];
  size_t before = rss_kib();
  for (size_t i = 0; i < N; i++) p[i] = memset(malloc(SIZE), 1, SIZE);
  assert_true(rss_kib() > before + 70000);
  for (size_t i = 0; i < N; i++) free(p[i]);
  int trimmed = malloc_trim(0);
  assert_true(trimmed == 0 || trimmed == 1);
  assert_true(rss_kib() < before + 8 * KIB);
  assert_non_null(p[0] = malloc(SIZE));
  assert_true(malloc_trim(MIB) >= 0);
  free(p[0]);
}

// ---------------------------------------------------------------------------

// What function writes to file descriptor 2. Static buffer.
static const char *stderr_of(void (*function)(void)) {
  static char text[64 * 1024];
  FILE *file = tmpfile();
  assert_non_null(file);
  fflush(stderr);
  int saved = dup(2);
  dup2(fileno(file), 2);
  function();
  fflush(stderr);
  dup2(saved, 2);
  close(saved);
  ssize_t n = pread(fileno(file), text, sizeof text - 1, 0);
  fclose(file);
  text[n > 0 ? n : 0] = 0;
  return text;
}

static void stats_go_to_stderr(void **state) {
  (void)state;
  const char *text = stderr_of(malloc_stats);
  assert_true(strlen(text) > 40);
  assert_true(strpbrk(text, "0123456789") != NULL);
  assert_int_equal(text[strlen(text) - 1], '\n');
}

// Checks enough of XML: tags nest, attributes are quoted, there is one root element.
static const char *xml_error(const char *at, const char *root) {
  char open_tags[16][32];
  unsigned depth = 0, roots = 0;
  for (;;) {
    if (depth == 0)
      while (isspace((unsigned char)*at)) at++;
    if (!*at) return depth ? "unclosed tag" : roots == 1 ? NULL : "not one root";
    if (*at != '<') {
      if (depth == 0) return "text outside the root";
      at++;
      continue;
    }
    bool closing = *++at == '/';
    at += closing;
    char name[32];
    unsigned n = 0;
    while (isalnum((unsigned char)*at) && n < sizeof name - 1) name[n++] = *at++;
    name[n] = 0;
    if (n == 0) return "no tag name";
    if (closing) {
      if (depth == 0 || strcmp(open_tags[--depth], name) != 0) return "tags cross";
      if (*at++ != '>') return "bad closing tag";
      continue;
    }
    if (depth == 0 && (roots++ || strcmp(name, root) != 0)) return "wrong root";
    while (*at == ' ') {
      while (*at == ' ') at++;
      while (isalnum((unsigned char)*at) || *at == '_') at++;
      if (*at++ != '=' || *at++ != '"') return "attribute without value";
      while (*at && *at != '"' && *at != '<') at++;
      if (*at++ != '"') return "value without end";
    }
    bool empty = *at == '/';
    at += empty;
    if (*at++ != '>') return "tag without end";
    if (!empty) {
      if (depth == COUNT(open_tags)) return "too deep";
      strcpy(open_tags[depth++], name);
    }
  }
}

static void info_is_xml(void **state) {
  (void)state;
  assert_non_null(xml_error("<a><b></a></b>", "a")); // the checker can say no
  assert_non_null(xml_error("<a x=1></a>", "a"));
  char *text;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  assert_int_equal(malloc_info(0, f), 0);
  fclose(f);
  const char *error = xml_error(text, "malloc");
  if (error) fail_msg("%s in: %s", error, text);
  assert_non_null(strstr(text, "version=\"1\""));
  free(text);
  f = tmpfile();
  assert_int_not_equal(malloc_info(1, f), 0); // no options are defined
  fclose(f);
}

static void mallopt_is_honest(void **state) {
  (void)state;
  if (!on_hakmem()) skip(); // glibc returns 1 for everything
  assert_int_equal(mallopt(12345, 1), 0);
  assert_int_equal(mallopt(-12345, 1), 0);
  assert_int_equal(mallopt(M_ARENA_TEST, 8), 1); // a heap per thread: never below
  for (int parameter = -10; parameter <= 4; parameter++) {
    int said = mallopt(parameter, 0);
    assert_true(said == 0 || said == 1);
  }
  void *p = malloc(100);
  assert_non_null(p);
  free(p);
}

// ---------------------------------------------------------------------------

static const char *const exported[] = {
    "malloc", "calloc", "realloc", "reallocarray", "free", "cfree", "posix_memalign",
    "aligned_alloc", "memalign", "valloc", "pvalloc", "malloc_usable_size", "free_sized",
    "free_aligned_sized", "mallinfo", "mallinfo2", "malloc_trim", "malloc_stats", "malloc_info",
    "mallopt", "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free",
    "__libc_memalign", "__libc_valloc", "__libc_pvalloc", "__libc_mallinfo", "__libc_mallopt",
    "__posix_memalign",
    // operator new and new[]: plain, nothrow, aligned, aligned nothrow
    "_Znwm", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_Znam", "_ZnamRKSt9nothrow_t", "_ZnamSt11align_val_t", "_ZnamSt11align_val_tRKSt9nothrow_t",
    // operator delete and delete[]: the same, and sized
    "_ZdlPv", "_ZdlPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdlPvm", "_ZdlPvmSt11align_val_t",
    "_ZdaPv", "_ZdaPvRKSt9nothrow_t", "_ZdaPvSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvm", "_ZdaPvmSt11align_val_t",
    "hak_version", "hak_malloc", "hak_calloc", "hak_realloc", "hak_reallocarray", "hak_free",
    "hak_free_sized", "hak_free_aligned_sized", "hak_aligned_alloc", "hak_memalign",
    "hak_posix_memalign", "hak_valloc", "hak_pvalloc", "hak_malloc_usable_size", "hak_trim",
    "hak_stats_get", "hak_stats_print", "hak_owns"};

static void every_name_is_ours(void **state) {
  (void)state;
  if (!on_hakmem()) skip();
  Dl_info ours, info;
  assert_true(dladdr(dlsym(RTLD_DEFAULT, "hak_version"), &ours));
  for (size_t i = 0; i < COUNT(exported); i++) {
    void *at = dlsym(RTLD_DEFAULT, exported[i]);
    if (!at || !dladdr(at, &info) || info.dli_fbase != ours.dli_fbase)
      fail_msg("%s is in %s", exported[i], at ? info.dli_fname : "no library");
  }
}

// The block must be usable, and it must be HAKMEM's when HAKMEM is loaded.
static void release(void *p, size_t at_least) {
  assert_non_null(p);
  if (on_hakmem()) assert_true(FIND(bool (*)(const void *), "hak_owns")(p));
  assert_true(malloc_usable_size(p) >= at_least);
  free(p);
}

static void strings_from_libc(void **state) {
  (void)state;
  release(strdup("hello"), 6);
  release(strndup("hello", 3), 4);
  release(wcsdup(L"wide"), 5 * sizeof(wchar_t));
  release(getcwd(NULL, 0), 2);
  release(realpath("/proc/self/..", NULL), 2);
  release(canonicalize_file_name("/"), 2);
  char *text = NULL;
  assert_int_equal(asprintf(&text, "%0500d", 7), 500);
  release(text, 501);
}

static void streams_from_libc(void **state) {
  (void)state;
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  for (int i = 0; i < 20000; i++) fprintf(f, "line %d\n", i);
  fclose(f);
  FILE *in = fmemopen(text, size, "r");
  char *line = NULL;
  size_t room = 0;
  int lines = 0;
  while (getline(&line, &room, in) > 0) lines++;
  assert_int_equal(lines, 20000);
  fclose(in);
  in = fmemopen(text, size, "r");
  assert_int_equal(getdelim(&line, &room, '\0', in), size);
  fclose(in);
  release(line, size + 1);
  release(text, size + 1);
  wchar_t *wide = NULL;
  f = open_wmemstream(&wide, &size);
  fputws(L"wide", f);
  fclose(f);
  release(wide, 5 * sizeof(wchar_t));
}

static void directories_from_libc(void **state) {
  (void)state;
  struct dirent **names;
  int n = scandir("/", &names, NULL, alphasort);
  assert_true(n > 2);
  for (int i = 0; i < n; i++) release(names[i], 1);
  release(names, (size_t)n * sizeof *names);
  glob_t found;
  assert_int_equal(glob("/*", 0, NULL, &found), 0);
  assert_true(found.gl_pathc > 0);
  globfree(&found);
}

static int by_number(const void *a, const void *b) {
  return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

static void others_from_libc(void **state) {
  (void)state;
  regex_t pattern;
  assert_int_equal(regcomp(&pattern, "^(a|b)*c[0-9]{1,50}$", REG_EXTENDED), 0);
  assert_int_equal(regexec(&pattern, "abac123", 0, NULL, 0), 0);
  assert_int_equal(regexec(&pattern, "abad123", 0, NULL, 0), REG_NOMATCH);
  regfree(&pattern);
  struct addrinfo *list, hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                  .ai_socktype = SOCK_STREAM};
  assert_int_equal(getaddrinfo("127.0.0.1", "80", &hints, &list), 0);
  freeaddrinfo(list);
  enum { N = 100000 };
  int *numbers = malloc(N * sizeof *numbers);
  uint64_t random = 5;
  for (int i = 0; i < N; i++) numbers[i] = (int)(chance(&random) >> 33);
  qsort(numbers, N, sizeof *numbers, by_number); // allocates a buffer of its own
  for (int i = 1; i < N; i++) assert_true(numbers[i - 1] <= numbers[i]);
  void *root = NULL;
  for (int i = 0; i < 1000; i++) assert_non_null(tsearch(&numbers[i], &root, by_number));
  for (int i = 0; i < 1000; i++) tdelete(&numbers[i], &root, by_number);
  free(numbers);
  char name[64], value[256];
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "VARIABLE_%d", i);
    memset(value, 'x', sizeof value), value[sizeof value - 1] = 0;
    assert_int_equal(setenv(name, value, 1), 0);
  }
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "VARIABLE_%d", i);
    assert_int_equal(strlen(getenv(name)), 255);
    unsetenv(name);
  }
  locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
  assert_non_null(locale);
  freelocale(locale);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mallinfo2_follows),
      cmocka_unit_test(mallinfo2_of_a_busy_program),
      cmocka_unit_test(mallinfo_follows),
      cmocka_unit_test(live_figures_are_exact),
      cmocka_unit_test(guarded_blocks_are_in_the_arena),
      cmocka_unit_test(trim_gives_idle_memory_back),
      cmocka_unit_test(stats_go_to_stderr),
      cmocka_unit_test(info_is_xml),
      cmocka_unit_test(mallopt_is_honest),
      cmocka_unit_test(every_name_is_ours),
      cmocka_unit_test(strings_from_libc),
      cmocka_unit_test(streams_from_libc),
      cmocka_unit_test(directories_from_libc),
      cmocka_unit_test(others_from_libc),
  };
  return RUN(tests);
}
