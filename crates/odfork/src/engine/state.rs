//! The runtime's state, one of it in a process.
//!
//! Owns what there is and who may touch it: what may be read at any time is atomic ([`State`]),
//! the rest ([`Owned`]) is reached through the lock's guard. All of it lies together, but for the
//! room for many addresses, so that it can be left out when the memory around it is frozen.

use core::mem::offset_of;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use super::account::Account;
use super::choice::Choice;
use super::retry::Retry;
use super::under_way::{Purchase, Rest, Slices};
use crate::absent::Absent;
use crate::addresses::Addresses;
use crate::changes::Changes;
use crate::code::Searched;
use crate::fork_mark::ForkMark;
use crate::given_up::GivenUp;
use crate::ignored::Ignored;
use crate::live::{Live, Mapped, Spare};
use crate::lock::Lock;
use crate::once::{RunOnce, SetOnce};
use crate::options::{Freeze, Options};
use crate::owner::Owner;
use crate::reason::Reason;
use crate::registry::Registry;
use crate::retained::Retained;
use crate::scan::OwnRanges;
use crate::scratch::ScratchMapping;
use crate::slack::Slack;
use crate::source::Allowed;
use crate::spans::Room;
use crate::stats::Stats;
use crate::sys::{self, Trace, PAGE, ZONE};
use crate::tracer::Tracer;

/// Room for functions that wrappers stand before.
pub const MAX_NEXT: usize = 66;
/// The one among them that is the loader's `_dl_find_object` (glibc 2.35); 0 there: it has none.
pub const FIND_OBJECT: usize = 0;

/// Bytes of memory for more addresses.
pub const ROOM_BYTES: usize = size_of::<Room>().next_multiple_of(PAGE);

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// In place of the shared word's address: it was said before the word was made.
const SAID_BEFORE: usize = 1;

/// What the constructor finds out.
#[derive(Clone, Copy)]
pub struct Setup {
    pub options: Options,
    /// Looks for reasons to leave the program alone; asked once in a process, before its
    /// first pass.
    pub inspect: fn() -> Reason,
}

/// What the wrappers and the report remember. Not in statics of their own: the library has no
/// other page that is written when it is loaded, and each would be one more fault in every exec.
pub struct Notes {
    /// Where the next functions in line are, by the wrappers' numbers; 0: not looked up.
    pub next: [AtomicUsize; MAX_NEXT],
    /// The program's C library is glibc.
    pub is_glibc: AtomicBool,
    /// The next realloc is glibc's, whose chunks can be told apart.
    pub realloc_is_glibc: AtomicBool,
    /// The statistics were written.
    pub reported: AtomicBool,
    /// The C library tells of its own forks, and children of them too.
    pub tells_forks: AtomicBool,
    pub tells_children: AtomicBool,
}

impl Notes {
    const fn new() -> Self {
        #[allow(clippy::declare_interior_mutable_const)]
        const NOWHERE: AtomicUsize = AtomicUsize::new(0);
        Notes {
            next: [NOWHERE; MAX_NEXT],
            is_glibc: AtomicBool::new(false),
            realloc_is_glibc: AtomicBool::new(false),
            reported: AtomicBool::new(false),
            tells_forks: AtomicBool::new(false),
            tells_children: AtomicBool::new(false),
        }
    }
}

/// Minor faults since the last scan before an eager process looks again (1 MB of pages).
pub const EAGER_FAULTS: u64 = 256;
/// The same where looks find little (16 MB).
const MOST_FAULTS: u64 = 16 * EAGER_FAULTS;

/// How many faults an eager process waits for after a look that found so many dirty pages: most of
/// a process' faults may be in memory that is not frozen, and then looks are for nothing.
const fn patience(before: u64, faults: u64, dirty: u64) -> u64 {
    if faults / 4 > dirty {
        let twice = before * 2;
        return if twice < MOST_FAULTS { twice } else { MOST_FAULTS };
    }
    EAGER_FAULTS
}

