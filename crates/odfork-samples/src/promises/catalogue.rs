//! The promised figures, in the order of the report. Data.
//!
//! A new figure is one entry here and, if nothing measures it yet, one group in the suite
//! `promises`. Goals come from the issue that promised them; entries without a goal are there so
//! that a gain is not bought with a silent loss.

use super::{Figure, Goal, Section, Side};

const MIB: u64 = 1 << 20;

const fn side(series: &'static str, metric: &'static str) -> Side {
    Side { series, metric }
}

/// Stock against odfork, the same metric.
const fn versus(
    section: Section,
    name: &'static str,
    group: &'static str,
    metric: &'static str,
    goal: Goal,
    about: &'static str,
) -> Figure {
    Figure {
        name,
        about,
        section,
        group,
        base: side("stock", metric),
        subject: side("odfork", metric),
        third: None,
        goal,
    }
}

/// Like `versus`, with the huge-page subject as a third column.
const fn with_thp(mut figure: Figure) -> Figure {
    figure.third = Some(side("thp", figure.subject.metric));
    figure
}

const fn against(mut figure: Figure, base: Side) -> Figure {
    figure.base = base;
    figure
}

const fn by_eager(mut figure: Figure) -> Figure {
    figure.subject.series = "eager";
    figure
}

/// Every figure, in the order of the report.
pub fn figures() -> Vec<Figure> {
    [promises(), curve(), losses()].concat()
}

fn promises() -> Vec<Figure> {
    [forks(), children(), parents(), freezing()].concat()
}

const fn promise(
    name: &'static str,
    group: &'static str,
    metric: &'static str,
    goal: Goal,
    about: &'static str,
) -> Figure {
    versus(Section::Promise, name, group, metric, goal, about)
}

fn forks() -> Vec<Figure> {
    vec![
        with_thp(promise(
            "fork-1g",
            "static-1g",
            "fork",
            Goal::Times(200.0),
            "fork() of a 1 GB static parent",
        )),
        promise(
            "fork-8g",
            "size-8g",
            "fork",
            Goal::Times(1000.0),
            "fork() of an 8 GB static parent",
        ),
        against(
            promise(
                "flat-8g",
                "size-8g",
                "fork",
                Goal::Share(1.5),
                "fork at 8 GB against fork at 64 MB, both odfork",
            ),
            side("odfork-64m", "fork"),
        ),
        against(
            promise(
                "floor-8g",
                "size-8g",
                "fork",
                Goal::Share(2.0),
                "fork at 8 GB against an empty process",
            ),
            side("empty", "fork"),
        ),
    ]
}

fn children() -> Vec<Figure> {
    vec![
        with_thp(promise(
            "wait-1g",
            "static-1g",
            "total",
            Goal::Times(200.0),
            "fork + exit + wait at 1 GB",
        )),
        with_thp(promise(
            "read-1g",
            "static-1g",
            "read",
            Goal::Times(10.0),
            "child reads every page",
        )),
        with_thp(promise(
            "sparse-1g",
            "static-1g",
            "sparse",
            Goal::Times(1.5),
            "child writes one page in 16",
        )),
        with_thp(promise(
            "full-1g",
            "static-1g",
            "full",
            Goal::Share(1.1),
            "child writes every page",
        )),
    ]
}

fn parents() -> Vec<Figure> {
    vec![
        promise(
            "dirty-unfolded",
            "dirty-1g",
            "unfolded",
            Goal::Times(8.0),
            "fork after one page in 64 KB got dirty",
        ),
        promise("dirty-folded", "dirty-1g", "folded", Goal::Times(100.0), "the same after folding"),
        promise(
            "small-8m",
            "small-8m",
            "program",
            Goal::Share(1.05),
            "8 MB program, 200 forks, whole time, auto",
        ),
        promise(
            "once-64m",
            "once-64m",
            "program",
            Goal::Share(1.05),
            "64 MB program that forks once, auto",
        ),
        promise(
            "once-1g",
            "once-1g",
            "program",
            Goal::Share(1.05),
            "1 GB program that forks once, auto",
        ),
    ]
}

fn freezing() -> Vec<Figure> {
    vec![
        Figure {
            base: side("memcpy-touched", "copy"),
            subject: side("odfork", "freeze"),
            ..promise(
                "freeze-touched",
                "freeze-1g",
                "freeze",
                Goal::Times(0.5),
                "freeze against memcpy to touched memory",
            )
        },
        Figure {
            base: side("memcpy-fresh", "copy"),
            subject: side("odfork", "freeze"),
            ..promise(
                "freeze-fresh",
                "freeze-1g",
                "freeze",
                Goal::Times(0.5),
                "freeze against memcpy to fresh memory",
            )
        },
        // 64 MB + the page tables of 1 GB (2 MB).
        against(
            promise(
                "freeze-memory",
                "peak-1g",
                "extra",
                Goal::Bytes(66 * MIB),
                "peak extra memory while freezing",
            ),
            side("odfork", "extra"),
        ),
    ]
}

fn curve() -> Vec<Figure> {
    use Goal::TimesReported;
    let line = |name, group, metric, about| {
        versus(Section::Curve, name, group, metric, TimesReported, about)
    };
    vec![
        line("fork-64m", "size-64m", "fork", "fork() at 64 MB"),
        line("fork-512m", "size-512m", "fork", "fork() at 512 MB"),
        line("fork-2g", "size-2g", "fork", "fork() at 2 GB"),
        line("fork-4g", "size-4g", "fork", "fork() at 4 GB"),
        line("wait-8g", "size-8g", "total", "fork + exit + wait at 8 GB"),
        line("three-1g", "three-1g", "fork", "three parents of 1 GB fork at once"),
        with_thp(line("crowd-1g", "static-1g", "crowd", "one fork of 32 whose children all live")),
        with_thp(line("fault-1g", "static-1g", "fault", "a child's first write to one page")),
        line("threads-512m", "threads-512m", "fork", "fork() with 4 idle threads, 512 MB"),
        line("heap-512m", "heap-512m", "fork", "fork() at 512 MB of malloc (brk heap)"),
    ]
}

fn losses() -> Vec<Figure> {
    use Goal::ShareReported;
    let loss = |name, group, metric, about| {
        versus(Section::Loss, name, group, metric, ShareReported, about)
    };
    vec![
        loss("rewrite-auto", "rewrite-256m", "rewrite", "parent rewrites all, forks; auto"),
        by_eager(loss(
            "rewrite-eager",
            "rewrite-256m",
            "rewrite",
            "parent rewrites all, forks; eager",
        )),
        by_eager(loss(
            "once-eager-64m",
            "once-64m",
            "program",
            "64 MB program that forks once, eager",
        )),
        by_eager(loss(
            "once-eager-1g",
            "once-1g",
            "program",
            "1 GB program that forks once, eager",
        )),
        loss("realloc-64m", "realloc-64m", "realloc", "realloc 64 MB to 256 MB after a fork"),
    ]
}
