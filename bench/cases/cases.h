// cases.h: code that the programs of this folder share in addition to ../standard/standard.h
// (marks, teams of threads): reading resident memory without a call of malloc, and waiting.

#ifndef HAKMEM_BENCH_CASES_H
#define HAKMEM_BENCH_CASES_H

#include <fcntl.h>
#include <unistd.h>

#include "../standard/standard.h"

// ---------------------------------------------------------------------------
// Resident memory. Read by open and read, because stdio would allocate its buffer.

// Reads the file as a string into `text`, truncated to its size.
static inline void case_read(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) bench_die(path);
  size_t filled = 0;
  for (ssize_t n = 1; n > 0 && filled < size - 1; filled += (size_t)n) {
    n = read(file, text + filled, size - 1 - filled);
    if (n < 0) bench_die(path);
  }
  text[filled] = '\0';
  close(file);
}

// Resident memory now, in KiB. The kernel counts per CPU and sums up only roughly, so the value is
// off by up to some 100 KiB.
static inline uint64_t case_rss_kib(void) {
  char text[128];
  case_read("/proc/self/statm", text, sizeof text);
  char *resident = strchr(text, ' ');
  if (resident == NULL) bench_wrong("/proc/self/statm");
  return strtoull(resident, NULL, 10) * ((uint64_t)sysconf(_SC_PAGESIZE) / 1024);
}

// A field of /proc/self/smaps_rollup, such as "\nRss:", in KiB. Exact, but slow on large heaps.
static inline uint64_t case_smaps_kib(const char *field) {
  char text[4096];
  case_read("/proc/self/smaps_rollup", text, sizeof text);
  char *found = strstr(text, field);
  return found != NULL ? strtoull(found + strlen(field), NULL, 10) : 0;
}

// ---------------------------------------------------------------------------
// Waiting, filling, order

static inline void case_sleep_until(uint64_t ns) {
  struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

// Allocates a marked block and touches each of its OS pages.
static inline void *case_alloc_paged(size_t size) {
  char *p = bench_alloc(NULL, size);
  for (size_t at = BENCH_OS_PAGE; at < size; at += BENCH_OS_PAGE) bench_touch(p, at);
  mark(p, size);
  return p;
}

// The median; 0 if there are no values. Uses insertion sort, because qsort may allocate.
static inline uint64_t case_median(uint64_t *values, uint64_t count) {
  for (uint64_t i = 1; i < count; i++)
    for (uint64_t k = i; k > 0 && values[k] < values[k - 1]; k--) {
      uint64_t value = values[k];
      values[k] = values[k - 1];
      values[k - 1] = value;
    }
  return count != 0 ? values[count / 2] : 0;
}

#endif
