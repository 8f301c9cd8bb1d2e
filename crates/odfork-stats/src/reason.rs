//! Why memory was left as it was: the words of the statistics.

/// Why a freeze, a refreeze or a thaw did not happen, or stopped half-way. Whatever
/// the reason, the process goes on as with plain fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Reason {
    /// There is none: the latest pass did what was due.
    #[default]
    None = 0,
    /// Other threads run and cannot be held still (no userfaultfd and no ptrace, or they did not
    /// come to rest).
    Threads,
    /// `/proc` is not mounted, not readable, or not this process's.
    NoProc,
    /// A debugger or tracer is attached.
    Traced,
    /// The helper task was killed by a system-call filter.
    Seccomp,
    /// Not enough free memory (system or cgroup) for later copies.
    Memory,
    /// A resource limit forbids a step.
    Limit,
    /// Too near `vm.max_map_count`.
    MapLimit,
    /// Kernel I/O may hold pages pinned (io_uring, AIO, O_DIRECT, RDMA, VFIO).
    Pinned,
    /// Another process runs in this address space (`clone(CLONE_VM)`).
    SharedVm,
    /// Nothing to gain: too little anonymous memory.
    NotWorth,
    /// Switched off by the user.
    Never,
    /// A Go program: its runtime calls the kernel without libc.
    Go,
    /// A sanitizer's runtime is linked in, or valgrind runs the program.
    Sanitizer,
    /// `vm.overcommit_memory` is 2: the backing file would be charged twice.
    Overcommit,
    /// The helper task could not be started or ended early.
    Helper,
    /// A step of the freeze path failed.
    Step,
    /// The backing file asked for cannot be had.
    Image,
    /// The program uses userfaultfd itself, or the pager does for it.
    Userfaultfd,
    /// The program's code makes `madvise` or `mremap` calls without the C library.
    RawCalls,
    /// The wrappers are not in the process.
    NotLoaded,
    /// Freezing, refreezing or looking costs more than the rental rule assumed.
    Price,
    /// Somebody asked for it with `odfork stats --plain`.
    Asked,
    /// The directory the user named for backing files is not fit for them.
    ImageDir,
    /// Threads are in calls that must not be interrupted now.
    Busy,
    /// The program's C library is another one (musl).
    Libc,
    /// The kernel's pages are not of 4 KB (some kernels for aarch64).
    PageSize,
    /// New mappings are locked (`mlockall` with `MCL_FUTURE`): a backing file's would be.
    Locked,
}

/// Number of reasons, for counters.
pub const REASONS: usize = Reason::Locked as usize + 1;

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Reason; REASONS] = [
        Reason::None,
        Reason::Threads,
        Reason::NoProc,
        Reason::Traced,
        Reason::Seccomp,
        Reason::Memory,
        Reason::Limit,
        Reason::MapLimit,
        Reason::Pinned,
        Reason::SharedVm,
        Reason::NotWorth,
        Reason::Never,
        Reason::Go,
        Reason::Sanitizer,
        Reason::Overcommit,
        Reason::Helper,
        Reason::Step,
        Reason::Image,
        Reason::Userfaultfd,
        Reason::RawCalls,
        Reason::NotLoaded,
        Reason::Price,
        Reason::Asked,
        Reason::ImageDir,
        Reason::Busy,
        Reason::Libc,
        Reason::PageSize,
        Reason::Locked,
    ];

    /// The word in the statistics.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::None => "none",
            Reason::Threads => "threads",
            Reason::NoProc => "no-proc",
            Reason::Traced => "traced",
            Reason::Seccomp => "seccomp",
            Reason::Memory => "memory",
            Reason::Limit => "limit",
            Reason::MapLimit => "map-limit",
            Reason::Pinned => "pinned",
            Reason::SharedVm => "shared-vm",
            Reason::NotWorth => "not-worth",
            Reason::Never => "never",
            Reason::Go => "go",
            Reason::Sanitizer => "sanitizer",
            Reason::Overcommit => "overcommit",
            Reason::Helper => "helper",
            Reason::Step => "step",
            Reason::Image => "image",
            Reason::Userfaultfd => "userfaultfd",
            Reason::RawCalls => "raw-calls",
            Reason::NotLoaded => "not-loaded",
            Reason::Price => "price",
            Reason::Asked => "asked",
            Reason::ImageDir => "image-dir",
            Reason::Busy => "busy",
            Reason::Libc => "libc",
            Reason::PageSize => "page-size",
            Reason::Locked => "locked",
        }
    }

    /// The reason of that number; none for a number of another version.
    pub fn numbered(number: u32) -> Reason {
        Self::ALL.get(number as usize).copied().unwrap_or_default()
    }

    /// One sentence for people: what it means and what to do.
    pub const fn explain(self) -> &'static str {
        match self {
            Reason::None => "",
            Reason::Threads => {
                "other threads did not come to rest, or neither userfaultfd nor \
                 ptrace is allowed here (odfork check says what would help)"
            }
            Reason::NoProc => "/proc is not readable here; mount it to let memory be frozen",
            Reason::Traced => "a debugger is attached; detach it to let memory be frozen",
            Reason::Seccomp => "a system-call filter forbids what freezing needs",
            Reason::Memory => {
                "too little free memory to keep a second copy of what is rewritten; \
                 free some or raise the cgroup limit"
            }
            Reason::Limit => "a resource limit (ulimit) forbids a step of freezing",
            Reason::MapLimit => "very many mappings, near vm.max_map_count (raise it)",
            Reason::Pinned => {
                "io_uring, AIO, O_DIRECT or a device may write to memory behind the \
                 page tables"
            }
            Reason::SharedVm => "another process shares this address space",
            Reason::NotWorth => {
                "too little anonymous memory, too thinly used or shared with \
                 living children, or fork is already cheap"
            }
            Reason::Never => "switched off by ODFORK_FREEZE=never",
            Reason::Go => "a Go program: its runtime bypasses the C library",
            Reason::Sanitizer => "a sanitizer, or valgrind, manages memory by itself",
            Reason::Overcommit => "vm.overcommit_memory=2 would charge the backing file twice",
            Reason::Helper => "the helper task could not run",
            Reason::Step => "a step of freezing failed; memory is as it was",
            Reason::Image => "the backing file asked for (ODFORK_IMAGE) cannot be had here",
            Reason::Userfaultfd => "the program handles page faults itself, or odfork page does it",
            Reason::NotLoaded => {
                "the runtime's wrappers are not loaded; use odfork run, or the \
                 crate's feature interpose"
            }
            Reason::Asked => "unfrozen on demand (odfork stats PID --plain); it stays plain",
            Reason::ImageDir => {
                "the directory of ODFORK_IMAGE_DIR cannot be used; odfork check, \
                 with that variable, says why"
            }
            Reason::Busy => {
                "a thread is in a call that cannot be interrupted unseen, or did not \
                 stop; tried again later"
            }
            Reason::Libc => "the program's C library is not glibc",
            Reason::PageSize => "this kernel's pages are not of 4 KB; take a kernel whose are",
            Reason::Locked => "new memory is locked (mlockall); munlockall lets it be frozen",
            Reason::Price => {
                "a pass cost more than expected and was stopped; it goes on once \
                 forks have cost as much"
            }
            Reason::RawCalls => "the program calls madvise or mremap past the C library",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_words_agree() {
        for (i, r) in Reason::ALL.iter().enumerate() {
            assert_eq!(*r as usize, i);
            assert!(!r.word().is_empty());
        }
    }
}
