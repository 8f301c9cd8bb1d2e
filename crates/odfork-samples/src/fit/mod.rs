//! The cost model fitted to samples of `grid`: coefficients with intervals, residuals, errors on
//! points held out.
//!
//! Owns the way from samples to coefficients: `points` condenses rounds to medians, `lines` is the
//! paper's analysis (a regression line per fraction), `forms` are the shapes a model may have,
//! `fitting` chooses and fits one, `model` holds it, `algebra` solves. `reproduction` puts the
//! published figures through the same code. Pure: no clock, no system call; errors say what is
//! missing, bad samples never panic. The three terms themselves are `odfork_model::ForkTerms`,
//! shared with the runtime.

pub mod algebra;
mod fitting;
mod forms;
mod lines;
mod model;
pub mod points;
#[cfg(test)]
mod reproduction;

pub use fitting::fit;
pub use forms::{Form, Load, Term};
pub use lines::{analyse, copy_rates, Analysis, FracLine};
pub use model::{Coefficient, Errors, Fit, Judged, Model, Prediction};
pub use points::{engines, Grid, Point};
