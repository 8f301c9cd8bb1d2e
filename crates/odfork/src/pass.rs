//! One pass: look at the process, decide, refreeze what is dirty, freeze what is new.
//!
//! Owns the order of the steps; the steps are in their own files. This is the
//! job the helper task runs before a fork, and for the API's freeze and refreeze.
//!
//! ```text
//! 1 fences   tracer, threads, overcommit            scan.rs
//! 2 scan     what may be frozen, what is dirty      scan.rs
//! 3 decide   rental rule, or always; what the memory budget allows   budget.rs
//! 4 code     does it call the kernel past libc?     inspect.rs
//! 5 quiesce  other threads stand still              quiesce.rs
//! 6 probe    who might show the backing files       backing.rs
//! 7 refreeze dirty pages back into their files      refreeze.rs
//! 8 room     memory for later copies                budget.rs
//! 9 freeze   new anonymous memory into new files    freeze.rs
//! ```

use core::ffi::CStr;

use odfork_model::{CostModel, Rental, Trial};

use crate::args;
use crate::backing;
use crate::budget::{self, Scope};
use crate::freeze::{self, Tools};
use crate::inspect;
use crate::open_files::Found;
use crate::plan::Kind;
use crate::quiesce::{self, Quiesced};
use crate::reason::{Done, Reason, Stop};
use crate::refreeze;
use crate::registry::{Debt, MAX_FILES};
use crate::restless;
use crate::results::View;
use crate::sample;
use crate::scan::{self, Subject};
use crate::scratch::Scratch;
use crate::share;
use crate::slices::{self, Asked, Slice};
use crate::source::{Allowed, Source};
use crate::step::Step;
use crate::sys::{now_ns, HUGE, PAGE};
use crate::vma::Vma;

/// Anonymous memory, ELF headers, private huge pages: the kernel's default.
const DEFAULT_CORE_FILTER: u64 = 0x33;

/// Whether to act on what the scan finds.
#[allow(clippy::large_enum_variant)] // Lives on the stack for one call; there is no heap here.
#[derive(Clone, Copy)]
pub enum Decide {
    /// Whenever there is anything to clean.
    Always,
    /// Only what files hold too much of.
    GiveBack,
    /// Only back to anonymous memory of that range, which the program keeps giving back.
    Thaw((usize, usize)),
    /// Only the switch to shared mappings, and what has to be clean for it.
    Share,
    /// When the rent paid has reached the price, and as long as it does.
    Rental(Bid),
}

/// What the rental rule allows.
#[derive(Clone, Copy)]
pub struct Bid {
    pub model: CostModel,
    pub rental: Rental,
    /// When the program's thread began to wait.
    pub began_ns: u64,
    /// What the look alone may cost.
    pub look: Trial,
}

/// What a pass is to do.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub subject: Subject<'a>,
    pub allowed: Allowed,
    /// Where the user wants files of huge pages, or empty.
    pub directory: &'a CStr,
    pub decide: Decide,
    /// A slice of it; none: in one piece.
    pub slice: Option<Slice>,
    /// What may be shared is going to be, and is written back then.
    pub shares_later: bool,
    /// Nobody has asked for slices.
    pub is_chosen: bool,
}

/// What is to be done, and what that may cost.
#[derive(Clone, Copy)]
struct Plan {
    scope: Scope,
    trial: Trial,
}

