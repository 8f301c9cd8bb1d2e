//! Tables without lines: columns as wide as their widest cell, the first to the left, others to the
//! right.

use comfy_table::{presets::NOTHING, CellAlignment, Table};

/// One line of text for each row, two blanks between columns, none at the end. The first column to
/// the left.
pub fn columns<R: AsRef<[String]>>(rows: &[R]) -> String {
    let count = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let right: Vec<bool> = (0..count).map(|column| column > 0).collect();
    aligned(rows, &right)
}

/// The same with a choice: which columns are aligned to the right.
pub fn aligned<R: AsRef<[String]>>(rows: &[R], right: &[bool]) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).add_rows(rows.iter().map(|row| row.as_ref().to_vec()));
    for (index, (column, right)) in table.column_iter_mut().zip(right).enumerate() {
        if index == 0 {
            column.set_padding((0, 1));
        }
        if *right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_string(), b.to_string()];
        assert_eq!(columns(&[row("a", "bb"), row("ccc", "d")]), "a    bb\nccc   d\n");
    }
}
