//! The report end to end, on recorded samples: is the page well-formed, complete, self-contained,
//! and right on bad input?
//!
//! Set ODFORK_REPORT_DIR to keep the report of the first test there; tests/browser does.

use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("odfork-report-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Recordings of every experiment, on a machine with a hostile name; one run was interrupted.
fn record_all(folder: &Path) {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    for path in fs::read_dir(recorded).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".jsonl") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace("\"cpu\":\"", "\"cpu\":\"<no such> & Co ");
            let interrupted = format!("\"interrupted\":{}", name == "fault.jsonl");
            let text = text.replace("\"interrupted\":false", &interrupted);
            fs::write(folder.join(name), text).unwrap();
        }
    }
}

/// Checks that tags close in order; gives the names of all elements.
fn elements(text: &str) -> Vec<String> {
    let (mut open, mut all): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag that never ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') || tag.starts_with('?') {
            continue;
        }
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| c.is_alphanumeric()).collect();
        assert!(!name.is_empty() && !tag.contains('<'), "bad tag <{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "</{name}> closes nothing");
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        all.push(name.clone());
        // Elements of HTML that have no end.
        let void = matches!(name.as_str(), "meta" | "link" | "input" | "br");
        if !void && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    all
}

fn check_plots(out: &Path, html: &str) -> usize {
    let mut names: Vec<PathBuf> =
        fs::read_dir(out.join("plots")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "svg"));
    for path in &names {
        let svg = fs::read_to_string(path).unwrap();
        assert_eq!(elements(&svg)[0], "svg");
        assert!(
            !svg.contains("var(") && !svg.contains("NaN") && !svg.contains("inf"),
            "{}",
            path.display()
        );
        let attribute = |name: &str| {
            let at = svg.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
            svg[at..].split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let png = fs::read(path.with_extension("png")).unwrap();
        let pixmap = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
        let size = (f64::from(pixmap.width()), f64::from(pixmap.height()));
        assert_eq!(size, (attribute("width").ceil() * 2.0, attribute("height").ceil() * 2.0));
        assert!(
            pixmap.pixels().iter().any(|pixel| pixel.red() < 100),
            "{} is empty",
            path.display()
        );
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(html.contains(&format!("plots/{name}")), "{name} is not in the page");
    }
    names.len()
}

/// Everything a browser would load or follow must be inside.
fn check_references(html: &str) {
    let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
    let without = html.replace(namespace, "");
    for outside in ["http://", "https://", "//cdn", "@import", "url(", "src=", "<script"] {
        assert!(!without.contains(outside), "{outside}");
    }
    for (place, _) in html.match_indices("href=\"") {
        let target = html[place + 6..].split('"').next().unwrap();
        let inside =
            target.strip_prefix('#').is_some_and(|id| html.contains(&format!("id=\"{id}\"")));
        assert!(inside || target.starts_with("plots/") || target == "data:,", "{target}");
    }
}

#[test]
fn whole_report_is_complete_and_self_contained() {
    let kept = std::env::var_os("ODFORK_REPORT_DIR").map(PathBuf::from);
    let data = folder("whole");
    let out = kept.clone().unwrap_or_else(|| data.join("out"));
    record_all(&data);
    let recorded = fs::read_dir(&data).unwrap().count();
    let written = odfork_report::report(&data, &out).unwrap();
    let html = fs::read_to_string(&written.page).unwrap();
    let elements = elements(&html);
    let count = |name: &str| elements.iter().filter(|element| *element == name).count();
    assert_eq!((written.experiments, written.remarks.len()), (recorded, 0));
    // Two of the drawn plots must not be lost without notice.
    assert!(written.plots >= 40, "{}", written.plots);
    assert_eq!((count("svg"), check_plots(&out, &html)), (written.plots, written.plots));
    assert!(count("table") >= 20 && count("table") == count("caption"));
    check_references(&html);
    for text in [
        "&lt;no such&gt; &amp; Co",
        "Interrupted: the run was stopped early",
        "Measured in one run on Linux 6.18",
        "Harness overhead",
        "plain / image, 256 MB",
        "published: ",
        "model-held-out",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("NaN") && !html.contains("not measured yet"));
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn every_experiment_alone_gives_a_report() {
    let all = folder("all");
    record_all(&all);
    for entry in fs::read_dir(&all).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let alone = folder(&format!("alone-{name}"));
        fs::copy(&path, alone.join(path.file_name().unwrap())).unwrap();
        let written = odfork_report::report(&alone, &alone).unwrap();
        let html = fs::read_to_string(&written.page).unwrap();
        elements(&html);
        assert!(written.plots >= 1 && html.contains("Not measured yet"), "{name}");
        assert_eq!(check_plots(&alone, &html), written.plots, "{name}");
        fs::remove_dir_all(alone).unwrap();
    }
    fs::remove_dir_all(all).unwrap();
}