/// Everything the runtime knows.
#[repr(C, align(4096))]
pub struct State {
    // What a fork or the constructor writes comes first, in one page: after the fork or
    // exec, that page is one copy-on-write fault, and more pages would be more faults.
    /// At the very beginning: that is where another process looks for it.
    pub stats: Stats,
    pub setup: SetOnce<Setup>,
    pub notes: Notes,
    /// The process whose state this is.
    pub owner: Owner,
    /// The process that loaded the library by exec: it alone reports.
    pub born: AtomicI32,
    pub fork_mark: ForkMark,
    /// Time of the latest pass, and whether there are backing files.
    pub last_pass_ns: AtomicU64,
    pub registry_in_use: AtomicU32,
    pub last_fork_ns: AtomicU64,
    /// An eager process looks again after so many minor faults.
    pub patience: AtomicU64,
    /// Time of forks not yet charged, and their number.
    pub unpaid_ns: AtomicU64,
    pub unpaid_forks: AtomicU64,
    pub slices: Slices,
    pub choice: Choice,
    pub live: Live,
    /// 1: there is something in `mapped`, whose page most processes never touch.
    pub is_any_mapped: AtomicU32,
    /// A reason (its number) never to freeze in this process.
    barred: AtomicU32,
    pub inspection: RunOnce,
    /// System calls of the freeze path so far.
    pub trace: Trace,
    // What every wrapped call asks is in one line of the processor's cache.
    /// 1: slices or live memory get their work done in the program's calls.
    pub works_in_calls: AtomicU32,
    /// 1 from the first freeze on, in this process or an ancestor.
    pub ever_frozen: AtomicU32,
    pub lock: Lock<Owned>,
    pub addresses: Addresses,
    pub ignored: Ignored,
    pub tracer: Tracer,
    /// Calls under way that change what the kernel says about addresses in `addresses` before
    /// the sets say so.
    pub unsettled: AtomicU32,
    /// Parts of frozen memory that calls have thawed one by one, since mappings were counted.
    pub cuts: AtomicU32,
    /// Mappings of the process, as far as it is known: counted by each pass, and what calls have
    /// made of one since.
    pub mappings: AtomicU32,
    /// Minor faults at the last scan; `u64::MAX` before the first.
    pub faults: AtomicU64,
    /// Most pages mapped at once, until the last scan.
    pub most_pages: AtomicU64,
    /// Pages touched while the latest pass in slices moved others.
    pub arrived: AtomicU32,
    /// 1: some memory is to be empty in children that the kernel would not wipe.
    pub wipes: AtomicU32,
    pub pi_futexes: AtomicU32,
    /// A socket got a limit of time for waits.
    pub timed_sockets: AtomicU32,
    /// One keeps what is received back, or waits when it is closed.
    pub delicate_sockets: AtomicU32,
    /// Where a word shared with all descendants is: no backing file may be overwritten, because
    /// pages of it went into a pipe or socket, or a descendant has other privileges.
    spliced_word: AtomicUsize,
    /// Threads in calls that no pass may overlap and that may never come back.
    pub absent: Absent,
    pub slack: Slack,
    pub given_up: GivenUp,
    pub retry: Retry,
    pub mapped: Mapped,
    /// Where the program has made new mappings since the latest look of a pass in slices.
    pub changes: Changes,
    /// The program has unloaded libraries: where one was another may lie, in the same file.
    pub unloads: AtomicBool,
    /// Where the code of a sanitizer's runtime is whose system calls are known; zeros: none is.
    pub sanitizer: [AtomicUsize; 2],
}

const _: () = assert!(
    offset_of!(State, works_in_calls) / LINE == (offset_of!(State, lock) + 15) / LINE,
    "move both, by the fields before them"
);

/// What the lock guards.
#[repr(C)]
pub struct Owned {
    /// A task outside the process runs in its memory (seen by the clone wrapper).
    pub shared_vm: bool,
    pub account: Account,
    pub scratch: ScratchMapping,
    /// Address hint for the runtime's next mapping.
    pub zone: usize,
    pub spare: Spare,
    pub registry: Registry,
    /// Bytes of pages made for zeros in place, since the last pass.
    pub zeroed: usize,
    /// The latest pass found memory that cannot be shared yet.
    pub waits: bool,
    /// What the latest slice left.
    pub rest: Rest,
    pub searched: Searched,
    pub purchase: Purchase,
    /// What files retain of memory given up in place.
    pub retained: Retained,
}

