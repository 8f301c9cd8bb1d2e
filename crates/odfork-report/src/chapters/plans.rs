//! The experiments a report knows, as data: their question, their tables, and what was published.
//!
//! Owns no numbers of ours and no drawing: `build` names the function that makes the plots of an
//! experiment.

use super::tables::Column;
use super::{access, exec, grid, latency, paging, parent, shares};
use crate::blocks::Content;
use odfork_samples::digest::Digest;
use odfork_samples::unit::Unit;

/// What is known of an experiment before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub name: &'static str,
    pub title: &'static str,
    pub question: &'static str,
    /// The metric of the harness overhead and the headline.
    pub metric: &'static str,
    /// Why ours and theirs may differ.
    pub differ: &'static str,
    pub command: &'static str,
    /// What the front page says was published.
    pub published: &'static str,
    pub columns: &'static [Column<'static>],
    /// Metric and caption of each table of medians.
    pub tables: &'static [(&'static str, &'static str)],
    /// Whether the tables show the ratio to plain.
    pub ratios: bool,
    /// Plots, tables of its own and headlines, from the samples and the chapter's name.
    pub build: fn(&Digest, &str) -> Content,
}

const CONFIGURATION: Column = ("configuration", "configuration", Unit::Number);
const MEMORY: Column = ("bytes", "memory", Unit::Bytes);

