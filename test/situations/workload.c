// workload.c: short mixes of calls as programs make them; all blocks' contents are checked.

#include "situations.h"

static void mixed_sizes(size_t seed, size_t operations) { churn(seed, operations); }

static void mixed_in_threads(size_t threads, size_t b) {
  (void)b;
  pthread_t thread[16];
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < threads; i++)
      thread[i] = start(churn_thread, AS_ARGUMENT(i + round * 50));
    for (size_t i = 0; i < threads; i++) join(thread[i]);
  }
}

// An interpreter: generations of many small objects, a few growing tables.
typedef struct object {
  struct object *next;
  size_t size;
  unsigned char data[];
} object_t;

static void interpreter(size_t generations, size_t b) {
  (void)b;
  object_t *old = NULL;
  size_t *table = NULL, entries = 0;
  uint64_t random = 5;
  for (size_t g = 0; g < generations; g++) {
    object_t *young = NULL, **keep = &old;
    for (size_t i = 0; i < 3000; i++) {
      size_t n = chance(&random) % 120;
      object_t *o = malloc(sizeof *o + n);
      CHECK(o);
      o->size = n, fill(o->data, n, n);
      o->next = young, young = o;
      if (i % 4 == 0) {
        CHECK(table = realloc(table, (entries + 1) * sizeof *table));
        table[entries] = entries, entries++;
      }
    }
    for (object_t *next; young; young = next) { // one in eight is kept
      next = young->next;
      CHECK(filled(young->data, young->size, young->size));
      if (chance(&random) % 8 == 0) young->next = *keep, *keep = young;
      else free(young);
    }
    if (g % 8 != 7) continue;
    for (object_t *next; old; old = next) {
      next = old->next;
      CHECK(filled(old->data, old->size, old->size));
      free(old);
    }
  }
  for (size_t i = 0; i < entries; i++) CHECK(table[i] == i);
  free(table);
  for (object_t *next; old; old = next) next = old->next, free(old);
}

// A compiler: grows for a phase and frees all of it at once; each phase is larger.
static void compiler(size_t phases, size_t b) {
  (void)b;
  for (size_t phase = 1; phase <= phases; phase++) {
    object_t *all = NULL;
    uint64_t random = phase;
    for (size_t i = 0; i < phase * 4000; i++) {
      size_t n = i % 500 == 0 ? chance(&random) % 200000 : chance(&random) % 300;
      object_t *o = malloc(sizeof *o + n);
      CHECK(o);
      o->size = n, fill(o->data, n, phase);
      o->next = all, all = o;
    }
    for (object_t *next; all; all = next) {
      next = all->next;
      CHECK(filled(all->data, all->size, phase));
      free(all);
    }
  }
}

// A server: a thread handles each request, with buffers that grow; another thread frees the
// answers.
enum { REQUESTS = 300, WORKERS = 4 };
static _Atomic(char *) answer[REQUESTS];
static _Atomic size_t next_request;
static void *serve(void *unused) {
  for (size_t i; (i = next_request++) < REQUESTS;) {
    size_t n = 64;
    char *buffer = malloc(n), *header[30];
    for (size_t h = 0; h < COUNT(header); h++) header[h] = strdup("name: a value of some length");
    for (; n < (i * 1009) % 300000 + 100; n = n * 3 / 2) {
      CHECK(buffer = realloc(buffer, n * 3 / 2));
      fill(buffer, n * 3 / 2, i);
    }
    for (size_t h = 0; h < COUNT(header); h++) free(header[h]);
    CHECK(filled(buffer, n == 64 ? 0 : n, i));
    char *text = filled_block(5000, i);
    free(buffer);
    answer[i] = text;
  }
  return unused;
}
static void server(size_t rounds, size_t b) {
  (void)b;
  for (size_t round = 0; round < rounds; round++) {
    pthread_t worker[WORKERS];
    next_request = 0;
    for (size_t i = 0; i < WORKERS; i++) worker[i] = start(serve, NULL);
    for (size_t i = 0; i < REQUESTS; i++) {
      while (!answer[i]) usleep(50);
      check_and_free(answer[i], 5000, i);
      answer[i] = NULL;
    }
    for (size_t i = 0; i < WORKERS; i++) join(worker[i]);
  }
}

// A database: a cache of OS pages in random order, and its index.
static void database(size_t pages, size_t operations) {
  char **page = calloc(pages, sizeof *page);
  uint64_t random = 3;
  for (size_t i = 0; i < operations; i++) {
    size_t at = chance(&random) % pages;
    size_t *key = malloc(24 + at % 100);
    CHECK(key);
    *key = at;
    if (page[at]) check_and_free(page[at], 4096, at), page[at] = NULL;
    else page[at] = aligned_alloc(4096, 4096), fill(page[at], 4096, at);
    CHECK(*key == at);
    free(key);
  }
  for (size_t i = 0; i < pages; i++) {
    if (page[i]) CHECK(filled(page[i], 4096, i));
    free(page[i]);
  }
  free(page);
}

// An image tool: few large buffers, rescaled.
static void images(size_t number, size_t b) {
  (void)b;
  unsigned char *image = NULL;
  size_t before = rss_kib();
  for (size_t i = 0; i < number; i++) {
    size_t n = (i * 7919 % 40 + 1) * 200000;
    unsigned char *scaled = calloc(n, 1);
    CHECK(scaled && scaled[n / 2] == 0 && scaled[n - 1] == 0);
    memset(scaled, (int)i, n);
    CHECK(!image || image[0] == (unsigned char)(i - 1));
    free(image);
    image = scaled;
  }
  free(image);
  CHECK(rss_kib() < before + 24 * KIB);
}

// Text tools: strings that grow byte by byte and are cut again.
static void text_tool(size_t strings, size_t b) {
  (void)b;
  for (size_t i = 0; i < strings; i++) {
    char *text = NULL;
    size_t n = i * 37 % 3000 + 1;
    for (size_t j = 0; j < n; j++) {
      CHECK(text = realloc(text, j + 2));
      text[j] = (char)('a' + j % 26), text[j + 1] = 0;
    }
    CHECK(strlen(text) == n && text[n - 1] == (char)('a' + (n - 1) % 26));
    for (; n > 10; n /= 2) CHECK(text = realloc(text, n));
    CHECK(text[0] == 'a');
    free(text);
  }
}

// Blocks of one size, freed last in, first out, and first in, first out.
static void stack_and_queue(size_t size, size_t count) {
  char **p = malloc(count * sizeof *p);
  for (int order = 0; order < 4; order++) {
    for (size_t i = 0; i < count; i++) p[i] = filled_block(size, i);
    for (size_t i = 0; i < count; i++) {
      size_t at = order % 2 ? i : count - 1 - i;
      check_and_free(p[at], size, at);
    }
  }
  free(p);
}

const case_t workload_cases[] = {
    {"mixed_sizes", mixed_sizes, 1, 20000},
    {"mixed_sizes_other_seed", mixed_sizes, 77, 20000},
    {"mixed_in_2_threads", mixed_in_threads, 2},
    {"mixed_in_12_threads", mixed_in_threads, 12},
    {"interpreter", interpreter, 40},
    {"compiler", compiler, 8},
    {"server", server, 3},
    {"database", database, 3000, 60000},
    {"images", images, 60},
    {"text_tool", text_tool, 150},
    {"stack_and_queue_tiny", stack_and_queue, TINY, 50000},
    {"stack_and_queue_l2", stack_and_queue, L2, 2000},
    {"stack_and_queue_l25", stack_and_queue, L25, 100},
    {NULL},
};
