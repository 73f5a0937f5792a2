// replay.c: runs the fuzz target without a fuzzer: on files, or on random inputs
// (which any compiler and sanitizer can do).
//
//   replay FILE...             one after the other, each on the heap that the ones before left
//   replay --apart FILE...     each in its own process
//   replay --random SEED SECONDS
//
// Status 0: no finding.

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static uint8_t input[1 << 20];

static int replay(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return fprintf(stderr, "replay: cannot read %s\n", path), 2;
  size_t n = fread(input, 1, sizeof input, f);
  fclose(f);
  printf("%s: %zu bytes\n", path, n);
  fflush(stdout); // a finding ends the process
  LLVMFuzzerTestOneInput(input, n);
  return 0;
}

static int replay_apart(const char *path) {
  pid_t child = fork();
  if (child == 0) _exit(replay(path));
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) return perror("replay"), 2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static uint64_t chance(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545f4914f6cdd1du;
}

static int random_inputs(uint64_t seed, double seconds) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1, runs = 0;
  do {
    size_t n = 20 + (chance(&state) >> 32) % 1200;
    for (size_t i = 0; i < n; i += 8) {
      uint64_t word = chance(&state);
      memcpy(input + i, &word, 8);
    }
    LLVMFuzzerTestOneInput(input, n);
    runs++;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
  printf("%llu random inputs of seed %llu\n", (unsigned long long)runs, (unsigned long long)seed);
  return 0;
}

int main(int argc, char **argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  if (argc == 4 && strcmp(argv[1], "--random") == 0) {
    unsigned long long seed = 0;
    double seconds = 0;
    if (sscanf(argv[2], "%llu", &seed) == 1 && sscanf(argv[3], "%lf", &seconds) == 1)
      return random_inputs(seed, seconds);
  }
  int first = argc > 1 && strcmp(argv[1], "--apart") == 0 ? 2 : 1, status = 0;
  if (argc <= first)
    return fprintf(stderr, "usage: replay [--apart] FILE... | --random SEED SECONDS\n"), 2;
  for (int i = first; i < argc && status == 0; i++)
    status = first == 2 ? replay_apart(argv[i]) : replay(argv[i]);
  if (status == 0) printf("ok: %d inputs replayed\n", argc - first);
  return status;
}
