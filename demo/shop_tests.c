/* shop_tests.c - see shop_tests.h: SELECT, DELETE, UPDATE by condition, and the foreign keys,
 * chosen by a seed.
 *
 * Each test works on one batch (32 neighbouring orders) or on two neighbouring customers, so it
 * touches tens of pages of a database of any size. Statements are prepared here,
 * in the child. Every row a test can have changed, and the rows next to it, are compared with the
 * model column by column; the first difference ends the test with a message.
 */
#include "shop_tests.h"

#include "shop_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* orders compared on either side of the batch; no customer at all */
enum { EDGE = 4, NOBODY = -2 };

struct run {
    const struct shop *shop;
    struct verdict *v;
    int64_t batch, limit;           /* the condition: batch = ? AND amount < ? (or >=) */
};

static int fail(struct run *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->v->message, sizeof r->v->message, format, args);
    va_end(args);
    return -1;
}

static struct run run_of(const struct shop *shop, uint64_t seed, struct verdict *v)
{
    uint64_t bits = mix(seed);
    uint64_t batches = (uint64_t)(shop->orders / BATCH_ORDERS);
    struct run r = { .shop = shop, .v = v };
    r.batch = 1 + (int64_t)(bits % (batches - 2));      /* has a batch on either side */
    r.limit = 2000 + (int64_t)(mix(bits) % 6000);
    v->message[0] = 0;
    return r;
}

/* Two neighbouring customers whose orders are near the batch: `held` is under contract, the next is
 * not. */
static int64_t pick_held(const struct run *r, uint64_t seed)
{
    int64_t group = r->batch * BATCH_ORDERS / GROUP_ORDERS;
    return group * GROUP_CUSTOMERS + (int64_t)(mix(~seed) % (GROUP_CUSTOMERS / 8)) * 8 + 3;
}

static sqlite3_stmt *prepare(struct run *r, const char *sql, int64_t a, int64_t b)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(r->shop->db, sql, -1, &s, NULL) != SQLITE_OK) {
        fail(r, "prepare: %s", sqlite3_errmsg(r->shop->db));
        return NULL;
    }
    if (sqlite3_bind_parameter_count(s) > 0)
        sqlite3_bind_int64(s, 1, a);
    if (sqlite3_bind_parameter_count(s) > 1)
        sqlite3_bind_int64(s, 2, b);
    return s;
}

/* Runs a changing statement that must succeed; the number of rows changed, or -1. */
static int change(struct run *r, const char *sql, int64_t a, int64_t b)
{
    sqlite3_stmt *s = prepare(r, sql, a, b);
    if (!s)
        return -1;
    int rc = sqlite3_step(s);
    sqlite3_finalize(s);
    if (rc != SQLITE_DONE)
        return fail(r, "`%s` gave %d: %s", sql, rc, sqlite3_errmsg(r->shop->db));
    return sqlite3_changes(r->shop->db);
}

/* Runs a changing statement that a foreign key must refuse. */
static int refused(struct run *r, const char *sql, int64_t a, int64_t b)
{
    sqlite3_stmt *s = prepare(r, sql, a, b);
    if (!s)
        return -1;
    int rc = sqlite3_step(s);
    int by_key = strcmp(sqlite3_errmsg(r->shop->db), "FOREIGN KEY constraint failed") == 0;
    sqlite3_finalize(s);
    if ((rc & 0xff) != SQLITE_CONSTRAINT || !by_key)
        return fail(r, "`%s` gave %d, a foreign key should have refused it", sql, rc);
    return 0;
}

static int text_is(sqlite3_stmt *s, int column, const char *want, int len)
{
    return sqlite3_column_bytes(s, column) == len
        && memcmp(sqlite3_column_text(s, column), want, (size_t)len) == 0;
}

static int row_is(sqlite3_stmt *s, const struct order *o)
{
    return sqlite3_column_int64(s, 0) == o->id && sqlite3_column_int64(s, 1) == o->customer
        && sqlite3_column_int64(s, 2) == o->amount
        && text_is(s, 3, o->state, (int)strlen(o->state)) && text_is(s, 4, o->note, o->note_len);
}

