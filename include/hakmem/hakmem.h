// hakmem.h: the public interface of the HAKMEM memory allocator.
//
// Linking with libhakmem (or preloading it) replaces malloc and its whole
// family. The hak_* twins below behave exactly like the standard functions of
// the same name and may be mixed with them freely: a block from hak_malloc may
// be given to free and the other way round. Not so where the library was loaded
// by dlopen, which replaces nothing: blocks then go back to whom they came from.
//
// All functions are thread-safe, also before main, in destructors of thread-local
// objects, in atexit handlers and in the child of a fork. None is async-signal-safe (as
// in POSIX for malloc): a signal handler that interrupted one of them must not call any.
// Sizes and alignments are in bytes.

#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0
// major * 10000 + minor * 100 + patch
#define HAKMEM_VERSION 100

#if defined(__GNUC__)
#define HAK_API __attribute__((__visibility__("default")))
#define HAK_API_MALLOC HAK_API __attribute__((__malloc__))
#define HAK_API_SIZE(n) __attribute__((__alloc_size__(n)))
#define HAK_API_SIZE2(n, m) __attribute__((__alloc_size__(n, m)))
#else
#define HAK_API
#define HAK_API_MALLOC
#define HAK_API_SIZE(n)
#define HAK_API_SIZE2(n, m)
#endif

// HAKMEM_VERSION of the loaded library (the macro is that of the header).
HAK_API int hak_version(void);

// ---------------------------------------------------------------------------
// Allocation. Failure returns NULL with errno = ENOMEM; sizes above PTRDIFF_MAX always fail.
// Blocks are aligned to 16 bytes. Size 0 gives a unique block that must be freed.

HAK_API_MALLOC void *hak_malloc(size_t size) HAK_API_SIZE(1);
// Zeroed memory for count objects of size bytes; ENOMEM on overflow (C23 7.24.3.2).
HAK_API_MALLOC void *hak_calloc(size_t count, size_t size) HAK_API_SIZE2(1, 2);
// As in glibc: realloc(NULL, n) is malloc(n); realloc(p, 0) frees p and returns NULL
// (errno untouched). On failure p stays valid and unchanged. A p that is not a live block
// is reported as by hak_free; with HAKMEM_ABORT=0 the call then returns NULL with
// errno = EINVAL (errno untouched if size is 0).
HAK_API void *hak_realloc(void *p, size_t size) HAK_API_SIZE(2);
// hak_realloc(p, count * size), with its rules for NULL and 0; ENOMEM on overflow (POSIX.1-2024).
HAK_API void *hak_reallocarray(void *p, size_t count, size_t size) HAK_API_SIZE2(2, 3);
// errno is preserved. NULL is allowed. A pointer that is found not to be a live block of this
// allocator (docs/security.md) ends the process with a one-line message (HAKMEM_ABORT).
HAK_API void hak_free(void *p);
// C23 7.24.3.4 and 7.24.3.5: like free, NULL is allowed; the size (and alignment) must be
// those last requested. A size that cannot be right is reported and ends the process; with
// HAKMEM_ABORT=0 the block is freed nonetheless (not in the secure library).
HAK_API void hak_free_sized(void *p, size_t size);
HAK_API void hak_free_aligned_sized(void *p, size_t alignment, size_t size);

// alignment must be a power of two (0 is not one); otherwise the result is NULL with
// errno = EINVAL. size need not be a multiple of it (C23 7.24.3.1). With an alignment above
// 1 MiB each block is a mapping of its own.
HAK_API_MALLOC void *hak_aligned_alloc(size_t alignment, size_t size) HAK_API_SIZE(2);
// As glibc's memalign: an alignment that is not a power of two is rounded up to one; above
// SIZE_MAX / 2 + 1 the result is NULL with errno = EINVAL.
HAK_API_MALLOC void *hak_memalign(size_t alignment, size_t size) HAK_API_SIZE(2);
// POSIX: returns 0, EINVAL (alignment not a power of two times sizeof(void *)) or ENOMEM;
// errno and, on failure, *out are untouched.
HAK_API int hak_posix_memalign(void **out, size_t alignment, size_t size);
// Aligned to an OS page; pvalloc also rounds the size up to whole OS pages.
HAK_API_MALLOC void *hak_valloc(size_t size) HAK_API_SIZE(1);
HAK_API_MALLOC void *hak_pvalloc(size_t size);

