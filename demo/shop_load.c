/* shop_load.c - see shop_load.h: schema, loading, full comparison.
 *
 * Owns: the one place where rows of the model enter SQLite. Rows go in chunk by chunk (8192
 * customers, their contracts and 32,768 orders, about 13 MB) inside one transaction without a
 * journal; afterwards the journal is switched to memory, because the tests rely on a failed
 * statement being undone.
 */
#include "shop_load.h"

#include "shop_model.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK_CUSTOMERS = 128 * GROUP_CUSTOMERS, CHUNK_ORDERS = 128 * GROUP_ORDERS };

static const char SCHEMA[] =
    "PRAGMA page_size = 4096;"
    "PRAGMA journal_mode = OFF;"
    "PRAGMA temp_store = MEMORY;"
    "PRAGMA foreign_keys = ON;"
    "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL,"
    "  credit INTEGER NOT NULL);"
    "CREATE TABLE contract (customer INTEGER PRIMARY KEY"
    "  REFERENCES customer(id) ON DELETE RESTRICT, term TEXT NOT NULL);"
    "CREATE TABLE orders (id INTEGER PRIMARY KEY,"
    "  customer INTEGER NOT NULL REFERENCES customer(id) ON DELETE CASCADE,"
    "  batch INTEGER NOT NULL, amount INTEGER NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL);"
    "CREATE INDEX orders_by_customer ON orders(customer);"
    "CREATE INDEX orders_by_batch ON orders(batch);";

struct inserts { sqlite3_stmt *customer, *contract, *order; };

static int complain(const struct shop *shop, const char *step)
{
    fprintf(stderr, "sqlite_units: %s: %s\n", step, sqlite3_errmsg(shop->db));
    return -1;
}

static int run_once(const struct shop *shop, sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? 0 : complain(shop, "insert");
}

static int insert_customer(const struct shop *shop, const struct inserts *in, int64_t number)
{
    struct customer c;
    customer_make(&c, number);
    sqlite3_bind_int64(in->customer, 1, c.id);
    sqlite3_bind_text(in->customer, 2, c.name, -1, SQLITE_STATIC);
    sqlite3_bind_text(in->customer, 3, c.town, -1, SQLITE_STATIC);
    sqlite3_bind_int64(in->customer, 4, c.credit);
    if (run_once(shop, in->customer) < 0)
        return -1;
    if (!has_contract(number))
        return 0;
    sqlite3_bind_int64(in->contract, 1, c.id);
    sqlite3_bind_text(in->contract, 2, c.name, -1, SQLITE_STATIC);
    return run_once(shop, in->contract);
}

static int insert_order(const struct shop *shop, const struct inserts *in, int64_t number)
{
    struct order o;
    order_make(&o, number);
    sqlite3_bind_int64(in->order, 1, o.id);
    sqlite3_bind_int64(in->order, 2, o.customer);
    sqlite3_bind_int64(in->order, 3, o.batch);
    sqlite3_bind_int64(in->order, 4, o.amount);
    sqlite3_bind_text(in->order, 5, o.state, -1, SQLITE_STATIC);
    sqlite3_bind_text(in->order, 6, o.note, o.note_len, SQLITE_STATIC);
    return run_once(shop, in->order);
}

static int insert_chunk(struct shop *shop, const struct inserts *in)
{
    for (int i = 0; i < CHUNK_CUSTOMERS; i++)
        if (insert_customer(shop, in, shop->customers + i) < 0)
            return -1;
    for (int i = 0; i < CHUNK_ORDERS; i++)
        if (insert_order(shop, in, shop->orders + i) < 0)
            return -1;
    shop->customers += CHUNK_CUSTOMERS;
    shop->orders += CHUNK_ORDERS;
    return 0;
}

