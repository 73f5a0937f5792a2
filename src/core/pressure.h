// pressure.h: how much memory the process may have, and whether memory is short:
// the limits of its cgroup (v2 memory.high and memory.max, v1 memory.limit_in_bytes)
// and pressure stall information (Linux: Documentation/accounting/psi.rst).
//
// The constructor and the helper thread read these files, never an allocation. A file
// that cannot be read counts as absent.
// Tests: test/unit/test_pressure.c.

#ifndef HAK_CORE_PRESSURE_H
#define HAK_CORE_PRESSURE_H

#include "base/atomic.h"

// HAKMEM_MEMORY_LIMIT or the smallest limit of the process's cgroup, in bytes; UINT64_MAX:
// none. Written by the library's constructor. Relaxed: threads may exist before that, and one
// that sees it late keeps as much as without a limit.
HAK_INTERNAL extern _Atomic uint64_t hak_memory_limit;
void hak_pressure_init(void);

// Percentage, rounded down, of the last ten seconds in which some thread of the cgroup (else of
// the system) waited for memory; 0 if it is not known.
unsigned hak_pressure(void);

#endif
