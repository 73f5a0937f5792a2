// options.h: the options of options.def. hak_options_init sets the values once, during
// the set-up of the process, for which other threads wait (I1); then they are read-only.

#ifndef HAK_CORE_OPTIONS_H
#define HAK_CORE_OPTIONS_H

#include "base/compiler.h"
#include "base/config.h"

typedef enum {
#define HAK_OPTION(name, kind, balanced, lean, fast, min, max, help) HAK_OPT_##name,
#define HAK_CHOICE(name, value, words, help) HAK_OPT_##name,
#define HAK_TEXT(name, help) HAK_OPT_##name,
#include "core/options.def"
  HAK_OPTS
} hak_opt_t;

enum { HAK_LOOKUP_AUTO, HAK_LOOKUP_RANGE, HAK_LOOKUP_TABLE };
enum { HAK_THP_AUTO, HAK_THP_NEVER, HAK_THP_ALWAYS };
enum { HAK_FILL_NONE, HAK_FILL_POISON, HAK_FILL_ZERO };
enum { HAK_STATS_OFF, HAK_STATS_TEXT, HAK_STATS_JSON };

HAK_INTERNAL extern uint64_t hak_option_values[HAK_OPTS];

#define hak_option(name) (hak_option_values[HAK_OPT_##name])
// Value of a text option; NULL if unset.
#define hak_option_text(name) ((const char *)(uintptr_t)hak_option_values[HAK_OPT_##name])

// Reads the environment. Warnings (unknown name, value out of range) are delayed
// until hak_options_report, which the library's constructor calls.
void hak_options_init(void);
void hak_options_report(void);

#endif
