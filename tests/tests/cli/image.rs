//! `odfork image` as a user runs it: a living process saved, its files shown, compared, made whole
//! and refused.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use odfork_image::{Fate, Form, Image, MapOptions, Place, Room, PAGE};

use crate::stage::{
    bare, compiled, finish, odfork, odfork_path, root, scratch, skip, start, text, Outcome,
};

const SIZE: usize = 64 << 20;

/// A running program with memory to save, ended when dropped.
struct Subject {
    child: Child,
    range: String,
    address: u64,
}

impl Subject {
    fn of(mut command: Command) -> Subject {
        let mut child = start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words.len(), words[0]), (3, "ready"), "{line}");
        let address = u64::from_str_radix(words[1], 16).unwrap();
        Subject { child, range: format!("{}-{}", words[1], words[2]), address }
    }

    fn new() -> Subject {
        Subject::of(bare(program()))
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn save(&self, file: &Path, more: &[&str]) -> Outcome {
        let region = format!("work={}", self.range);
        let pid = self.pid();
        let words =
            [&["image", "save", &pid, file.to_str().unwrap(), "--region", &region][..], more]
                .concat();
        finish(&mut odfork(&words))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    compiled("image_subject", "image_subject.c", &["-O1", "-pthread"])
}

fn image(words: &[&str]) -> Outcome {
    finish(&mut odfork(&[&["image"], words].concat()))
}

fn page(image: &Image, address: u64) -> Vec<u8> {
    let (mut out, mut fates) = (vec![0; PAGE], [Fate::Zero]);
    image.read(address, &mut out, &mut fates, &mut Room::new().unwrap());
    assert!(!matches!(fates[0], Fate::Lost(_)), "{fates:?}");
    out
}

/// The pages between the two counters, and the counters.
fn check(image: &Image, address: u64) -> (u64, u64) {
    let pages = (SIZE / PAGE) as u64;
    for n in (1..pages - 1).step_by(7) {
        let expected = if n % 3 == 0 { 0 } else { (n % 251 + 1) as u8 };
        assert!(
            page(image, address + n * PAGE as u64).iter().all(|&byte| byte == expected),
            "page {n}"
        );
    }
    let word = |address| u64::from_le_bytes(page(image, address)[..8].try_into().unwrap());
    (word(address), word(address + (pages - 1) * PAGE as u64))
}

/// The subject has said where its memory is; on a busy machine it may not have begun to count.
fn until_it_counts(subject: &Subject) {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open(format!("/proc/{}/mem", subject.pid())).unwrap();
    for _ in 0..3000 {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, subject.address).unwrap();
        if word != [0; 8] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the subject does not count");
}

#[test]
fn a_living_process_is_saved_at_one_moment() {
    let folder = scratch();
    let subject = Subject::new();
    until_it_counts(&subject);
    for codec in ["none", "lz4", "zstd"] {
        let file = folder.path().join(codec);
        let outcome = subject.save(&file, &["--compress", codec]).silent();
        assert!(
            outcome.out.contains("16384 pages") && outcome.out.contains("stood still for"),
            "{outcome:?}"
        );
        let image = Image::open(&file).unwrap();
        image.verify(|_, _| true).unwrap();
        let (first, second) = check(&image, subject.address);
        assert!(
            first > 0 && (first == second || first == second + 1),
            "{first} and {second} are not of one moment"
        );
        // It goes on, in the state it was in.
        let status = std::fs::read_to_string(format!("/proc/{}/status", subject.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0"), "{status}");
        assert!(!status.contains("T (stopped)"), "{status}");
    }
}

#[test]
fn frozen_memory_is_saved_as_what_it_holds() {
    let library = Path::new(odfork_path()).with_file_name("libodfork.so");
    if !library.exists() {
        return skip(
            "frozen_memory_is_saved_as_what_it_holds",
            "libodfork.so is not built: cargo build --release --workspace",
        );
    }
    let folder = scratch();
    let file = folder.path().join("image");
    let mut command = bare(odfork_path());
    command
        .env("ODFORK_LIB", library)
        .args(["run", "--freeze", "eager", "--"])
        .arg(program())
        .arg("3");
    let subject = Subject::of(command);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", subject.pid())).unwrap();
    assert!(maps.contains("(deleted)"), "nothing is frozen: {maps}");
    subject.save(&file, &[]).silent();
    check(&Image::open(&file).unwrap(), subject.address);
    let all = folder.path().join("all");
    let words =
        ["image", "save", &subject.pid(), all.to_str().unwrap(), "--all", "--compress", "lz4"];
    finish(&mut odfork(&words)).silent();
    check(&Image::open(&all).unwrap(), subject.address);
}

#[test]
fn deltas_are_saved_shown_compared_and_applied() {
    let folder = scratch();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let subject = Subject::new();
    subject.save(Path::new(&file("base")), &[]).silent();
    let base = file("base");
    for more in [&["--by-checksum"][..], &[]] {
        let words = [&["--base", base.as_str()][..], more].concat();
        let outcome = subject.save(Path::new(&file("later")), &words).silent();
        assert!(outcome.out.contains("2 stored, 16382 as in the base"), "{outcome:?}");
    }
    let later = Image::open(file("later")).unwrap();
    let (first, _) = check(&later, subject.address);
    assert!(first > check(&Image::open(file("base")).unwrap(), subject.address).0);
    drop(subject);

    image(&["apply", &file("later"), &file("whole"), "--compress", "zstd"]).silent();
    assert_eq!(Image::open(file("whole")).unwrap().id(), later.id());
    image(&["delta", &file("base"), &file("whole"), &file("delta")]).silent();
    assert_eq!(Image::open(file("delta")).unwrap().id(), later.id());

    let shown = image(&["show", "--verify", &file("delta"), &file("whole")]).silent().out;
    for word in [
        "delta; compression none",
        "whole; compression zstd",
        "work",
        "64.0 MB",
        "every page is as it was saved",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let shown = image(&["show", "--json", &file("delta")]).silent().out;
    let object: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&object["schema"], &object["stored_pages"]), (&1.into(), &2.into()));
    assert_eq!(object["id"], later.id().to_string());
    assert_eq!(object["bases"][0]["id"], Image::open(file("base")).unwrap().id().to_string());
    assert_eq!(object["regions"][0]["name"], "work");

    // A base that is elsewhere is named; another image is no base.
    let away = scratch();
    let moved = away.path().join("base").to_str().unwrap().to_owned();
    std::fs::rename(file("base"), &moved).unwrap();
    refused(&image(&["show", &file("delta")]), "'base'");
    image(&["show", "--verify", "--base-file", &moved, &file("delta")]).silent();
    refused(&image(&["show", "--base-file", &file("whole"), &file("delta")]), "is image");
}

fn refused(outcome: &Outcome, word: &str) {
    assert_eq!((outcome.code, outcome.err.lines().count()), (Some(1), 1), "{outcome:?}");
    assert!(outcome.err.starts_with("odfork image: ") && outcome.err.contains(word), "{outcome:?}");
}

#[test]
fn what_cannot_be_saved_is_told_in_a_line() {
    let folder = scratch();
    let file = folder.path().join("image");
    let name = file.to_str().unwrap();
    let subject = Subject::new();
    let pid = subject.pid();
    refused(&image(&["save", "999999999", name, "--heap"]), "no process");
    refused(&image(&["save", &pid, name, "--region", "1000-2000"]), "0x1000");
    refused(&image(&["save", &pid, name, "--region", "[nothing]"]), "'[nothing]'");
    refused(&image(&["save", &pid, "/nowhere/image", "--heap"]), "/nowhere/image: No such file");
    refused(&image(&["save", &pid, name, "--heap", "--cluster", "3"]), "not 3");
    refused(&image(&["show", "/dev/null"]), "regular file");
    refused(&image(&["apply", "/etc/passwd", name]), "no memory image");
    let outcome = image(&["save", &pid, name]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    let outcome = image(&["save", &pid, name, "--region", "2000-1000"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(!file.exists());
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    if !root() {
        return skip(
            "what_cannot_be_saved_is_told_in_a_line",
            "the process of another user needs one: not root",
        );
    }
    use std::os::unix::process::CommandExt;
    let mut other = bare("/bin/sh");
    let line = format!("exec {} image save {pid} /tmp/x --heap", odfork_path());
    other.args(["-c", &line]).uid(65534).gid(65534);
    let outcome = finish(&mut other);
    if outcome.code == Some(126) || outcome.code == Some(127) {
        return skip(
            "what_cannot_be_saved_is_told_in_a_line",
            "nobody may not execute the odfork of this build",
        );
    }
    refused(&outcome, "CAP_SYS_PTRACE");
}

/// Memory whose pages come by userfaultfd would wait for a thread that stands still.
#[test]
fn memory_paged_by_a_userfaultfd_is_refused() {
    // `odfork` stops the process that has the memory: one without the threads of other tests, of
    // which some wait in vfork and cannot be stopped.
    const NAME: &str = "image::memory_paged_by_a_userfaultfd_is_refused";
    if std::env::var_os("ODFORK_TEST_ALONE").is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", NAME, "--nocapture"]).env("ODFORK_TEST_ALONE", "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    let folder = scratch();
    let file = folder.path().join("image");
    let subject = Subject::new();
    subject.save(&file, &[]).silent();
    let wish = MapOptions { form: Form::Faulted, place: Place::Anywhere, ..MapOptions::default() };
    let mapped = Image::open(&file).unwrap().map(None, &wish).unwrap();
    if mapped.form() != Form::Faulted {
        return skip("memory_paged_by_a_userfaultfd_is_refused", mapped.note().unwrap_or_default());
    }
    let region = &mapped.regions()[0];
    let range = format!("{:x}-{:x}", region.address, region.end());
    let other = folder.path().join("other");
    let me = std::process::id().to_string();
    let words = ["save", &me, other.to_str().unwrap(), "--region", &range];
    refused(&image(&words), "userfaultfd");
    mapped.populate();
    image(&words).silent();
    assert_eq!(
        Image::open(&other).unwrap().summary().stored_pages,
        Image::open(&file).unwrap().summary().stored_pages
    );
}

#[test]
fn a_program_finds_the_image_it_is_started_with() {
    let folder = scratch();
    let file = folder.path().join("image");
    let subject = Subject::new();
    subject.save(&file, &[]).silent();
    let mut command =
        odfork(&["image", "load", "image", "--", "sh", "-c", "echo $ODFORK_IMAGE_FILE; exit 7"]);
    let outcome = finish(command.current_dir(folder.path()));
    assert_eq!(
        (outcome.code, outcome.out.trim()),
        (Some(7), file.to_str().unwrap()),
        "{outcome:?}"
    );
    let outcome = image(&["load", file.to_str().unwrap(), "--", "/nowhere/program"]);
    assert_eq!(outcome.code, Some(127), "{outcome:?}");
    refused(&image(&["load", "/nowhere/image", "--", "true"]), "/nowhere/image");
    // `odfork run` does not take the variable for a slip.
    let mut command = odfork(&["run", "--", "/bin/echo", "hello"]);
    let outcome = finish(command.env("ODFORK_IMAGE_FILE", &file));
    assert!(!outcome.err.contains("ODFORK_IMAGE_FILE"), "{outcome:?}");
}

/// Ctrl-C leaves no file and lets the process go.
#[test]
fn an_interrupted_save_leaves_nothing() {
    let folder = scratch();
    let subject = Subject::new();
    for wait in [0u64, 3, 10, 30] {
        let region = format!("work={}", subject.range);
        let file = folder.path().join("image");
        let words = [
            "image",
            "save",
            &subject.pid(),
            file.to_str().unwrap(),
            "--region",
            &region,
            "--compress",
            "zstd",
        ];
        let mut command = odfork(&words);
        let child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let output = child.wait_with_output().unwrap();
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        match output.status.code() {
            Some(0) => assert_eq!(left, ["image"]),
            Some(130) => {
                assert!(text(&output.stderr).contains("interrupted"));
                assert!(left.is_empty(), "{left:?}");
            }
            // Before it listened.
            _ => assert!(left.is_empty(), "{left:?}"),
        }
        let _ = std::fs::remove_file(&file);
        let status = std::fs::read_to_string(format!("/proc/{}/status", subject.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0") && !status.contains("T (stopped)"), "{status}");
    }
}
