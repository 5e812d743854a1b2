//! Repositories of timm's default weights.

/// Returns the name under `timm/` of the hub repository with an architecture's default weights.
pub(in crate::model) fn default_weights(architecture: &str) -> Option<&'static str> {
    // Written by scripts/timm_tables.py.
    let mut rows = include_str!("pretrained.tsv")
        .lines()
        .filter_map(|row| row.split_once('\t'));
    rows.find(|(name, _)| *name == architecture)
        .map(|(_, repository)| repository)
}