/* What a test expects of one order: edits it in place, and says whether the row is there at all. */
typedef int (*edit)(const struct run *r, struct order *o, int64_t arg);

static int kept_by_delete(const struct run *r, struct order *o, int64_t victim)
{
    return o->customer != victim + 1 && !(o->batch == r->batch && o->amount < r->limit);
}

static int changed_by_update(const struct run *r, struct order *o, int64_t arg)
{
    (void)arg;
    if (o->batch == r->batch && o->amount < r->limit) {
        o->amount += 1000000;
        o->state = "late";
    }
    return 1;
}

/* Compares the batch and the orders on either side, all columns, with the model after `after`. */
static int rows_are(struct run *r, edit after, int64_t arg)
{
    struct order o = { 0 };
    int64_t first = r->batch * BATCH_ORDERS - EDGE, end = first + BATCH_ORDERS + 2 * EDGE;
    int good = 1;
    sqlite3_stmt *s = prepare(r, "SELECT id, customer, amount, state, note FROM orders"
                                 " WHERE id BETWEEN ? AND ? ORDER BY id", first + 1, end);
    if (!s)
        return -1;
    for (int64_t number = first; good && number < end; number++) {
        order_make(&o, number);
        if (after(r, &o, arg))
            good = sqlite3_step(s) == SQLITE_ROW && row_is(s, &o);
    }
    good = good && sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return good ? 0 : fail(r, "rows differ near order %lld", (long long)o.id);
}

/* The same batch as the index sees it: the ids that are left, no more. */
static int index_is(struct run *r, edit after, int64_t arg)
{
    int good = 1;
    sqlite3_stmt *s = prepare(r, "SELECT id FROM orders WHERE batch = ? ORDER BY id", r->batch, 0);
    if (!s)
        return -1;
    for (int i = 0; good && i < BATCH_ORDERS; i++) {
        struct order o;
        order_make(&o, r->batch * BATCH_ORDERS + i);
        if (after(r, &o, arg))
            good = sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int64(s, 0) == o.id;
    }
    good = good && sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return good ? 0 : fail(r, "the index of batch %lld is not as computed", (long long)r->batch);
}

/* The order ids of one customer, found by the index: none when `gone`, else those of the model. */
static int customer_orders_are(struct run *r, int64_t customer, int gone)
{
    int good = 1;
    sqlite3_stmt *s =
        prepare(r, "SELECT id FROM orders WHERE customer = ? ORDER BY id", customer + 1, 0);
    if (!s)
        return -1;
    for (int nth = 0; good && !gone && nth < ORDERS_PER_CUSTOMER; nth++)
        good = sqlite3_step(s) == SQLITE_ROW
            && sqlite3_column_int64(s, 0) == order_of_customer(customer, nth) + 1;
    good = good && sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return good ? 0
                : fail(r, "orders of customer %lld are not as computed", (long long)(customer + 1));
}

static int customer_is(struct run *r, int64_t customer, int there)
{
    struct customer c;
    customer_make(&c, customer);
    sqlite3_stmt *s =
        prepare(r, "SELECT name, town, credit FROM customer WHERE id = ?", customer + 1, 0);
    if (!s)
        return -1;
    int found = sqlite3_step(s) == SQLITE_ROW;
    int good = found == there;
    if (good && there)
        good = text_is(s, 0, c.name, (int)strlen(c.name)) &&
               text_is(s, 1, c.town, (int)strlen(c.town)) && sqlite3_column_int64(s, 2) == c.credit;
    sqlite3_finalize(s);
    return good ? 0 : fail(r, "customer %lld is not as computed", (long long)(customer + 1));
}

/* How many orders of the batch the condition `amount < limit` meets, by the model. */
static int below_limit(const struct run *r)
{
    int count = 0;
    for (int i = 0; i < BATCH_ORDERS; i++) {
        struct order o;
        order_make(&o, r->batch * BATCH_ORDERS + i);
        count += o.amount < r->limit;
    }
    return count;
}

/* SELECT with a filter and a join: the rows of one batch at or above the limit, with their
 * customers. */
