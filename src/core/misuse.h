// misuse.h: what is said when the program gives us a pointer that is no live
// block. One line to stderr, then abort unless HAKMEM_ABORT=0; the callers ignore
// the pointer if these return, but for wrong sizes: by its address the block is found.

#ifndef HAK_CORE_MISUSE_H
#define HAK_CORE_MISUSE_H

#include "base/compiler.h"

// The end of every message here: abort, unless HAKMEM_ABORT=0.
HAK_COLD void hak_misuse_finish(void);
#if HAK_TESTING
HAK_INTERNAL extern _Atomic uint32_t hak_misuse_count; // calls of it
#endif
// function is the name the program called.
HAK_COLD void hak_misuse_double_free(const char *function, const void *p, size_t block_size);
HAK_COLD void hak_misuse_misaligned(const char *function, const void *p);
// Inside the block, or before the first one of its slab.
HAK_COLD void hak_misuse_interior(const char *function, const void *p, const void *block,
                                  size_t block_size);
// Says what the address belongs to instead (reads /proc/self/maps).
HAK_COLD void hak_misuse_foreign(const char *function, const void *p);
// In memory that went back to the system, with what is known of its blocks.
HAK_COLD void hak_misuse_forgotten(const char *function, const void *p);
// Secure library: p may be a block, but has no seal. Any library: what follows the block_size
// bytes of the block was changed / the free block was changed (0: size not known).
HAK_COLD void hak_misuse_no_seal(const char *function, const void *p, size_t block_size);
HAK_COLD void hak_misuse_overflow(const char *function, const void *p, size_t block_size);
HAK_COLD void hak_misuse_written(const void *p, size_t block_size);
// So many blocks of a slab cannot be found any more.
HAK_COLD void hak_misuse_lost(const void *slab, size_t block_size, uint64_t blocks);
typedef void hak_misuse_size_t(const char *function, const void *p, size_t size, size_t block_size);
HAK_COLD hak_misuse_size_t hak_misuse_size;
// The same of operator delete. In the default library a warning, the first time only: C++ programs
// have wrong sizes that nothing has ever told them of, and here they do no harm.
HAK_COLD hak_misuse_size_t hak_misuse_delete_size;

#endif
