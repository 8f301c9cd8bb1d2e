//! Fitting the cost model to samples.