/// The job of one pass.
pub fn job(s: &mut Scratch, order: &Order, found: Found) -> Done<()> {
    // A copy on the task's own stack: the caller's may be part of what is frozen.
    let mut o = *order;
    let threads = fences(s, &o)?;
    let no_proc = |e| Stop::failed(Reason::NoProc, Step::Pagemap, e);
    s.kernel.enter(Step::Pagemap);
    let pagemap = scan::open(&s.kernel, c"/proc/self/pagemap").map_err(no_proc)?;
    o.subject.spliced |= found.zerocopy;
    if o.slice.is_some_and(|slice| slice.samples) {
        return sample::ask(s, &o.subject, pagemap);
    }
    if o.slice.is_some_and(|slice| slice.goes_on) {
        return slices::go_on(s, &o, (pagemap, threads, found));
    }
    let shares = matches!(o.decide, Decide::Share);
    s.results.report.waits.set(usize::from(shares));
    if shares && !share::is_any_alone(s, &o.subject, pagemap) {
        return Ok(());
    }
    let Some((plan, debt)) = look(s, &o, (pagemap, threads, found))? else { return Ok(()) };
    o.subject.spliced |= s.results.report.keeps.flag();
    if is_sliced(&o, &plan, threads) {
        s.results.note_debt(&debt);
        return slices::begin(s, &o, (pagemap, threads, found), plan.trial);
    }
    found.forbids(threads)?;
    if threads > 1 && o.subject.pi_futexes {
        return Err(Stop::of(Reason::Threads));
    }
    let all = shares || matches!(plan.scope, Scope::Thaw(_));
    let quiesced = match Quiesced::begin(s, &o.subject, threads, all) {
        Ok(quiesced) => Some(quiesced),
        // Alone, nobody in the process can write meanwhile.
        Err(_) if threads == 1 => {
            s.work.marked = false;
            None
        }
        Err(stop) => return Err(stop),
    };
    let debt = if threads > 1 || shares { rescan(s, &o, pagemap, plan.scope) } else { Ok(debt) };
    let done = debt.and_then(|debt| {
        s.results.note_debt(&debt);
        match plan.scope {
            Scope::Share => act_share(s, &o, pagemap, found),
            Scope::Thaw(range) => restless::act(s, &o.subject, pagemap, range),
            Scope::All | Scope::GiveBack => act(s, &o, pagemap, plan),
        }
    });
    if let Some(quiesced) = quiesced {
        quiesced.release(s, &o.subject);
        if threads > 1 && s.work.marked {
            map_again(s, &o.subject);
        }
    }
    scan::count_mappings(s);
    done
}

/// The step `fences`: how many threads there are, if nothing forbids a pass.
fn fences(s: &mut Scratch, o: &Order) -> Done<u64> {
    if o.subject.shared_vm {
        return Err(Stop::of(Reason::SharedVm));
    }
    let threads = scan::fences(s, &o.subject)?;
    match scan::locks_new(s) {
        true => Err(Stop::of(Reason::Locked)),
        false => Ok(threads),
    }
}

/// The steps `scan`, `decide` and `code`: what is to be done, if anything. A pass in slices
/// searches code in them.
fn look(
    s: &mut Scratch,
    o: &Order,
    (pagemap, threads, found): Asked,
) -> Done<Option<(Plan, Debt)>> {
    let look = match &o.decide {
        Decide::Rental(bid) => bid.look,
        _ => Trial::UNLIMITED,
    };
    scan::scan(s, &o.subject, false, look)?;
    s.results.report.keeps.set(usize::from(found.zerocopy));
    let due = due(s, o, pagemap, threads);
    let plan = due.ok().flatten().map(|(plan, _)| plan);
    s.results.report.acted.set(usize::from(plan.is_some_and(|plan| plan.scope == Scope::All)));
    let sliced = plan.is_some_and(|plan| is_sliced(o, &plan, threads));
    if !sliced && (plan.is_some() || s.results.report.shown.get() > 0) {
        inspect::inspect(s, &o.subject, plan.map_or(look, |plan| plan.trial))?;
    }
    due
}

/// What is given back is given back at once.
fn is_sliced(o: &Order, plan: &Plan, threads: u64) -> bool {
    matches!(plan.scope, Scope::All | Scope::Share) && slices::is_sliced(o, threads)
}

/// Write protection takes entries of 2 MB out of the page tables. They come back here: a page that
/// a child alone maps is counted as its own, so whoever sums those up would take it for a copy.
/// One page is asked for in each window: where entries are of 4 KB, that costs next to nothing.
fn map_again(s: &Scratch, subject: &Subject) {
    let is_huge = |v: &Vma| {
        let mut files = subject.registry.live().map(|(_, file)| file);
        files.any(|file| file.kind() == Kind::Huge && v.shows(file.dev, file.inode))
    };
    for v in (0..s.vma_count()).map(|i| s.vma(i)).filter(is_huge) {
        for at in (v.start..v.end).step_by(HUGE) {
            backing::populate(&s.kernel, (at, at + PAGE));
        }
    }
}

