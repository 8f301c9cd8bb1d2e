/* shop_model.h - the content of the demo database as pure functions of row numbers.
 *
 * Owns: what every row of every table holds, and how rows belong to each other. Knows nothing of
 * SQLite, so the rows a test must find are computed without asking the thing under test.
 * Does not own: tables, indexes, loading (shop_load.c), tests (shop_tests.c).
 * Rule: numbers here start at 0; ids in the database are number + 1.
 */
#ifndef SHOP_MODEL_H
#define SHOP_MODEL_H

#include <stdint.h>

enum {
    GROUP_CUSTOMERS = 64,                               /* customers whose orders alternate */
    ORDERS_PER_CUSTOMER = 4,
    GROUP_ORDERS = GROUP_CUSTOMERS * ORDERS_PER_CUSTOMER,
    /* neighbouring orders with one `batch` value */
    BATCH_ORDERS = 32,
    NOTE_MIN = 240,
    NOTE_SPAN = 160,
    NOTE_MAX = NOTE_MIN + NOTE_SPAN,
};

struct order {
    int64_t id, customer, batch, amount;
    const char *state;
    int note_len;
    char note[NOTE_MAX + 16];                           /* filled in steps of 16, cut at note_len */
};

struct customer {
    int64_t id, credit;
    const char *town;
    char name[32];
};

/* A well-mixed 64-bit function of a number (splitmix construction). */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Number of the order that is the nth (0..3) of a customer: the customers of a group take turns, so
 * the orders of one customer lie 64 rows (about 26 KB) apart. */
static inline int64_t order_of_customer(int64_t customer, int nth)
{
    return customer / GROUP_CUSTOMERS * GROUP_ORDERS + nth * GROUP_CUSTOMERS +
           customer % GROUP_CUSTOMERS;
}

static inline int64_t customer_of_order(int64_t order)
{
    return order / GROUP_ORDERS * GROUP_CUSTOMERS + order % GROUP_CUSTOMERS;
}

/* One customer in eight is under contract and must not be deleted. */
static inline int has_contract(int64_t customer)
{
    return customer % 8 == 3;
}

void order_make(struct order *o, int64_t number);
void customer_make(struct customer *c, int64_t number);

#endif
