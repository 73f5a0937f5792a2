// audit.h: a last look at the free lists of the thread that ends the process, for misuse that no
// earlier check has found. The secure library needs none: it checks every block that it takes.
//
// Owner only. Tests: test/abort/misuse.c.

#ifndef HAK_THREAD_AUDIT_H
#define HAK_THREAD_AUDIT_H

#include "base/types.h"

void hak_audit_at_exit(void);

#endif
