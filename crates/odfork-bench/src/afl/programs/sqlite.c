/* The fuzz target of `odfork bench afl`: SQLite with a database in memory, made before AFL's fork
 * server starts. An input is SQL.
 *
 *   target BYTES LOOPS    executions in one process: 1 forks for each, more is persistent mode
 *
 * Time and random numbers are fixed and files refused, so that an input always does the same. */
#include "executions.h"
#include "sqlite3.h"

__AFL_FUZZ_INIT();

enum { ROW = 3000, STEPS = 1000, CALLS = 20, LONGEST = 1 << 16 };

static int refuse(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs, (void)name, (void)flags, (void)out;
    file->pMethods = 0;
    return SQLITE_CANTOPEN;
}

static int no_random(sqlite3_vfs *vfs, int count, char *out)
{
    (void)vfs;
    memset(out, 7, (size_t)count);
    return count;
}

static int fixed_time(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    *out = 212500000000000;
    return SQLITE_OK;
}

static void close_the_world(void)
{
    static sqlite3_vfs closed;
    closed = *sqlite3_vfs_find(0);
    closed.zName = "closed";
    closed.xOpen = refuse;
    closed.xRandomness = no_random;
    closed.xCurrentTimeInt64 = fixed_time;
    sqlite3_vfs_register(&closed, 1);
}

static void must(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, 0, 0, 0) != SQLITE_OK) {
        fprintf(stderr, "target: %s: %s\n", sql, sqlite3_errmsg(db));
        exit(2);
    }
}

/* Rows until SQLite holds `bytes`. */
static sqlite3 *fill(sqlite3_int64 bytes)
{
    static char body[ROW];
    sqlite3 *db;
    sqlite3_stmt *insert;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK)
        exit(2);
    must(db, "PRAGMA journal_mode=OFF; PRAGMA cache_size=-100000000;"
             "CREATE TABLE item(id INTEGER PRIMARY KEY, kind INT, name TEXT, price REAL, body);"
             "CREATE TABLE tag(item INT REFERENCES item, word TEXT, UNIQUE(item, word));"
             "CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 10;"
             "CREATE TRIGGER gone AFTER DELETE ON tag BEGIN"
             " UPDATE item SET kind = -1 WHERE id = old.item; END; BEGIN");
    if (sqlite3_prepare_v2(db, "INSERT INTO item VALUES(?1, ?1 % 97, 'name ' || ?1, ?1 / 7.0, ?2)",
                           -1, &insert, 0) != SQLITE_OK)
        exit(2);
    for (sqlite3_int64 row = 1; row <= 100 || sqlite3_memory_used() < bytes; row++) {
        memset(body, 'a' + row % 26, sizeof body);
        sqlite3_bind_int64(insert, 1, row);
        sqlite3_bind_text(insert, 2, body, sizeof body, SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE)
            exit(2);
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    must(db, "INSERT INTO tag SELECT id, 'w' || id % 5 FROM item WHERE id <= 500;"
             "CREATE INDEX by_name ON item(name) WHERE id <= 1000; COMMIT;"
             "PRAGMA journal_mode=MEMORY");
    return db;
}

/* Long statements end after a fixed number of steps. */
static int enough(void *calls)
{
    return ++*(int *)calls > CALLS;
}

static int look(void *sum, int count, char **values, char **names)
{
    (void)names;
    for (int i = 0; i < count; i++)
        *(unsigned *)sum += values[i] ? (unsigned char)values[i][0] : 1;
    return 0;
}

int main(int argc, char **argv)
{
    static char text[LONGEST + 1];
    uint64_t *count = executions();
    sqlite3_int64 bytes = argc > 1 ? atoll(argv[1]) : 1 << 20;
    int loops = argc > 2 ? atoi(argv[2]) : 1;
    unsigned sum = 0;

    close_the_world();
    sqlite3 *db = fill(bytes);
    sqlite3_hard_heap_limit64(sqlite3_memory_used() + (64 << 20));
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 25000);
    sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64);

    __AFL_INIT();
    unsigned char *input = __AFL_FUZZ_TESTCASE_BUF;
    while (__AFL_LOOP(loops)) {
        int calls = 0, length = __AFL_FUZZ_TESTCASE_LEN;
        __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
        if (length < 1 || length > LONGEST)
            continue;
        memcpy(text, input, (size_t)length);
        text[length] = 0;
        sqlite3_progress_handler(db, STEPS, enough, &calls);
        /* what can be put back cheaply is; a process that ends puts back everything */
        if (loops > 1)
            sqlite3_exec(db, "BEGIN", 0, 0, 0);
        sqlite3_exec(db, text, look, &sum, 0);
        sqlite3_progress_handler(db, 0, 0, 0);
        if (loops > 1)
            sqlite3_exec(db, "ROLLBACK", 0, 0, 0);
    }
    return 0;
}
