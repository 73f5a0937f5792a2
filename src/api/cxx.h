// cxx.h: the C++ allocation functions by their Itanium ABI names, and what cxx.c needs from
// the files that are built with other options.

#ifndef HAK_API_CXX_H
#define HAK_API_CXX_H

#include "base/compiler.h"

void *_Znwm(size_t size);
void *_Znam(size_t size);
void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
void *_ZnamSt11align_val_t(size_t size, size_t alignment);
void _ZdlPv(void *p);
void _ZdaPv(void *p);
void _ZdlPvSt11align_val_t(void *p, size_t alignment);
void _ZdaPvSt11align_val_t(void *p, size_t alignment);

// The forms by means of which the others are defined.
typedef struct {
  void *(*allocate)(size_t size);
  void *(*allocate_array)(size_t size);
  void *(*allocate_aligned)(size_t size, size_t alignment);
  void *(*allocate_aligned_array)(size_t size, size_t alignment);
  void (*release)(void *p);
  void (*release_array)(void *p);
  void (*release_aligned)(void *p, size_t alignment);
  void (*release_aligned_array)(void *p, size_t alignment);
} hak_cxx_forms_t;

// The forms that the program calls: its own, if it has replaced them (derived.c).
HAK_INTERNAL extern const hak_cxx_forms_t hak_cxx_public;
// Whether those are HAKMEM's, or callers mean HAKMEM's all the same.
HAK_COLD bool hak_cxx_same(const hak_cxx_forms_t *own);

// In new_handler.cpp. False if the handler threw.
bool hak_cxx_call_handler(void (*handler)(void));
// NULL if allocate threw.
void *hak_cxx_try(void *(*allocate)(size_t), size_t size);
void *hak_cxx_try_aligned(void *(*allocate)(size_t, size_t), size_t size, size_t alignment);

#endif