pub const PLANS: [Plan; 11] = [
    Plan {
        name: "grid",
        title: "Forks whose child writes a part of the memory",
        question: "How does the time of many forks grow with the size of the heap and with the part of it that the child writes?",
        metric: "real",
        differ: "The 1988 machines had 2 and 8 MB of memory and pages of 2 and 4 KB; a process cost 12 to 31 ms. Slopes and intercepts differ by thousands; the straightness of the lines and the share of the intercept can be compared.",
        command: "odfork bench grid",
        published: "straight lines; 3B2: 31 ms a fork, HP9000: 12 ms a fork (Smith and Maguire 1988)",
        columns: &[CONFIGURATION, ("scale", "scale", Unit::Number), ("forks", "forks", Unit::Count), ("bytes", "heap", Unit::Bytes), ("frac", "written", Unit::Share)],
        tables: &[("real", "Real time of every point"), ("user", "User time"), ("sys", "System time")],
        ratios: true,
        build: grid::build,
    },
    Plan {
        name: "latency",
        title: "Latency of the fork call",
        question: "How long does the caller of fork wait, by size of its memory, alone and with three processes forking at once?",
        metric: "fork",
        differ: "Theirs: 16-core AMD EPYC 7302P, Linux 5.6.19, bare metal. On a virtual machine, page-table work costs two to three times as much; ratios travel better than times.",
        command: "odfork bench latency",
        published: "on-demand-fork 65× faster at 1 GB, 270× at 50 GB (Zhao, Gong and Fonseca 2021)",
        columns: &[CONFIGURATION, MEMORY, ("processes", "at once", Unit::Count)],
        tables: &[("fork", "Time of the fork call"), ("fork-cpu", "Processor time of the caller in fork"), ("total", "Fork, child's exit and wait together")],
        ratios: true,
        build: latency::build,
    },
    Plan {
        name: "fault",
        title: "Worst-case write fault",
        question: "How long does the first write of a child take, in the middle of its memory?",
        metric: "fault",
        differ: "A fault copies one page: 4 KB, or 2 MB with huge pages. It follows the memory rate of the machine and the cost of an exception, which is higher on a virtual machine.",
        command: "odfork bench fault",
        published: "fork 2.3 µs, huge pages 198 µs, on-demand-fork 12.2 µs (Zhao, Gong and Fonseca 2021)",
        columns: &[CONFIGURATION, MEMORY],
        tables: &[("fault", "Worst-case write fault")],
        ratios: true,
        build: latency::build_fault,
    },
    Plan {
        name: "access",
        title: "Fork, then access",
        question: "Does the time saved in fork come back when the parent then reads or writes its memory?",
        metric: "total",
        differ: "Theirs accessed 50 GB in blocks of 32 MB on 16 cores. The relative change depends on how dear a fault is against copying memory, which differs by processor and by virtualisation.",
        command: "odfork bench access",
        published: "99 % less time when nothing is accessed, 4 to 8 % less when all is (Zhao, Gong and Fonseca 2021)",
        columns: &[CONFIGURATION, MEMORY, ("read", "read share", Unit::Share), ("share", "accessed", Unit::Share)],
        tables: &[("total", "Fork, then access by the parent")],
        ratios: true,
        build: access::build,
    },
    Plan {
        name: "profile",
        title: "Where fork spends its time",
        question: "Which parts of the kernel does a fork of a large process spend its time in?",
        metric: "share",
        differ: "Function names moved between Linux 5.6 and today: compound_head and page_ref_inc were inlined, folios came, and copying of entries is batched.",
        command: "odfork bench profile",
        published: "two hot spots in copying page-table entries: compound_head, page_ref_inc (Zhao, Gong and Fonseca 2021)",
        columns: &[CONFIGURATION, MEMORY, ("source", "source", Unit::Number), ("name", "part", Unit::Number)],
        tables: &[("share", "Shares of the time of fork"), ("count", "Counters per fork")],
        ratios: true,
        build: shares::build_profile,
    },
    Plan {
        name: "parent-writes",
        title: "The parent after fork",
        question: "How much slower are the parent's first writes after a fork whose child is already gone?",
        metric: "round",
        differ: "Theirs wrote 100,000 pages from Ruby, which adds some 60 ns a page to every round; a C loop shows the fault alone, so the ratio is larger here.",
        command: "odfork bench parent-writes",
        published: "10 times slower in the first round after fork; not after vfork, not with THP (Tanaka 2019)",
        columns: &[CONFIGURATION, MEMORY, ("via", "child by", Unit::Number), ("phase", "phase", Unit::Number), ("turn", "round", Unit::Count)],
        tables: &[("round", "One write a page over the whole memory")],
        ratios: true,
        build: parent::build,
    },
    Plan {
        name: "exec",
        title: "Create and exec",
        question: "What does starting a tiny program cost, by the memory its parent uses and by the way it is started?",
        metric: "each",
        differ: "Theirs: Core 2 Duo, 2.33 GHz, 32-bit Linux 2.6.28; seconds for a few thousand runs, the number not given. The slope over used memory and the ratio of fork to vfork can be compared.",
        command: "odfork bench exec",
        published: "20 MB used: fork+exec 21.6 s, vfork+exec 1.53 s, 14 times (Zahariev 2009)",
        columns: &[CONFIGURATION, ("method", "method", Unit::Number), ("actions", "actions", Unit::Number), ("allocated", "allocated", Unit::Bytes), ("used", "used", Unit::Bytes)],
        tables: &[("each", "Create, exec and wait"), ("user", "User time of it"), ("sys", "System time of it")],
        ratios: true,
        build: exec::build,
    },
    Plan {
        name: "copy-rate",
        title: "Rate of copying and rate of page service",
        question: "How near does copying pages by faults come to copying memory at all?",
        metric: "copy",
        differ: "In 1988 copying 2 KB took milliseconds and hid the exception around it. Memory has become faster than exceptions have, so today's ratio is lower.",
        command: "odfork bench copy-rate",
        published: "service / copy: 0.823 (3B2), 0.804 (HP9000) (Smith and Maguire 1988)",
        columns: &[CONFIGURATION, MEMORY],
        tables: &[("copy", "Rate of memcpy"), ("service", "Rate of page service")],
        ratios: true,
        build: shares::build_copy,
    },
    Plan {
        name: "writes",
        title: "What programs write",
        question: "What share of a program's pages, and of its bytes, does a phase of its work change?",
        metric: "pages",
        differ: "Pages were 512 bytes on the VAX and are 4,096 here: one changed byte now marks eight times as much, so shares of pages rise; shares of bytes do not depend on it.",
        command: "odfork writes --json",
        published: "0.23, 0.35, 0.30, 0.48: less than half (Smith and Maguire 1988)",
        columns: &[],
        tables: &[],
        ratios: true,
        build: shares::build_writes,
    },
    Plan {
        name: "paging",
        title: "Memory larger than what may be resident",
        question: "How fast is memory of which a quarter may be resident, paged by the kernel, by odfork's pager, by umap?",
        metric: "rate",
        differ: "A page-in took 25 to 30 ms and a reclaim 250 µs on the VAX, 120 to 1; with a disk of today it is about 9 to 1, with a store in memory 2 to 1. In a virtual machine whose processors sleep, waking a thread on the other processor costs more than a page-in from memory.",
        command: "odfork bench paging",
        published: "a reclaim 250 µs, at most 10 % of a processor; pages of 1 KB instead of 512 B: 30 % less time (Babaoglu and Joy 1981)",
        columns: &[("act", "act", Unit::Number), ("configuration", "backend", Unit::Number)],
        tables: &[
            ("p50", "Median latency of an access, its check included"),
            ("p99", "99th percentile of the latency of an access"),
            ("major", "Page-ins on demand for each access"),
            ("reclaims", "Reclaims for each access"),
            ("reclaim", "A reclaim, as the faulting thread sees it"),
            ("simulation-cpu", "Processor time of reference simulation, at most"),
            ("memory", "Most memory of the backend's processes, page cache included"),
        ],
        ratios: false,
        build: paging::build_paging,
    },
    Plan {
        name: "sessions",
        title: "Sessions at rising load",
        question: "How do throughput and the response of a trivial command fall with more sessions than fit into memory?",
        metric: "throughput",
        differ: "The sessions are programs of our own in the roles of the published ones, memory is scaled to hold one session and a third, and there are two processors.",
        command: "odfork bench sessions",
        published: "paging degrades more linearly than swapping, the trivial command stays quick (Babaoglu and Joy 1981, figures 2 and 3)",
        columns: &[CONFIGURATION, ("sessions", "sessions", Unit::Number)],
        tables: &[("page-ins", "Page-ins on demand"), ("user", "User time of the scripts"), ("system", "System time of the scripts")],
        ratios: false,
        build: paging::build_sessions,
    },
];
