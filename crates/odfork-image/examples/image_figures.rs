//! Measures how long an image takes to give its first answer and all of them, in every form; one
//! round of samples as JSON lines on standard output.
//!
//!     cargo run --release -p odfork-image --example image_figures -- prepare FOLDER [MEGABYTES]
//!     cargo run --release -p odfork-image --example image_figures -- round FOLDER
//!
//! Each sample is a process of its own: it opens the image, touches one page (the first answer),
//! then the share of pages asked for, at random places (all of them: in order). Cold: the file is
//! dropped from the page cache before, and that is checked.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use odfork_image::{
    reserve, save, Codec, Delta, Form, Image, MapOptions, Process, Read, Region, SaveOptions, PAGE,
};

/// Name, file, form, kernel's reading, prefetch.
const FORMS: [(&str, &str, Form, Read, usize); 11] = [
    ("plain read()", "raw", Form::Auto, Read::Around, 1),
    ("read in, checked", "raw", Form::ReadIn, Read::Around, 1),
    ("mapped", "raw", Form::Mapped, Read::Around, 1),
    ("mapped, page", "raw", Form::Mapped, Read::Page, 1),
    ("mapped, all at once", "raw", Form::Mapped, Read::All, 1),
    ("faulted, 1", "raw", Form::Faulted, Read::Around, 1),
    ("faulted, 16", "raw", Form::Faulted, Read::Around, 16),
    ("faulted, 64", "raw", Form::Faulted, Read::Around, 64),
    ("lz4, read in", "lz4", Form::ReadIn, Read::Around, 1),
    ("lz4, faulted, 16", "lz4", Form::Faulted, Read::Around, 16),
    ("zstd, faulted, 16", "zstd", Form::Faulted, Read::Around, 16),
];
const SHARES: [f64; 4] = [0.0, 0.01, 0.1, 1.0];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["prepare", folder] => prepare(Path::new(folder), 1024),
        ["prepare", folder, megabytes] => {
            prepare(Path::new(folder), megabytes.parse().expect("MEGABYTES is a number"))
        }
        ["round", folder] => round(Path::new(folder)),
        ["sample", folder, form, share] => {
            sample(Path::new(folder), form, share.parse().expect("a share"))
        }
        _ => eprintln!("usage: image_figures prepare FOLDER [MEGABYTES] | round FOLDER"),
    }
}

