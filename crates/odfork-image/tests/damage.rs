//! Files that are not what they should be: one clear line each, no panic, and never a wrong page.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{can_fault, image, in_child, open, options, page, run_alone, save_own, Built, Folder};
use odfork_image::{Codec, Delta, Form, Image, Lost, MapOptions, SaveOptions, PAGE};

fn complaint(path: &Path) -> String {
    let line = Image::open(path).unwrap_err().to_string();
    assert!(!line.contains('\n') && line.len() < 300, "{line}");
    line
}

fn delta_of(folder: &Folder, codec: Codec) -> (PathBuf, PathBuf) {
    let (base, new, delta) = (folder.file("base"), folder.file("new"), folder.file("delta"));
    image(&base, 100, 1, options(codec, 16));
    image(&new, 100, 2, options(codec, 16));
    let old = open(&base);
    let wish = Delta { base: &old, trust_checksums: false };
    open(&new).save_delta(&delta, wish, options(codec, 16)).unwrap();
    (base, delta)
}

#[test]
fn what_is_no_image_is_told_in_a_line() {
    let folder = Folder::new();
    let path = folder.file("x");
    assert!(complaint(&path).contains("No such file"));
    assert!(complaint(folder.0.path()).contains("regular file"));
    let pipe = folder.file("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(complaint(&pipe).contains("regular file"));
    for (content, word) in
        [(&b""[..], "no memory image"), (b"ELF", "no memory image"), (b"odfimage", "cut off")]
    {
        fs::write(&path, content).unwrap();
        assert!(complaint(&path).contains(word), "{content:?}: {}", complaint(&path));
    }
    image(&path, 100, 1, options(Codec::None, 16));
    let whole = fs::read(&path).unwrap();
    for cut in [9, 127, 128, 300, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(complaint(&path).contains("cut off"), "{cut}: {}", complaint(&path));
    }
    fs::write(&path, [&whole[..], b"!"].concat()).unwrap();
    assert!(complaint(&path).contains("1 bytes follow"));
    let mut other = whole.clone();
    other[8] = 9;
    fs::write(&path, &other).unwrap();
    assert!(complaint(&path).contains("format version 9"));
}

#[test]
fn a_delta_wants_its_own_base() {
    let folder = Folder::new();
    let (base, delta) = delta_of(&folder, Codec::None);
    open(&delta).verify(|_, _| true).unwrap();
    let needed = open(&base).id().to_string();
    // The same content in another form is the same base.
    let packed = folder.file("packed");
    open(&base).save_whole(&packed, options(Codec::Zstd, 64)).unwrap();
    fs::rename(&packed, &base).unwrap();
    open(&delta).verify(|_, _| true).unwrap();

    image(&base, 100, 77, options(Codec::None, 16));
    let line = complaint(&delta);
    assert!(line.contains(&needed) && line.contains(&open(&base).id().to_string()), "{line}");
    fs::remove_file(&base).unwrap();
    let line = complaint(&delta);
    assert!(line.contains("'base'") && line.contains(&needed) && line.contains("--base"), "{line}");
    let elsewhere = folder.file("elsewhere");
    image(&elsewhere, 100, 1, options(Codec::Lz4, 16));
    Image::open_with(&delta, &[elsewhere]).unwrap().verify(|_, _| true).unwrap();
    let other = folder.file("other");
    image(&other, 100, 5, options(Codec::Lz4, 16));
    let line = Image::open_with(&delta, &[other]).unwrap_err().to_string();
    assert!(line.contains("is image"), "{line}");
}

/// Where a page with content lies in an unpacked file.
fn place_of(file: &[u8], content: &[u8]) -> usize {
    file.windows(64)
        .position(|window| window == &content[..64])
        .expect("the page is not in the file")
}

#[test]
fn a_flipped_bit_is_noticed_when_its_page_is_touched() {
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 100, 1, options(Codec::None, 16));
    let mut file = fs::read(&path).unwrap();
    // Page 30 is noise (31 % 5 == 1).
    let at = place_of(&file, &page(31));
    file[at + 1000] ^= 0x10;
    fs::write(&path, &file).unwrap();
    let damaged = open(&path);
    let line = damaged.verify(|_, _| true).unwrap_err().to_string();
    assert!(line.contains("checksum is wrong"), "{line}");
    let line = damaged
        .map(None, &MapOptions { form: Form::ReadIn, ..MapOptions::default() })
        .unwrap_err()
        .to_string();
    assert!(line.contains("checksum is wrong"), "{line}");
    if !can_fault("a_flipped_bit_is_noticed_when_its_page_is_touched") {
        return;
    }
    let mapped =
        damaged.map(None, &MapOptions { form: Form::Faulted, ..MapOptions::default() }).unwrap();
    let at = mapped.address("state").unwrap();
    for n in (0..100).filter(|&n| n != 30) {
        common::expect_page(at, n, &page(1 + n as u64));
    }
    let status = mapped.status().unwrap();
    assert_eq!(status.lost_pages, 1, "{status:?}");
    assert_eq!(status.first_lost, Some((at as u64 + 30 * PAGE as u64, Lost::Sum)));
    // SAFETY: mapped; the child is to be killed by it.
    let touch = || unsafe { at.add(30 * PAGE).read_volatile() == 0 };
    let ended = in_child(false, touch);
    assert!(libc::WIFSIGNALED(ended) && libc::WTERMSIG(ended) == libc::SIGBUS, "{ended:#x}");
}

