// pressure.h: limits of cgroups and pressure, read from a tree of files of our own.

#include "unit.h"

#include <sys/stat.h>

#include "core/options.h"
#include "core/pressure.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "thread/heap.h"
#include "thread/process.h"

static char root[] = "/tmp/unit_pressure_XXXXXX";

static void put(const char *path, const char *text) {
  char full[512];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char *at = full + sizeof root; (at = strchr(at, '/')) != NULL; at++) {
    *at = 0;
    CHECK(mkdir(full, 0700) == 0 || errno == EEXIST);
    *at = '/';
  }
  int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
}

static uint64_t limit(void) {
  hak_os_root = root;
  hak_pressure_init();
  return hak_load_relaxed(&hak_memory_limit);
}

static int fresh(void **state) {
  (void)state;
  hak_process_init();
  strcpy(root + sizeof root - 7, "XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}

static int gone(void **state) {
  (void)state;
  char command[600];
  snprintf(command, sizeof command, "rm -r '%s'", root);
  return system(command);
}

static void nothing_there(void) {
  CHECK_EQUAL(limit(), UINT64_MAX);
  CHECK_EQUAL(hak_pressure(), 0);
}

static void version_2(void) {
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK_EQUAL(limit(), UINT64_MAX);
  put("/sys/fs/cgroup/a/b/memory.max", "104857600\n");
  CHECK_EQUAL(limit(), 104857600);
  put("/sys/fs/cgroup/a/b/memory.high", "max\n");
  CHECK_EQUAL(limit(), 104857600);
  put("/sys/fs/cgroup/a/b/memory.high", "52428800\n");
  CHECK_EQUAL(limit(), 52428800);
}

static void version_2_in_a_container(void) {
  put("/proc/self/cgroup", "0::/../somewhere/else\n");
  put("/sys/fs/cgroup/memory.max", "1048576\n");
  CHECK_EQUAL(limit(), 1048576);
  put("/sys/fs/cgroup/memory.high", "524288\n");
  CHECK_EQUAL(limit(), 524288);
  // In a child of the container's group, which leaves the limit to that group.
  put("/proc/self/cgroup", "0::/a\n");
  put("/sys/fs/cgroup/a/memory.max", "max\n");
  put("/sys/fs/cgroup/a/memory.high", "max\n");
  CHECK_EQUAL(limit(), 524288);
}

static void version_1(void) {
  put("/proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/\n0::/\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_EQUAL(limit(), UINT64_MAX); // no limit
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "200000000\n");
  CHECK_EQUAL(limit(), 200000000);
}

static void version_1_in_a_container(void) {
  put("/proc/self/cgroup", "4:memory:/docker/x\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000000\n");
  CHECK_EQUAL(limit(), 300000000);
  // Where the group is visible its own limit counts alone, as the limits above it do so anyway.
  put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_EQUAL(limit(), UINT64_MAX);
}

static void nonsense(void) {
  char text[4000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  memcpy(text, "0::/", 4);
  put("/proc/self/cgroup", text); // a path of 4,000 characters
  CHECK_EQUAL(limit(), UINT64_MAX);
  put("/proc/self/cgroup", "\n\n:\n0:\n0::\nmemory\n");
  CHECK_EQUAL(limit(), UINT64_MAX);
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/memory.max", "\n");
  CHECK_EQUAL(limit(), UINT64_MAX);
}

static void the_option_comes_first(void) {
  put("/proc/self/cgroup", "0::/a\n");
  put("/sys/fs/cgroup/a/memory.max", "1000000\n");
  hak_option(MEMORY_LIMIT) = 2000000;
  CHECK_EQUAL(limit(), 2000000);
  // With a helper thread, which looks at it, the group's pressure is known nevertheless.
  put("/sys/fs/cgroup/a/memory.pressure", "some avg10=5.99 avg60=9.00 avg300=0.00 total=1\n");
  CHECK_EQUAL(hak_pressure(), 0);
  hak_option(BACKGROUND) = 1;
  CHECK_EQUAL(limit(), 2000000);
  CHECK_EQUAL(hak_pressure(), 5);
}

// cgroup v1 with long names, the memory group behind 2 KiB of others.
static void many_lines(void) {
  char text[4000] = "";
  for (unsigned i = 0; i < 12; i++)
    sprintf(text + strlen(text), "%u:name%u:/%0200u\n", 13 - i, i, i);
  strcat(text, "1:memory:/a\n");
  put("/proc/self/cgroup", text);
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "200000000\n");
  CHECK_EQUAL(limit(), 200000000);
}

static void pressure(void) {
  put("/proc/self/cgroup", "0::/a\n");
  put("/proc/pressure/memory", "some avg10=3.14 avg60=0.00 avg300=0.00 total=1\n");
  limit();
  CHECK_EQUAL(hak_pressure(), 3); // the system's
  put("/sys/fs/cgroup/a/memory.pressure", "some avg10=5.99 avg60=9.00 avg300=0.00 total=1\n");
  CHECK_EQUAL(hak_pressure(), 5); // the group's own
  put("/sys/fs/cgroup/a/memory.pressure", "some avg10=100.00 avg60=9.00\n");
  CHECK_EQUAL(hak_pressure(), 100);
  put("/sys/fs/cgroup/a/memory.pressure", "full avg10=7.00\n");
  CHECK_EQUAL(hak_pressure(), 0);
}

// The helper thread asks all heaps to give back what they keep while there is pressure.
static void helper_under_pressure(void) {
  hak_free(hak_malloc(1));
  put("/proc/pressure/memory", "some avg10=0.99 avg60=0.00 avg300=0.00 total=1\n");
  hak_option(BACKGROUND) = 1;
  limit();
  hak_background_start();
  hak_os_sleep_ms(1200); // it looks once a second
  CHECK(!hak_heap_reclaim_asked(hak_tls_heap));
  put("/proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n");
  for (unsigned i = 0; i < 600 && !hak_heap_reclaim_asked(hak_tls_heap); i++) hak_os_sleep_ms(100);
  CHECK(hak_heap_reclaim_asked(hak_tls_heap));
}

#define TEST(name) {#name, name##_isolated, fresh, gone, NULL}
ISOLATED(nothing_there)
ISOLATED(version_2)
ISOLATED(version_2_in_a_container)
ISOLATED(version_1)
ISOLATED(version_1_in_a_container)
ISOLATED(nonsense)
ISOLATED(the_option_comes_first)
ISOLATED(many_lines)
ISOLATED(pressure)
ISOLATED(helper_under_pressure)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(nothing_there), TEST(version_2), TEST(version_2_in_a_container), TEST(version_1),
      TEST(version_1_in_a_container), TEST(nonsense), TEST(the_option_comes_first), TEST(many_lines),
      TEST(pressure), TEST(helper_under_pressure),
  };
  return RUN(tests);
}
