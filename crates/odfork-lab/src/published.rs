//! The published figures, as data: where each comes from, and what stands beside ours.
