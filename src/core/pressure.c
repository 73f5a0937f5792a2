#include "core/pressure.h"

#include "core/options.h"
#include "core/print.h"
#include "os/os.h"

#define PATH_MAX_LENGTH 512
#define NO_LIMIT (UINT64_C(1) << 62)

_Atomic uint64_t hak_memory_limit = UINT64_MAX;

static char pressure_path[PATH_MAX_LENGTH]; // for the process's cgroup; "": not known

// Appends text up to its end or the end of its line; false if there is no room.
static bool append(char *path, const char *text) {
  unsigned n = 0;
  while (path[n]) n++;
  for (; *text && *text != '\n'; text++) {
    if (n + 1 >= PATH_MAX_LENGTH) return false;
    path[n++] = *text;
  }
  path[n] = 0;
  return true;
}

static bool build(char *path, const char *mount, const char *group, const char *file) {
  path[0] = 0;
  return append(path, mount) && append(path, group) && append(path, file);
}

// "max" and anything that is not a number count as no limit, as does cgroup v1's 2^63 less a page.
// False: there is no such file.
static bool limit_from(const char *mount, const char *group, const char *file) {
  char path[PATH_MAX_LENGTH], text[32];
  if (!build(path, mount, group, file) || !hak_os_read_text(path, text, sizeof text)) return false;
  uint64_t value = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++) value = value * 10 + (uint64_t)(*at - '0');
  if (at != text && value < NO_LIMIT && value < hak_load_relaxed(&hak_memory_limit))
    hak_store_relaxed(&hak_memory_limit, value);
  return true;
}

// Unless HAKMEM_MEMORY_LIMIT is set: a v2 group's limits. It has both files, the root group none.
static void limits_from(const char *group) {
  if (hak_option(MEMORY_LIMIT) != 0) return;
  if (limit_from("/sys/fs/cgroup/", group, "/memory.max"))
    limit_from("/sys/fs/cgroup/", group, "/memory.high");
}

// A line of /proc/self/cgroup: "0::/path" for v2, "4:memory:/path" for v1. The path does not
// exist where the container has mounted its own cgroup as the root: then the root is used.
static void cgroup_line(const char *line) {
  while (*line >= '0' && *line <= '9') line++;
  const char *group;
  if ((group = hak_skip(line, "::/")) != NULL) {
    limits_from(group);
    bool is_limited = hak_load_relaxed(&hak_memory_limit) != UINT64_MAX;
    if (!is_limited && *group > '\n') limits_from("");
    if (!build(pressure_path, "/sys/fs/cgroup/", group, "/memory.pressure")) pressure_path[0] = 0;
  } else if (hak_option(MEMORY_LIMIT) == 0 && (group = hak_skip(line, ":memory:/")) != NULL) {
    if (!limit_from("/sys/fs/cgroup/memory/", group, "/memory.limit_in_bytes"))
      limit_from("/sys/fs/cgroup/memory/", "", "memory.limit_in_bytes");
  }
}

// Every process does this when it starts, so it looks for no more files than needed.
void hak_pressure_init(void) {
  uint64_t limit = hak_option(MEMORY_LIMIT);
  hak_store_relaxed(&hak_memory_limit, limit ? limit : UINT64_MAX);
  pressure_path[0] = 0;
  char text[4096];
  if ((limit == 0 || hak_option(BACKGROUND)) &&
      hak_os_read_text("/proc/self/cgroup", text, sizeof text)) {
    for (const char *line = text; *line;) {
      cgroup_line(line);
      while (*line && *line++ != '\n') continue;
    }
  }
}

// Reads the cgroup's pressure, or the system's if the cgroup has none.
static bool read_pressure(char *text, size_t size) {
  return (pressure_path[0] && hak_os_read_text(pressure_path, text, size)) ||
         hak_os_read_text("/proc/pressure/memory", text, size);
}

unsigned hak_pressure(void) {
  char text[128];
  const char *at = read_pressure(text, sizeof text) ? hak_skip(text, "some avg10=") : NULL;
  unsigned value = 0;
  for (; at && *at >= '0' && *at <= '9'; at++) value = value * 10 + (unsigned)(*at - '0');
  return value;
}
