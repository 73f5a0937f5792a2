// trace_summary FILE [--json]: summarises a trace. `hakmem trace FILE` runs it.

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

#define RANGES 4
#define LIFETIMES 6

// The size ranges and the largest size of each (docs/glossary.md).
static const struct {
  const char *key, *title;
  uint64_t most;
} ranges[RANGES] = {{"tiny", "tiny, to 1280 B", 1280},
                    {"l2", "L2, to 56 KiB", 57344},
                    {"l25", "L2.5, to 1 MiB", 1048576},
                    {"huge", "huge, above", UINT64_MAX}};

// Classes of a block's age when it is freed, in events of the whole program since its allocation.
static const struct {
  const char *key, *title;
  uint64_t most;
} lifetimes[LIFETIMES] = {{"to_16", "16 events", 16},           {"to_256", "256", 256},
                          {"to_4096", "4,096", 4096},           {"to_65536", "65,536", 65536},
                          {"to_1048576", "1,048,576", 1048576}, {"longer", "longer", UINT64_MAX}};

static const char *const kinds[] = {[TRACE_MALLOC] = "malloc",
                                    [TRACE_CALLOC] = "calloc",
                                    [TRACE_ALIGNED] = "aligned",
                                    [TRACE_REALLOC] = "realloc",
                                    [TRACE_FREE] = "free"};

typedef struct {
  uint64_t kinds[TRACE_FREE + 1];
  uint64_t range_blocks[RANGES], range_bytes[RANGES];
  uint64_t buckets[49];   // by the number of bits of size - 1: 2^i is bucket i's largest size
  uint64_t allocated;     // bytes, in all
  uint64_t ended, remote; // blocks freed or resized; those of them by another thread
  uint64_t lifetimes[LIFETIMES];
} summary_t;

// What the summary needs to know about a block when it is freed or resized.
typedef struct {
  uint64_t born;
  uint32_t thread;
} birth_t;

static void end_block(summary_t *s, const birth_t *birth, uint64_t now, uint32_t thread) {
  s->ended++;
  s->remote += birth->thread != thread;
  unsigned i = 0;
  while (now - birth->born > lifetimes[i].most) i++;
  s->lifetimes[i]++;
}

static void make_block(summary_t *s, uint64_t size) {
  unsigned range = 0, bucket = size > 1 ? 64 - (unsigned)__builtin_clzll(size - 1) : 0;
  while (size > ranges[range].most) range++;
  s->range_blocks[range]++;
  s->range_bytes[range] += size;
  s->buckets[bucket]++;
  s->allocated += size;
}

static summary_t summarise(const trace_t *t) {
  summary_t s = {0};
  birth_t *births = calloc((size_t)t->blocks + 1, sizeof *births);
  if (births == NULL) {
    fprintf(stderr, "trace_summary: no memory\n");
    exit(1);
  }
  for (uint64_t i = 0; i < t->step_count; i++) {
    const trace_step_t *step = &t->steps[i];
    s.kinds[step->kind]++;
    if (step->kind == TRACE_FREE) {
      end_block(&s, &births[step->block], i, step->thread);
      continue;
    }
    make_block(&s, step->size);
    births[step->block] = (birth_t){.born = i, .thread = step->thread};
    if (step->kind == TRACE_REALLOC && step->from != TRACE_NO_BLOCK)
      end_block(&s, &births[step->from], i, step->thread);
  }
  free(births);
  return s;
}

static double share(uint64_t part, uint64_t whole) {
  return whole != 0 ? (double)part / (double)whole : 0.0;
}

// ---------------------------------------------------------------------------
// JSON

static void print_string(const char *text) {
  putchar('"');
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') printf("\\%c", *c);
    else if (*c < ' ' || *c > '~') printf("\\u%04x", *c); // each byte, as if it were Latin-1
    else putchar(*c);
  }
  putchar('"');
}

