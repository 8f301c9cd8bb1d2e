//! What comes back is what was saved, in every form of file and of loading.

mod common;

use common::{can_fault, expect, image, open, options, page, run_alone, save_own, Built, Folder};
use odfork_image::{Codec, Delta, Form, MapOptions, Place, Read, SaveOptions, PAGE};

fn forms(test: &str) -> Vec<Form> {
    let mut forms = vec![Form::Auto, Form::ReadIn];
    if can_fault(test) {
        forms.push(Form::Faulted);
    }
    forms
}

#[test]
fn every_form_gives_back_what_was_saved() {
    let folder = Folder::new();
    for codec in Codec::ALL {
        for (cluster_pages, pages) in [(1, 7), (16, 400), (64, 333)] {
            let path = folder.file("image");
            let region = image(&path, pages, 100, options(codec, cluster_pages));
            let image = open(&path);
            image.verify(|_, _| true).unwrap();
            for form in forms("every_form_gives_back_what_was_saved") {
                for prefetch in [1, 16, 256] {
                    let mapped = image
                        .map(None, &MapOptions { form, prefetch, ..MapOptions::default() })
                        .unwrap();
                    let at = mapped.address("state").unwrap();
                    assert_eq!(at as u64, region.address);
                    let expected = match form {
                        Form::Auto if codec == Codec::None => Form::Mapped,
                        Form::Auto => mapped.form(),
                        other => other,
                    };
                    assert_eq!(mapped.form(), expected, "{:?}", mapped.note());
                    expect(at, pages, 100);
                    // Private: the file does not change.
                    // SAFETY: mapped, writable.
                    unsafe { at.add(PAGE).write(!at.add(PAGE).read()) };
                    drop(mapped);
                    open(&path).verify(|_, _| true).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_mapped_form_by_every_kind_of_reading_and_anywhere() {
    let folder = Folder::new();
    let path = folder.file("image");
    let region = image(&path, 600, 7, options(Codec::None, 16));
    let _occupied = Built::filled(600, 1);
    let image = open(&path);
    for read in [Read::Around, Read::Page, Read::Sequential, Read::All] {
        let wish = MapOptions {
            form: Form::Mapped,
            place: Place::Anywhere,
            read,
            ..MapOptions::default()
        };
        let mapped = image.map(Some("state"), &wish).unwrap();
        mapped.populate();
        expect(mapped.address("state").unwrap(), 600, 7);
        assert_ne!(mapped.regions()[0].address, region.address);
    }
}

#[test]
fn several_regions_are_found_by_name_and_place() {
    let folder = Folder::new();
    let path = folder.file("image");
    let (a, b, c) = (Built::filled(40, 1), Built::filled(100, 500), Built::filled(3, 900));
    let regions = [b.region("b"), a.region("a"), c.region("c")];
    save_own(&path, &regions, options(Codec::Lz4, 16));
    drop((a, b, c));
    for form in forms("several_regions_are_found_by_name_and_place") {
        let image = open(&path);
        let all = image.map(None, &MapOptions { form, ..MapOptions::default() }).unwrap();
        expect(all.address("a").unwrap(), 40, 1);
        expect(all.address("c").unwrap(), 3, 900);
        expect(all.address("b").unwrap(), 100, 500);
        drop(all);
        let one = image.map(Some("b"), &MapOptions { form, ..MapOptions::default() }).unwrap();
        assert_eq!(one.regions().len(), 1);
        expect(one.address("b").unwrap(), 100, 500);
    }
}

#[test]
fn a_sparse_region_stays_sparse() {
    let folder = Folder::new();
    let path = folder.file("image");
    let mut built = Built::new(1 << 18);
    built.memory()[12345 * PAGE..][..PAGE].copy_from_slice(&page(1));
    let saved = save_own(&path, &[built.region("state")], options(Codec::None, 64));
    assert_eq!((saved.stored_pages, saved.zero_pages), (1, (1 << 18) - 1));
    assert!(resident(&built) < 100, "saving populated the memory: {} pages", resident(&built));
    let summary = open(&path).summary();
    assert!(summary.disk_bytes < 8 << 20, "{} bytes on the disk", summary.disk_bytes);
    drop(built);
    let packed = folder.file("packed");
    open(&path).save_whole(&packed, options(Codec::Zstd, 64)).unwrap();
    assert_eq!(open(&packed).id(), saved.id);
    assert!(open(&packed).summary().file_bytes < 4 << 20);
    for form in forms("a_sparse_region_stays_sparse") {
        for path in [&path, &packed] {
            let mapped =
                open(path).map(None, &MapOptions { form, ..MapOptions::default() }).unwrap();
            let at = mapped.address("state").unwrap();
            common::expect_page(at, 12345, &page(1));
            common::expect_page(at, 54321, &[0; PAGE]);
        }
    }
}

fn resident(built: &Built) -> usize {
    let mut there = vec![0u8; built.bytes / PAGE];
    // SAFETY: a byte for each page.
    assert_eq!(unsafe { libc::mincore(built.at.cast(), built.bytes, there.as_mut_ptr()) }, 0);
    there.iter().filter(|&&byte| byte & 1 != 0).count()
}

/// Four generations: some pages changed, some zeroed, the region grown.
#[test]
fn chains_of_deltas_give_the_latest_state() {
    for (codec, base_codec) in
        [(Codec::None, Codec::None), (Codec::Lz4, Codec::Zstd), (Codec::Zstd, Codec::None)]
    {
        let folder = Folder::new();
        let mut built = Built::filled(300, 40);
        let mut expected: Vec<Vec<u8>> = (0..300).map(|n| page(40 + n)).collect();
        save_own(&folder.file("0"), &[built.region("state")], options(base_codec, 16));
        for generation in 1..4usize {
            for n in (generation..300).step_by(17) {
                let new = if n % 3 == 0 {
                    vec![0; PAGE]
                } else {
                    page(10_000 * generation as u64 + n as u64)
                };
                built.memory()[n * PAGE..][..PAGE].copy_from_slice(&new);
                expected[n] = new;
            }
            let base = open(&folder.file(&(generation - 1).to_string()));
            let delta = Delta { base: &base, trust_checksums: generation == 2 };
            let wish = SaveOptions { delta: Some(delta), ..options(codec, 8) };
            let saved =
                save_own(&folder.file(&generation.to_string()), &[built.region("state")], wish);
            assert!(saved.stored_pages + saved.zero_pages <= 18, "{saved:?}");
            assert_eq!(saved.base_pages + saved.stored_pages + saved.zero_pages, 300);
        }
        drop(built);
        let image = open(&folder.file("3"));
        assert_eq!(image.chain().count(), 4);
        image.verify(|_, _| true).unwrap();
        let whole = folder.file("whole");
        let applied = image.save_whole(&whole, options(codec, 64)).unwrap();
        assert_eq!(applied.id, image.id());
        for path in [folder.file("3"), whole] {
            for form in forms("chains_of_deltas_give_the_latest_state") {
                let mapped =
                    open(&path).map(None, &MapOptions { form, ..MapOptions::default() }).unwrap();
                let mappable = codec == Codec::None && base_codec == Codec::None;
                assert_eq!(
                    mapped.form() == Form::Mapped,
                    form == Form::Auto
                        && (mappable || codec == Codec::None && path.ends_with("whole"))
                );
                let at = mapped.address("state").unwrap();
                expected.iter().enumerate().for_each(|(n, page)| common::expect_page(at, n, page));
            }
        }
    }
}

#[test]
fn a_delta_of_two_files_equals_one_of_memory() {
    let folder = Folder::new();
    let mut built = Built::filled(200, 3);
    save_own(&folder.file("old"), &[built.region("state")], options(Codec::None, 16));
    built.memory()[77 * PAGE] ^= 1;
    save_own(&folder.file("new"), &[built.region("state")], options(Codec::Zstd, 16));
    let (old, new) = (open(&folder.file("old")), open(&folder.file("new")));
    for trust_checksums in [false, true] {
        let path = folder.file("delta");
        let saved = new
            .save_delta(&path, Delta { base: &old, trust_checksums }, options(Codec::None, 16))
            .unwrap();
        assert_eq!((saved.stored_pages, saved.zero_pages, saved.id), (1, 0, new.id()));
        open(&path).verify(|_, _| true).unwrap();
    }
}

/// A heap that grew since the base was saved.
#[test]
fn a_region_may_grow_beyond_its_base() {
    let folder = Folder::new();
    let built = Built::filled(100, 3);
    let small = odfork_image::Region { bytes: 60 * PAGE as u64, ..built.region("state") };
    save_own(&folder.file("base"), &[small], options(Codec::None, 16));
    let base = open(&folder.file("base"));
    let delta = Some(Delta { base: &base, trust_checksums: false });
    save_own(
        &folder.file("delta"),
        &[built.region("state")],
        SaveOptions { delta, ..options(Codec::None, 16) },
    );
    drop(built);
    for form in forms("a_region_may_grow_beyond_its_base") {
        let mapped = open(&folder.file("delta"))
            .map(None, &MapOptions { form, ..MapOptions::default() })
            .unwrap();
        expect(mapped.address("state").unwrap(), 100, 3);
    }
}

#[test]
fn the_file_is_its_owners_alone_and_appears_whole() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.file("image");
    image(&path, 50, 1, SaveOptions::default());
    let first = open(&path).id();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let built = Built::filled(50_000, 9);
    let mut stop = |_, _| false;
    let wish = SaveOptions { progress: Some(&mut stop), ..options(Codec::None, 16) };
    let error = odfork_image::save(
        &path,
        &mut odfork_image::Process::this().unwrap(),
        &[built.region("state")],
        wish,
    );
    assert!(error.unwrap_err().to_string().contains("interrupted"));
    assert_eq!(open(&path).id(), first);
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 1);
}

/// A delta in which every second page of the regions differs, and what it should hold.
fn scattered(folder: &Folder, regions: usize, pages: usize) -> std::path::PathBuf {
    let (base, delta) = (folder.file("base"), folder.file("delta"));
    let mut built: Vec<Built> = (0..regions).map(|_| Built::new(pages)).collect();
    let named: Vec<_> =
        built.iter().enumerate().map(|(n, built)| built.region(&n.to_string())).collect();
    save_own(&base, &named, options(Codec::None, 16));
    for built in &mut built {
        built.memory().chunks_mut(2 * PAGE).for_each(|pages| pages[0] = 7);
    }
    let old = open(&base);
    let wish = Some(Delta { base: &old, trust_checksums: false });
    save_own(&delta, &named, SaveOptions { delta: wish, ..options(Codec::None, 16) });
    delta
}

fn is_scattered(mapped: &odfork_image::Mapped) {
    for region in mapped.regions() {
        for n in 0..region.pages() as usize {
            // SAFETY: mapped.
            let byte = unsafe { (region.address as *const u8).add(n * PAGE).read_volatile() };
            assert_eq!(byte, if n % 2 == 0 { 7 } else { 0 }, "page {n}");
        }
    }
}

/// Pieces count over all regions.
#[test]
fn more_mappings_than_a_process_may_have() {
    let folder = Folder::new();
    let delta = scattered(&folder, 3, 6000);
    let mapped = open(&delta).map(None, &MapOptions::default()).unwrap();
    assert_ne!(mapped.form(), Form::Mapped);
    assert!(mapped.note().unwrap().contains("more than"), "{:?}", mapped.note());
    is_scattered(&mapped);
    drop(mapped);
}

/// In a process of its own, where no other test needs memory.
#[test]
fn a_process_with_too_many_mappings_already() {
    const TEST: &str = "a_process_with_too_many_mappings_already";
    const ALONE: &str = "ODTEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let out = run_alone(TEST, ALONE, "1");
        eprint!("{}", String::from_utf8_lossy(&out.stderr));
        return assert!(out.status.success(), "{out:?}");
    }
    let folder = Folder::new();
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most: usize = most.trim().parse().unwrap();
    if most > 200_000 {
        return eprintln!("skipped: a process may have {most} mappings here");
    }
    let delta = scattered(&folder, 1, 6000);
    let many = most - 2000;
    // SAFETY: a mapping of our own, cut to pieces and given back.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), many * PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        for n in (0..many).step_by(2) {
            if libc::mprotect(at.add(n * PAGE), PAGE, libc::PROT_READ) != 0 {
                break;
            }
        }
        let mapped = open(&delta).map(None, &MapOptions::default());
        libc::munmap(at, many * PAGE);
        let mapped = mapped.unwrap();
        assert_ne!(mapped.form(), Form::Mapped);
        assert!(mapped.note().unwrap().contains("memory"), "{:?}", mapped.note());
        is_scattered(&mapped);
    }
}
