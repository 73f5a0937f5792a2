// launch: runs one command and writes its resource usage as JSON.
//
//   launch [--out FILE] [--env K=V]... [--prime MIB] -- CMD ARGS...
//
// A process starts with the peak RSS that its parent had when it forked, so a Python runner
// cannot measure the peak of a small program. This parent is tiny. While the command runs,
// launch samples its resident memory every 10 ms and reports its mean over time (0 where /proc
// does not tell, or where the run was shorter than that). The variables of --env are
// set for the command only: launch itself never runs under a preloaded allocator.
//
// --prime makes all runs that need much memory start under the same conditions: a child of
// launch fills that many MiB and ends before the command starts. A virtual machine returns
// memory that has been free for some seconds to its host (free page reporting), and the first
// touch of such memory takes ten to twenty times as long: the first run after a pause would
// pay for it. Memory that was freed a moment ago is still in place, and the kernel hands it
// out next. The exit status is the command's (128 + N for signal N, 127 if it could not be
// started); it is 2 for wrong arguments.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void usage(void) {
  fprintf(stderr, "usage: launch [--out FILE] [--env K=V]... [--prime MIB] -- CMD ARGS...\n");
  exit(2);
}

static _Noreturn void die(const char *what) {
  fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
  exit(127);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double resident_kib(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
  FILE *f = fopen(path, "re");
  long total, resident = 0;
  if (f == NULL) return 0;
  if (fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
  fclose(f);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

// Fills memory in a child, so that the command does not inherit its peak, and in huge pages, as
// the host gets those back. A failing mmap is ignored. Returns the child's CPU time.
static double prime(size_t mib) {
  struct rusage used = {0};
  pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    size_t size = mib << 20;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(0);
    madvise(p, size, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += 4096) ((volatile char *)p)[at] = 1;
    _exit(0);
  }
  while (wait4(child, NULL, 0, &used) < 0 && errno == EINTR) continue;
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int main(int argc, char **argv) {
  const char *out_name = NULL;
  char **env = calloc((size_t)argc + 1, sizeof *env), **env_end = env;
  if (env == NULL) die("calloc");
  size_t prime_mib = 0;
  int i = 1;
  for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
    if (i + 1 >= argc) usage();
    if (strcmp(argv[i], "--out") == 0) {
      out_name = argv[i + 1];
    } else if (strcmp(argv[i], "--env") == 0 && strchr(argv[i + 1], '=') != NULL) {
      *env_end++ = argv[i + 1];
    } else if (strcmp(argv[i], "--prime") == 0 && (prime_mib = strtoul(argv[i + 1], NULL, 10)) != 0) {
      continue;
    } else {
      usage();
    }
  }
  char **command = argv + i + 1;
  if (i + 1 >= argc) usage();
  FILE *out = out_name != NULL ? fopen(out_name, "we") : stderr;
  if (out == NULL) die(out_name);

  double prime_s = prime_mib != 0 ? prime(prime_mib) : 0;

  // Waits for SIGCHLD with a timeout below.
  sigset_t child_ends;
  sigemptyset(&child_ends);
  sigaddset(&child_ends, SIGCHLD);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &child_ends, &before);

  double start = now();
  pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // if launch is killed on a timeout, the command is too
    for (char **e = env; *e != NULL; e++) putenv(*e);
    execvp(command[0], command);
    fprintf(stderr, "launch: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  // A terminal's interrupt is meant for the command; launch ignores it and still reports.
  signal(SIGINT, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  int status;
  struct rusage used;
  double rss_kib_s = 0, sampled = start;
  const struct timespec interval = {.tv_nsec = 10000000};
  for (;;) {
    pid_t ended = wait4(child, &status, WNOHANG, &used);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) die("wait4");
    if (sigtimedwait(&child_ends, NULL, &interval) < 0 && errno == EAGAIN) {
      double t = now();
      rss_kib_s += resident_kib(child) * (t - sampled);
      sampled = t;
    }
  }
  double wall = now() - start;

  int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  fprintf(out,
          "{\"pid\": %d, \"prime_s\": %.6f, \"wall_s\": %.6f, \"user_s\": %.6f, \"sys_s\": %.6f, \"maxrss_kib\": %ld, "
          "\"mean_rss_kib\": %.0f, \"minor_faults\": %ld, \"major_faults\": %ld, \"voluntary_switches\": %ld, "
          "\"involuntary_switches\": %ld, \"exit\": %d, \"signal\": %d}\n",
          (int)child, prime_s, wall, seconds(used.ru_utime), seconds(used.ru_stime), used.ru_maxrss,
          sampled > start ? rss_kib_s / (sampled - start) : 0, used.ru_minflt,
          used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw, code,
          WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  if (fflush(out) != 0) die("write");
  return code;
}
