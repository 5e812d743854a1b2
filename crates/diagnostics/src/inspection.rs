//! Views for `hipvit inspect`: an [`Inspection`](hipvit::inspection::Inspection) as text, and a plan's arena as a drawing.

mod plot;
mod text;

pub use plot::plot;
pub use text::InspectionText;
