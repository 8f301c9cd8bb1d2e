//! What makes a server fork: a dump, a rewritten log, a replica; how its end is seen, and what it
//! left is read back by a fresh server.

use std::path::{Path, PathBuf};

use super::content::{name, Content};
use super::resp::{field, Answer};
use super::server::Server;
use crate::words::words;

words! {
    /// A kind of snapshot.
    Kind: 3 { Dump = "bgsave", Rewrite = "aof", Replica = "sync", }
}

/// Keys asked at once hold about so many bytes.
const BATCH: usize = 1 << 20;

impl Kind {
    /// The command that makes it; none where a replica asks for it.
    pub fn command(self) -> &'static [&'static [u8]] {
        match self {
            Kind::Dump => &[b"BGSAVE"],
            Kind::Rewrite => &[b"BGREWRITEAOF"],
            Kind::Replica => &[],
        }
    }

    /// The section of INFO that tells about it.
    pub fn section(self) -> &'static str {
        if self == Kind::Replica {
            "replication"
        } else {
            "persistence"
        }
    }

    pub fn is_done(self) -> fn(&str) -> bool {
        match self {
            Kind::Dump => |info| field(info, "rdb_bgsave_in_progress") == Some("0"),
            Kind::Rewrite => |info| field(info, "aof_rewrite_in_progress") == Some("0"),
            Kind::Replica => {
                |info| field(info, "slave0").is_some_and(|one| one.contains("state=online"))
            }
        }
    }

    /// Bytes the last one copied on write, as the server counts them.
    pub fn copied(self, server: &mut Server) -> Result<f64, String> {
        let log = self == Kind::Rewrite;
        server.number("persistence", if log { "aof_last_cow_size" } else { "rdb_last_cow_size" })
    }

    /// Whether the server says that it went well.
    pub fn succeeded(self, server: &mut Server) -> Result<(), String> {
        let log = self == Kind::Rewrite;
        let name = if log { "aof_last_bgrewrite_status" } else { "rdb_last_bgsave_status" };
        match server.info("persistence", name)?.as_str() {
            "ok" => Ok(()),
            status => Err(format!("{name} is {status}")),
        }
    }

    /// What it left: folder and file. None: a replica's memory.
    pub fn file(self, folder: &Path) -> Result<Option<(PathBuf, String)>, String> {
        match self {
            Kind::Replica => Ok(None),
            Kind::Dump => Ok(Some((folder.to_owned(), "dump.rdb".into()))),
            Kind::Rewrite => {
                let folder = folder.join("appendonlydir");
                let path = folder.join("appendonly.aof.manifest");
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                let base = text.lines().find(|line| line.trim_end().ends_with("type b"));
                let name = base.and_then(|line| line.split(' ').nth(1));
                let name = name.ok_or_else(|| format!("{} names no base", path.display()))?;
                Ok(Some((folder, name.into())))
            }
        }
    }
}

/// Until no child of the server is at work.
pub fn wait_for_quiet(server: &mut Server) -> Result<(), String> {
    server.wait_until("the end of the snapshot", |server| {
        let mut busy = 0.0;
        for name in ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"] {
            busy += server.number("persistence", name)?;
        }
        Ok(busy == 0.0)
    })
}

/// The first content.
pub fn fill(server: &mut Server, content: &Content) -> Result<(), String> {
    let (mut out, mut value, mut waiting) = (Vec::new(), Vec::new(), 0);
    for key in 0..content.keys {
        content.fill(key, 0, &mut value);
        super::resp::put(&mut out, &[b"SET", name(key).as_bytes(), &value]);
        waiting += 1;
        if out.len() > BATCH / 4 || key + 1 == content.keys {
            server.send(&out)?;
            out.clear();
            for _ in 0..std::mem::take(&mut waiting) {
                match server.receive()? {
                    Answer::Word(_) => {}
                    other => return Err(format!("filling: {other:?}")),
                }
            }
        }
    }
    Ok(())
}

/// Whether the server holds what so many writes make, every byte.
pub fn compare(server: &mut Server, content: &Content, writes: u64) -> Result<(), String> {
    let held = server.tell(&[b"DBSIZE"])?;
    if held != Answer::Word(content.keys.to_string()) {
        return Err(format!("{held:?} keys instead of {}", content.keys));
    }
    let last = content.after(writes);
    let batch = (BATCH / content.size.max(1)).clamp(1, 4096);
    let (mut first, mut expected) = (0, Vec::new());
    for group in last.chunks(batch) {
        let names: Vec<String> = (first..).take(group.len()).map(name).collect();
        let words = std::iter::once(&b"MGET"[..]).chain(names.iter().map(String::as_bytes));
        let Answer::List(values) = server.tell(&words.collect::<Vec<_>>())? else {
            return Err("MGET is no list".into());
        };
        for ((key, write), value) in (first..).zip(group).zip(values) {
            content.fill(key, *write, &mut expected);
            if value != Answer::Bytes(std::mem::take(&mut expected)) {
                let name = name(key);
                return Err(format!("{name} does not hold write {write}, of {writes} writes"));
            }
        }
        first += group.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_seen_in_what_info_says() {
        let done = |kind: Kind, info: &str| kind.is_done()(info);
        assert!(done(Kind::Dump, "rdb_bgsave_in_progress:0\r\n"));
        assert!(!done(Kind::Dump, "rdb_bgsave_in_progress:1\r\n"));
        assert!(!done(Kind::Rewrite, "rdb_bgsave_in_progress:0\r\n"));
        assert!(!done(Kind::Replica, "slave0:ip=127.0.0.1,port=1,state=wait_bgsave,offset=0\r\n"));
        assert!(done(Kind::Replica, "slave0:ip=127.0.0.1,port=1,state=online,offset=0\r\n"));
    }

    #[test]
    fn the_base_of_a_log_is_named_by_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("appendonlydir");
        std::fs::create_dir(&inner).unwrap();
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                    file appendonly.aof.3.incr.aof seq 3 type i\n";
        std::fs::write(inner.join("appendonly.aof.manifest"), text).unwrap();
        let found = Kind::Rewrite.file(folder.path()).unwrap();
        assert_eq!(found, Some((inner, "appendonly.aof.2.base.rdb".into())));
    }
}