/// Step `decide`: what is to be done, if anything. First by what the scan has found, which costs
/// nothing; then by what the budget leaves of that.
fn due(s: &mut Scratch, o: &Order, pagemap: i32, threads: u64) -> Done<Option<(Plan, Debt)>> {
    if matches!(o.decide, Decide::Share) {
        let debt = budget::decide(s, &o.subject, pagemap, Scope::Share);
        return Ok(Some((Plan { scope: Scope::Share, trial: Trial::UNLIMITED }, debt)));
    }
    if let Decide::Thaw(range) = o.decide {
        let scope = Scope::Thaw(range);
        let debt = budget::decide(s, &o.subject, pagemap, scope);
        let possible = restless::is_possible(s, &o.subject, pagemap, range);
        return Ok(possible.then_some((Plan { scope, trial: Trial::UNLIMITED }, debt)));
    }
    let (new, dirty) = (s.results.report.eligible.get(), s.results.report.dirty.get());
    let wanted = purchase(s, &o.decide, new, dirty);
    if wanted.is_some() {
        let debt = budget::decide(s, &o.subject, pagemap, Scope::All);
        let new = match slices::is_sliced(o, threads) {
            // Asked range by range, when they are moved.
            true => new,
            false => budget::freezable(s, pagemap, |kind| o.allowed.takes(kind)),
        };
        if let Some(trial) = purchase(s, &o.decide, new, dirty - s.results.report.left.get()) {
            s.results.report.eligible.set(new);
            return Ok(Some((Plan { scope: Scope::All, trial }, debt)));
        }
    }
    if budget::is_too_much_kept(s, &o.subject, pagemap) {
        let debt = budget::decide(s, &o.subject, pagemap, Scope::GiveBack);
        return Ok(Some((Plan { scope: Scope::GiveBack, trial: Trial::UNLIMITED }, debt)));
    }
    if matches!(o.decide, Decide::GiveBack) {
        return Ok(None);
    }
    // What cannot be had is asked for ever more rarely.
    if wanted.is_some() || new + dirty == 0 {
        return Err(Stop::of(Reason::NotWorth));
    }
    Ok(None)
}

/// What cleaning so much may cost, if it is due.
fn purchase(s: &Scratch, decide: &Decide, new: usize, dirty: usize) -> Option<Trial> {
    let (page, shown) = (PAGE as u64, s.results.report.shown.get() as u64);
    let (new, dirty) = (new as u64, dirty as u64);
    match decide {
        Decide::Always => (new + dirty > 0).then_some(Trial::UNLIMITED),
        Decide::GiveBack | Decide::Share | Decide::Thaw(_) => None,
        Decide::Rental(Bid { model, rental, began_ns, .. }) => {
            let mut rental = *rental;
            rental.limit(model.avoidable_ns((new + dirty) / page));
            let report = &s.results.report;
            let (new_mappings, dirty_mappings) =
                (report.new_mappings.get() as u64, report.dirty_mappings.get() as u64);
            let price = model
                .clean_ns(new, dirty / page, shown)
                .saturating_add(model.mappings_ns(new_mappings, dirty_mappings));
            let due = new + dirty > 0 && rental.due(price);
            due.then(|| rental.purchase(*began_ns))
        }
    }
}

/// The map may have changed until everybody stood still.
fn rescan(s: &mut Scratch, o: &Order, pagemap: i32, scope: Scope) -> Done<Debt> {
    // Who is stopped by ptrace is not watched by us.
    let watched = s.work.marked;
    scan::scan(s, &o.subject, watched, Trial::UNLIMITED)?;
    let new = match scope {
        Scope::All => budget::freezable(s, pagemap, |kind| o.allowed.takes(kind)),
        Scope::GiveBack | Scope::Share | Scope::Thaw(_) => 0,
    };
    s.results.report.eligible.set(new);
    Ok(budget::decide(s, &o.subject, pagemap, scope))
}

/// Calls that threads of the program make later, where memory is given up: this task dies of them
/// where a filter kills, before anything is frozen.
pub fn rehearse(s: &mut Scratch) {
    s.kernel.enter(Step::Thaw);
    let only = libc::O_CLOEXEC | libc::O_NONBLOCK | crate::sys::abi::userfaultfd::USER_MODE_ONLY;
    // SAFETY: refused, or without effect; the descriptor is this task's.
    unsafe {
        let _ = s.kernel.call(libc::SYS_unshare, args![libc::CLONE_VM]);
        let _ = s.kernel.call(libc::SYS_msync, args![0, 0, libc::MS_ASYNC]);
        if let Ok(fd) = s.kernel.call(libc::SYS_userfaultfd, args![only]) {
            scan::close(fd as i32);
        }
    }
}

