// libc.c: functions of the C library that allocate blocks which the program frees. Each runs
// often enough that the memory is reused.

#include "situations.h"

#include <aio.h>
#include <argz.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <glob.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <netdb.h>
#include <obstack.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <wchar.h>
#include <wordexp.h>

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

static void strings(size_t n) {
  char *text = filled_block(n + 1, 1);
  for (size_t i = 0; i < n; i++) text[i] = (char)('a' + i % 26);
  text[n] = 0;
  char *copy = strdup(text), *part = strndup(text, n / 2 + 1), *printed = NULL;
  CHECK(copy && strcmp(copy, text) == 0 && part && strlen(part) == (n < n / 2 + 1 ? n : n / 2 + 1));
  CHECK(asprintf(&printed, "%s-%zu-%*d", text, n, (int)(n % 500), 5) > (int)n);
  CHECK((copy = realloc(copy, n + 100)) && strcmp(strcat(copy, "z") + n, "z") == 0);
  wchar_t *wide = wcsdup(L"wide words");
  CHECK(wide && wcslen(wide) == 10);
  free(text), free(copy), free(part), free(printed), free(wide);
}

static void lines(size_t n) {
  char *line = n % 2 ? malloc(1) : NULL;
  size_t room = n % 2 ? 1 : 0;
  FILE *f = tmpfile();
  CHECK(f);
  for (size_t i = 0; i < 20; i++) fprintf(f, "%*zu\n", (int)(i * n / 10 + 1), i);
  rewind(f);
  for (size_t i = 0; i < 20; i++) {
    CHECK(getline(&line, &room, f) > (ssize_t)(i * n / 10) && strtoul(line, NULL, 10) == i);
    CHECK(malloc_usable_size(line) >= room);
  }
  CHECK(getdelim(&line, &room, ';', f) == -1);
  free(line);
  fclose(f);
}

static void memory_streams(size_t n) {
  char *text = NULL;
  size_t length = 0;
  FILE *f = open_memstream(&text, &length);
  for (size_t i = 0; i < n; i++) CHECK(fprintf(f, "%08zu", i) == 8);
  fclose(f);
  CHECK(length == n * 8 && (n == 0 || strtoul(text + (n - 1) * 8, NULL, 10) == n - 1));
  f = fmemopen(NULL, n + 10, "w+");
  CHECK(f && fputs("words", f) >= 0 && fclose(f) == 0);
  wchar_t *wide = NULL;
  f = open_wmemstream(&wide, &length);
  fwprintf(f, L"%ls %zu", L"words", n);
  fclose(f);
  CHECK(wcsncmp(wide, L"words ", 6) == 0);
  free(text), free(wide);
}

static void many_files(size_t n) {
  FILE *f[200];
  size_t count = n % COUNT(f) + 50 < COUNT(f) ? n % COUNT(f) + 50 : COUNT(f);
  for (size_t i = 0; i < count; i++) {
    CHECK(f[i] = fopen("/dev/null", "r+"));
    if (i % 3 == 0) setvbuf(f[i], NULL, _IOFBF, 10000);
    CHECK(fputs("words", f[i]) >= 0);
  }
  for (size_t i = 0; i < count; i++) CHECK(fclose(f[i]) == 0);
}

static void own_buffers(size_t n) {
  char *buffer = malloc(n + 1);
  FILE *f = tmpfile();
  CHECK(f && setvbuf(f, buffer, _IOFBF, n + 1) == 0);
  for (size_t i = 0; i < 1000; i++) fprintf(f, "%zu ", i);
  rewind(f);
  size_t last = 0;
  while (fscanf(f, "%zu", &last) == 1) {
  }
  CHECK(last == 999 && fclose(f) == 0);
  free(buffer);
}

static void scanned_strings(size_t n) {
  char *word = NULL, *set = NULL, text[200];
  snprintf(text, sizeof text, "%zu some,words", n);
  CHECK(sscanf(text, "%*u %m[^,],%ms", &set, &word) == 2 && strcmp(set, "some") == 0);
  free(word), free(set);
}

