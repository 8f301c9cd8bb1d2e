//! A surface over two axes, seen from above at an angle: time over (memory, fraction).
//!
//! Owns the projection and the order of painting. Far facets are painted first, so near ones hide
//! them. Places on the ground are steps of the grid, evenly spaced as in the 1988 figures; heights
//! are linear and start at zero.

use crate::axis::{Kind, Scale};
use crate::colour::{ramp, Colour};
use crate::drawing::{Anchor, Drawing, Spot};
use odfork_samples::unit::Unit;

/// `heights[i][j]` belongs to the i-th value across and the j-th value deep; None: not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    pub title: String,
    pub about: String,
    pub across: (String, Vec<String>),
    pub deep: (String, Vec<String>),
    pub heights: Vec<Vec<Option<f64>>>,
    pub unit: Unit,
}

const SIZE: Spot = (560.0, 430.0);
/// The front corner (0, 0) on the drawing, and the steps along both axes and up.
const FRONT: Spot = (265.0, 372.0);
const ACROSS: Spot = (190.0, -72.0);
const DEEP: Spot = (-190.0, -72.0);
const UP: f64 = 175.0;

/// A facet of the grid by its nearest corner.
pub type Facet = (usize, usize);

/// Facets far to near. The eye looks along the diagonal: the farther a facet, the larger the sum of
/// its steps.
pub fn painting_order(across: usize, deep: usize) -> Vec<Facet> {
    let mut facets: Vec<Facet> = (0..across.saturating_sub(1))
        .flat_map(|i| (0..deep.saturating_sub(1)).map(move |j| (i, j)))
        .collect();
    let depth = |&(i, j): &Facet| {
        (i as f64 + 0.5) / (across as f64 - 1.0) + (j as f64 + 0.5) / (deep as f64 - 1.0)
    };
    facets.sort_by(|a, b| depth(b).total_cmp(&depth(a)).then(a.cmp(b)));
    facets
}

/// `across`, `deep` and `up` from 0 to 1.
pub fn project(across: f64, deep: f64, up: f64) -> Spot {
    (
        FRONT.0 + across * ACROSS.0 + deep * DEEP.0,
        FRONT.1 + across * ACROSS.1 + deep * DEEP.1 - up * UP,
    )
}

impl Surface {
    fn steps(&self) -> (usize, usize) {
        (self.across.1.len(), self.deep.1.len())
    }

    /// Whether at least one facet has its four corners.
    pub fn drawable(&self) -> bool {
        let (across, deep) = self.steps();
        painting_order(across, deep).into_iter().any(|facet| self.corners(facet).is_some())
    }

    fn corners(&self, (i, j): Facet) -> Option<[(usize, usize, f64); 4]> {
        let at = |i: usize, j: usize| Some((i, j, self.heights.get(i)?.get(j).copied().flatten()?));
        Some([at(i, j)?, at(i + 1, j)?, at(i + 1, j + 1)?, at(i, j + 1)?])
    }

    pub fn drawing(&self) -> Drawing {
        let mut drawing = Drawing::new(SIZE, &self.title, &self.about);
        let heights = self.heights.iter().flatten().flatten().copied();
        let scale = Scale::around(Kind::Linear, self.unit, heights, true);
        self.draw_ground(&mut drawing, &scale);
        let (across, deep) = self.steps();
        let place = |index: usize, steps: usize| index as f64 / (steps.max(2) - 1) as f64;
        for facet in painting_order(across, deep) {
            let Some(corners) = self.corners(facet) else { continue };
            let mean =
                corners.iter().map(|corner| scale.at(corner.2).unwrap_or(0.0)).sum::<f64>() / 4.0;
            let outline = corners.map(|(i, j, height)| {
                project(place(i, across), place(j, deep), scale.at(height).unwrap_or(0.0))
            });
            drawing.area(&outline, Colour::Fixed(ramp(mean)), Some(Colour::Paper));
        }
        self.draw_labels(&mut drawing);
        drawing
    }

