/* shop_tests.h - the unit tests, run in whatever process calls them (the demo: a forked child).
 *
 * Owns: what select, delete, update and key (foreign keys) do and what they must find. Does not own
 * processes or time.
 */
#ifndef SHOP_TESTS_H
#define SHOP_TESTS_H

#include "shop_load.h"

#include <stddef.h>

/* What a test reports: empty message when every row was as computed. */
struct verdict { char message[200]; };

typedef void (*shop_test)(const struct shop *shop, uint64_t seed, struct verdict *v);

/* The test of that name (select, delete, update, key), or NULL. */
shop_test shop_test_named(const char *name);

#endif
