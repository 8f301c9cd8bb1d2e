//! `odfork check`: the table of probes, each answered by doing the thing, not by asking for a
//! version.
//!
//! This file owns the table and its words. The doing is in `image`, `kernel` and `limits`; each
//! probe runs in a child of its own (`child`), so that a filter that kills, or a call that hangs,
//! is an answer too and leaves nothing behind.

mod child;
mod group;
mod image;
mod kernel;
mod limits;
mod remedies;
pub mod report;

/// How far a probe got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Yes,
    Partly,
    No,
}

/// What a probe saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub mark: Mark,
    pub found: String,
}

impl Seen {
    pub fn yes(found: impl Into<String>) -> Seen {
        Seen { mark: Mark::Yes, found: found.into() }
    }

    pub fn partly(found: impl Into<String>) -> Seen {
        Seen { mark: Mark::Partly, found: found.into() }
    }

    pub fn no(found: impl Into<String>) -> Seen {
        Seen { mark: Mark::No, found: found.into() }
    }
}

/// One row: a question, how it is answered, and what the answers mean.
pub struct Probe {
    pub id: &'static str,
    pub title: &'static str,
    look: fn() -> Seen,
    pub if_yes: &'static str,
    pub if_not: &'static str,
    pub change: &'static str,
}

pub struct Finding {
    pub probe: &'static Probe,
    pub seen: Seen,
}

/// Asks every question.
pub fn look() -> Vec<Finding> {
    PROBES.iter().map(|probe| Finding { probe, seen: child::observe(probe.look) }).collect()
}

/// What keeps every fork plain, whatever image could be made.
pub fn obstacle(findings: &[Finding]) -> Option<&Finding> {
    const NEEDED: [&str; 3] = ["proc", "memory", "tracer"];
    findings.iter().find(|one| NEEDED.contains(&one.probe.id) && one.seen.mark == Mark::No)
}

/// The kind of image that `--image auto` will find.
pub fn image_kind(findings: &[Finding]) -> &'static str {
    if obstacle(findings).is_some() {
        return "none";
    }
    let is = |id: &str, mark: Mark| {
        findings.iter().any(|finding| finding.probe.id == id && finding.seen.mark == mark)
    };
    let yes = |id: &str| is(id, Mark::Yes);
    // The directory that was named, or nothing.
    if is("image-dir", Mark::No) {
        "none"
    } else if yes("image-dir") {
        "huge-dir"
    } else if yes("huge-root") {
        "huge"
    } else if yes("huge-userns") {
        "huge-userns"
    } else if yes("memfd-huge") {
        "huge-memfd"
    } else if yes("memfd") {
        "small"
    } else {
        "none"
    }
}

