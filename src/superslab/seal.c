#include "superslab/seal.h"

#include "core/options.h"
#include "os/os.h"

#if HAK_SECURE

#define POISON UINT64_C(0xdfdfdfdfdfdfdfdf) // no address that a program can have

// A cache line each: every malloc and free reads the first, and other threads write the second.
_Alignas(64) hak_secret_t hak_secret;
static _Alignas(64) _Atomic uint64_t drawn;

void hak_seal_init(void) {
  uint64_t random[4];
  hak_os_random(random, sizeof random);
  hak_secret.mix = random[0];
  hak_secret.factor = random[1] | 1;
  hak_secret.link = random[2];
  hak_secret.pattern = random[3] | UINT64_C(0x0101010101010101); // no byte is 0
  hak_store_relaxed(&drawn, random[0] ^ random[3]);
  if (hak_option(SECURE_FILL) != HAK_FILL_ZERO) hak_secret.fill = (hak_pair_t){POISON, POISON};
  for (unsigned n = 0; n < 9; n++)
    hak_secret.mask[n] = n < 8 ? ((uint64_t)1 << 8 * n) - 1 : UINT64_MAX;
  hak_secret.fill_bytes = hak_option(SECURE_FILL) == HAK_FILL_NONE
                              ? 0
                              : hak_align_up(hak_option(SECURE_FILL_BYTES), sizeof(hak_pair_t));
  hak_secret.held_bytes = hak_option(SECURE_QUARANTINE);
  hak_secret.plain =
      hak_secret.fill_bytes == HAK_FILL_BYTES && hak_secret.held_bytes >= HAK_TINY_MAX;
}

// A counter, mixed with a secret.
uint64_t hak_seal_random(void) {
  return hak_seal_mix(hak_fetch_add_relaxed(&drawn, HAK_SEAL_STEP) ^ hak_secret.link);
}

void *hak_link_broken(void *block) {
  hak_misuse_written(block, 0);
  return NULL;
}

void hak_seal_resize(void *block, size_t place, size_t size) {
  size_t most = place - HAK_TAIL;
  // Huge: the end is not exact.
  if (most - size > HAK_SEAL_SLACK_MAX) size = most - HAK_SEAL_SLACK_MAX;
  hak_seal_new(block, place, size, hak_seal_key(block));
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
    hak_misuse("%s(%p): the end of the block of up to %u bytes was overwritten, or it was never "
               "allocated",
               function, block, place - HAK_TAIL);
  else if (!hak_seal_edge_whole(block, *size, value >> HAK_SEAL_SLACK_SHIFT))
    hak_misuse_overflow(function, block, *size);
  else return true;
  return false;
}

// ---------------------------------------------------------------------------
// Filling.

static size_t from_start(size_t span) {
  return hak_align_down(hak_min(span, hak_secret.fill_bytes), sizeof(hak_pair_t));
}

void hak_seal_fill_any(void *block, size_t span) {
  hak_pair_t *p = block, *end = p + from_start(span) / sizeof *p;
  hak_pair_t fill = hak_secret.fill;
  if (hak_secret.fill_bytes == 0) return;
  if (span < sizeof fill) {
    *(hak_unaligned_t *)block = fill[0];
    return;
  }
  for (; p != end; p++) *p = fill;
  *(hak_pair_t *)((uintptr_t)block + span - sizeof fill) = fill;
}

bool hak_seal_filled_any(const void *block, size_t span) {
  const hak_pair_t *p = block, *end = p + from_start(span) / sizeof *p;
  hak_pair_t fill = hak_secret.fill, differs = {0, 0};
  if (hak_secret.fill_bytes == 0) return true;
  if (span < sizeof fill) return *(const hak_unaligned_t *)block == fill[0];
  for (; p != end; p++) differs |= *p ^ fill;
  differs |= *(const hak_pair_t *)((uintptr_t)block + span - sizeof fill) ^ fill;
  return (differs[0] | differs[1]) == 0;
}

#endif
