// api.h: shared by the files that define exported functions. Functions declared in hakmem.h
// are defined under their hak_ names, and most standard names are aliases of these. The
// functions of derived.c, the mallinfo and mallocx families and the operators are separate
// functions. Standard names are left out (HAK_NO_OVERRIDE) where tests or a sanitizer need
// the system's malloc as well.

#ifndef HAK_API_API_H
#define HAK_API_API_H

#include <errno.h>

#include "base/compiler.h"
#include "thread/front.h"

// Standard names are defined here only, so a prototype before the definition would repeat it.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#ifndef HAK_NO_OVERRIDE
#define HAK_NO_OVERRIDE 0
#endif
#if __has_attribute(copy)
#define HAK_COPY(target) __attribute__((copy(target)))
#else
#define HAK_COPY(target)
#endif
// The target may be a macro: test/fuzz renames the operators.
#define HAK_QUOTE(x) #x
#define HAK_ALIAS(target) \
  __attribute__((alias(HAK_QUOTE(target)), used, visibility("default"))) HAK_COPY(target)

// A program linked to the static library must get the whole family or none of
// it: malloc.c refers to every part, so that one object brings in the others.
#define HAK_API_PART(name) const char hak_api_part_##name = 0

HAK_COLD void *hak_api_no_memory(void);
// Whether a and b lie in the same program or library; false if that cannot be known.
HAK_COLD bool hak_api_same_object(uintptr_t a, uintptr_t b);
// operator delete with the size (and alignment) that the program says it requested. A size that
// cannot be right is reported; the default library frees the block nonetheless.
HAK_NOINLINE void hak_api_delete_sized(void *p, size_t alignment, size_t size);
// Whether a request of size bytes, with any alignment, can have led to the block. Exact only in
// the secure library.
bool hak_api_is_of_size(const hak_block_t *block, size_t size);
// realloc of a live block in place; false if it would have to move, or is huge and would grow.
bool hak_api_resize_here(const hak_block_t *block, void *p, size_t size);

#endif