pub static PROBES: [Probe; 20] = [
    Probe {
        id: "huge-root",
        title: "huge image, as root",
        look: image::huge_as_root,
        if_yes: "The image is made of 2 MB pages, from a mount that no one sees.",
        if_not: "Without this way, a user namespace is tried next.",
        change: "Run as root (CAP_SYS_ADMIN) on Linux 5.2 or later, with free 2 MB pages.",
    },
    Probe {
        id: "huge-userns",
        title: "huge image, user namespace",
        look: image::huge_in_user_namespace,
        if_yes: "Programs without root get an image of 2 MB pages too.",
        if_not: "Programs without root get a 4 KB image: children that read much are slower.",
        change: "Allow user namespaces: sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone=1, \
                 kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp \
                 profile.",
    },
    Probe {
        id: "memfd",
        title: "small image (memfd)",
        look: image::small,
        if_yes: "A 4 KB image can be had when a huge one cannot.",
        if_not: "Without a huge image either, every fork stays plain.",
        change: "Allow memfd_create in the seccomp profile.",
    },
    Probe {
        id: "memfd-huge",
        title: "huge image (memfd)",
        look: image::huge_memfd,
        if_yes: "Where neither root nor a user namespace brings 2 MB pages, a memfd does.",
        if_not: "A memfd has 4 KB pages.",
        change: "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
    },
    Probe {
        id: "image-dir",
        title: "image in a directory",
        look: image::in_directory,
        if_yes: "The image is made there, of 2 MB pages, and nowhere else.",
        if_not: "Without ODFORK_IMAGE_DIR the image is made where it can be; with one that is not \
                 fit every fork stays plain.",
        change: "mount -t tmpfs -o huge=always,size=0,mode=1777 odfork DIR, then \
                 ODFORK_IMAGE_DIR=DIR.",
    },
    Probe {
        id: "pagemap-scan",
        title: "PAGEMAP_SCAN ioctl",
        look: kernel::pagemap_scan,
        if_yes: "Dirty pages are found in large steps.",
        if_not:
            "Dirty pages are found by reading /proc/self/pagemap entry by entry: refreezing is \
             slower.",
        change: "Linux 6.7 or later, with /proc mounted.",
    },
    Probe {
        id: "procmap-query",
        title: "PROCMAP_QUERY ioctl",
        look: kernel::procmap_query,
        if_yes: "A mapping is looked up without reading the whole map.",
        if_not: "The map is read as text: slower in programs with thousands of mappings.",
        change: "Linux 6.11 or later, with /proc mounted.",
    },
    Probe {
        id: "userfaultfd-wp",
        title: "userfaultfd write-protect",
        look: kernel::userfaultfd,
        if_yes: "Programs with threads are frozen too: their writes wait, also those made by the \
                 kernel for them.",
        if_not: "Threads are stopped by ptrace, where that is allowed (next row).",
        change: "Run as root, or sysctl vm.unprivileged_userfaultfd=1 (Linux 5.19 or later for \
                 this use).",
    },
    Probe {
        id: "ptrace",
        title: "ptrace by a child",
        look: kernel::ptrace,
        if_yes: "Programs with threads are frozen too, without userfaultfd: the threads are \
                 stopped for moments.",
        if_not: "Without userfaultfd, programs that run threads when they fork stay plain.",
        change: "Allow ptrace in the filter; kernel.yama.ptrace_scope 0 or 1.",
    },
    Probe {
        id: "mremap-dontunmap",
        title: "mremap DONTUNMAP on image",
        look: kernel::mremap_dontunmap,
        if_yes: "Pages move out of an image mapping and leave it in place.",
        if_not: "Pages are copied where they could have been moved.",
        change: "Linux 5.13 or later.",
    },
    Probe {
        id: "proc",
        title: "/proc readable",
        look: limits::proc,
        if_yes: "The process can read its own map.",
        if_not: "Nothing can be frozen without the process's map: every fork stays plain.",
        change: "Mount it: mount -t proc proc /proc (in a container or chroot, from outside).",
    },
    Probe {
        id: "overcommit",
        title: "memory overcommit",
        look: limits::overcommit,
        if_yes: "Mapping the image does not count against a commit limit.",
        if_not: "Strict accounting: image and copies count twice, so a freeze may be refused \
                 (plain fork then).",
        change: "sysctl vm.overcommit_memory=0",
    },
    Probe {
        id: "max-map-count",
        title: "mappings per process",
        look: limits::max_map_count,
        if_yes: "Enough mappings for a 4 KB image cut in pieces.",
        if_not: "A 4 KB image is cut in fewer pieces, and one dirty page costs more at fork.",
        change: "sysctl vm.max_map_count=1048576",
    },
    Probe {
        id: "rlimit-fsize",
        title: "file size limit",
        look: limits::file_size,
        if_yes: "The image, a file to the kernel, may have any size.",
        if_not: "An image larger than the limit cannot be made: bigger programs stay with plain \
                 fork.",
        change: "ulimit -f unlimited",
    },
    Probe {
        id: "seccomp",
        title: "no seccomp filter",
        look: limits::seccomp,
        if_yes: "No filter stands between the library and the kernel.",
        if_not: "A filter may refuse calls that freezing needs; what it refuses shows in the rows \
                 above.",
        change: "Start outside the sandbox, or allow fsopen, fsconfig, fsmount, memfd_create, \
                 userfaultfd in its profile.",
    },
    Probe {
        id: "thp",
        title: "huge pages allowed",
        look: limits::huge_pages,
        if_yes: "Nothing forbids 2 MB pages in an image.",
        if_not: "Huge pages are switched off, so the image has 4 KB pages.",
        change: "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled; do not start \
                 under PR_SET_THP_DISABLE.",
    },
    Probe {
        id: "memory",
        title: "memory available",
        look: limits::memory,
        if_yes: "A freeze moves memory chunk by chunk and needs only 64 MB more.",
        if_not: "Too little to freeze anything of size; forks stay plain.",
        change:
            "Free some memory, or raise the memory limit of the cgroup (memory.max, memory.high; \
                 version 1: memory.limit_in_bytes).",
    },
    Probe {
        id: "tracer",
        title: "not traced",
        look: limits::tracer,
        if_yes: "No debugger watches.",
        if_not: "Under a tracer (gdb, strace, rr) the library leaves fork plain.",
        change: "Start without the tracer.",
    },
    Probe {
        id: "pager",
        title: "pager of all memory",
        look: kernel::moves,
        if_yes: "`odfork page run` keeps all memory of a program under a limit.",
        if_not: "Without moves, `odfork page run` pages large memory by a daemon, if at all. \
                 Without news of forks, a fork brings all memory back.",
        change: "Linux 6.11, and access to /dev/userfaultfd or sysctl \
                 vm.unprivileged_userfaultfd=1; for forks CAP_SYS_PTRACE.",
    },
    Probe {
        id: "kernel",
        title: "kernel engine",
        look: limits::kernel_engine,
        if_yes: "`odfork run` lets fork share page tables: any program, nothing preloaded.",
        if_not: "Forks are made cheap by the preloaded library and its image.",
        change: "A kernel with CONFIG_COW_PTE_TABLES (odfork kernel deb), and sysctl \
                 vm.cow_fork=1.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_single_and_titles_fit_the_column() {
        for (index, probe) in PROBES.iter().enumerate() {
            assert!(PROBES[index + 1..].iter().all(|other| other.id != probe.id), "{}", probe.id);
            assert!(probe.title.len() <= report::TITLE_WIDTH, "{}", probe.title);
        }
    }

    #[test]
    fn the_best_image_wins() {
        let findings = |marks: [Mark; 3]| -> Vec<Finding> {
            PROBES
                .iter()
                .zip(marks)
                .map(|(probe, mark)| Finding { probe, seen: Seen { mark, found: String::new() } })
                .collect()
        };
        assert_eq!(image_kind(&findings([Mark::Yes, Mark::Yes, Mark::Yes])), "huge");
        assert_eq!(image_kind(&findings([Mark::Partly, Mark::Yes, Mark::Yes])), "huge-userns");
        assert_eq!(image_kind(&findings([Mark::No, Mark::Partly, Mark::Yes])), "small");
        assert_eq!(image_kind(&findings([Mark::No, Mark::No, Mark::No])), "none");
    }
}