static int64_t ask_int(const struct shop *shop, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(shop->db, sql, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

static int prepare_inserts(const struct shop *shop, struct inserts *in)
{
    if (sqlite3_prepare_v2(shop->db, "INSERT INTO customer VALUES (?,?,?,?)", -1, &in->customer,
                           NULL) ||
        sqlite3_prepare_v2(shop->db, "INSERT INTO contract VALUES (?,?)", -1, &in->contract,
                           NULL) ||
        sqlite3_prepare_v2(shop->db, "INSERT INTO orders VALUES (?,?,?,?,?,?)", -1, &in->order,
                           NULL))
        return complain(shop, "prepare insert");
    return 0;
}

static int fill(struct shop *shop, const struct inserts *in, int64_t bytes)
{
    int64_t page = ask_int(shop, "PRAGMA page_size");
    int last = -1;
    do {
        if (insert_chunk(shop, in) < 0)
            return -1;
        shop->bytes = page * ask_int(shop, "PRAGMA page_count");
        int percent = shop->bytes >= bytes ? 100 : (int)(shop->bytes * 100 / bytes);
        if (percent != last)
            printf("progress %d\n", last = percent);
    } while (shop->bytes < bytes);
    return 0;
}

int shop_load(struct shop *shop, int64_t bytes)
{
    struct inserts in = { 0 };
    memset(shop, 0, sizeof *shop);
    if (sqlite3_open(":memory:", &shop->db) || sqlite3_exec(shop->db, SCHEMA, NULL, NULL, NULL))
        return complain(shop, "create tables");
    if (ask_int(shop, "PRAGMA foreign_keys") != 1)
        return complain(shop, "this SQLite was built without foreign keys");
    if (sqlite3_exec(shop->db, "BEGIN", NULL, NULL, NULL) || prepare_inserts(shop, &in) < 0)
        return complain(shop, "begin");
    int failed = fill(shop, &in, bytes);
    sqlite3_finalize(in.customer);
    sqlite3_finalize(in.contract);
    sqlite3_finalize(in.order);
    if (failed)
        return -1;
    if (sqlite3_exec(shop->db, "COMMIT; PRAGMA journal_mode = MEMORY", NULL, NULL, NULL))
        return complain(shop, "commit");
    return 0;
}

static int same_text(sqlite3_stmt *s, int column, const char *want, int len)
{
    return sqlite3_column_bytes(s, column) == len
        && memcmp(sqlite3_column_text(s, column), want, (size_t)len) == 0;
}

static int order_agrees(sqlite3_stmt *s, int64_t number)
{
    struct order o;
    order_make(&o, number);
    return sqlite3_column_int64(s, 0) == o.id && sqlite3_column_int64(s, 1) == o.customer
        && sqlite3_column_int64(s, 2) == o.batch && sqlite3_column_int64(s, 3) == o.amount
        && same_text(s, 4, o.state, (int)strlen(o.state)) && same_text(s, 5, o.note, o.note_len);
}

static int customer_agrees(sqlite3_stmt *s, int64_t number)
{
    struct customer c;
    customer_make(&c, number);
    return sqlite3_column_int64(s, 0) == c.id && same_text(s, 1, c.name, (int)strlen(c.name))
        && same_text(s, 2, c.town, (int)strlen(c.town)) && sqlite3_column_int64(s, 3) == c.credit;
}

static int contract_agrees(sqlite3_stmt *s, int64_t nth)
{
    struct customer c;
    customer_make(&c, nth * 8 + 3);
    return sqlite3_column_int64(s, 0) == c.id && same_text(s, 1, c.name, (int)strlen(c.name));
}

static int verify_table(const struct shop *shop, const char *sql, int64_t rows,
                        int (*agrees)(sqlite3_stmt *, int64_t))
{
    sqlite3_stmt *s = NULL;
    int64_t at = 0;
    int good = sqlite3_prepare_v2(shop->db, sql, -1, &s, NULL) == SQLITE_OK;
    while (good && sqlite3_step(s) == SQLITE_ROW)
        good = at < rows && agrees(s, at), at++;
    sqlite3_finalize(s);
    if (good && at == rows)
        return 0;
    fprintf(stderr, "sqlite_units: verify: `%s` differs from the model at row %lld of %lld\n", sql,
            (long long)at, (long long)rows);
    return -1;
}

int shop_verify(const struct shop *shop)
{
    int bad = 0;
    bad |= verify_table(shop,
                        "SELECT id, customer, batch, amount, state, note FROM orders ORDER BY id",
                        shop->orders, order_agrees);
    bad |= verify_table(shop, "SELECT id, name, town, credit FROM customer ORDER BY id",
                        shop->customers, customer_agrees);
    bad |= verify_table(shop, "SELECT customer, term FROM contract ORDER BY customer",
                        shop->customers / 8, contract_agrees);
    return bad ? -1 : 0;
}