fn act(s: &mut Scratch, o: &Order, pagemap: i32, plan: Plan) -> Done<()> {
    rehearse(s);
    s.work.files_left = o.subject.registry.room().min(MAX_FILES);
    let source = Source::open(&s.kernel, o.allowed, o.directory)?;
    let probe = choose_probe(s, o, pagemap);
    let tools = Tools { source, pagemap, probe, trial: plan.trial };
    let begin = now_ns();
    let refrozen = refreeze_and_punch(s, &tools, o);
    s.results.report.refreeze_ns.set((now_ns() - begin) as usize);
    let begin = now_ns();
    let frozen = refrozen.and_then(|()| match plan.scope {
        Scope::All => freeze_new(s, &tools),
        Scope::GiveBack | Scope::Share | Scope::Thaw(_) => Ok(()),
    });
    s.results.report.freeze_ns.set((now_ns() - begin) as usize);
    budget::note_slack(s);
    settle_probe(s, probe);
    frozen
}

/// A new probe stays if a new file has it.
pub fn settle_probe(s: &Scratch, probe: usize) {
    if s.results.created().any(|i| i.probe == probe) {
        s.results.forget_view(View::Probe);
    } else {
        s.results.drop_view(View::Probe);
    }
}

/// The act of [`Decide::Share`].
fn act_share(s: &mut Scratch, o: &Order, pagemap: i32, found: Found) -> Done<()> {
    s.results.report.waits.set(0);
    let begin = now_ns();
    let shared = share::share_all(s, &o.subject, pagemap, found);
    s.results.report.refreeze_ns.set((now_ns() - begin) as usize);
    budget::note_slack(s);
    shared
}

fn refreeze_and_punch(s: &mut Scratch, tools: &Tools, o: &Order) -> Done<()> {
    let rebuilding = budget::rebuilding(s, &o.subject, tools.pagemap);
    if rebuilding > 0 && budget::room(s, rebuilding).is_err() {
        budget::leave_rebuilds(s, &o.subject, tools.pagemap);
    }
    refreeze::refreeze_all(s, tools, &o.subject)?;
    for (slot, im) in o.subject.registry.live() {
        // A page in a pipe or a socket is shown by no mapping.
        if !s.results.is_gone(slot) && !o.subject.spliced {
            refreeze::punch_unseen(s, tools.pagemap, (slot, im))?;
        }
    }
    Ok(())
}

fn freeze_new(s: &mut Scratch, tools: &Tools) -> Done<()> {
    if s.results.report.eligible.get() == 0 {
        return Ok(());
    }
    budget::room(s, s.results.report.eligible.get())?;
    keep_in_cores(s);
    for i in 0..s.vma_count() {
        let v = s.vma(i);
        if v.can_freeze() {
            let mut at = v.start;
            while at < v.end {
                let (end, next) = quiesce::excluded_range(s, &v, at).unwrap_or((v.end, v.end));
                if at < end {
                    freeze::freeze_vma(s, tools, &Vma { start: at, end, ..v })?;
                }
                at = next;
            }
        }
    }
    Ok(())
}

/// A core file leaves out private file mappings (bit 2 of the filter, core(5)),
/// which is what frozen memory is: ask for them, unless the program has chosen a
/// filter of its own. Failure costs only that.
pub fn keep_in_cores(s: &mut Scratch) {
    s.kernel.enter(Step::Core);
    let mut text = [0u8; 32];
    let now = scan::slurp(&s.kernel, c"/proc/self/coredump_filter", &mut text);
    if now.ok().and_then(|t| crate::vma::hex(t.trim_ascii())) == Some(DEFAULT_CORE_FILTER) {
        let _ = backing::write_file(&s.kernel, c"/proc/self/coredump_filter", b"0x37");
    }
}

/// Step `probe`: one that is exclusive now serves new backing files too; else a new one.
pub fn choose_probe(s: &mut Scratch, o: &Order, pagemap: i32) -> usize {
    for (slot, im) in o.subject.registry.live() {
        if !s.results.is_gone(slot) && refreeze::alone(s, pagemap, im) {
            return im.probe;
        }
    }
    match backing::make_probe(s) {
        Ok(at) => {
            s.results.note_view(View::Probe, at, backing::PROBE);
            at
        }
        Err(_) => 0,
    }
}
