/* shop_load.h - builds the in-memory database, and compares all of it with the model.
 *
 * Owns: schema, indexes, loading, the full comparison. Does not own the tests that change rows.
 */
#ifndef SHOP_LOAD_H
#define SHOP_LOAD_H

#include <sqlite3.h>
#include <stdint.h>

struct shop {
    sqlite3 *db;
    int64_t customers, orders;      /* rows loaded */
    int64_t bytes;                  /* page_count * page_size, as SQLite reports them */
};

/* Loads at least `bytes` of database pages, printing `progress PERCENT` lines. 0, or -1 after a
 * message on stderr. */
int shop_load(struct shop *shop, int64_t bytes);

/* Reads every row of every table and compares it with the model. 0 when all agree, else -1 and a
 * message. */
int shop_verify(const struct shop *shop);

#endif
