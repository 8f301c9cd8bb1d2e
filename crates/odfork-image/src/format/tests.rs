//! Heads that come back, heads that are damaged, heads that are false.

use super::*;

fn head() -> Head {
    let region =
        |name: &str, address, bytes| Region { name: name.to_owned(), address, bytes, prot: 3 };
    let regions = vec![
        Placement { region: region("heap", 0x10000, 40960), data: 0, first_cluster: 0 },
        Placement { region: region("", 0x7000_0000_0000, 1 << 20), data: 0, first_cluster: 1 },
    ];
    let base = Some(Base { id: Id(7), name: "b.img".to_owned() });
    let mut head = Head {
        id: Id(1 << 100 | 3),
        base,
        cluster_pages: 16,
        codec: Codec::Lz4,
        placed: false,
        regions,
        index: 8192,
        file_bytes: 0,
        stored_pages: 5,
        zero_pages: 6,
        blocks: vec![],
    };
    let shape = head.shape();
    head.blocks = (0..shape.blocks()).collect();
    head.file_bytes = head.index + shape.index_bytes();
    head
}

#[test]
fn a_head_comes_back() {
    let head = head();
    let bytes = head.to_bytes();
    assert_eq!(Head::length(&bytes[..FIXED], head.file_bytes), Ok(bytes.len()));
    assert_eq!(Head::parse(&bytes, head.file_bytes), Ok(head));
}

#[test]
fn every_changed_bit_is_noticed() {
    let head = head();
    let bytes = head.to_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let length = Head::length(&bad, head.file_bytes);
            let parsed = length
                .and_then(|length| Head::parse(bad.get(..length).unwrap_or(&bad), head.file_bytes));
            assert!(parsed.is_err(), "byte {at}, bit {bit}");
        }
    }
}

/// Fields a forger may set, with the checksum put right again.
#[test]
fn a_forged_head_is_refused_or_sound() {
    let head = head();
    let bytes = head.to_bytes();
    let mut seed = 1u64;
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bad = bytes.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = 16 + (seed >> 33) as usize % (bad.len() - 16);
            bad[at] = [0, 1, 0x7f, 0x80, 0xff, (seed >> 20) as u8][(seed >> 10) as usize % 6];
        }
        bad[FIXED - 8..FIXED].fill(0);
        let sum = xxh3_64(&bad);
        bad[FIXED - 8..FIXED].copy_from_slice(&sum.to_le_bytes());
        if let Ok(head) = Head::parse(&bad, head.file_bytes) {
            accepted += 1;
            assert!(head.shape().index_bytes() + head.index == head.file_bytes);
            assert!(head.regions.windows(2).all(|w| w[0].region.end() <= w[1].region.address));
        }
    }
    assert!(accepted > 0, "no mutation was harmless: the test does not reach the checks");
}

/// Those who subtract them from all pages get no number below zero.
#[test]
fn more_pages_than_there_are_is_no_head() {
    for (stored, zero) in [(u64::MAX, 1), (1 << 40, 0), (0, 267), (133, 134)] {
        let forged = Head { stored_pages: stored, zero_pages: zero, ..head() };
        let parsed = Head::parse(&forged.to_bytes(), forged.file_bytes);
        assert!(parsed.is_err(), "{stored} {zero}");
    }
}

#[test]
fn complaints_are_clear() {
    let head = head();
    let bytes = head.to_bytes();
    let complaint = |bytes: &[u8], file| match Head::length(bytes, file) {
        Ok(length) => Head::parse(&bytes[..length], file).unwrap_err(),
        Err(why) => why,
    };
    assert!(complaint(b"#!/bin/sh", 9).contains("no memory image"));
    assert!(complaint(&bytes[..40], 40).contains("cut off after 40"));
    assert!(complaint(&bytes, head.file_bytes - 1).contains("cut off"));
    assert!(complaint(&bytes, head.file_bytes + 1).contains("1 bytes follow"));
    let mut other = bytes.clone();
    other[8] = 2;
    assert!(complaint(&other, head.file_bytes).contains("format version 2"));
}
