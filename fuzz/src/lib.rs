//! A connection through the layers, as the fuzz targets see it. The forms of their inputs are in `tests/inputs`.

pub mod course;
pub mod link;
pub mod web;