static void local_addresses(size_t n) {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found = NULL;
  CHECK(getaddrinfo(n % 2 ? "::1" : "127.0.0.1", "80", &hints, &found) == 0 && found);
  char host[60];
  CHECK(getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST) == 0);
  freeaddrinfo(found);
}

static void patterns(size_t n) {
  regex_t r;
  regmatch_t m[3];
  char text[100];
  CHECK(regcomp(&r, "(a|b)*c{1,20}([0-9]+)$", REG_EXTENDED) == 0);
  snprintf(text, sizeof text, "abababccc%zu", n);
  CHECK(regexec(&r, text, 3, m, 0) == 0 && strtoul(text + m[2].rm_so, NULL, 10) == n);
  regfree(&r);
  CHECK(regcomp(&r, "(((", REG_EXTENDED) != 0);
  CHECK(fnmatch("*c*[0-9]", text, 0) == 0);
}

static int by_value(const void *p, const void *q) {
  uint64_t a = *(const uint64_t *)p, b = *(const uint64_t *)q;
  free(malloc(a % 300)); // comparisons may allocate
  return a < b ? -1 : a > b;
}
static void sorting(size_t n) {
  uint64_t random = n + 1, *p = malloc((n + 2) * sizeof *p);
  for (size_t i = 0; i < n + 2; i++) p[i] = chance(&random);
  qsort(p, n + 2, sizeof *p, by_value);
  for (size_t i = 0; i < n + 1; i++) CHECK(p[i] <= p[i + 1]);
  free(p);
}

static void nothing(void *p) { (void)p; }
static void trees_and_tables(size_t n) {
  void *root = NULL;
  uint64_t *key = malloc((n + 1) * sizeof *key);
  for (size_t i = 0; i <= n; i++)
    key[i] = i * 7919 % 1000003, CHECK(tsearch(&key[i], &root, by_value));
  for (size_t i = 0; i <= n; i += 2) CHECK(tdelete(&key[i], &root, by_value));
  tdestroy(root, nothing); // the keys are one block
  free(key);
  struct hsearch_data table = {0};
  CHECK(hcreate_r(n + 10, &table));
  ENTRY e = {(char *)"word", NULL}, *found;
  CHECK(hsearch_r(e, ENTER, &found, &table));
  hdestroy_r(&table);
}

static void conversions(size_t n) {
  iconv_t c = iconv_open("UTF-16LE", "UTF-8");
  if (c == (iconv_t)-1) sit_skip("no converters");
  char in[] = "words", *from = in;
  char *out = malloc(n + 100), *to = out;
  size_t left = 5, room = n + 100;
  CHECK(iconv(c, &from, &left, &to, &room) == 0 && left == 0 && to == out + 10);
  CHECK(iconv_close(c) == 0 && iconv_open("no-such", "nor-such") == (iconv_t)-1);
  free(out);
}

static void locales(size_t n) {
  static const char *const names[] = {"C", "C.UTF-8", "", "POSIX", "xx_YY.UTF-8"};
  setlocale(LC_ALL, names[n % COUNT(names)]);
  char *before = strdup(setlocale(LC_ALL, NULL));
  locale_t l = newlocale(LC_ALL_MASK, n % 2 ? "C" : "C.UTF-8", NULL);
  if (l) {
    locale_t copy = duplocale(l), old = uselocale(copy);
    CHECK(copy && nl_langinfo(CODESET));
    uselocale(old);
    freelocale(copy), freelocale(l);
  }
  CHECK(setlocale(LC_ALL, before));
  free(before);
}

static void folders(size_t n) {
  struct dirent **entry = NULL;
  int count = scandir(n % 2 ? "/etc" : "/", &entry, NULL, alphasort);
  CHECK(count > 2);
  for (int i = 0; i < count; i++) free(entry[i]);
  free(entry);
  DIR *d = opendir("/");
  CHECK(d && readdir(d) && closedir(d) == 0);
  glob_t g = {0};
  CHECK(glob("/etc/*", GLOB_MARK, NULL, &g) == 0 && g.gl_pathc > 0);
  globfree(&g);
  char *const roots[] = {(char *)"/etc", NULL};
  FTS *f = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  CHECK(f);
  for (int i = 0; i < 50 && fts_read(f); i++) {
  }
  fts_close(f);
}

