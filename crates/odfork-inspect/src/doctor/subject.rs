//! One process as it is now: memory, page tables, what of it could be frozen. Opens files of /proc
//! and changes nothing.
//!
//! /proc/PID/status is readable by anybody; smaps_rollup and smaps only by who may trace the
//! process. What cannot be read is left out and said in a remark; the sums then come from the next
//! coarser file.

use std::fs;
use std::io::{Error, ErrorKind};

use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};

use super::smaps::{Entries, Map, HUGE};
use odfork_proc::process::{self, Pid};
use odfork_proc::status::{Rollup, Status};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Subject {
    pub pid: Pid,
    pub name: String,
    pub command: String,
    /// None: not readable.
    pub program: Option<String>,
    pub status: Status,
    pub memory: Memory,
    /// None: not readable.
    pub map: Option<Map>,
    pub remarks: Vec<String>,
}

/// Sums in bytes, and the file they come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pub mapped: u64,
    pub resident: u64,
    pub anonymous: u64,
    pub swapped: u64,
    pub page_tables: u64,
    /// Anonymous memory in huge pages; None: not known.
    pub huge: Option<u64>,
    /// What the next fork copies.
    pub entries: Entries,
    pub source: &'static str,
}

impl Memory {
    /// From the finest of the three files that could be read.
    pub fn sum(status: &Status, rollup: Option<Rollup>, map: Option<&Map>) -> Memory {
        let sums = rollup.unwrap_or(Rollup {
            resident: status.resident,
            anonymous: status.anonymous,
            huge: map.map_or(0, |map| map.entries.huge * HUGE),
            swapped: status.swapped,
        });
        let entries = match map {
            Some(map) => map.entries,
            None => Entries::of(sums.anonymous, sums.swapped, sums.huge),
        };
        Memory {
            mapped: status.mapped,
            resident: sums.resident,
            anonymous: sums.anonymous,
            swapped: sums.swapped,
            page_tables: status.page_tables,
            huge: (rollup.is_some() || map.is_some()).then_some(sums.huge),
            entries,
            source: match (map, rollup) {
                (Some(_), _) => "smaps",
                (None, Some(_)) => "smaps_rollup",
                (None, None) => "status",
            },
        }
    }

    /// Share of the anonymous memory that is in huge pages.
    pub fn huge_share(&self) -> Option<f64> {
        let huge = self.huge?;
        Some(if self.anonymous == 0 { 0.0 } else { huge as f64 / self.anonymous as f64 })
    }
}

/// Reads one file of a process; None and a remark when that is not possible.
fn read(pid: Pid, file: &str, remarks: &mut Vec<String>) -> Option<String> {
    match fs::read(format!("/proc/{pid}/{file}")) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => {
            let coarser = match file {
                "smaps_rollup" => "; huge pages are not known",
                "smaps" => "; what could be frozen is not known",
                _ => "",
            };
            remarks.push(format!("/proc/{pid}/{file} is not readable ({}){coarser}", why(&error)));
            None
        }
    }
}

fn why(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "not permitted: be its owner, or root",
        ErrorKind::NotFound => "the process is gone",
        _ if error.raw_os_error() == Some(libc::ESRCH) => "the process is gone",
        _ => "it failed",
    }
}

/// Everything about a process that has memory. Errors name what is in the way in one line.
pub fn inspect(pid: Pid) -> Result<Subject> {
    let Some(status) = Status::of_process(pid) else {
        bail!("no process {pid} that this user may see; `ps -e` lists them");
    };
    let (name, parent) = (&status.name, status.parent);
    if status.is_zombie() {
        bail!(
            "process {pid} ({name}) is a zombie: it has ended and its parent {parent} has not \
             asked for its status"
        );
    }
    if !status.has_memory {
        bail!("process {pid} ({name}) is a kernel thread: it has no memory and never forks");
    }
    if status.process != pid {
        bail!("{pid} is a thread of process {}; name that one", status.process);
    }
    let mut remarks = Vec::new();
    let rollup = read(pid, "smaps_rollup", &mut remarks).as_deref().and_then(Rollup::parse);
    let map = read(pid, "smaps", &mut remarks).map(|text| Map::parse(&text));
    Ok(Subject {
        pid,
        name: status.name.clone(),
        command: process::command_line(pid).unwrap_or_else(|| status.name.clone()),
        program: process::program(pid),
        memory: Memory::sum(&status, rollup, map.as_ref()),
        status,
        map,
        remarks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_examined() {
        let own = inspect(std::process::id() as Pid).unwrap();
        assert!(own.memory.resident > 0 && own.memory.page_tables > 0);
        assert!(own.memory.mapped >= own.memory.resident);
        let map = own.map.expect("one's own map is readable");
        assert!(map.mappings > 10 && !map.is_frozen());
        assert!(own.remarks.is_empty(), "{:?}", own.remarks);
    }

    #[test]
    fn what_has_no_memory_is_refused_in_one_line() {
        let gone = inspect(Pid::MAX).unwrap_err().to_string();
        assert!(gone.contains("no process") && !gone.contains('\n'), "{gone}");
        if Status::of_process(2).is_some_and(|status| status.name == "kthreadd") {
            assert!(inspect(2).unwrap_err().to_string().contains("kernel thread"));
        } else {
            println!("skipped: no kernel thread is visible here");
        }
    }

    #[test]
    fn a_zombie_is_called_one() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id() as Pid;
        while !Status::of_process(pid).unwrap().is_zombie() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let error = inspect(pid).unwrap_err().to_string();
        child.wait().unwrap();
        assert!(error.contains("zombie"), "{error}");
    }

    #[test]
    fn coarser_files_stand_in() {
        let status = Status { anonymous: 8 << 20, swapped: 4096, ..Status::default() };
        let coarse = Memory::sum(&status, None, None);
        assert_eq!((coarse.entries.small, coarse.huge), (2049, None));
        let rollup = Rollup { anonymous: 8 << 20, huge: 4 << 20, ..Rollup::default() };
        let finer = Memory::sum(&status, Some(rollup), None);
        assert_eq!((finer.entries.small, finer.entries.huge), (1024, 2));
        assert_eq!((finer.huge_share(), finer.source), (Some(0.5), "smaps_rollup"));
    }
}
