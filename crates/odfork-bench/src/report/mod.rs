//! What the reader gets: a table on stdout (`table`), raw samples as JSON Lines (`lines`).

pub mod lines;
pub mod table;
