use super::*;

fn page(seed: u64) -> Vec<u8> {
    let mut page = vec![0u8; PAGE];
    fastrand::Rng::with_seed(seed).fill(&mut page[..PAGE / 2]);
    page
}

fn stores(bytes: u64) -> Vec<Store> {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        all.push(Store::on(create_in_memory(bytes).unwrap(), codec, 0).unwrap());
        all.push(Store::on(create_on_disk(folder.path()).unwrap(), codec, bytes).unwrap());
        let named = folder.path().join("store");
        all.push(Store::on(create_on_disk(&named).unwrap(), codec, bytes).unwrap());
        assert!(!named.exists());
    }
    all
}

fn read_one(store: &Store, slot: Slot) -> Result<Vec<u8>, StoreError> {
    let (mut pages, mut scratch) = (io_buffer().unwrap(), io_buffer().unwrap());
    let mut all = store.read(&[slot], &mut pages, &mut scratch)?;
    all.remove(0)?;
    Ok(pages[..PAGE].to_vec())
}

#[test]
fn pages_written_together_are_read_together() {
    for store in stores(16 << 20) {
        let (mut pages, mut scratch) = (io_buffer().unwrap(), io_buffer().unwrap());
        let content: Vec<Vec<u8>> = (0..MOST_PAGES as u64).map(page).collect();
        let list: Vec<(&[u8], Option<Slot>)> = content.iter().map(|p| (&p[..], None)).collect();
        let slots = store.write(&list, &mut scratch).unwrap();
        assert!(slots.windows(2).all(|pair| store.adjoin(pair[0], pair[1])));
        let answers = store.read(&slots, &mut pages, &mut scratch).unwrap();
        assert!(answers.iter().all(Result::is_ok));
        for (at, content) in content.iter().enumerate() {
            assert!(pages[at * PAGE..(at + 1) * PAGE] == content[..], "page {at} of {store:?}");
        }
        assert!(read_one(&store, slots[40]).unwrap() == content[40]);
        let (used, _) = store.usage();
        slots.iter().for_each(|&slot| store.release(slot));
        assert!(used > 0 && store.usage().0 == 0);
    }
}

#[test]
fn an_own_slot_is_written_in_place_and_a_shared_one_is_not() {
    let store = Store::on(create_in_memory(1 << 20).unwrap(), Codec::None, 0).unwrap();
    let mut scratch = io_buffer().unwrap();
    let first = store.write(&[(&page(1), None)], &mut scratch).unwrap()[0];
    let second = store.write(&[(&page(2), Some(first))], &mut scratch).unwrap()[0];
    assert_eq!(first.at, second.at);
    store.share(second);
    let third = store.write(&[(&page(3), Some(second))], &mut scratch).unwrap()[0];
    assert_ne!(second.at, third.at);
    assert!(read_one(&store, second).unwrap() == page(2));
    assert!(read_one(&store, third).unwrap() == page(3));
}

/// The disk became fuller while a daemon was away: slots that two programs share lie beyond what
/// there is now.
#[test]
fn a_smaller_store_still_knows_who_shares() {
    let file = create_in_memory(1 << 20).unwrap();
    let mut scratch = io_buffer().unwrap();
    let store = Store::on(file.try_clone().unwrap(), Codec::None, 0).unwrap();
    let slots: Vec<Slot> =
        (0..9).map(|n| store.write(&[(&page(n), None)], &mut scratch).unwrap()[0]).collect();
    let smaller = Store::on(file, Codec::None, 4 * PAGE as u64).unwrap();
    smaller.claim(slots[8]);
    smaller.claim(slots[8]);
    let second = smaller.write(&[(&page(20), Some(slots[8]))], &mut scratch).unwrap()[0];
    assert!(read_one(&smaller, slots[8]).unwrap() == page(8));
    assert!(read_one(&smaller, second).unwrap() == page(20));
}

#[test]
fn what_is_not_what_was_written_is_told() {
    for store in stores(1 << 20) {
        let mut scratch = io_buffer().unwrap();
        let slot = store.write(&[(&page(1), None)], &mut scratch).unwrap()[0];
        let wrong = Slot { sum: slot.sum ^ 1, ..slot };
        assert!(matches!(read_one(&store, wrong), Err(StoreError::Damaged)));
        // A disk that returns other bytes: one sector is overwritten behind the store's back.
        let mut bad = Buffer::new(PAGE).unwrap();
        bad.fill(0x5A);
        sys::write_all(store.file.as_fd(), &bad[..512], slot.at * GRAIN / 512 * 512).unwrap();
        assert!(matches!(read_one(&store, slot), Err(StoreError::Damaged)));
    }
}

#[test]
fn a_full_store_takes_nothing_and_loses_nothing() {
    for store in stores(64 * PAGE as u64) {
        let mut scratch = io_buffer().unwrap();
        let mut slots = Vec::new();
        let full = loop {
            let content: Vec<Vec<u8>> = (0..3).map(|n| page(slots.len() as u64 + n)).collect();
            let list: Vec<(&[u8], Option<Slot>)> = content.iter().map(|p| (&p[..], None)).collect();
            match store.write(&list, &mut scratch) {
                Ok(more) => slots.extend(more),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::Full), "{full}");
        assert!(slots.len() >= 62, "{}", slots.len());
        for (at, &slot) in slots.iter().enumerate() {
            assert!(read_one(&store, slot).unwrap() == page(at as u64));
        }
        let before = store.usage().0;
        store.release(slots[5]);
        assert!(store.usage().0 < before);
        assert!(store.write(&[(&page(9), None)], &mut scratch).is_ok());
    }
}

#[test]
fn a_file_that_exists_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("precious");
    std::fs::write(&named, "content").unwrap();
    assert!(create_on_disk(&named).is_err());
    assert_eq!(std::fs::read(&named).unwrap(), b"content");
}
