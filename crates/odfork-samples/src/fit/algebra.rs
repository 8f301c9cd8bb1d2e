//! Least squares by the normal equations, for the handful of unknowns a cost model has.
//!
//! Owns solving; knows nothing of forks. Columns are scaled to equal length first, because a
//! process costs one unit and a page table a quarter of a million. What cannot be told apart (a
//! singular system, numbers that are none) is None.

/// Pivots below this share of a scaled column mean that two columns say the same.
const SINGULAR: f64 = 1e-9;

/// Solves the square system whose right side is the last column, by elimination with pivoting.
fn eliminate(mut matrix: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = matrix.len();
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        let head = matrix[column].clone();
        if head[column].is_nan() || head[column].abs() <= SINGULAR {
            return None;
        }
        for (_, row) in matrix.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = row[column] / head[column];
            row.iter_mut().zip(&head).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    let solved = matrix.iter().enumerate().map(|(index, row)| row[size] / row[index]);
    Some(solved.collect()).filter(|solved: &Vec<f64>| solved.iter().all(|value| value.is_finite()))
}

/// Coefficients that make the weighted squares of `values - rows x coefficients` least. None when
/// the rows do not determine them.
pub fn least_squares(rows: &[Vec<f64>], values: &[f64], weights: &[f64]) -> Option<Vec<f64>> {
    let size = rows.first()?.len();
    let even = rows.len() == values.len() && rows.len() == weights.len();
    if !even || rows.len() < size || rows.iter().any(|row| row.len() != size) {
        return None;
    }
    let length = |column: usize| -> f64 {
        rows.iter().zip(weights).map(|(row, weight)| weight * row[column] * row[column]).sum()
    };
    let scales: Vec<f64> = (0..size).map(|column| length(column).sqrt()).collect();
    if scales.iter().any(|&scale| !(scale > 0.0 && scale.is_finite())) {
        return None;
    }
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for ((row, value), weight) in rows.iter().zip(values).zip(weights) {
        for (a, sums) in matrix.iter_mut().enumerate() {
            let scaled = weight * row[a] / scales[a];
            for b in 0..size {
                sums[b] += scaled * row[b] / scales[b];
            }
            sums[size] += scaled * value;
        }
    }
    let solved = eliminate(matrix)?;
    Some(solved.iter().zip(&scales).map(|(value, scale)| value / scale).collect())
}

/// The same with no coefficient below zero: a cost is never negative. Tries every choice of columns
/// that stay (there are few) and keeps the best; a dropped column has coefficient zero. Rows that
/// do not determine all of the coefficients are not rescued by leaving some out.
pub fn least_squares_of_costs(
    rows: &[Vec<f64>],
    values: &[f64],
    weights: &[f64],
) -> Option<Vec<f64>> {
    let good = |found: &Vec<f64>| found.iter().all(|&value| value >= 0.0);
    let all = least_squares(rows, values, weights)?;
    if good(&all) {
        return Some(all);
    }
    let size = all.len();
    let choices = (1u32..(1 << size) - 1).rev().filter_map(|choice| {
        let kept: Vec<usize> = (0..size).filter(|column| choice >> column & 1 == 1).collect();
        let narrow: Vec<Vec<f64>> =
            rows.iter().map(|row| kept.iter().map(|&column| row[column]).collect()).collect();
        let solved = least_squares(&narrow, values, weights).filter(good)?;
        let mut whole = vec![0.0; size];
        kept.iter().zip(&solved).for_each(|(&column, &value)| whole[column] = value);
        Some((squares(rows, values, weights, &whole), whole))
    });
    choices.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, whole)| whole)
}

/// What these coefficients leave of each value.
pub fn residuals(rows: &[Vec<f64>], values: &[f64], coefficients: &[f64]) -> Vec<f64> {
    let modelled = |row: &Vec<f64>| row.iter().zip(coefficients).map(|(a, b)| a * b).sum::<f64>();
    rows.iter().zip(values).map(|(row, value)| value - modelled(row)).collect()
}

/// Weighted sum of squares that these coefficients leave.
pub fn squares(rows: &[Vec<f64>], values: &[f64], weights: &[f64], coefficients: &[f64]) -> f64 {
    let left = residuals(rows, values, coefficients);
    left.iter().zip(weights).map(|(missed, weight)| weight * missed * missed).sum()
}

/// The line through points that leaves the least squares: (slope, intercept).
pub fn line(xs: &[f64], ys: &[f64]) -> Option<(f64, f64)> {
    let rows: Vec<Vec<f64>> = xs.iter().map(|&x| vec![x, 1.0]).collect();
    match least_squares(&rows, ys, &vec![1.0; xs.len()])?[..] {
        [slope, intercept] => Some((slope, intercept)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-9 * expected.abs().max(1e-12)
    }

    #[test]
    fn exact_data_give_their_coefficients_however_different_in_size() {
        let rows: Vec<Vec<f64>> =
            (0..20).map(|i| vec![1.0, f64::from(i) * 13_000.0, f64::from(i * i % 7)]).collect();
        let truth = [1e-4, 3e-9, 2e-6];
        let values: Vec<f64> =
            rows.iter().map(|row| row.iter().zip(truth).map(|(a, b)| a * b).sum()).collect();
        let found = least_squares(&rows, &values, &[1.0; 20]).unwrap();
        assert!(found.iter().zip(truth).all(|(&a, b)| near(a, b)), "{found:?}");
    }

    #[test]
    fn a_heavier_point_pulls_more() {
        let rows = vec![vec![1.0], vec![1.0]];
        assert_eq!(least_squares(&rows, &[1.0, 4.0], &[1.0, 1.0]), Some(vec![2.5]));
        let pulled = least_squares(&rows, &[1.0, 4.0], &[1.0, 2.0]).unwrap();
        assert!(near(pulled[0], 3.0), "{pulled:?}");
    }

    #[test]
    fn what_is_not_determined_is_refused() {
        let same = vec![vec![1.0, 2.0]; 5];
        assert_eq!(least_squares(&same, &[1.0; 5], &[1.0; 5]), None);
        assert_eq!(least_squares_of_costs(&same, &[1.0; 5], &[1.0; 5]), None);
        assert_eq!(least_squares(&[], &[], &[]), None);
        assert_eq!(least_squares(&[vec![1.0, 2.0]], &[1.0], &[1.0]), None);
        let rows = vec![vec![1.0, 0.0], vec![1.0, 1.0]];
        assert_eq!(least_squares(&rows, &[f64::NAN, 1.0], &[1.0; 2]), None);
        assert_eq!(least_squares(&rows, &[1.0, 1.0], &[f64::INFINITY, 1.0]), None);
        assert_eq!(line(&[3.0, 3.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn a_cost_is_never_negative() {
        let rows: Vec<Vec<f64>> = (1..8).map(|i| vec![1.0, f64::from(i)]).collect();
        let falling: Vec<f64> = (1..8).map(|i| 10.0 - f64::from(i)).collect();
        assert!(least_squares(&rows, &falling, &[1.0; 7]).unwrap()[1] < 0.0);
        let found = least_squares_of_costs(&rows, &falling, &[1.0; 7]).unwrap();
        assert!(near(found[0], 6.0) && found[1] == 0.0, "{found:?}");
    }

    #[test]
    fn a_line_is_found() {
        let (slope, intercept) = line(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]).unwrap();
        assert!(near(slope, 2.0) && near(intercept, 1.0));
    }
}
