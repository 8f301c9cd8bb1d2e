# An in-memory database of about 100 MB; each unit test runs in a forked child, changes what it
# likes and reports; the parent's database must stay as it was, until the parent itself changes it.
import hashlib
import os
import sqlite3

ROWS = 300_000
db = sqlite3.connect(":memory:", isolation_level=None)
db.execute("pragma foreign_keys = on")
db.execute("create table maker(id integer primary key, name text not null)")
db.execute(
    "create table part(id integer primary key, maker integer references maker(id), "
    "price integer, note text)"
)
db.execute("begin")
db.executemany("insert into maker values(?, ?)", ((i, "maker %d" % i) for i in range(500)))
db.executemany(
    "insert into part values(?, ?, ?, ?)",
    ((i, i % 500, i * 37 % 9973, "note %d " % i * 12) for i in range(ROWS)),
)
db.execute("commit")
db.execute("create index by_price on part(price)")


def fingerprint():
    h = hashlib.sha256()
    for row in db.execute("select id, maker, price, substr(note, 1, 20) from part order by id"):
        h.update(repr(row).encode())
    return h.hexdigest()[:24]


def select_filter():
    return db.execute(
        "select count(*), sum(price) from part where price between 100 and 200"
    ).fetchone()


def delete_some():
    gone = db.execute("delete from part where price < 1000").rowcount
    return gone, db.execute("select count(*) from part").fetchone(), fingerprint()


def update_some():
    hit = db.execute(
        "update part set price = price + 1, note = note || 'x' where maker < 50"
    ).rowcount
    return hit, db.execute("select sum(price), sum(length(note)) from part").fetchone()


def break_key():
    try:
        db.execute("delete from maker where id = 7")
    except sqlite3.IntegrityError as error:
        return str(error)
    return "ALLOWED"


def check_and_vacuum():
    db.execute("delete from part where id % 2")
    db.execute("vacuum")
    return (
        db.execute("pragma integrity_check").fetchone(),
        db.execute("select count(*) from part").fetchone(),
    )


def unit(test):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            os.write(w, repr(test()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(w)
    said = os.read(r, 4096).decode()
    os.close(r)
    print(test.__name__, said, os.waitpid(pid, 0)[1], flush=True)


print("start", fingerprint())
for turn in range(2):
    for test in (select_filter, delete_some, update_some, break_key, check_and_vacuum):
        unit(test)
    db.execute("update part set price = price + 5 where id % 100 = ?", (turn,))
    print("parent", turn, fingerprint())
for number in range(8):
    unit(select_filter)
print("integrity", db.execute("pragma integrity_check").fetchone())