    /// Ground, back walls and the ticks of height: painted before everything else.
    fn draw_ground(&self, drawing: &mut Drawing, scale: &Scale) {
        let floor = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)];
        drawing.line(&floor.map(|(a, d)| project(a, d, 0.0)), Colour::Grid, 1.0, false);
        for (value, label) in scale.ticks(5) {
            let Some(up) = scale.at(value) else { continue };
            let wall = [project(0.0, 1.0, up), project(1.0, 1.0, up), project(1.0, 0.0, up)];
            drawing.line(&wall, Colour::Grid, 1.0, false);
            let end = wall[2];
            // Zero is the ground; its label would stand on those of the ground.
            if up <= 0.0 {
                continue;
            }
            drawing.text((end.0 + 6.0, end.1 + 4.0), &label, Anchor::Start, Colour::Quiet);
        }
        for (a, d) in [(0.0, 1.0), (1.0, 1.0), (1.0, 0.0)] {
            drawing.line(&[project(a, d, 0.0), project(a, d, 1.0)], Colour::Grid, 1.0, false);
        }
    }

    fn draw_labels(&self, drawing: &mut Drawing) {
        let (across, deep) = self.steps();
        let stride = |labels: &[String]| if labels.len() > 5 { 2 } else { 1 };
        for (index, label) in self.across.1.iter().enumerate().step_by(stride(&self.across.1)) {
            let (x, y) = project(index as f64 / (across.max(2) - 1) as f64, 0.0, 0.0);
            drawing.text((x + 5.0, y + 15.0), label, Anchor::Start, Colour::Quiet);
        }
        for (index, label) in self.deep.1.iter().enumerate().step_by(stride(&self.deep.1)) {
            let (x, y) = project(0.0, index as f64 / (deep.max(2) - 1) as f64, 0.0);
            drawing.text((x - 5.0, y + 15.0), label, Anchor::End, Colour::Quiet);
        }
        let right = SIZE.0 - 12.0;
        drawing.text(
            (right, SIZE.1 - 14.0),
            &format!("{} →", self.across.0),
            Anchor::End,
            Colour::Text,
        );
        drawing.text(
            (12.0, SIZE.1 - 14.0),
            &format!("← {}", self.deep.0),
            Anchor::Start,
            Colour::Text,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_facets_are_painted_after_far_ones() {
        let order = painting_order(4, 3);
        assert_eq!(order.len(), 6);
        assert_eq!(order.first(), Some(&(2, 1)));
        assert_eq!(order.last(), Some(&(0, 0)));
        let at = |facet: Facet| order.iter().position(|other| *other == facet).unwrap();
        for (i, j) in order.clone() {
            // The neighbours behind come first.
            for behind in [(i + 1, j), (i, j + 1), (i + 1, j + 1)] {
                if order.contains(&behind) {
                    assert!(at(behind) < at((i, j)), "{behind:?} behind {:?}", (i, j));
                }
            }
        }
        assert!(painting_order(1, 5).is_empty() && painting_order(0, 0).is_empty());
    }

    #[test]
    fn far_is_up_on_the_paper_and_high_too() {
        assert!(project(1.0, 1.0, 0.0).1 < project(0.0, 0.0, 0.0).1);
        assert!(project(0.0, 0.0, 1.0).1 < project(0.0, 0.0, 0.0).1);
        for corner in [project(1.0, 1.0, 1.0), project(1.0, 0.0, 1.0), project(0.0, 1.0, 0.0)] {
            assert!(
                (0.0..SIZE.0).contains(&corner.0) && (0.0..SIZE.1).contains(&corner.1),
                "{corner:?}"
            );
        }
    }

    #[test]
    fn a_missing_corner_leaves_a_hole() {
        let labels = |count: usize| (0..count).map(|i| i.to_string()).collect::<Vec<_>>();
        let mut surface = Surface {
            title: "t".into(),
            about: "a".into(),
            across: ("memory".into(), labels(3)),
            deep: ("fraction".into(), labels(3)),
            heights: vec![vec![Some(1.0); 3]; 3],
            unit: Unit::Seconds,
        };
        let facets = |surface: &Surface| surface.drawing().file().matches("<polygon").count();
        assert_eq!(facets(&surface), 4);
        surface.heights[0][0] = None;
        assert_eq!(facets(&surface), 3);
        surface.heights = vec![vec![None; 3]; 3];
        assert!(!surface.drawable());
    }
}
