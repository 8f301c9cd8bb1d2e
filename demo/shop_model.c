/* shop_model.c - see shop_model.h: rows as pure functions of their numbers.
 *
 * Owns: the formulas. Called for every row while loading and again by every test, in the parent
 * and in children, so: no heap, no state, a few hundred nanoseconds a row.
 */
#include "shop_model.h"

#include <stdio.h>

static const char *const STATES[4] = { "new", "paid", "sent", "back" };
static const char *const TOWNS[8] = {
    "Aarhus", "Bergen", "Cadiz", "Dijon", "Essen", "Faro", "Ghent", "Halle",
};

static void note_make(struct order *o, int64_t number)
{
    uint64_t start = mix((uint64_t)number * 2 + 1);
    o->note_len = NOTE_MIN + (int)(start % NOTE_SPAN);
    for (int at = 0; at < o->note_len; at += 16) {
        uint64_t bits = mix(start + (uint64_t)at);
        for (int i = 0; i < 16; i++, bits >>= 4)
            o->note[at + i] = (char)('a' + (bits & 15));
    }
}

void order_make(struct order *o, int64_t number)
{
    uint64_t bits = mix((uint64_t)number * 2);
    o->id = number + 1;
    o->customer = customer_of_order(number) + 1;
    o->batch = number / BATCH_ORDERS;
    o->amount = (int64_t)(bits % 10000);
    o->state = STATES[(bits >> 40) & 3];
    note_make(o, number);
}

void customer_make(struct customer *c, int64_t number)
{
    uint64_t bits = mix(~(uint64_t)number);
    c->id = number + 1;
    c->credit = (int64_t)(bits % 100000);
    c->town = TOWNS[(bits >> 40) & 7];
    snprintf(c->name, sizeof c->name, "customer-%016llx", (unsigned long long)bits);
}