/// The first sample of each point, nothing else: no intervals, no pairs.
#[test]
fn one_sample_a_point_and_a_cut_file_are_reported() {
    let all = folder("single");
    record_all(&all);
    let recorded = fs::read_dir(&all).unwrap().count();
    for entry in fs::read_dir(&all).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let wanted =
            |line: &&str| !line.contains("\"kind\":\"sample\"") || line.contains("\"round\":1,");
        let mut kept: Vec<&str> = text.lines().filter(wanted).collect();
        kept.pop();
        let mut text = kept.join("\n");
        text.truncate(text.len() - 20);
        fs::write(&path, text).unwrap();
    }
    fs::write(all.join("foreign.jsonl"), "{\"a\": 1}\n").unwrap();
    let written = odfork_report::report(&all, &all).unwrap();
    let html = fs::read_to_string(&written.page).unwrap();
    elements(&html);
    check_plots(&all, &html);
    assert_eq!((written.experiments, written.remarks.len()), (recorded, recorded + 1));
    assert_eq!(html.matches("Incomplete: ").count(), recorded);
    assert_eq!(html.matches("Damaged: ").count(), recorded);
    assert!(html.contains("foreign.jsonl holds no samples"));
    fs::remove_dir_all(all).unwrap();
}

#[test]
fn an_unknown_experiment_and_hostile_words_do_no_harm() {
    let data = folder("hostile");
    let line = |engine: &str, source: &str| {
        format!(
            "{{\"kind\":\"sample\",\"experiment\":\"profile\",\"engine\":\"{engine}\",\
             \"metric\":\"share\",\
             \"unit\":\"share\",\
             \"value\":0.5,\"params\":{{\"bytes\":1,\"source\":\"{source}\",\
             \"name\":\"</svg><script>\"}},\
             \"round\":1,\"at_s\":0}}\n"
        )
    };
    fs::write(data.join("profile.jsonl"), line("../../x", "../../../y")).unwrap();
    fs::write(data.join("z.jsonl"), line("plain", "a").replace("\"profile\"", "\"<new>\""))
        .unwrap();
    let written = odfork_report::report(&data, &data).unwrap();
    let html = fs::read_to_string(&written.page).unwrap();
    elements(&html);
    check_references(&html);
    check_plots(&data, &html);
    assert!(html.contains("Experiment &lt;new&gt;") && written.plots == 1);
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn what_cannot_be_done_is_one_line() {
    let data = folder("errors");
    let told = |folder: &Path, out: &Path| {
        format!("{:#}", odfork_report::report(folder, out).unwrap_err())
    };
    let none = told(&data.join("none"), &data);
    assert!(none.contains("cannot read the folder") && !none.contains('\n'), "{none}");
    let empty = told(&data, &data);
    assert!(empty.contains("no sample files") && !empty.contains('\n'), "{empty}");
    record_all(&data);
    fs::write(data.join("file"), "").unwrap();
    // A file in the way stands for every folder that cannot be made; permissions do not stop root.
    let blocked = told(&data, &data.join("file"));
    assert!(blocked.contains("--out") && !blocked.contains('\n'), "{blocked}");
    fs::remove_dir_all(data).unwrap();
}
