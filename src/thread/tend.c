#include "thread/tend.h"

#include "thread/commons.h"
#include "thread/remote.h"
#include "thread/ring.h"
#include "thread/sparse.h"

void hak_tend_now(hak_heap_t *heap) {
  hak_remote_flush(heap); // counts anew
  hak_ring_tend(heap);
  hak_sparse_tend(heap);
  hak_commons_tend(heap);
  hak_heap_tend_shared();
}
