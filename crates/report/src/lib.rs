//! HTML pages and SVG drawings of reports. A report is one file that loads nothing.
//!
//! - [`page`]: pages with a common style, tables, escaped text, embedded pictures.
//! - [`drawing`]: parts of SVG drawings, and colours of series.
//! - [`chart`]: line charts as SVG.

pub mod chart;
pub mod drawing;
pub mod page;
