//! The four programs that `--record` traces: a sort, a database, a compiler, and an interpreter
//! that collects garbage. Small ones: lackey writes about a million accesses a second. A program
//! that is not installed is left out, with a line.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use odfork_proc::interrupt;

use super::super::trace::record_file;

/// Pages referenced lately that are left out: far below any memory of the comparison.
const WINDOW: usize = 8;

const QUERIES: &str = "\
create table t(id integer primary key, a text, b integer);
with recursive c(x) as (select 1 union all select x+1 from c where x<4000)
  insert into t select x, hex(x*2654435761%4294967291*1000003), x*7919%10007 from c;
create index i on t(b);
select count(*), sum(length(a)) from t where b between 100 and 3000;
select b%97, count(*) from t group by 1 order by 2 desc limit 3;
update t set b=b+1 where id%10=3;
";

/// Records what is not there yet; returns the paths.
pub fn record(folder: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(folder).with_context(|| {
        format!("cannot make {}; name another folder with --dir", folder.display())
    })?;
    let mut paths = Vec::new();
    for (name, prepare) in PROGRAMS {
        let path = folder.join(format!("{name}.trace.zst"));
        if !path.exists() {
            let words = match prepare(folder) {
                Ok(words) => words,
                Err(error) => {
                    eprintln!("odfork page compare: going on without {name}: {error:#}");
                    continue;
                }
            };
            eprintln!("odfork page compare: recording {name}, a minute or a few");
            // Under another name until it is whole.
            let part = folder.join(format!("{name}.part.zst"));
            let recorded = record_file(&words, &part, WINDOW);
            ensure!(
                !interrupt::asked(),
                "interrupted while recording {name}; what was whole is kept"
            );
            recorded.with_context(|| format!("cannot record {name}"))?;
            fs::rename(&part, &path)?;
        }
        paths.push(path.to_string_lossy().into_owned());
    }
    Ok(paths)
}

type Prepare = fn(&Path) -> Result<Vec<OsString>>;

const PROGRAMS: [(&str, Prepare); 4] =
    [("sort", sort), ("sqlite", sqlite), ("cc1", compiler), ("collector", collector)];

fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

/// Fails when the program cannot be started.
fn exists(program: &str, argument: &str) -> Result<String> {
    let output = Command::new(program)
        .arg(argument)
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("{program} is not installed"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn sort(folder: &Path) -> Result<Vec<OsString>> {
    exists("sort", "--version")?;
    let path = folder.join("words.txt");
    let word = |i: u64| format!("{:016x}\n", (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    fs::write(&path, (0..12_000).map(word).collect::<String>())?;
    Ok(words(&["sort", "--parallel=1", &path.to_string_lossy()]))
}

fn sqlite(folder: &Path) -> Result<Vec<OsString>> {
    exists("sqlite3", "--version")?;
    let path = folder.join("queries.sql");
    fs::write(&path, QUERIES)?;
    Ok(words(&["sqlite3", ":memory:", &format!(".read {}", path.to_string_lossy())]))
}

fn compiler(folder: &Path) -> Result<Vec<OsString>> {
    let cc1 = exists("gcc", "-print-prog-name=cc1")?;
    ensure!(Path::new(&cc1).is_absolute(), "gcc has no cc1 here");
    let source = folder.join("source.c");
    let function = |i: u32| {
        format!(
            "double f{i}(double *a, int n, int k) \
             {{ double s = 0; for (int i = 0; i < n; i++) {{ if (a[i] > k) s += a[i] * {i}; \
             else switch (i % 5) {{ case 0: s -= {i}; break; case 1: s *= 1.5; break; \
             default: s += a[n - i] / (k + {i}); }} }} return s; }}\n"
        )
    };
    fs::write(&source, (0..6).map(function).collect::<String>())?;
    let assembly = folder.join("source.s");
    Ok(words(&[
        &cc1,
        "-quiet",
        "-O1",
        &source.to_string_lossy(),
        "-o",
        &assembly.to_string_lossy(),
    ]))
}

fn collector(folder: &Path) -> Result<Vec<OsString>> {
    // The interpreter itself: a wrapper script would be traced in its place.
    let python = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .context("python3 is not installed")?;
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    ensure!(!python.is_empty(), "python3 does not work here");
    let path = folder.join("collector.py");
    fs::write(&path, include_str!("collector.py"))?;
    Ok(words(&[&python, "-I", "-S", &path.to_string_lossy()]))
}
