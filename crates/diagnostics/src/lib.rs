//! What tells whether hipvit computes right and fast on a machine: [`validate`] holds every op against a reference in f64, [`bench`]
//! times models, [`peaks`] measures what the hardware reaches, [`profile`] shows where the time of a run goes, [`advise`] predicts
//! models on other hardware, and [`certificate`] writes a validation down.

pub mod advise;
pub mod bench;
pub mod certificate;
pub mod drawing;
pub mod inspection;
pub mod peaks;
pub mod profile;
pub mod table;
pub mod validate;