static void paths(size_t n) {
  char *here = getcwd(NULL, 0), *there = getcwd(NULL, 5000),
       *real = realpath("/tmp/..//tmp/.", NULL);
  CHECK(here && there && real && strcmp(here, there) == 0 && strcmp(real, "/tmp") == 0);
  char *name = get_current_dir_name();
  CHECK(name);
  free(here), free(there), free(real), free(name);
  (void)n;
}

static void expansions(size_t n) {
  wordexp_t w;
  char text[100];
  snprintf(text, sizeof text, "word%zu ${NOT_SET:-default words} '$HOME' /et*", n);
  CHECK(wordexp(text, &w, WRDE_NOCMD) == 0 && w.we_wordc == 5);
  wordfree(&w);
}

static void variables(size_t n) {
  char name[30], value[2000];
  for (size_t i = 0; i < 50; i++) {
    snprintf(name, sizeof name, "V%zu", (n + i) % 70);
    snprintf(value, sizeof value, "%*zu", (int)(n * 37 % 1900), i);
    CHECK(setenv(name, value, 1) == 0 && strcmp(getenv(name), value) == 0);
    if (i % 3 == 0) unsetenv(name);
  }
  char *put = strdup("PUT=it");
  CHECK(putenv(put) == 0 && strcmp(getenv("PUT"), "it") == 0 && unsetenv("PUT") == 0);
  free(put);
}

static void clear_environment(size_t n) {
  variables(n);
  CHECK(clearenv() == 0 && getenv("V1") == NULL);
  variables(n + 1);
}

static void stacks_of_objects(size_t n) {
  struct obstack o;
  obstack_init(&o);
  char *first = obstack_alloc(&o, 10);
  for (size_t i = 0; i < n + 50; i++) CHECK(obstack_copy0(&o, "many words", 10));
  for (size_t i = 0; i < n; i++) obstack_grow(&o, "grows", 5);
  CHECK(obstack_object_size(&o) == 5 * n && obstack_finish(&o));
  obstack_free(&o, first);
  obstack_free(&o, NULL);
}

static void argument_vectors(size_t n) {
  char *z = NULL;
  size_t length = 0;
  for (size_t i = 0; i < n % 100 + 1; i++) CHECK(argz_add(&z, &length, "one word more") == 0);
  CHECK(argz_count(z, length) == n % 100 + 1);
  argz_delete(&z, &length, z);
  CHECK(argz_replace(&z, &length, "word", "much longer words", NULL) == 0);
  free(z);
}

static void users(size_t n) {
  (void)n;
  setpwent();
  for (int i = 0; i < 20 && getpwent(); i++) {
  }
  endpwent();
  struct passwd *p = getpwuid(0);
  CHECK(!p || p->pw_name);
}

static void times(size_t n) {
  char text[100];
  time_t t = (time_t)(n * 86400 * 30);
  struct tm tm;
  setenv("TZ", n % 2 ? "Europe/Berlin" : "EST5EDT,M3.2.0,M11.1.0", 1);
  tzset();
  CHECK(localtime_r(&t, &tm) && mktime(&tm) == t && strftime(text, sizeof text, "%c %Z", &tm) > 0);
}

static void numbers(size_t n) {
  // The C library uses the heap to format and to read long ones.
  char *text = NULL;
  CHECK(asprintf(&text, "%.*f %Lg", (int)(n % 3000 + 1100), 1.0 / 3, 1e4000L) > 1000);
  CHECK(strtod(text, NULL) > 0.333);
  free(text);
}

