//! TEMPORARY STUB, to be dropped when the real module lands: a few published figures, so that the report can be built.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedPoint {
    pub series: &'static str,
    pub x: f64,
    pub y: f64,
    pub unit: &'static str,
    pub what: &'static str,
    pub source: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedLine {
    pub series: &'static str,
    pub slope: f64,
    pub intercept: f64,
    pub frac: f64,
    pub source: &'static str,
}

const ZHAO: &str = "Zhao, Gong and Fonseca 2021 (on-demand-fork)";
const TANAKA: &str = "Tanaka 2019";
const SMITH: &str = "Smith and Maguire 1988";
const ZAHARIEV: &str = "Zahariev 2009";
const GB: f64 = 1073741824.0;
const MB: f64 = 1048576.0;

type Row = (&'static str, f64, f64, &'static str, &'static str, &'static str);

pub fn points(experiment: &str) -> Vec<PublishedPoint> {
    let rows: &[Row] = match experiment {
        "latency" => &[
            ("fork", GB, 6.54, "ms", "fork, 1 GB", ZHAO),
            ("fork", 50.0 * GB, 253.94, "ms", "fork, 50 GB", ZHAO),
            ("on-demand-fork", GB, 0.10, "ms", "on-demand-fork, 1 GB", ZHAO),
            ("on-demand-fork", 50.0 * GB, 0.94, "ms", "on-demand-fork, 50 GB", ZHAO),
            ("huge pages", GB, 0.17, "ms", "fork with huge pages, 1 GB", ZHAO),
            ("fork, three at once", GB, 22.4, "ms", "fork, 1 GB, three at once", ZHAO),
        ],
        "fault" => &[
            ("fork", GB, 0.0023, "ms", "worst-case write fault, fork", ZHAO),
            ("huge pages", GB, 0.1984, "ms", "worst-case write fault, huge pages", ZHAO),
            ("on-demand-fork", GB, 0.0122, "ms", "worst-case write fault, on-demand-fork", ZHAO),
        ],
        "access" => &[
            ("100 % read", 1.0, -0.08, "share", "all memory accessed, only read", ZHAO),
            ("0 % read", 1.0, -0.04, "share", "all memory accessed, only written", ZHAO),
        ],
        "profile" => &[("compound_head", 0.0, 0.6338, "share", "in copy_one_pte", ZHAO)],
        "parent-writes" => &[
            ("Ruby 2.6.2 fork", 10.0, 6_626_190.0, "ns", "before", TANAKA),
            ("Ruby 2.6.2 fork", 1.0, 64_901_010.0, "ns", "after", TANAKA),
            ("Ruby 2.6.2 fork", 2.0, 6_646_820.0, "ns", "after", TANAKA),
        ],
        "exec" => &[
            ("fork+exec", 10.0 * MB, 12.08, "s", "Linux, 20 MB allocated", ZAHARIEV),
            ("fork+exec", 20.0 * MB, 21.60, "s", "Linux, 20 MB allocated", ZAHARIEV),
            ("vfork+exec", 10.0 * MB, 1.49, "s", "Linux, 20 MB allocated", ZAHARIEV),
            ("vfork+exec", 20.0 * MB, 1.53, "s", "Linux, 20 MB allocated", ZAHARIEV),
        ],
        "copy-rate" => &[
            ("3B2", 0.9, 0.823, "share", "service rate / copy rate", SMITH),
            ("HP9000", 0.9, 0.804, "share", "service rate / copy rate", SMITH),
        ],
        "writes" => &[
            ("ABSTRIPS", 0.0, 0.23, "share", "pages changed, VAX", SMITH),
            ("Emacs Hanoi, VAX", 0.0, 0.35, "share", "bytes changed", SMITH),
            ("Emacs Hanoi, 3B2", 0.0, 0.30, "share", "bytes changed", SMITH),
            ("Emacs Hanoi, HP9000", 0.0, 0.48, "share", "bytes changed", SMITH),
        ],
        _ => &[],
    };
    rows.iter()
        .map(|&(series, x, y, unit, what, source)| PublishedPoint {
            series,
            x,
            y,
            unit,
            what,
            source,
        })
        .collect()
}

pub fn lines(experiment: &str) -> Vec<PublishedLine> {
    let rows: &[(&'static str, f64, f64, f64)] = match experiment {
        "grid" => &[
            ("3B2", 1.709e-4, 31.4, 0.1),
            ("3B2", 7.670e-4, 30.5, 0.5),
            ("3B2", 1.349e-3, 30.7, 0.9),
            ("HP9000", 2.952e-5, 12.7, 0.1),
            ("HP9000", 1.264e-4, 12.4, 0.5),
            ("HP9000", 2.124e-4, 12.2, 0.9),
        ],
        _ => &[],
    };
    let line = |&(series, slope, intercept, frac): &_| PublishedLine {
        series,
        slope,
        intercept,
        frac,
        source: SMITH,
    };
    rows.iter().map(line).collect()
}
