// misuse.h: reports of misuse: the program passes a pointer that is not a live block.
// One line to stderr, then abort unless HAKMEM_ABORT=0. If these functions return, the
// callers ignore the pointer, except for wrong sizes: its address identifies the block.

#ifndef HAK_CORE_MISUSE_H
#define HAK_CORE_MISUSE_H

#include "core/print.h"

// Called after every message here: aborts, unless HAKMEM_ABORT=0.
HAK_COLD void hak_misuse_finish(void);
#define hak_misuse(...) (hak_message(__VA_ARGS__), hak_misuse_finish())
#if HAK_TESTING
HAK_INTERNAL extern _Atomic uint32_t hak_misuse_count; // calls of hak_misuse_finish
#endif
// function: the name of the function that the program called.
HAK_COLD void hak_misuse_double_free(const char *function, const void *p, size_t block_size);
HAK_COLD void hak_misuse_misaligned(const char *function, const void *p);
// p lies inside the block, or before the first block of its slab.
HAK_COLD void hak_misuse_interior(const char *function, const void *p, const void *block,
                                  size_t block_size);
// Reports what the address belongs to instead (reads /proc/self/maps).
HAK_COLD void hak_misuse_foreign(const char *function, const void *p);
// The bytes after the block's block_size bytes were changed / the free block was changed (0: size
// not known).
HAK_COLD void hak_misuse_overflow(const char *function, const void *p, size_t block_size);
HAK_COLD void hak_misuse_written(const void *p, size_t block_size);
typedef void hak_misuse_size_t(const char *function, const void *p, size_t size, size_t block_size);
HAK_COLD hak_misuse_size_t hak_misuse_size;
// The same for operator delete. In the default library only a warning, and only the first time: C++
// programs pass wrong sizes that nothing has ever reported, and that do no harm here.
HAK_COLD hak_misuse_size_t hak_misuse_delete_size;

#endif