impl State {
    const fn new() -> Self {
        State {
            setup: SetOnce::new(),
            notes: Notes::new(),
            stats: Stats::new(),
            owner: Owner::new(),
            born: AtomicI32::new(0),
            fork_mark: ForkMark::new(),
            last_pass_ns: AtomicU64::new(0),
            registry_in_use: AtomicU32::new(0),
            last_fork_ns: AtomicU64::new(0),
            faults: AtomicU64::new(u64::MAX),
            most_pages: AtomicU64::new(0),
            patience: AtomicU64::new(EAGER_FAULTS),
            retry: Retry::new(),
            unpaid_ns: AtomicU64::new(0),
            unpaid_forks: AtomicU64::new(0),
            slices: Slices::new(),
            choice: Choice::new(),
            live: Live::new(),
            is_any_mapped: AtomicU32::new(0),
            barred: AtomicU32::new(0),
            inspection: RunOnce::new(),
            tracer: Tracer::new(),
            unsettled: AtomicU32::new(0),
            mappings: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            wipes: AtomicU32::new(0),
            trace: Trace::new(),
            works_in_calls: AtomicU32::new(0),
            ever_frozen: AtomicU32::new(0),
            lock: Lock::new(Owned::new()),
            addresses: Addresses::new(),
            ignored: Ignored::new(),
            cuts: AtomicU32::new(0),
            pi_futexes: AtomicU32::new(0),
            timed_sockets: AtomicU32::new(0),
            delicate_sockets: AtomicU32::new(0),
            spliced_word: AtomicUsize::new(0),
            absent: Absent::new(),
            slack: Slack::new(),
            given_up: GivenUp::new(),
            mapped: Mapped::new(),
            changes: Changes::new(),
            unloads: AtomicBool::new(false),
            sanitizer: [const { AtomicUsize::new(0) }; 2],
        }
    }

    /// The switches; defaults before the constructor has read them.
    pub fn options(&self) -> &Options {
        static DEFAULTS: Options = Options::new();
        self.setup.get().map_or(&DEFAULTS, |setup| &setup.options)
    }

    /// When to freeze. Where live memory was chosen, as where it was asked for.
    pub fn freeze(&self) -> Freeze {
        match self.choice.is_chosen() {
            true => Freeze::Eager,
            false => self.options().freeze,
        }
    }

    /// What files may be of.
    pub fn allowed(&self) -> Allowed {
        match self.choice.is_chosen() {
            true => Allowed::Huge,
            false => self.options().image,
        }
    }

    /// Longest time that a pass holds the program, in nanoseconds; 0: no bound.
    pub fn max_pause_ns(&self) -> u64 {
        match self.choice.is_chosen() {
            true => self.options().live_pause_ns(),
            false => self.options().max_pause_ns,
        }
    }

    /// Why this process is never frozen, or none.
    pub fn barred(&self) -> Reason {
        let i = self.barred.load(Relaxed) as usize;
        Reason::ALL.get(i).copied().unwrap_or_default()
    }

    /// A system-call filter was noticed.
    pub fn is_fenced(&self) -> bool {
        self.barred() == Reason::Seccomp
    }

    /// Sets that reason.
    pub fn set_barred(&self, reason: Reason) {
        self.barred.store(reason as u32, Relaxed);
    }

    /// Takes back that reason, if it is still the one.
    pub fn unbar(&self, reason: Reason) {
        let _ = self.barred.compare_exchange(reason as u32, Reason::None as u32, Relaxed, Relaxed);
    }

    /// A pass is over: the next fork need not look again at what is clean now. The faults are
    /// counted for the eager profile alone: a filter may kill for the call that asks for them.
    pub fn note_pass(&self) {
        if self.freeze() == Freeze::Eager {
            let (faults, most_pages) = sys::used();
            let is_first = self.faults.load(Relaxed) == u64::MAX;
            let touched = if is_first { 0 } else { self.touched_of((faults, most_pages)) };
            let dirty = self.stats.dirty_pages.load(Relaxed);
            let patience = patience(self.patience.load(Relaxed), touched, dirty);
            self.patience.store(patience, Relaxed);
            self.faults.store(faults, Relaxed);
            self.most_pages.store(most_pages, Relaxed);
        }
        self.last_pass_ns.store(sys::now_ns(), Relaxed);
    }