#[test]
fn damage_to_a_packed_cluster_or_the_index_costs_no_more_than_it_must() {
    let folder = Folder::new();
    for codec in [Codec::Lz4, Codec::Zstd] {
        let path = folder.file("image");
        image(&path, 3000, 1, options(codec, 16));
        let whole = fs::read(&path).unwrap();
        let index = open(&path).summary().file_bytes as usize - 3000 / 16 * 160;
        for at in (4096..whole.len()).step_by(whole.len() / 60) {
            let mut file = whole.clone();
            file[at] ^= 0x41;
            fs::write(&path, &file).unwrap();
            // Every byte behind the head is either found damaged, or fills a gap.
            let outcome = open(&path).verify(|_, _| true);
            if at < index - 4096 {
                assert!(outcome.is_err(), "{codec:?}: byte {at} of {} was not missed", whole.len());
            }
        }
    }
}

/// A few bytes changed; every other time the head's sum is made right again.
fn mutated(whole: &[u8], roll: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut file = whole.to_vec();
    for _ in 0..1 + roll(4) {
        let at = if roll(2) == 0 { roll(file.len()) } else { roll(400) };
        file[at] = [0, 1, 255, roll(256) as u8][roll(4)];
    }
    if roll(2) == 0 {
        let length = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
        if (128..file.len()).contains(&length) {
            file[120..128].fill(0);
            let sum = xxhash_rust::xxh3::xxh3_64(&file[..length]);
            file[120..128].copy_from_slice(&sum.to_le_bytes());
        }
    }
    file
}

/// Random damage anywhere in the file, the head put right again in half of the cases: never a
/// panic, never a wrong page.
#[test]
fn random_damage_never_gives_a_wrong_page() {
    let folder = Folder::new();
    let mut seed = 99u64;
    let mut roll = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let (mut opened, mut refused, mut whole_ones) = (0, 0, 0);
    for codec in Codec::ALL {
        let folder_of_codec = Folder::another();
        let (_, delta) = delta_of(&folder_of_codec, codec);
        let plain = folder.file("plain");
        image(&plain, 100, 2, options(codec, 8));
        for original in [plain, delta] {
            let whole = fs::read(&original).unwrap();
            let path = original.with_file_name("mutated");
            for _ in 0..150 {
                fs::write(&path, mutated(&whole, &mut roll)).unwrap();
                let Ok(image) = Image::open(&path) else {
                    refused += 1;
                    continue;
                };
                opened += 1;
                if image.verify(|_, _| true).is_err() {
                    continue;
                }
                whole_ones += 1;
                // Its id vouches for content, places and names.
                let same = image.id() == open(&original).id();
                let regions_differ =
                    image.regions().zip(open(&original).regions()).any(|(a, b)| a != b);
                assert!(same || regions_differ);
                let here = image.regions().next().unwrap().address;
                if same {
                    let mapped = image
                        .map(None, &MapOptions { form: Form::ReadIn, ..MapOptions::default() })
                        .unwrap();
                    common::expect(mapped.address("state").unwrap(), 100, 2);
                    assert_eq!(mapped.address("state").unwrap() as u64, here);
                }
            }
        }
    }
    assert!(
        opened > 50 && refused > 50 && whole_ones > 5,
        "{opened} opened, {refused} refused, {whole_ones} whole"
    );
}