// Usable bytes of block p, at least the requested size. All of them may be written, but
// compilers assume that a block is as large as was requested (-D_FORTIFY_SOURCE ends a
// program that writes more): to use them, hak_realloc the block to this size first.
// 0 for NULL. A p that is not a live block is reported as by hak_free; with HAKMEM_ABORT=0
// the result is 0.
HAK_API size_t hak_malloc_usable_size(const void *p);

// ---------------------------------------------------------------------------
// Giving memory back to the system.

// Gives idle memory back to the operating system. At most about keep bytes stay for
// reuse: freed huge blocks first, then empty SuperSlabs of 2 MiB. Other running threads
// give back what they keep when they next leave their fast path; a sleeping thread keeps
// its memory, except for slabs that others have emptied. True if anything was given back.
HAK_API bool hak_trim(size_t keep);

// ---------------------------------------------------------------------------
// Statistics. While other threads run, figures are approximate: remote frees that a thread
// has not handed over yet (HAKMEM_REMOTE_PENDING bytes per thread at most, 128 KiB by
// default, and letters) still count as live blocks.

typedef struct hak_stats {
  size_t size;                // sizeof(hak_stats_t) of the library; set by the call
  uint64_t live_blocks;       // blocks not freed yet; secure library: and those in quarantine
  uint64_t live_bytes;        // usable bytes of those blocks; secure library: bytes they take
                              // up, with the seals and what the size class adds
  uint64_t allocs;            // blocks handed out since start: the sum of the six other allocs
  uint64_t tiny_allocs;       // of allocs, up to 1280 bytes
  uint64_t l2_allocs;         // of allocs, above that and up to 56 KiB
  uint64_t l25_allocs;        // of allocs, above that or so aligned, up to 1 MiB
  uint64_t huge_allocs;       // of allocs, above that, or aligned to more
  uint64_t frees;             // blocks taken back since start
  uint64_t superslab_bytes;   // SuperSlab memory committed (usable, not all resident)
  uint64_t huge_bytes;        // bytes of huge blocks
  uint64_t metadata_bytes;    // bytes committed for descriptors, heaps, the page table and first
                              // blocks; with HAKMEM_GUARD its table and a page per live block
  uint64_t mapped_bytes;      // sum of superslab_, huge_, huge_cached_ and metadata_bytes
  uint64_t peak_bytes;        // highest mapped_bytes so far
  uint64_t heaps;             // heaps made so far: of threads, nurseries and commons
  uint64_t huge_cached_bytes; // bytes in mappings kept for the next huge blocks
  uint64_t guard_allocs;      // of allocs, of any size, beside guard pages (HAKMEM_GUARD)
  uint64_t first_allocs;      // of allocs, of any size, the process's first (HAKMEM_FIRST)
} hak_stats_t;

// Fills the first size bytes of *out (pass sizeof *out); bytes of fields that the library
// does not know are zero. Returns false if out is NULL or size is 0.
HAK_API bool hak_stats_get(hak_stats_t *out, size_t size);

// Prints the statistics as text (json = false) or as one JSON object to file
// descriptor fd. Allocates nothing. A write error ends the output; so does a non-blocking
// descriptor that takes nothing for two seconds.
HAK_API void hak_stats_print(int fd, bool json);

// True if p lies in memory that HAKMEM uses for blocks: in a live block, or elsewhere in
// a slab that holds blocks (a freed block may count). Never reports misuse.
HAK_API bool hak_owns(const void *p);

#ifdef __cplusplus
}
#endif

#endif