    /// Pages touched since the latest scan, at least. Of memory in huge pages there are few faults:
    /// there are more pages at once than ever.
    pub fn touched(&self) -> u64 {
        self.touched_of(sys::used()) + u64::from(self.arrived.load(Relaxed))
    }

    fn touched_of(&self, (faults, most_pages): (u64, u64)) -> u64 {
        let before = match self.faults.load(Relaxed) {
            u64::MAX => 0,
            faults => faults,
        };
        // Live memory is mapped again after each switch, by a fault for each huge page.
        let of_switches = self.stats.live_bytes.load(Relaxed) / sys::HUGE as u64;
        let more = most_pages.saturating_sub(self.most_pages.load(Relaxed));
        faults.saturating_sub(before + of_switches).max(more)
    }

    /// Slices or live memory were asked for, or chosen: that work is done in the program's calls.
    pub fn works_in_calls(&self) -> bool {
        self.works_in_calls.load(Relaxed) != 0
    }

    /// Live memory is not chosen here: slices are made where they were asked for.
    pub fn work_as_asked(&self) {
        self.works_in_calls.store(u32::from(self.options().max_pause_ns != 0), SeqCst);
    }

    /// Memory was frozen, in this process or an ancestor.
    pub fn was_frozen(&self) -> bool {
        self.ever_frozen.load(Relaxed) != 0
    }

    /// A word shared with all descendants, once there is one.
    pub fn spliced_word(&self) -> Option<&AtomicU32> {
        let at = self.spliced_word.load(SeqCst);
        // SAFETY: none, or a shared page mapped for the life of the process.
        (at > SAID_BEFORE).then(|| unsafe { &*(at as *const AtomicU32) })
    }

    /// Tells where that word is, and says there what was said before.
    ///
    /// # Safety
    /// A page mapped shared, writable and zeroed, for the life of the process.
    pub unsafe fn set_spliced_word(&self, at: usize) {
        if self.spliced_word.swap(at, SeqCst) == SAID_BEFORE {
            self.never_overwrite();
        }
    }

    /// No backing file is overwritten any more, in this process or any other that shares it.
    pub fn never_overwrite(&self) {
        let none = self.spliced_word.compare_exchange(0, SAID_BEFORE, SeqCst, SeqCst);
        if let (Err(_), Some(word)) = (none, self.spliced_word()) {
            word.store(1, SeqCst);
        }
    }

    /// The runtime's own private memory, page aligned: in the library, and for more addresses.
    pub fn own_ranges(&self) -> OwnRanges {
        let start = core::ptr::from_ref(self) as usize;
        let room = self.addresses.room().map_or(0, |room| room.as_ptr() as usize);
        let ends = |start: usize, len: usize| (start, (start + len).next_multiple_of(PAGE));
        [ends(start, size_of::<State>()), ends(room, if room == 0 { 0 } else { ROOM_BYTES })]
    }
}

impl Owned {
    const fn new() -> Self {
        Owned {
            shared_vm: false,
            account: Account::new(),
            scratch: ScratchMapping::new(),
            zone: ZONE,
            spare: Spare::new(),
            registry: Registry::new(),
            zeroed: 0,
            waits: false,
            rest: Rest::new(),
            searched: Searched::new(),
            purchase: Purchase::new(),
            retained: Retained::new(),
        }
    }
}

static STATE: State = State::new();

/// The state of this process, or of the one whose memory it borrows.
pub fn state() -> &'static State {
    &STATE
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// One copy-on-write fault after exec, one after fork.
    #[test]
    fn what_is_written_at_the_start_lies_in_one_page() {
        let lock = offset_of!(State, lock);
        let small = offset_of!(Owned, registry);
        assert!(lock + size_of::<Lock<u64>>() + small <= PAGE, "{lock} + {small}");
        assert_eq!(align_of::<State>(), PAGE);
    }

    #[test]
    fn looks_that_find_little_become_rare_and_one_that_finds_much_takes_that_back() {
        let rare = (0..9).fold(EAGER_FAULTS, |before, _| patience(before, 300, 3));
        assert_eq!(rare, MOST_FAULTS);
        assert_eq!(patience(rare, 4096, 1024), EAGER_FAULTS);
        assert_eq!(patience(EAGER_FAULTS, 0, 0), EAGER_FAULTS);
    }
}
