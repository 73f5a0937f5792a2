// rename.h: included before every file of the allocator and of the fuzz target (-include):
// renames the standard names to fuzz_NAME. Both sets of names can be called, while the
// sanitizer's or the system's malloc serves the process itself.

#ifndef TEST_FUZZ_RENAME_H
#define TEST_FUZZ_RENAME_H

#define malloc fuzz_malloc
#define calloc fuzz_calloc
#define realloc fuzz_realloc
#define reallocarray fuzz_reallocarray
#define free fuzz_free
#define cfree fuzz_cfree
#define free_sized fuzz_free_sized
#define free_aligned_sized fuzz_free_aligned_sized
#define aligned_alloc fuzz_aligned_alloc
#define memalign fuzz_memalign
#define posix_memalign fuzz_posix_memalign
#define valloc fuzz_valloc
#define pvalloc fuzz_pvalloc
#define malloc_usable_size fuzz_malloc_usable_size
#define malloc_trim fuzz_malloc_trim
#define malloc_info fuzz_malloc_info
#define malloc_stats fuzz_malloc_stats
#define mallocx fuzz_mallocx
#define rallocx fuzz_rallocx
#define xallocx fuzz_xallocx
#define sallocx fuzz_sallocx
#define dallocx fuzz_dallocx
#define sdallocx fuzz_sdallocx
#define nallocx fuzz_nallocx
#define mallinfo fuzz_mallinfo
#define mallinfo2 fuzz_mallinfo2
#define mallopt fuzz_mallopt
#define setrlimit fuzz_setrlimit
#define setrlimit64 fuzz_setrlimit64
#define prlimit fuzz_prlimit
#define prlimit64 fuzz_prlimit64
#define dlopen fuzz_dlopen

#define __libc_malloc fuzz___libc_malloc
#define __libc_calloc fuzz___libc_calloc
#define __libc_realloc fuzz___libc_realloc
#define __libc_reallocarray fuzz___libc_reallocarray
#define __libc_free fuzz___libc_free
#define __libc_cfree fuzz___libc_cfree
#define __libc_memalign fuzz___libc_memalign
#define __libc_valloc fuzz___libc_valloc
#define __libc_pvalloc fuzz___libc_pvalloc
#define __libc_mallinfo fuzz___libc_mallinfo
#define __libc_mallopt fuzz___libc_mallopt
#define __posix_memalign fuzz___posix_memalign

// operator new and delete, and their array forms.
#define _Znwm fuzz__Znwm
#define _ZnwmRKSt9nothrow_t fuzz__ZnwmRKSt9nothrow_t
#define _ZnwmSt11align_val_t fuzz__ZnwmSt11align_val_t
#define _ZnwmSt11align_val_tRKSt9nothrow_t fuzz__ZnwmSt11align_val_tRKSt9nothrow_t
#define _ZdlPv fuzz__ZdlPv
#define _ZdlPvm fuzz__ZdlPvm
#define _ZdlPvRKSt9nothrow_t fuzz__ZdlPvRKSt9nothrow_t
#define _ZdlPvSt11align_val_t fuzz__ZdlPvSt11align_val_t
#define _ZdlPvSt11align_val_tRKSt9nothrow_t fuzz__ZdlPvSt11align_val_tRKSt9nothrow_t
#define _ZdlPvmSt11align_val_t fuzz__ZdlPvmSt11align_val_t
#define _Znam fuzz__Znam
#define _ZnamRKSt9nothrow_t fuzz__ZnamRKSt9nothrow_t
#define _ZnamSt11align_val_t fuzz__ZnamSt11align_val_t
#define _ZnamSt11align_val_tRKSt9nothrow_t fuzz__ZnamSt11align_val_tRKSt9nothrow_t
#define _ZdaPv fuzz__ZdaPv
#define _ZdaPvm fuzz__ZdaPvm
#define _ZdaPvRKSt9nothrow_t fuzz__ZdaPvRKSt9nothrow_t
#define _ZdaPvSt11align_val_t fuzz__ZdaPvSt11align_val_t
#define _ZdaPvSt11align_val_tRKSt9nothrow_t fuzz__ZdaPvSt11align_val_tRKSt9nothrow_t
#define _ZdaPvmSt11align_val_t fuzz__ZdaPvmSt11align_val_t

#endif