static void asynchronous_reads(size_t n) {
  char *buffer = malloc(n + 64);
  int fd = open("/dev/zero", O_RDONLY);
  memset(buffer, 1, n + 64);
  struct aiocb request = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = n + 64};
  const struct aiocb *list[] = {&request};
  CHECK(aio_read(&request) == 0);
  while (aio_error(&request) == EINPROGRESS) aio_suspend(list, 1, NULL);
  CHECK(aio_return(&request) == (ssize_t)n + 64 && all_zero(buffer, n + 64));
  close(fd);
  free(buffer);
}

// ---------------------------------------------------------------------------

typedef void once_t(size_t n);
static once_t *const functions[] = {strings,
                                    lines,
                                    memory_streams,
                                    many_files,
                                    own_buffers,
                                    scanned_strings,
                                    local_addresses,
                                    patterns,
                                    sorting,
                                    trees_and_tables,
                                    conversions,
                                    locales,
                                    folders,
                                    paths,
                                    expansions,
                                    variables,
                                    clear_environment,
                                    stacks_of_objects,
                                    argument_vectors,
                                    users,
                                    times,
                                    numbers,
                                    asynchronous_reads};

static void often(size_t which, size_t times) {
  for (size_t i = 0; i < times; i++) functions[which](i * i % 1013);
  size_t before = rss_kib();
  for (size_t i = 0; i < times; i++) functions[which](i * i % 1013);
  CHECK(rss_kib() < before + 4 * KIB);
  churn(which, 300);
}

// Functions that may be called from several threads at once.
static void *in_thread(void *seed) {
  static once_t *const safe[] = {strings,         lines,    memory_streams, many_files,
                                 local_addresses, patterns, sorting,        folders,
                                 paths,           numbers,  own_buffers,    conversions};
  for (size_t i = 0; i < 60; i++) safe[(AS_NUMBER(seed) + i) % COUNT(safe)](i * 13 % 500);
  return NULL;
}
static void in_threads(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[8];
  pthread_attr_t attributes;
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 2048) { // many_files in many threads
    files.rlim_cur = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
  }
  pthread_attr_init(&attributes); // fts and others need the usual stack
  for (size_t i = 0; i < threads; i++)
    CHECK(pthread_create(&thread[i], &attributes, in_thread, AS_ARGUMENT(i)) == 0);
  for (size_t i = 0; i < threads; i++) join(thread[i]);
}

// Strings that one thread allocates are freed by another.
static void *make_strings(void *list) {
  for (size_t i = 0; i < 500; i++) CHECK(asprintf((char **)list + i, "%*zu", (int)i * 5, i) > 0);
  return NULL;
}
static void strings_of_other_threads(size_t a, size_t b) {
  (void)a, (void)b;
  static char *list[500];
  for (int round = 0; round < 20; round++) {
    join(start(make_strings, list));
    for (size_t i = 0; i < COUNT(list); i++) CHECK(strtoul(list[i], NULL, 10) == i), free(list[i]);
  }
}

const case_t libc_cases[] = {
    {"strings", often, 0, 200},
    {"lines", often, 1, 30},
    {"memory_streams", often, 2, 30},
    {"many_files", often, 3, 20},
    {"own_buffers", often, 4, 30},
    {"scanned_strings", often, 5, 500},
    {"local_addresses", often, 6, 100},
    {"patterns", often, 7, 100},
    {"sorting", often, 8, 50},
    {"trees_and_tables", often, 9, 30},
    {"conversions", often, 10, 100},
    {"locales", often, 11, 100},
    {"folders", often, 12, 10},
    {"paths", often, 13, 200},
    {"expansions", often, 14, 50},
    {"variables", often, 15, 50},
    {"clear_environment", often, 16, 20},
    {"stacks_of_objects", often, 17, 100},
    {"argument_vectors", often, 18, 50},
    {"users", often, 19, 20},
    {"times", often, 20, 100},
    {"numbers", often, 21, 50},
    {"asynchronous_reads", often, 22, 30},
    {"all_in_threads", in_threads, 6},
    {"strings_of_other_threads", strings_of_other_threads},
    {NULL},
};