static void print_json(const trace_t *t, const summary_t *s) {
  printf("{\"version\": %u, \"command\": ", TRACE_VERSION);
  print_string(t->command);
  printf(", \"pid\": %" PRIu32 ", \"started\": %" PRIu64 ", \"microseconds\": %" PRIu64
         ", \"threads\": %" PRIu32 ", \"operations\": %" PRIu64,
         t->pid, t->started, t->microseconds, t->threads, t->step_count);
  for (unsigned k = TRACE_MALLOC; k <= TRACE_FREE; k++)
    printf(", \"%s\": %" PRIu64, kinds[k], s->kinds[k]);
  printf(", \"blocks\": %" PRIu32 ", \"allocated_bytes\": %" PRIu64
         ", \"peak_live_blocks\": %" PRIu64 ", \"peak_live_bytes\": %" PRIu64
         ", \"live_at_end\": %" PRIu64,
         t->blocks, s->allocated, t->peak_blocks, t->peak_bytes, t->blocks - s->ended);
  printf(", \"cross_thread_frees\": %" PRIu64 ", \"cross_thread_share\": %.6f", s->remote,
         share(s->remote, s->ended));
  printf(", \"unknown_frees\": %" PRIu64 ", \"unseen_frees\": %" PRIu64 ", \"ranges\": {",
         t->unknown_frees, t->unseen_frees);
  for (unsigned i = 0; i < RANGES; i++)
    printf("%s\"%s\": {\"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", i > 0 ? ", " : "",
           ranges[i].key, s->range_blocks[i], s->range_bytes[i]);
  printf("}, \"sizes\": {");
  const char *comma = "";
  for (unsigned i = 0; i < 49; i++) {
    if (s->buckets[i] == 0) continue;
    printf("%s\"%" PRIu64 "\": %" PRIu64, comma, (uint64_t)1 << i, s->buckets[i]);
    comma = ", ";
  }
  printf("}, \"lifetimes\": {");
  for (unsigned i = 0; i < LIFETIMES; i++)
    printf("%s\"%s\": %" PRIu64, i > 0 ? ", " : "", lifetimes[i].key, s->lifetimes[i]);
  printf("}, \"file_bytes\": %" PRIu64 ", \"bytes_per_event\": %.3f}\n", t->file_bytes,
         share(t->record_bytes, t->step_count));
}

// ---------------------------------------------------------------------------
// Text

static const char *grouped(uint64_t value) {
  static char texts[4][32]; // so that one printf can have four
  static unsigned turn;
  char *at = texts[turn++ % 4] + 31;
  *at = '\0';
  for (unsigned digits = 0; value != 0 || digits == 0; digits++, value /= 10) {
    if (digits != 0 && digits % 3 == 0) *--at = ',';
    *--at = (char)('0' + value % 10);
  }
  return at;
}

static void line(const char *title, uint64_t count, uint64_t whole) {
  if (whole == 0) printf("  %-24s%16s\n", title, grouped(count));
  else printf("  %-24s%16s %7.2f %%\n", title, grouped(count), 100 * share(count, whole));
}

static void print_sizes(const trace_t *t, const summary_t *s) {
  printf("sizes asked for\n");
  unsigned bucket = 0;
  for (unsigned i = 0; i < RANGES; i++) {
    line(ranges[i].title, s->range_blocks[i], t->blocks);
    // 1,280 and 56 KiB are not powers of two: their buckets are shown with the range of the
    // buckets' larger sizes.
    for (; bucket < 49 && (i == RANGES - 1 || (uint64_t)1 << bucket <= ranges[i].most); bucket++)
      if (s->buckets[bucket] != 0)
        printf("    to %-19s%16s %7.2f %%\n", grouped((uint64_t)1 << bucket),
               grouped(s->buckets[bucket]), 100 * share(s->buckets[bucket], t->blocks));
  }
}

static void print_text(const trace_t *t, const summary_t *s) {
  char when[32] = "";
  time_t started = (time_t)t->started;
  struct tm local;
  if (localtime_r(&started, &local) != NULL)
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
  printf("%s\n  recorded %s, %.1f s, process %" PRIu32 "\n", t->command, when,
         (double)t->microseconds / 1e6, t->pid);
  line("threads", t->threads, 0);
  line("operations", t->step_count, 0);
  for (unsigned k = TRACE_MALLOC; k <= TRACE_FREE; k++) {
    char title[16];
    snprintf(title, sizeof title, "  %s", kinds[k]);
    line(title, s->kinds[k], t->step_count);
  }
  line("bytes asked for", s->allocated, 0);
  line("peak live bytes", t->peak_bytes, 0);
  line("peak live blocks", t->peak_blocks, 0);
  line("live at the end", t->blocks - s->ended, 0);
  line("freed by another thread", s->remote, s->ended);
  if (t->unknown_frees != 0) line("frees of unknown blocks", t->unknown_frees, 0);
  if (t->unseen_frees != 0) line("blocks freed unseen", t->unseen_frees, 0);
  print_sizes(t, s);
  printf("lifetimes, in operations of the program\n");
  for (unsigned i = 0; i < LIFETIMES; i++) line(lifetimes[i].title, s->lifetimes[i], t->blocks);
  line("never freed", t->blocks - s->ended, t->blocks);
  printf("the file: %s bytes, %.2f bytes per operation\n", grouped(t->file_bytes),
         share(t->record_bytes, t->step_count));
}

int main(int argc, char **argv) {
  const char *path = NULL;
  bool json = false, help = false, wrong = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) json = true;
    else if (strcmp(argv[i], "--help") == 0) help = true;
    else if (argv[i][0] == '-' || path != NULL) wrong = true;
    else path = argv[i];
  }
  if (help || wrong || path == NULL) {
    fprintf(help ? stdout : stderr, "usage: trace_summary FILE [--json]\n");
    return help ? 0 : 2;
  }
  trace_t t = trace_load("trace_summary", path);
  summary_t s = summarise(&t);
  (json ? print_json : print_text)(&t, &s);
  if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
  perror("trace_summary: output");
  return 1;
}