fn dice(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Half noise, half counting: packs to about half.
fn fill(page: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for (at, word) in page.chunks_exact_mut(8).enumerate() {
        let value = if at % 64 < 32 { dice(&mut state) } else { at as u64 };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

fn timed<T>(act: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let result = act();
    (result, begin.elapsed().as_secs_f64())
}

/// Saves the memory whole in three forms and as deltas with 1 and 10 % of pages changed; times of
/// each.
fn prepare(folder: &Path, megabytes: usize) {
    let bytes = megabytes << 20;
    let at = reserve(bytes).unwrap();
    // SAFETY: ours, writable, so many bytes.
    let memory = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
    memory.chunks_exact_mut(PAGE).enumerate().for_each(|(n, page)| fill(page, n as u64));
    let region =
        [Region { name: "state".to_owned(), address: at as u64, bytes: bytes as u64, prot: 3 }];
    let store = |name: &str, codec, delta, sync| {
        let mut this = Process::this().unwrap();
        let options = SaveOptions { codec, delta, sync, ..SaveOptions::default() };
        let path = folder.join(name);
        let (saved, seconds) = timed(|| save(&path, &mut this, &region, options).unwrap());
        println!(
            "{{\"save\":\"{name}\",\"codec\":\"{}\",\"sync\":{sync},\"seconds\":{seconds:.4},\
             \"file_bytes\":{},\"stored_pages\":{}}}",
            codec.name(),
            saved.file_bytes,
            saved.stored_pages
        );
    };
    for codec in Codec::ALL {
        let name = if codec == Codec::None { "raw" } else { codec.name() };
        store(name, codec, None, false);
        store(name, codec, None, true);
    }
    let base = Image::open(folder.join("raw")).unwrap();
    let (mut state, pages) = (7, bytes / PAGE);
    for (percent, name) in [(1, "delta1"), (10, "delta10")] {
        for _ in 0..pages * percent / 100 {
            let n = dice(&mut state) as usize % pages;
            memory[n * PAGE + 8] ^= 0x5a;
        }
        for trust_checksums in [false, true] {
            let delta = Some(Delta { base: &base, trust_checksums });
            let name = format!("{name}{}", if trust_checksums { "-by-checksum" } else { "" });
            store(&name, Codec::None, delta, true);
        }
        let whole = folder.join("whole");
        let delta = Image::open(folder.join(name)).unwrap();
        let (_, seconds) = timed(|| delta.save_whole(&whole, SaveOptions::default()).unwrap());
        println!("{{\"apply\":\"{name}\",\"seconds\":{seconds:.4}}}");
    }
}

fn drop_from_cache(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: a plain call on a descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let cached = cached(&file);
    assert!(
        cached < 0.01,
        "{} is still in the page cache ({:.0} %)",
        path.display(),
        cached * 100.0
    );
}

fn cached(file: &File) -> f64 {
    let bytes = file.metadata().unwrap().len() as usize;
    let mut there = vec![0u8; bytes.div_ceil(PAGE)];
    // SAFETY: a new mapping, unmapped again; one byte for each page.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, bytes, there.as_mut_ptr()), 0);
        libc::munmap(at, bytes);
    }
    there.iter().filter(|&&byte| byte & 1 != 0).count() as f64 / there.len() as f64
}

fn warm(path: &Path) {
    let file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(count @ 1..) = file.read_at(&mut buffer, at) {
        at += count as u64;
    }
}

fn round(folder: &Path) {
    let me = std::env::current_exe().unwrap();
    for (name, file, ..) in FORMS {
        for share in SHARES {
            for cold in [false, true] {
                // 250 thousand reads of a page each: half a minute, and nothing to learn.
                if cold && share == 1.0 && name.ends_with("page") {
                    continue;
                }
                let path: PathBuf = folder.join(file);
                if cold {
                    drop_from_cache(&path);
                } else {
                    warm(&path);
                }
                let mut command = Command::new(&me);
                command.arg("sample").arg(folder).args([name, &share.to_string()]);
                let output = command.output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(
                    output.status.success(),
                    "{name}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                println!(
                    "{{\"form\":\"{name}\",\"share\":{share},\"cold\":{cold},{}}}",
                    text.trim()
                );
            }
        }
    }
}

fn sample(folder: &Path, form: &str, share: f64) {
    let (_, file, form, read, prefetch) = *FORMS.iter().find(|f| f.0 == form).expect("a form");
    let path = folder.join(file);
    let begin = Instant::now();
    let pages;
    let at: *const u8;
    if form == Form::Auto {
        // What a program without images does: memory, and read() into it.
        let file = File::open(&path).unwrap();
        let bytes = file.metadata().unwrap().len() as usize;
        let mut memory = Vec::<u8>::with_capacity(bytes);
        // SAFETY: read_exact_at writes all of it.
        #[allow(clippy::uninit_vec)]
        unsafe {
            memory.set_len(bytes)
        };
        for (n, part) in memory.chunks_mut(1 << 20).enumerate() {
            file.read_exact_at(part, (n as u64) << 20).unwrap();
        }
        pages = bytes / PAGE;
        at = memory.leak().as_ptr();
    } else {
        let image = Image::open(&path).unwrap();
        let options = MapOptions { form, read, prefetch, ..MapOptions::default() };
        let mapped = image.map(None, &options).unwrap();
        assert_eq!(mapped.form(), form, "{:?}", mapped.note());
        pages = image.summary().pages as usize;
        at = mapped.keep()[0].address as *const u8;
    }
    let mut sum = touch(at, pages / 3);
    let first = begin.elapsed();
    let wanted = (pages as f64 * share) as usize;
    let mut state = 12345;
    for n in 0..wanted {
        let n = if share == 1.0 { n } else { dice(&mut state) as usize % pages };
        sum = sum.wrapping_add(touch(at, n));
    }
    let all = begin.elapsed();
    let cpu = cpu_time();
    println!(
        "\"first_ms\":{:.3},\"all_ms\":{:.3},\"cpu_ms\":{:.3},\"sum\":{sum}",
        first.as_secs_f64() * 1e3,
        all.as_secs_f64() * 1e3,
        cpu.as_secs_f64() * 1e3
    );
}

fn touch(at: *const u8, page: usize) -> u64 {
    // SAFETY: mapped, below the number of pages.
    unsafe { at.add(page * PAGE).cast::<u64>().read_volatile() }
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    // SAFETY: a zeroed structure that the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