#[test]
fn wishes_that_make_no_sense_are_refused() {
    let folder = Folder::new();
    let path = folder.file("image");
    let region = image(&path, 10, 1, options(Codec::None, 16));
    let refuse = |regions: &[odfork_image::Region], options: SaveOptions| {
        let mut this = odfork_image::Process::this().unwrap();
        odfork_image::save(&folder.file("no"), &mut this, regions, options).unwrap_err().to_string()
    };
    assert!(refuse(&[], SaveOptions::default()).contains("no region"));
    assert!(refuse(&[region.clone(), region.clone()], SaveOptions::default()).contains("overlap"));
    let odd = odfork_image::Region { bytes: 100, ..region.clone() };
    assert!(refuse(&[odd], SaveOptions::default()).contains("whole pages"));
    assert!(refuse(std::slice::from_ref(&region), options(Codec::None, 3)).contains("not 3"));
    // It is not mapped any more.
    let line = refuse(std::slice::from_ref(&region), SaveOptions::default());
    assert!(line.contains("cannot read the memory at 0x"), "{line}");
    assert!(!folder.file("no").exists());
    let image = open(&path);
    assert!(image
        .map(Some("nope"), &MapOptions::default())
        .unwrap_err()
        .to_string()
        .contains("'nope'"));
    let _there = image.map(None, &MapOptions::default()).unwrap();
    let line = image.map(None, &MapOptions::default()).unwrap_err().to_string();
    assert!(line.contains("is in use by") && line.contains("image"), "{line}");
}

/// What the new image needs, and what is no file to be replaced, stays as it is.
#[test]
fn nothing_is_replaced_that_is_needed_or_no_file() {
    let folder = Folder::new();
    let (base, delta) = delta_of(&folder, Codec::None);
    let newer = folder.file("newer");
    let built = Built::filled(20, 9);
    save_own(&newer, &[built.region("state")], options(Codec::None, 16));
    let save_to = |path: &Path, base: &Path| {
        let base = open(base);
        let delta = Some(Delta { base: &base, trust_checksums: false });
        let mut this = odfork_image::Process::this().unwrap();
        let options = SaveOptions { delta, ..options(Codec::None, 16) };
        odfork_image::save(path, &mut this, &[built.region("state")], options)
    };
    let refused = |path: &Path, below: &Path, word: &str| {
        let line = save_to(path, below).unwrap_err().to_string();
        assert!(line.contains(word) && line.lines().count() == 1, "{line}");
        let source = open(&newer);
        let of_files = Delta { base: &open(below), trust_checksums: true };
        let line = source.save_delta(path, of_files, options(Codec::None, 16)).unwrap_err();
        assert!(line.to_string().contains(word), "{line}");
    };
    let hard = folder.file("hard");
    fs::hard_link(&base, &hard).unwrap();
    for needed in [&base, &hard] {
        refused(needed, &base, "needs it as a base");
        refused(needed, &delta, "needs it as a base");
    }
    refused(&delta, &delta, "needs it as a base");
    let link = folder.file("link");
    std::os::unix::fs::symlink(&newer, &link).unwrap();
    refused(&link, &base, "is a link");
    let socket = folder.file("socket");
    let _held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket, &base, "not a regular file");
    refused(Path::new("/dev/null"), &base, "not a regular file");
    open(&delta).verify(|_, _| true).unwrap();
    // What is not needed may be replaced: the image that the delta is made of.
    open(&newer)
        .save_delta(
            &newer,
            Delta { base: &open(&base), trust_checksums: false },
            options(Codec::None, 16),
        )
        .unwrap();
    open(&newer).verify(|_, _| true).unwrap();
}

/// The touch of a lost page ends the program: the line that says why is out before.
#[test]
fn the_reason_is_told_before_the_signal() {
    const TEST: &str = "the_reason_is_told_before_the_signal";
    const FILE: &str = "ODTEST_DAMAGED";
    if let Some(path) = std::env::var_os(FILE) {
        let wish = MapOptions { form: Form::Faulted, ..MapOptions::default() };
        let mapped = open(Path::new(&path)).map(None, &wish).unwrap();
        // SAFETY: mapped; what comes is SIGBUS.
        unsafe { mapped.address("state").unwrap().add(30 * PAGE).read_volatile() };
        return;
    }
    if !can_fault(TEST) {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 100, 1, options(Codec::None, 16));
    let mut file = fs::read(&path).unwrap();
    let at = place_of(&file, &page(31));
    file[at] ^= 1;
    fs::write(&path, &file).unwrap();
    for _ in 0..10 {
        let out = run_alone(TEST, FILE, &path);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("is lost (its checksum is wrong)"), "{:?} {said}", out.status);
    }
}

