//! A program that builds a big index once and finds it again in the next run without reading it in.
//!
//!     cargo run --release -p odfork-image --example remember -- FILE
//!
//! The first run builds the index and saves it, the second one answers at once.
//!
//! The index is full of addresses (a list in each bucket): an image is mapped where it was, so they
//! hold. The same in C is remember.c.

use std::path::Path;
use std::time::Instant;

use odfork_image::{reserve, save, Image, MapOptions, Process, Region, SaveOptions};

const WORDS: u64 = 4_000_000;
const BUCKETS: usize = 1 << 20;

/// A word and the next one of its bucket.
struct Entry {
    word: u64,
    value: u64,
    next: *const Entry,
}

/// Lies at the beginning of the memory; the entries follow.
struct Index {
    buckets: [*const Entry; BUCKETS],
}

fn hash(word: u64) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as usize % BUCKETS
}

const BYTES: usize = size_of::<Index>() + WORDS as usize * size_of::<Entry>();

fn build(at: *mut u8) {
    // SAFETY: memory of BYTES bytes, all zero: empty buckets. Entries lie behind the index, each
    // written once.
    unsafe {
        let index = &mut *at.cast::<Index>();
        let entries = at.add(size_of::<Index>()).cast::<Entry>();
        for n in 0..WORDS {
            let entry = entries.add(n as usize);
            let bucket = &mut index.buckets[hash(n * 7)];
            entry.write(Entry { word: n * 7, value: n * n, next: *bucket });
            *bucket = entry;
        }
    }
}

fn find(at: *const u8, word: u64) -> Option<u64> {
    // SAFETY: built by `build`, in this run or another.
    unsafe {
        let mut entry = (&(*at.cast::<Index>()).buckets)[hash(word)];
        while !entry.is_null() {
            if (*entry).word == word {
                return Some((*entry).value);
            }
            entry = (*entry).next;
        }
    }
    None
}

fn main() {
    let file = std::env::args().nth(1).unwrap_or_else(|| "remember.img".to_owned());
    let begin = Instant::now();
    if Path::new(&file).exists() {
        let image = Image::open(&file).unwrap_or_else(|why| panic!("{why}"));
        let index =
            image.map(Some("index"), &MapOptions::default()).unwrap_or_else(|why| panic!("{why}"));
        let at = index.address("index").expect("mapped");
        assert_eq!((find(at, 7_000_007), find(at, 8)), (Some(1_000_001 * 1_000_001), None));
        println!(
            "answered after {:.3} ms ({})",
            begin.elapsed().as_secs_f64() * 1e3,
            index.form().name()
        );
        return;
    }
    let at = reserve(BYTES).unwrap_or_else(|why| panic!("{why}"));
    build(at);
    println!("built {} MB in {:.0} ms", BYTES >> 20, begin.elapsed().as_secs_f64() * 1e3);
    let bytes = BYTES.next_multiple_of(odfork_image::PAGE) as u64;
    let region = Region { name: "index".to_owned(), address: at as u64, bytes, prot: 3 };
    let mut this = Process::this().unwrap_or_else(|why| panic!("{why}"));
    let saved = save(Path::new(&file), &mut this, &[region], SaveOptions::default());
    saved.unwrap_or_else(|why| panic!("{why}"));
    println!("saved to {file}; run me again");
}
