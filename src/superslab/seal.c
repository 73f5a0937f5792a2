#include "superslab/seal.h"

#include "core/options.h"
#include "os/os.h"

#if HAK_SECURE

#define POISON UINT64_C(0xdfdfdfdfdfdfdfdf) // no address that a program can have
#define END 16                              // bytes at the end of a freed block, whatever is filled

hak_secret_t hak_secret;
static _Atomic uint64_t drawn;

void hak_seal_init(void) {
  uint64_t random[4];
  hak_os_random(random, sizeof random);
  hak_secret.mix = random[0];
  hak_secret.factor = random[1] | 1;
  hak_secret.link = random[2];
  hak_secret.pattern = random[3] | UINT64_C(0x0101010101010101); // no byte is 0
  hak_store_relaxed(&drawn, random[0] ^ random[3]);
  hak_secret.fill = hak_option(SECURE_FILL) == HAK_FILL_ZERO ? 0 : POISON;
  hak_secret.fill_bytes =
      hak_option(SECURE_FILL) == HAK_FILL_NONE ? 0 : hak_option(SECURE_FILL_BYTES);
  hak_secret.held_bytes = hak_option(SECURE_QUARANTINE);
}

// A counter, mixed (splitmix64) with a secret.
uint64_t hak_seal_random(void) {
  uint64_t x = hak_fetch_add_relaxed(&drawn, UINT64_C(0x9e3779b97f4a7c15)) ^ hak_secret.link;
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

void *hak_link_broken(void *block) {
  hak_misuse_written(block, 0);
  return NULL;
}

void hak_seal_resize(void *block, size_t place, size_t size) {
  size_t slack = place - HAK_TAIL - size;
  if (slack > HAK_SEAL_SLACK_MAX) slack = HAK_SEAL_SLACK_MAX; // huge: the end is not exact
  if (slack >= 8) {
    *hak_seal_edge(block, place, slack) = hak_secret.pattern;
  } else {
    unsigned char *edge = (unsigned char *)hak_seal_edge(block, place, slack);
    for (size_t i = 8 - slack; i < 8; i++) edge[i] = (unsigned char)(hak_secret.pattern >> 8 * i);
  }
  hak_seal_write(block, place, (uint64_t)slack << HAK_SEAL_SLACK_SHIFT | HAK_SEAL_LIVE);
}

size_t hak_seal_size(const void *block, size_t place) {
  uint64_t value = hak_seal_read(block, place), state = value & HAK_SEAL_STATE;
  size_t most = place - HAK_TAIL, slack = value >> HAK_SEAL_SLACK_SHIFT;
  bool sealed = state == HAK_SEAL_LIVE || state == HAK_SEAL_HELD;
  return sealed && slack <= most ? most - slack : most;
}

bool hak_seal_find(const void *block, size_t place, const char *function, size_t *size) {
  uint64_t value = hak_seal_read(block, place), state = value & HAK_SEAL_STATE;
  *size = hak_seal_size(block, place);
  if (state == HAK_SEAL_HELD || state == HAK_SEAL_FREE)
    hak_misuse_double_free(function, block, *size);
  else if (state != HAK_SEAL_LIVE || value >> HAK_SEAL_SLACK_SHIFT > place - HAK_TAIL)
    hak_misuse_no_seal(function, block, place - HAK_TAIL);
  else if (!hak_seal_edge_whole(block, place, value >> HAK_SEAL_SLACK_SHIFT))
    hak_misuse_overflow(function, block, *size);
  else return true;
  return false;
}

// ---------------------------------------------------------------------------
// Filling: a multiple of 8 bytes from the start, and the last ones.

typedef uint64_t __attribute__((vector_size(16), aligned(8), may_alias)) pair_t;

static size_t from_start(size_t size) {
  size_t most = size < hak_secret.fill_bytes ? size : hak_secret.fill_bytes;
  return most & ~(size_t)15;
}

void hak_seal_fill(void *block, size_t size) {
  char *p = block, *end = p + from_start(size);
  uint64_t fill = hak_secret.fill;
  if (hak_secret.fill_bytes == 0) return;
  if (size >= END) {
    hak_unaligned_t *last = (hak_unaligned_t *)(p + size - END);
    last[0] = last[1] = fill;
  } else if (size >= 8) {
    *(hak_unaligned_t *)p = *(hak_unaligned_t *)(p + size - 8) = fill;
  }
  for (; p != end; p += 16) *(pair_t *)p = (pair_t){fill, fill};
}

bool hak_seal_filled(const void *block, size_t size) {
  const char *p = block, *end = p + from_start(size);
  uint64_t fill = hak_secret.fill, differs = 0;
  if (hak_secret.fill_bytes == 0) return true;
  if (size >= END) {
    const hak_unaligned_t *last = (const hak_unaligned_t *)(p + size - END);
    differs = (last[0] ^ fill) | (last[1] ^ fill);
  } else if (size >= 8) {
    differs =
        (*(const hak_unaligned_t *)p ^ fill) | (*(const hak_unaligned_t *)(p + size - 8) ^ fill);
  }
  pair_t sum = {differs, 0};
  for (; p != end; p += 16) sum |= *(const pair_t *)p ^ (pair_t) { fill, fill };
  return (sum[0] | sum[1]) == 0;
}

#endif