/// The head's checksum made right again.
fn resum(file: &mut [u8]) {
    let length = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
    file[120..128].fill(0);
    let sum = xxhash_rust::xxh3::xxh3_64(&file[..length]);
    file[120..128].copy_from_slice(&sum.to_le_bytes());
}

/// Opening alone does things to a device: a base's name that leads out of the folder is not even
/// opened, and what it says to a terminal is harmless.
#[test]
fn a_name_of_a_base_leads_nowhere_else() {
    let folder = Folder::new();
    let inside = folder.file("inside");
    fs::create_dir(&inside).unwrap();
    let (outside, base) = (folder.file("beside"), inside.join("a_beside."));
    image(&outside, 10, 1, options(Codec::None, 16));
    fs::copy(&outside, &base).unwrap();
    let (old, delta) = (open(&base), inside.join("delta"));
    let wish = Delta { base: &old, trust_checksums: false };
    old.save_delta(&delta, wish, options(Codec::None, 16)).unwrap();
    let whole = fs::read(&delta).unwrap();
    let at = place_in(&whole, b"a_beside.");
    let named = |name: &[u8; 9]| {
        let mut file = whole.clone();
        file[at..at + 9].copy_from_slice(name);
        resum(&mut file);
        fs::write(&delta, &file).unwrap();
    };
    named(b"../beside");
    let path = std::ffi::CString::new(outside.to_str().unwrap()).unwrap();
    // SAFETY: a string; the descriptor is ours, room for an event.
    let opened = unsafe {
        let watch = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
        assert!(libc::inotify_add_watch(watch, path.as_ptr(), libc::IN_OPEN) >= 0);
        assert!(complaint(&delta).contains("is not beside it"));
        let count = libc::read(watch, [0u64; 64].as_mut_ptr().cast(), 512);
        libc::close(watch);
        count
    };
    assert_eq!(opened, -1, "it was opened");
    named(b"\x1b]0;own\x07d");
    let line = complaint(&delta);
    assert!(line.contains("?]0;own?d") && !line.contains('\x1b'), "{line}");
}

fn place_in(file: &[u8], bytes: &[u8]) -> usize {
    file.windows(bytes.len()).position(|window| window == bytes).unwrap()
}

/// A delta that lacks a page its base has not: zeros would be a wrong page.
#[test]
fn a_page_in_no_image_is_not_zeros() {
    let folder = Folder::new();
    let (base, delta) = (folder.file("base"), folder.file("delta"));
    image(&base, 50, 1, options(Codec::None, 16));
    let mut built = Built::filled(100, 1);
    built.memory()[90 * PAGE] ^= 1;
    let old = open(&base);
    let wish = Some(Delta { base: &old, trust_checksums: false });
    let wish = SaveOptions { delta: wish, ..options(Codec::None, 16) };
    save_own(&delta, &[built.region("state")], wish);
    drop(built);
    open(&delta).map(None, &MapOptions { form: Form::Mapped, ..MapOptions::default() }).unwrap();
    let mut file = fs::read(&delta).unwrap();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let head = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
    let (index, bytes) = (word(&file, 32) as usize, word(&file, 40) as usize);
    let record = index + 90 / 16 * (32 + 8 * 16);
    // Its last page with content goes.
    let present = word(&file, record + 16);
    let page = 90 / 16 * 16 + present.ilog2() as usize;
    let less = present & !(1 << present.ilog2());
    let stored = u32::from_le_bytes(file[record + 8..record + 12].try_into().unwrap());
    file[record + 8..record + 12].copy_from_slice(&(stored - PAGE as u32).to_le_bytes());
    file[record + 16..record + 24].copy_from_slice(&less.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&file[index..index + bytes]);
    file[head - 8..head].copy_from_slice(&sum.to_le_bytes());
    resum(&mut file);
    fs::write(&delta, &file).unwrap();
    let image = open(&delta);
    assert!(image.verify(|_, _| true).unwrap_err().to_string().contains("no image of the chain"));
    let line = image
        .map(None, &MapOptions { form: Form::Mapped, ..MapOptions::default() })
        .unwrap_err()
        .to_string();
    let address = image.regions().next().unwrap().address + (page * PAGE) as u64;
    assert!(line.contains("no image") && line.contains(&format!("{address:#x}")), "{line}");
}
