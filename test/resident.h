// resident.h: the kernel's figures for the process's memory, read without a malloc. For
// programs that run on the allocator under test.

#ifndef TEST_RESIDENT_H
#define TEST_RESIDENT_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A figure in KiB from a short file of /proc, for instance "VmRSS:"; 0 without /proc.
static inline size_t proc_kib(const char *file, const char *name) {
  char text[4096];
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *at = strstr(text, name);
  return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}
static inline size_t status_kib(const char *name) { return proc_kib("/proc/self/status", name); }
static inline size_t rss_kib(void) { return status_kib("VmRSS:"); }

// For tight bounds: VmRSS lacks what the CPUs have not added up yet, MiB if there are many.
static inline size_t exact_rss_kib(void) {
  size_t exact = proc_kib("/proc/self/smaps_rollup", "Rss:");
  return exact ? exact : rss_kib();
}

#endif
