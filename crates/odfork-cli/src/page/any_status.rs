//! Programs all of whose memory is paged (`--memory any`), for `odfork page status`: what their
//! tasks publish in a memory file among their descriptors.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Name of the task, and of its file.
const TASK: &str = "odfork-page";
const FILE: &str = "/memfd:odfork-page-status";

pub fn megabytes(pages: &Value) -> String {
    format!("{:.1}", pages.as_f64().unwrap_or(0.0) / 256.0)
}

/// Those that this user may look into.
pub fn programs() -> Vec<Value> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Value> = entries.filter_map(|entry| published(&entry.path())).collect();
    found.sort_by_key(|program| program["pid"].as_u64());
    found
}

fn published(task: &Path) -> Option<Value> {
    if fs::read_to_string(task.join("comm")).ok()?.trim() != TASK {
        return None;
    }
    let files = fs::read_dir(task.join("fd")).ok()?.flatten();
    let is_status = |path: &Path| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(FILE))
    };
    let file = files.map(|file| file.path()).find(|path| is_status(path))?;
    let text = fs::read_to_string(file).ok()?;
    let mut value: Value = serde_json::from_str(text.lines().next()?).ok()?;
    let pid = value["pid"].as_u64()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    value["name"] = name.trim().into();
    Some(value)
}

/// A line for each, and one more for each that is above its limit.
pub fn table(programs: &[Value]) -> String {
    let mut text = format!(
        "{:>8} {:<16} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10}\n",
        "pid", "program", "limit MB", "share", "resident", "peak", "faults", "page-ins", "reclaims"
    );
    for program in programs {
        let [limit, share, resident, peak] =
            ["limit", "share", "resident", "peak"].map(|name| megabytes(&program[name]));
        let [pid, faults, page_ins, reclaims] =
            ["pid", "faults", "page_ins", "reclaims"].map(|name| program[name].to_string());
        let name = program["name"].as_str().unwrap_or("?");
        let _ = writeln!(
            text,
            "{pid:>8} {name:<16} {limit:>9} {share:>9} {resident:>9} {peak:>9} {faults:>10} \
             {page_ins:>9} {reclaims:>10}"
        );
        if program["refused"].is_u64() {
            let _ = writeln!(text, "{:>8} {}", "", why(program));
        }
    }
    text
}

/// Why all together are above the limit, as far as it is this one's.
fn why(program: &Value) -> String {
    let [above, refused, shared, locked, other] =
        ["above", "refused", "shared_memory", "locked", "other"]
            .map(|name| megabytes(&program[name]));
    let full = if program["store_full"] == 1 { "the store is full; " } else { "" };
    format!(
        "{above} MB above the limit: {full}{refused} MB shared with children or pinned, {shared} \
         MB of shared memory, {locked} MB locked, {other} MB of stacks and libraries"
    )
}
