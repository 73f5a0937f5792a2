// os_testing.h: what tests make of the kernel that the allocator sees (os_testing.c). For builds
// with HAK_TESTING.

#ifndef HAK_TEST_OS_TESTING_H
#define HAK_TEST_OS_TESTING_H

#include "os/kernel.h"

enum {
  HAK_FAULT_ALL =
      HAK_FAULT_MAP | HAK_FAULT_UNMAP | HAK_FAULT_COMMIT | HAK_FAULT_DISCARD | HAK_FAULT_REMAP,
  HAK_FAULT_HIGH = 32, // a new mapping lies above what HAK_ADDRESS_BITS can address
};

// After the next `skip` calls of the kinds in `kinds` have passed, calls fail: only one if `once`
// is set, else all. kinds 0: off.
void hak_os_fault(unsigned kinds, uint64_t skip, bool once);
uint64_t hak_os_fault_calls(void);  // calls of those kinds since hak_os_fault
void hak_os_clock_set(uint64_t ms); // what hak_os_clock_ms returns from now on; 0: the time

extern const char *hak_os_root; // prefix of the path of every file that is opened, "" at first

#endif