static void test_select(const struct shop *shop, uint64_t seed, struct verdict *v)
{
    struct run r = run_of(shop, seed, v);
    struct order o;
    struct customer c;
    int good = 1;
    sqlite3_stmt *s = prepare(&r,
        "SELECT o.id, o.customer, o.amount, o.state, o.note, c.name, c.credit FROM orders o"
        " JOIN customer c ON c.id = o.customer WHERE o.batch = ? AND o.amount >= ? ORDER BY o.id",
        r.batch, r.limit);
    if (!s)
        return;
    for (int i = 0; good && i < BATCH_ORDERS; i++) {
        order_make(&o, r.batch * BATCH_ORDERS + i);
        customer_make(&c, o.customer - 1);
        if (o.amount >= r.limit)
            good = sqlite3_step(s) == SQLITE_ROW && row_is(s, &o) &&
                   text_is(s, 5, c.name, (int)strlen(c.name)) &&
                   sqlite3_column_int64(s, 6) == c.credit;
    }
    if (!good || sqlite3_step(s) != SQLITE_DONE)
        fail(&r, "select on batch %lld: rows differ near order %lld", (long long)r.batch,
             (long long)o.id);
    sqlite3_finalize(s);
}

/* Runs a changing statement that must change as many rows of the batch as the model says. */
static int change_batch(struct run *r, const char *sql)
{
    int want = below_limit(r), got = change(r, sql, r->batch, r->limit);
    if (got >= 0 && got != want)
        return fail(r, "`%s` changed %d rows, %d computed", sql, got, want);
    return got < 0 ? -1 : 0;
}

/* DELETE by condition: those rows are gone, from table and index, and the rest and the rows around
 * are not. */
static void test_delete(const struct shop *shop, uint64_t seed, struct verdict *v)
{
    struct run r = run_of(shop, seed, v);
    if (change_batch(&r, "DELETE FROM orders WHERE batch = ? AND amount < ?") < 0)
        return;
    if (rows_are(&r, kept_by_delete, NOBODY) == 0)
        index_is(&r, kept_by_delete, NOBODY);
}

/* UPDATE by condition: those rows have the new values, all others the old ones. */
static void test_update(const struct shop *shop, uint64_t seed, struct verdict *v)
{
    struct run r = run_of(shop, seed, v);
    if (change_batch(&r, "UPDATE orders SET amount = amount + 1000000, state = 'late'"
                         " WHERE batch = ? AND amount < ?") < 0)
        return;
    if (rows_are(&r, changed_by_update, NOBODY) == 0)
        index_is(&r, changed_by_update, NOBODY);
}

/* Foreign keys: the orders of a deleted customer go with it; a customer under contract cannot be
 * deleted; an order cannot be given to a customer that does not exist. The refused ones change
 * nothing. */
static void test_key(const struct shop *shop, uint64_t seed, struct verdict *v)
{
    static const char ONE_CUSTOMER[] = "DELETE FROM customer WHERE id = ?";
    struct run r = run_of(shop, seed, v);
    int64_t held = pick_held(&r, seed), victim = held + 1;
    r.limit = 0;                                /* nothing of the batch goes by amount */
    if (change(&r, ONE_CUSTOMER, victim + 1, 0) < 0 || refused(&r, ONE_CUSTOMER, held + 1, 0) < 0)
        return;
    if (refused(&r, "UPDATE orders SET customer = ? WHERE id = ?", shop->customers + 1,
                order_of_customer(held, 0) + 1) < 0)
        return;
    if (customer_is(&r, victim, 0) < 0 || customer_is(&r, held, 1) < 0 ||
        customer_is(&r, victim + 1, 1) < 0)
        return;
    if (customer_orders_are(&r, victim, 1) < 0 || customer_orders_are(&r, held, 0) < 0)
        return;
    if (customer_orders_are(&r, victim + 1, 0) == 0)
        rows_are(&r, kept_by_delete, victim);
}

shop_test shop_test_named(const char *name)
{
    if (strcmp(name, "select") == 0)
        return test_select;
    if (strcmp(name, "delete") == 0)
        return test_delete;
    if (strcmp(name, "update") == 0)
        return test_update;
    if (strcmp(name, "key") == 0)
        return test_key;
    return NULL;
}
