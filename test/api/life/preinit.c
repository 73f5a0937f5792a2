// preinit.c: a program that calls malloc before any constructor runs and before the C library
// is set up; before that, mallopt. With HAKMEM_ABORT=0 a bad free is reported, without an abort.

#include <malloc.h>

#include "../testing.h"

enum { CHECK_ACTION = -5, REPORT = 1, REPORT_AND_ABORT = 3 }; // glibc's malloc.h once had it

static void *early;
static int report, report_and_abort;
static void preinit(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  report = mallopt(CHECK_ACTION, REPORT);
  report_and_abort = mallopt(CHECK_ACTION, REPORT_AND_ABORT);
  early = malloc(100);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) =
    preinit;

int main(void) {
  const char *aborts = getenv("HAKMEM_ABORT");
  bool only_report = aborts && strcmp(aborts, "0") == 0;
  CHECK(report == only_report && report_and_abort == !only_report);
  CHECK(early);
  free(early);
  return 0;
}
