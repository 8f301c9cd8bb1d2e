//! The words that samples use for what they compare, in the order tables show them.

/// Configurations in the order of every legend and table.
pub const CONFIGURATIONS: [&str; 6] = ["plain", "thp", "hugetlb", "image", "kernel", "null"];

/// Who pages in the experiment `paging`.
pub const BACKENDS: [&str; 11] = [
    "swapfile",
    "zram",
    "mmap",
    "pager",
    "pager-lz4",
    "pager-lz4-2",
    "any",
    "any-lz4",
    "umap-4k",
    "umap-64k",
    "bare",
];

/// Who pages in the experiment `sessions`.
pub const SESSION_MODES: [&str; 4] = ["kernel", "pager", "any", "swapping"];

/// Position of an configuration in `CONFIGURATIONS`; unknown words come last.
pub fn rank(configuration: &str) -> usize {
    CONFIGURATIONS.iter().position(|known| *known == configuration).unwrap_or(CONFIGURATIONS.len())
}

/// Position in legends and tables: configurations, then backends, then unknown words.
pub fn place(word: &str) -> usize {
    match rank(word) {
        known if known < CONFIGURATIONS.len() => known,
        unknown => {
            let backend = BACKENDS.iter().position(|known| *known == word);
            unknown + backend.unwrap_or(BACKENDS.len())
        }
    }
}
